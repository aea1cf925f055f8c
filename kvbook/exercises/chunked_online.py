"""The checker of one tile of online softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, diagnose, expect_close, expect_shape
from kvlib.attention import attend

State = tuple[np.ndarray, np.ndarray, np.ndarray]
PARTS = ("top", "total", "o")


@checker
def check_online_update(online_update: Callable[..., Any]) -> Iterator[str]:
    """online_update(top (T, 1), total (T, 1), o (T, D), s (T, n), v (n, D)) → top, total, o."""
    rng = np.random.default_rng(5)
    s = rng.standard_normal((3, 8)).astype(np.float32)
    v = rng.standard_normal((8, 4)).astype(np.float32)
    s[:, 4:] += 3  # the second tile raises top for every query
    first = _three(online_update(*_empty(3, 4), s[:, :4], v[:4]), 3, 4)
    needed = _summed(s[:, :4], v[:4])
    if np.isnan(first[1]).any():
        raise Finding(
            "total is NaN after the first tile: the old top is -inf there, so e^(old top - new "
            "top) is 0, but e^(new top - old top) is infinite"
        )
    diagnose(
        first[1],
        {
            "the weights of the first tile are e^s: subtract top from the scores first": np.exp(
                s[:, :4]
            ).sum(axis=1, keepdims=True),
        },
    )
    diagnose(
        first[2],
        {
            "o was divided by total after the first tile: keep the sum as it is and divide once, "
            "after the last tile": needed[2] / needed[1],
        },
    )
    _expect_state(first, needed, "after one tile")
    yield "one tile gives its largest score, its sum and its weighted values"

    second = _three(online_update(*needed, s[:, 4:], v[4:]), 3, 4)
    if not np.allclose(second[2], _summed(s, v)[2]) or not np.allclose(second[1], _summed(s, v)[1]):
        _diagnose_second(second, needed, s, v)
    _expect_state(second, _summed(s, v), "after a tile that raises top")
    yield "a tile that raises top shrinks what was summed before"

    low = s[:, :4] - 200
    third = _three(online_update(*_summed(s, v), low, v[:4]), 3, 4)
    if (third[0] < 0).any():
        raise Finding(
            f"top fell from {float(s[0].max()):.3g} to {float(third[0][0, 0]):.3g}: it "
            "must be the largest score of all tiles so far, or e^(old top - new top) overflows"
        )
    whole, own = _summed(s, v), np.exp(low - low.max(axis=1, keepdims=True))
    diagnose(
        third[1],
        {
            "a tile of very low scores weighs as much as any other: its own top was subtracted, "
            "but its weights are e^(s - new top)": whole[1] + own.sum(axis=1, keepdims=True),
        },
    )
    _expect_state(third, whole, "after a tile of very low scores")
    yield "a tile of very low scores changes nothing"

    hidden = np.full((3, 4), -np.inf, np.float32)
    for state, when in ((_empty(3, 4), "before any key was seen"), (needed, "later on")):
        after = _three(online_update(*state, hidden, v[:4]), 3, 4)
        if any(np.isnan(x).any() for x in after):
            raise Finding(
                f"a tile that is hidden completely, {when}, gives NaN: there top stays -inf, and "
                "-inf minus -inf is NaN. Subtract 0 where top is -inf"
            )
        _expect_state(after, state, f"after a hidden tile {when}")
    _mixed(online_update, s, v)
    yield "a tile that is hidden completely changes nothing, first or later"

    yield from _against_attend(online_update, rng)


def _mixed(update: Callable[..., Any], s: np.ndarray, v: np.ndarray) -> None:
    """Query 0 has seen no key and sees none, 1 has and sees none, 2 has not and sees some."""
    state = _summed(s[:, :4], v[:4])
    for x, y in zip(state, _empty(3, 4), strict=True):
        x[[0, 2]] = y[[0, 2]]
    tile = s[:, 4:].copy()
    tile[:2] = -np.inf
    after = _three(update(*state, tile, v[4:]), 3, 4)
    needed = [x.copy() for x in state]
    for x, y in zip(needed, _summed(s[2:, 4:], v[4:]), strict=True):
        x[2] = y[0]
    for query, has in enumerate(("has seen no key yet", "has seen keys before")):
        if any(np.isnan(x[query]).any() for x in after):
            raise Finding(
                f"in one tile, query 2 sees keys and queries 0 and 1 see none; query {query}, "
                f"which {has}, gives NaN. Each query has a top of its own: subtract 0 where it is "
                "-inf"
            )
    _expect_state(after, (needed[0], needed[1], needed[2]), "after a tile that query 2 alone sees")


def _three(result: Any, t: int, d: int) -> State:
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise Finding(f"online_update returned {type(result).__name__}, needed (top, total, o)")
    top, total, o = (numbers(x, name) for x, name in zip(result, PARTS, strict=True))
    for x, name, width in zip((top, total, o), PARTS, (1, 1, d), strict=True):
        expect_shape(x, (t, width), name, letters="T 1" if width == 1 else "T D")
    return top, total, o


def _empty(t: int, d: int) -> State:
    top = np.full((t, 1), -np.inf, np.float32)
    return top, np.zeros((t, 1), np.float32), np.zeros((t, d), np.float32)


def _summed(s: np.ndarray, v: np.ndarray) -> State:
    top = s.max(axis=1, keepdims=True)
    p = np.exp(s - top)
    return top, p.sum(axis=1, keepdims=True), p @ v


def _diagnose_second(got: State, old: State, s: np.ndarray, v: np.ndarray) -> None:
    """The mistakes that show only when top rises."""
    top, total, o = _summed(s, v)
    shrink, (_, part, weighed) = np.exp(old[0] - top), _summed(s[:, 4:], v[4:])
    diagnose(
        got[2],
        {
            "o was not shrunk: the sum of the first tile is in units of e^(old top), so multiply "
            "it by e^(old top - new top)": old[2] + weighed,
            "o was divided by total in the tile: keep the sum, and divide once, after the last "
            "tile": o / total,
            "o was multiplied by e^(new top - old top), which grows: the old sum must shrink, by "
            "e^(old top - new top)": old[2] / shrink + weighed,
            "o holds the last tile alone: add it to the old sum": weighed,
        },
    )
    diagnose(
        got[1],
        {
            "total was not shrunk although o was: both are in units of e^(old top)": old[1] + part,
            "total was multiplied by e^(new top - old top), which grows: the old sum must "
            "shrink": old[1] / shrink + part,
            "total holds the last tile alone: add it to the old sum": part,
            "the part of this tile was shrunk, too, but only the old sum is in units of e^(old "
            "top)": ((old[1] + part) * shrink),
            "the old total was shrunk twice": old[1] * shrink**2 + part,
        },
    )


def _expect_state(got: State, needed: State, when: str) -> None:
    for x, y, name in zip(got, needed, PARTS, strict=True):
        with np.errstate(invalid="ignore"):  # -inf minus -inf, where a query has seen no key
            axes = ("query", "dim" if name == "o" else "column")
            expect_close(x, y, f"{name} {when}", axes=axes)


def _against_attend(update: Callable[..., Any], rng: np.random.Generator) -> Iterator[str]:
    q, k, v = (rng.standard_normal((20, 1, 8)).astype(np.float32) for _ in range(3))
    pos = np.arange(20)
    s = q[:, 0] @ k[:, 0].T / np.float32(8**0.5)
    s = np.where(pos[None, :] <= pos[:, None], 30 * s, -np.inf).astype(np.float32)
    whole: Any = attend(30 * q, k, v, pos, pos)
    whole = whole[:, 0]
    for tile in (1, 7, 20):
        state = _empty(20, 8)
        for a in range(0, 20, tile):
            state = _three(update(*state, s[:, a : a + tile], v[a : a + tile, 0]), 20, 8)
        o = state[2] / state[1]
        expect_close(o, whole, f"o / total after tiles of {tile}", axes=("query", "dim"), atol=1e-4)
    yield "in tiles of 1, 7 and 20 keys it equals kvlib.attend"
