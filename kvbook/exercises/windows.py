"""Checkers of the chapter on what may be forgotten: the slots of a ring here.

Attention sinks are in :mod:`kvbook.exercises.windows_sinks`, the choice of SnapKV is in
:mod:`kvbook.exercises.windows_snapkv`, and a policy of the reader's own is measured in
:mod:`kvbook.exercises.windows_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, diagnose, expect_close
from kvbook.exercises.windows_policy import check_my_policy
from kvbook.exercises.windows_sinks import check_keep_sinks, turn
from kvbook.exercises.windows_snapkv import check_snapkv_slots

__all__ = [
    "check_keep_sinks",
    "check_my_policy",
    "check_ring_positions",
    "check_snapkv_slots",
    "turn",
]


@checker
def check_ring_positions(ring_positions: Callable[..., Any]) -> Iterator[str]:
    """ring_positions(W, C, n) → (slots,) integers: the position in each slot, −1 if empty."""
    after_40 = {}
    for w, c in ((4, 1), (4, 3), (1, 1), (2, 6), (1, 5)):
        after_40[w, c] = _received(ring_positions, w, c, 40)
        _expect_slots(after_40[w, c], w, c)
    yield "the ring has as many slots as a step needs, and no more"

    for w, c, n in ((4, 1, 3), (4, 3, 5), (4, 3, 0), (1, 1, 0)):
        _expect_positions(ring_positions, w, c, n)
    yield (
        "until the ring is full for the first time, slot p holds position p, "
        "and the others are empty"
    )

    for w, c, n in ((4, 1, 4), (4, 1, 7), (4, 3, 8), (4, 3, 17), (1, 1, 7)):
        _expect_positions(ring_positions, w, c, n)
    for (w, c), got in after_40.items():
        _compare(got, w, c, 40)
    yield "after that, each slot holds the newest of its positions"

    drawn = np.random.default_rng(21).integers((1, 1, 0), (40, 20, 300), (20, 3)).tolist()
    for w, c, n in [(1, 1, 1), (2, 2, 10**6), *drawn]:
        _expect_positions(ring_positions, w, c, n)
    yield "this holds for any window, step and number of tokens"


def _received(ring_positions: Callable[..., Any], w: int, c: int, n: int) -> np.ndarray:
    what = _named(w, c, n)
    got = numbers(ring_positions(w, c, n), what)
    if got.dtype.kind not in "iu":
        raise Finding(
            f"{what}: got an array of {got.dtype}, needed integers; np.full and np.arange make "
            "them if you pass dtype=np.int64"
        )
    if got.ndim != 1:
        raise Finding(f"{what}: got the shape {got.shape}, needed one position per slot: (slots,)")
    return got.astype(np.int64) if got.dtype.kind == "i" else got


def _named(w: int, c: int, n: int) -> str:
    return f"a ring for W = {w} and C = {c} after {n:,} token{'s' * (n != 1)}"


def _expect_slots(got: np.ndarray, w: int, c: int) -> None:
    """The length of a ring that 40 tokens have gone through."""
    slots = w - 1 + c
    if len(got) == slots:
        return
    step = "a step of 1 token" if c == 1 else f"a step of {c} tokens"
    early = (
        f"the last token of {step} then overwrites a key that the first query of the step still "
        "sees"
    )
    words = {
        w + c: f"the first query counts in its own window, so {step} needs W - 1 earlier tokens",
        w: early,
        max(w, c): early,
        w - 1: "the query's own token needs a slot, too",
        c: "the first query of the step also sees W - 1 tokens of earlier steps",
        40: "the array has a slot for every token, but a ring writes over the oldest ones",
    }
    why = f": {words[len(got)]}" if len(got) in words else ""
    raise Finding(f"W = {w}, C = {c}: the ring has {len(got)} slots, needed {slots}{why}")


def positions_in(slots: int, n: int) -> np.ndarray:
    """The right answer: (slots,) int64, the newest position of each slot below n, else −1."""
    s = np.arange(slots, dtype=np.int64)
    held = n - 1 - (n - 1 - s) % slots
    return np.where(held < 0, -1, held)


def _expect_positions(ring_positions: Callable[..., Any], w: int, c: int, n: int) -> None:
    got, what = _received(ring_positions, w, c, n), _named(w, c, n)
    if len(got) != w - 1 + c:
        if len(got) == min(n, w - 1 + c):
            raise Finding(
                f"{what}: got {len(got)} slots, but a ring has all its {w - 1 + c} slots from the "
                "start; put -1 into the empty ones"
            )
        raise Finding(f"{what}: got {len(got)} slots, needed {w - 1 + c}")
    _compare(got, w, c, n)


def _compare(got: np.ndarray, w: int, c: int, n: int) -> None:
    what = _named(w, c, n)
    right = positions_in(len(got), n)
    if (got == right).all():
        return
    for words, wrong in _suspects(len(got), w, n, right).items():
        diagnose(got, {f"{what}: {words}": wrong}, rtol=0, atol=0)
    expect_close(got, right, what, axes=("slot",), rtol=0, atol=0)


def _suspects(slots: int, w: int, n: int, right: np.ndarray) -> dict[str, np.ndarray]:
    s, full = np.arange(slots), right >= 0
    raw = n - 1 - (n - 1 - s) % slots
    oldest = max(0, n - slots)
    return {
        "an empty slot holds 0, which would be the first token; use -1": np.where(full, right, 0),
        f"an empty slot holds {raw.min()}, a position before the text; use -1 for every empty "
        "slot": raw,
        f"the newest token stands at position {n - 1}, and you counted one that has not come "
        "yet": positions_in(slots, n + 1),
        "the last token is missing": positions_in(slots, max(0, n - 1)),
        "these positions are in the order of the text. In a ring a token stays in the slot into "
        "which it was written: slot p % slots": np.where(s < n, s + oldest, -1),
        "these positions run backwards from the newest; a token stays in slot p % slots": (
            np.where(s < n, n - 1 - s, -1)
        ),
        "slot 0 holds position 0, slot 1 holds position 1, and so on, whatever came later; but a "
        "new token overwrites the oldest, so a slot holds the newest of its positions": (
            np.where(s < n, s, -1)
        ),
        "these are the slots that the newest tokens went into; return, for each slot, the "
        "position that it holds": np.where(s < n, (s + oldest) % slots, -1),
        "tokens that no query will see again count as gone here, but the ring still holds them: "
        "the mask hides them, and -1 means that nothing was written": (
            np.where(right < n - w + 1, -1, right)
        ),
        "the ring turns only once here, but a slot is written again in every turn": (
            np.where(s + slots < n, s + slots, np.where(s < n, s, -1))
        ),
        "every token lies one slot too far to the right: position p goes into slot p % slots": (
            np.roll(right, 1)
        ),
        "every token lies one slot too far to the left: position p goes into slot p % slots": (
            np.roll(right, -1)
        ),
        "positions are counted from 0, not from 1": np.where(full, right + 1, -1),
        "the first and the second turn are mixed up: a slot holds the newest of its positions, "
        "not the one before": np.where(right >= slots, right - slots, right),
    }
