"""Known wrong answers on rings, sinks and policies: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.windows import (
    check_keep_sinks,
    check_my_policy,
    check_ring_positions,
    check_snapkv_slots,
    turn,
)

Wrong = dict[str, tuple[Callable[..., Any], str]]


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# ---------------------------------------------------------------------------------------- ring


def ring(W: int, C: int, n: int, slots: int | None = None) -> Any:
    slots = W - 1 + C if slots is None else slots
    held = n - 1 - (n - 1 - np.arange(slots)) % slots
    return np.where(held < 0, -1, held)


def newest(W: int, C: int, n: int) -> Any:
    slots = W - 1 + C
    kept = np.arange(max(0, n - slots), n)
    return np.concatenate([kept, np.full(slots - len(kept), -1)])


def once_round(W: int, C: int, n: int) -> Any:
    s, slots = np.arange(W - 1 + C), W - 1 + C
    return np.where(s + slots < n, s + slots, np.where(s < n, s, -1))


def windowed(W: int, C: int, n: int) -> Any:
    held = ring(W, C, n)
    return np.where(held < n - W + 1, -1, held)


def turned_round(W: int, C: int, n: int) -> Any:
    s = np.arange(W - 1 + C)
    return np.where(s < n, n - 1 - s, -1)


def never_overwritten(W: int, C: int, n: int) -> Any:
    s = np.arange(W - 1 + C)
    return np.where(s < n, s, -1)


def one_more(W: int, C: int, n: int) -> Any:
    held = ring(W, C, n)
    return np.where(held < 0, -1, held + 1)


def unclipped(W: int, C: int, n: int) -> Any:
    return n - 1 - (n - 1 - np.arange(W - 1 + C)) % (W - 1 + C)


WRONG_RINGS: Wrong = {
    "W slots": (lambda W, C, n: ring(W, C, n, W), "overwrites a key that the first query"),
    "the longer": (lambda W, C, n: ring(W, C, n, max(W, C)), "overwrites a key that the first"),
    "W + C slots": (lambda W, C, n: ring(W, C, n, W + C), "counts in its own window"),
    "W - 1 slots": (lambda W, C, n: ring(W, C, n, max(1, W - 1)), "own token needs a slot"),
    "C slots": (lambda W, C, n: ring(W, C, n, C), "tokens of earlier steps"),
    "as many as tokens": (lambda W, C, n: ring(W, C, n, max(1, n)), "writes over the oldest"),
    "grows": (
        lambda W, C, n: ring(W, C, n, W - 1 + C)[: max(n, 0)],
        "has all its 4 slots from the start",
    ),
    "zeros": (lambda W, C, n: np.maximum(ring(W, C, n), 0), "an empty slot holds 0"),
    "negative": (unclipped, "a position before the text"),
    "order of the text": (newest, "in the order of the text"),
    "backwards": (turned_round, "run backwards"),
    "never overwritten": (never_overwritten, "a new token overwrites the oldest"),
    "only what is seen": (windowed, "the ring still holds them"),
    "once round": (once_round, "turns only once"),
    "from 1": (one_more, "counted from 0, not from 1"),
    "one more token": (lambda W, C, n: ring(W, C, n + 1), "one that has not come yet"),
    "one fewer": (lambda W, C, n: ring(W, C, max(0, n - 1)), "the last token is missing"),
    "shifted": (lambda W, C, n: np.roll(ring(W, C, n), 1), "too far to the right"),
    "floats": (lambda W, C, n: ring(W, C, n).astype(float), "needed integers"),
    "list of floats": (lambda W, C, n: (ring(W, C, n) / 1).tolist(), "needed integers"),
    "ragged list": (lambda W, C, n: [ring(W, C, n).tolist(), [0]], "got list, needed a NumPy"),
    "column": (lambda W, C, n: ring(W, C, n)[:, None], "one position per slot"),
}


def test_ring() -> None:
    report = check_ring_positions(ring)
    assert report.passed, report


def by_writing(W: int, C: int, n: int) -> Any:
    slots = np.full(W - 1 + C, -1, np.int32)
    for p in range(max(0, n - 1000), n):
        slots[p % len(slots)] = p
    return slots


def test_ring_by_writing() -> None:
    assert check_ring_positions(by_writing)


@pytest.mark.parametrize("name", WRONG_RINGS)
def test_wrong_rings(name: str) -> None:
    wrong, message = WRONG_RINGS[name]
    refused(check_ring_positions(wrong), message)


# --------------------------------------------------------------------------------------- sinks


def stay(keys: Any, sinks: int, recent: int) -> Any:
    row = np.arange(len(keys))
    return row[(row < sinks) | (row >= len(keys) - recent)]


def sinks_by(distance: Callable[..., Any], place: Any = None) -> Callable[..., Any]:
    """An answer that turns key j of those that stay by distance(new, old, row, sinks, gone)."""

    def keep(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
        row = stay(keys, sinks, recent)
        new, old = np.arange(len(row)), positions[row]
        by = distance(new, old, row, sinks, len(keys) - len(row))
        return turn(keys[row], by), new if place is None else place(new, old, sinks)

    return keep


keep_sinks = sinks_by(lambda new, old, row, sinks, gone: new - old)


def with_rows(rows: Callable[..., Any]) -> Callable[..., Any]:
    """An answer that keeps other rows, each turned rightly."""

    def keep(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
        row = np.arange(len(keys))
        kept = np.concatenate([row[part] for part in rows(len(keys), sinks, recent)])
        new = np.arange(len(kept))
        return turn(keys[kept], new - positions[kept]), new

    return keep


def in_float16(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
    row = stay(keys, sinks, recent)
    new = np.arange(len(row))
    kept = turn(keys[row].astype(np.float16), new - positions[row])
    return kept.astype(np.float32), new


def together(new: Any, old: Any, row: Any, sinks: int, gone: int) -> Any:
    return np.full(len(new), (new - old)[-1] if len(new) else 0)


def recents_from_0(new: Any, old: Any, row: Any, sinks: int, gone: int) -> Any:
    return np.where(row < sinks, new, new - min(sinks, len(new))) - old


S_ = slice
WRONG_SINKS: Wrong = {
    "not turned": (sinks_by(lambda n, o, *_: 0 * n), "these keys are as they came"),
    "the wrong way": (sinks_by(lambda n, o, *_: o - n), "turned the wrong way"),
    "by new": (sinks_by(lambda n, o, *_: n), "as if the keys had not been turned before"),
    "all by what has gone": (
        sinks_by(lambda n, o, r, s, gone: np.full(len(n), -gone)),
        "the sinks have not moved",
    ),
    "recents by what has gone": (
        sinks_by(lambda n, o, r, s, gone: np.where(r < s, 0, -gone)),
        "`positions` may have gaps",
    ),
    "raw": (sinks_by(lambda n, o, *_: -o), "these are the raw keys"),
    "together": (sinks_by(together), "the sinks have not moved"),
    "from 0": (sinks_by(recents_from_0), "as if the sinks took no position"),
    "one ahead": (sinks_by(lambda n, o, r, s, _: n - o + (r >= s)), "one position too far ahead"),
    "old positions": (
        sinks_by(lambda n, o, *_: n - o, lambda n, o, s: o),
        "these are the old positions",
    ),
    "from 1": (sinks_by(lambda n, o, *_: n - o, lambda n, o, s: n + 1), "begin at 1"),
    "distances": (sinks_by(lambda n, o, *_: n - o, lambda n, o, s: n - o), "these are the dist"),
    "no sinks": (with_rows(lambda S, s, r: [S_(max(0, S - r), S)]), "the sinks have gone"),
    "no recents": (with_rows(lambda S, s, r: [S_(0, s)]), "the sinks alone"),
    "all": (with_rows(lambda S, s, r: [S_(0, S)]), "nothing has gone"),
    "newest less one": (with_rows(lambda S, s, r: [S_(0, s), S_(S - r, S - 1)]), "one off"),
    "twice": (with_rows(lambda S, s, r: [S_(0, s), S_(max(0, S - r), S)]), "more than there were"),
    "-recent": (
        with_rows(lambda S, s, r: [S_(0, s), S_(max(s, S - r) if r else None, None)]),
        "which is all of them",
    ),
    "newest first": (
        lambda k, p, s, r: (np.roll(keep_sinks(k, p, s, r)[0], r, axis=0), np.arange(s + r)),
        "sinks belong in front",
    ),
    "the first": (with_rows(lambda S, s, r: [S_(0, s + r)]), "the newest have gone"),
    "the last": (with_rows(lambda S, s, r: [S_(max(0, S - s - r), S)]), "no sink does"),
    "float16": (in_float16, "12 keys, 4 sinks, 5 recent: the keys"),
    "keys alone": (lambda *a: keep_sinks(*a)[0], "expected two results"),
    "float64": (lambda *a: (keep_sinks(*a)[0].astype(float), keep_sinks(*a)[1]), "twice the bytes"),
    "float positions": (lambda *a: (keep_sinks(*a)[0], keep_sinks(*a)[1] / 1), "needed integers"),
}


def test_keep_sinks() -> None:
    report = check_keep_sinks(keep_sinks)
    assert report.passed, report


def in_lists(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
    row = stay(keys, sinks, recent).tolist()
    turned = [turn(keys[j : j + 1], [i - positions[j]])[0] for i, j in enumerate(row)]
    return np.array(turned, np.float32).reshape(-1, keys.shape[1]), list(range(len(row)))


def test_keep_sinks_of_another_form() -> None:
    assert check_keep_sinks(in_lists)


@pytest.mark.parametrize("name", WRONG_SINKS)
def test_wrong_sinks(name: str) -> None:
    wrong, message = WRONG_SINKS[name]
    refused(check_keep_sinks(wrong), message)


def test_one_angle_for_all_recents_is_right_without_gaps() -> None:
    def shift(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
        return WRONG_SINKS["recents by what has gone"][0](keys, positions, sinks, recent)

    assert len(check_keep_sinks(shift).proved) == 3


# ------------------------------------------------------------------------------ not written yet


@pytest.mark.parametrize(
    "check", [check_ring_positions, check_keep_sinks, check_snapkv_slots, check_my_policy]
)
def test_nothing_written_yet(check: Any) -> None:
    assert check(lambda *a: None).status == "not done yet"
