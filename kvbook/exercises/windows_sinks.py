"""The checker of attention sinks: which keys stay, and where they stand afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)

D = 16
CLOSE: Any = {"rtol": 0.0, "atol": 1e-3}  # keys are of size 1; a key turned wrongly is off by 0.1


def turn(keys: np.ndarray, by: Any) -> np.ndarray:
    """Keys (S, D) as they would be `by` (S,) positions later, earlier where `by` is negative.

    It turns each pair of dimensions (i, i + D/2) by the angle that RoPE gives a distance of `by`.
    One number turns all keys by the same distance.

    >>> keys = np.ones((3, 16), np.float32)
    >>> np.allclose(turn(turn(keys, [5, 6, 7]), [-5, -6, -7]), keys)
    True
    """
    half = keys.shape[-1] // 2
    slow = 10_000.0 ** (-np.arange(half) / half)  # radians per position
    angle = np.asarray(by, np.float64)[..., None] * slow
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = keys[..., :half], keys[..., half:]
    turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(keys.dtype)


@checker
def check_keep_sinks(keep_sinks: Callable[..., Any]) -> Iterator[str]:
    """keep_sinks(keys (S, D), positions (S,), sinks, recent) → keys (R, D), positions (R,)."""
    raw = np.random.default_rng(31).standard_normal((64, D)).astype(np.float32)
    plain = np.arange(12)
    _expect(keep_sinks, raw, plain, plain, 4, 5, "12 keys, 4 sinks, 5 recent")
    yield "the sinks and the newest stay, and each key is turned to the position that it gets"

    for s, sinks, recent in ((7, 4, 5), (9, 4, 5), (3, 4, 5), (1, 1, 1)):
        which = np.arange(s)
        _expect(keep_sinks, raw, which, which, sinks, recent, _said(s, sinks, recent))
    yield "where all keys fit, each stays once, and nothing is turned"

    for s, sinks, recent in ((8, 3, 0), (8, 0, 3), (6, 5, 1)):
        which = np.arange(s)
        _expect(keep_sinks, raw, which, which, sinks, recent, _said(s, sinks, recent))
    yield "there may also be no sink, or no recent key"

    holes = np.array([0, 1, 2, 3, 40, 41, 43, 44, 47, 48])
    which = np.arange(len(holes))
    what = "keys at positions 0 ... 3 and, with gaps, 40 ... 48"
    _expect(keep_sinks, raw, which, holes, 4, 4, what)
    _expect(keep_sinks, raw, which, holes, 4, 6, what + ", all of which stay")
    yield "the angle is new minus old position, and old positions may have gaps"

    _stream(keep_sinks, raw, 4, 6, 3)
    rng = np.random.default_rng(32)
    for sinks, recent, more in rng.integers((1, 3, 1), (6, 12, 4), (2, 3)).tolist():
        _stream(keep_sinks, raw, sinks, recent, more)
    yield "after 15 shifts in a row, every key still has the exact angle of its position"


def _said(s: int, sinks: int, recent: int) -> str:
    return f"{s} key{'s' * (s != 1)}, {sinks} sink{'s' * (sinks != 1)}, {recent} recent"


def stays(s: int, sinks: int, recent: int) -> np.ndarray:
    """Which of s keys stay: their numbers, in order."""
    n = np.arange(s)
    return n[(n < sinks) | (n >= s - recent)]


def _called(
    keep_sinks: Callable[..., Any], keys: np.ndarray, old: np.ndarray, sinks: int, recent: int
) -> tuple[np.ndarray, np.ndarray]:
    result = keep_sinks(keys.copy(), old.copy(), sinks, recent)
    if not isinstance(result, tuple | list) or len(result) != 2:
        many = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        raise Finding(
            f"expected two results, keys and positions, got {type(result).__name__}{many}"
        )
    kept, new = result
    found = numbers(kept, "the keys")
    expect_dtype(found, np.float32, "the keys")
    places = numbers(new, "the positions")
    if places.dtype.kind not in "iu":
        raise Finding(f"the positions: got an array of {places.dtype}, needed integers")
    return found, places


def _expect(
    keep_sinks: Callable[..., Any],
    raw: np.ndarray,
    which: np.ndarray,
    old: np.ndarray,
    sinks: int,
    recent: int,
    what: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Ask about the raw keys of these numbers, turned to `old`; return what stays, and where."""
    keys = turn(raw[which], old)
    kept, new = _called(keep_sinks, keys, old, sinks, recent)
    stay = stays(len(old), sinks, recent)
    if kept.ndim != 2 or len(kept) != len(stay):
        _expect_count(kept, len(old), sinks, recent, what)
    expect_shape(kept, (len(stay), D), f"{what}: the keys", letters="R D")
    places = np.arange(len(stay))
    right = turn(raw[which[stay]], places)
    if not np.allclose(kept, right, **CLOSE):
        _diagnose_keys(kept, raw[which], keys, old, stay, sinks, recent, what)
        expect_close(kept, right, f"{what}: the keys", axes=("key", "channel"), **CLOSE)
    expect_shape(new, (len(stay),), f"{what}: the positions", letters="R")
    if not (new == places).all():
        diagnose(
            new,
            {
                f"{what}: these are the old positions, but the keys that stay now stand at 0, 1, "
                f"2, ... {len(stay) - 1}": old[stay],
                f"{what}: the positions begin at 1; the first key stands at 0": places + 1,
                f"{what}: the recent keys begin at 0 again, so they share positions with the "
                "sinks": np.concatenate([places[:sinks], places[: max(0, len(stay) - sinks)]]),
                f"{what}: these are the distances by which the keys were turned; return where "
                "they stand": places - old[stay],
            },
            rtol=0,
            atol=0,
        )
        axes = ("key",)
        expect_close(new, places, f"{what}: the positions", axes=axes, rtol=0, atol=0)
    return which[stay], places


def _expect_count(kept: np.ndarray, s: int, sinks: int, recent: int, what: str) -> None:
    """Words for a wrong number of keys, where they are known."""
    right = len(stays(s, sinks, recent))
    if kept.ndim != 2:
        return
    n = len(kept)
    words = ""
    if recent == 0 and n in (s, s + sinks):
        words = (
            "keys[-recent:] with recent = 0 is keys[-0:], which is all of them; count from the "
            "front: keys[len(keys) - recent:]"
        )
    elif n == sinks + recent and n > s:
        words = "more than there were: some keys were taken as a sink and as a recent key, too"
    elif s <= sinks + recent and n == recent + min(s, sinks):
        words = "some keys were taken twice"
    elif s > sinks + recent and n in (sinks + recent - 1, sinks + recent + 1):
        words = "one off: the newest `recent` keys are those from number S - recent on"
    elif n == recent:
        words = "the recent keys alone: the sinks have gone"
    elif n == s:
        words = "nothing has gone"
    elif n == sinks:
        words = "the sinks alone"
    why = f": {words}" if words else ""
    raise Finding(f"{what}: {n} keys stay, needed {right}{why}")


def _diagnose_keys(
    kept: np.ndarray,
    raw: np.ndarray,
    keys: np.ndarray,
    old: np.ndarray,
    stay: np.ndarray,
    sinks: int,
    recent: int,
    what: str,
) -> None:
    r, s = len(stay), len(old)
    places, recents = np.arange(r), stay >= sinks
    gone = s - r
    tail = np.concatenate([places[:sinks], np.arange(max(0, r - sinks))])[:r]
    suspects = {
        "these keys are as they came: a key that stands at another position must be turned to "
        "it": keys[stay],
        "turned the wrong way: the angle is that of new minus old position, so a key that moves "
        "to a smaller position is turned back": turn(keys[stay], old[stay] - places),
        "turned by the new position, as if the keys had not been turned before; they carry the "
        "rotation of their old position": turn(keys[stay], places),
        "every key was turned back by the number of keys that have gone, the sinks too; but the "
        "sinks have not moved": turn(keys[stay], np.full(r, -gone)),
        "turned by the number of keys that have gone, but `positions` may have gaps: take new "
        "minus old position for each key": turn(keys[stay], np.where(recents, -gone, 0)),
        "all keys have moved by the same distance here; take new minus old for each key": (
            turn(keys[stay], (places - old[stay])[-1:].repeat(r))
        ),
        "each recent key is one position too far ahead": turn(raw[stay], places + recents),
        "each recent key is one position too far back": turn(raw[stay], places - recents),
        "the rotation was undone but not done again: these are the raw keys": raw[stay],
        "the recent keys stand at 0, 1, 2, ... as if the sinks took no position": (
            turn(raw[stay], tail)
        ),
        "the first keys of the window stay, and the newest have gone": (
            turn(raw[: min(s, r)], places[: min(s, r)])
        ),
        "the newest keys stay, but no sink does: the first keys have gone": (
            turn(raw[s - r :], places)
        ),
        "the newest keys come first; sinks belong in front": np.roll(
            turn(raw[stay], places), int(recents.sum()), axis=0
        ),
    }
    diagnose(kept, {f"{what}: {words}": wrong for words, wrong in suspects.items()}, **CLOSE)


def _stream(
    keep_sinks: Callable[..., Any], raw: np.ndarray, sinks: int, recent: int, more: int
) -> None:
    """15 times: new keys come in at the next positions, then the oldest go."""
    which, keys, old = np.arange(0), raw[:0], np.arange(0)
    for i in range(15):
        coming = np.arange(i * more, (i + 1) * more) % len(raw)
        at = len(which) + np.arange(more)
        which = np.concatenate([which, coming])
        keys, old = np.concatenate([keys, turn(raw[coming], at)]), np.concatenate([old, at])
        what = f"shift {i + 1} of a stream with {sinks} sinks, {recent} recent"
        stay = stays(len(old), sinks, recent)
        kept, new = _called(keep_sinks, keys, old, sinks, recent)
        places = np.arange(len(stay))
        expect_shape(kept, (len(stay), D), f"{what}: the keys", letters="R D")
        right = turn(raw[which[stay]], places)
        why = "each call must turn a key from where it stands now, not from where it stood first"
        expect_close(kept, right, f"{what}: the keys", axes=("key", "channel"), why=why, **CLOSE)
        expect_shape(new, (len(stay),), f"{what}: the positions", letters="R")
        axes = ("key",)
        expect_close(new, places, f"{what}: the positions", axes=axes, rtol=0, atol=0)
        which, keys, old = which[stay], kept.copy(), places
