"""Checkers of the chapter on batches: packing, its mask, and the append of ragged rows.

The decode loop has a module of its own, :mod:`kvbook.exercises.batched_serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.batched_serve import check_serve
from kvbook.exercises.counted import python_steps
from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    bare,
    checker,
    diagnose,
    expect_array,
    expect_close,
    expect_dtype,
    expect_equal,
    expect_shape,
    expect_unchanged,
    guarded,
)
from kvlib.attention import attend
from kvlib.caches import DenseCache, LayerSpec

__all__ = ["check_append_rows", "check_pack", "check_packed_mask", "check_serve"]


@checker
def check_pack(pack: Callable[..., Any]) -> Iterator[str]:
    """pack(prompts): B lists of ids → tokens (T,), positions (T,), qo_indptr (B + 1,), integers."""
    prompts = [[5, 9, 2], [7], [1, 1, 4, 8, 3]]
    tokens, positions, indptr = _three(pack(prompts))
    if isinstance(tokens, np.ndarray) and tokens.ndim == 2:
        raise Finding(
            f"tokens is a rectangle of shape {tokens.shape}; pack it without padding, (T,)"
        )
    expect_shape(tokens, (9,), "tokens", letters="T")
    expect_equal(tokens.astype(np.int64), [5, 9, 2, 7, 1, 1, 4, 8, 3], "tokens")
    yield "the prompts stand one after the other, without padding"

    _expect_offsets(expect_array(indptr, "indptr"))
    yield "request i has the rows indptr[i] to indptr[i + 1]"

    expect_shape(positions, (9,), "positions", letters="T")
    starts_at_0 = np.array([0, 1, 2, 0, 0, 1, 2, 3, 4])
    run_on = "request 1 starts at position 3: positions run on across requests, but every request "
    one_for_all = (
        "request 0 starts at position 2, so all requests end at 4. That is one position for the "
        "whole batch, as in a left-padded rectangle. Without padding "
    )
    diagnose(
        positions,
        {
            run_on + "starts at 0": np.arange(9),
            one_for_all + "every request starts at 0": [2, 3, 4, 4, 0, 1, 2, 3, 4],
            "positions start at 1: the first token of a request is at 0": starts_at_0 + 1,
        },
    )
    expect_close(positions, starts_at_0, "positions", axes=("row",))
    yield "positions start at 0 in every request"

    for array, name in ((tokens, "tokens"), (positions, "positions"), (indptr, "indptr")):
        if array.dtype.kind not in "iu":
            raise Finding(
                f"{name} is {array.dtype}, needed integers, because it picks rows of a "
                "table. np.zeros, np.empty and np.ones make float64 unless you pass a dtype"
            )
    rng = np.random.default_rng(0)
    for count in (1, 4, 7):
        ragged = [rng.integers(0, 256, rng.integers(1, 9)).tolist() for _ in range(count)]
        _, positions, indptr = _three(pack(ragged))
        cache = DenseCache([LayerSpec(1, 2)], count, 9, xp=np)
        for i in range(count):
            cache.add(i)
        step = cache.plan(range(count), [len(p) for p in ragged])
        expect_equal(indptr, list(step.qo_indptr), f"indptr of {count} prompts")
        expect_equal(positions, step.positions.tolist(), f"positions of {count} prompts")
    yield "kvlib's plan gives the same integers for any prompts"


def _three(result: Any) -> tuple[Any, Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise Finding(f"pack returned {type(result).__name__}, needed (tokens, positions, indptr)")
    return result[0], result[1], result[2]


def _expect_offsets(indptr: np.ndarray) -> None:
    """The offsets of prompts of 3, 1 and 5 tokens."""
    suspects: dict[str, list[int]] = {
        "indptr holds the lengths 3, 1, 5; it must hold their running sum, the offsets": [3, 1, 5],
        "indptr is 0, 3, 4 and lacks the last entry, 9, which says where request 2 ends: "
        "B requests have B + 1 offsets": [0, 3, 4],
        "indptr is 3, 4, 9 and lacks the first entry: request 0 starts at row 0": [3, 4, 9],
        "indptr holds a 0 and then the lengths; it must hold their running sum": [0, 3, 1, 5],
    }
    diagnose(indptr, suspects)
    expect_shape(indptr, (4,), "indptr", letters="B+1")
    expect_equal(indptr.astype(np.int64), [0, 3, 4, 9], "indptr")


@checker
def check_packed_mask(packed_mask: Callable[..., Any]) -> Iterator[str]:
    """packed_mask(indptr (B + 1,)) → (T, T) bool, True where query row i may see key row j."""
    indptr = np.array([0, 3, 4, 9], dtype=np.int64)
    mask = packed_mask(indptr)
    expect_shape(mask, (9, 9), "the mask", letters="T T")
    expect_dtype(mask, bool, "the mask")
    yield "a row for each query and a column for each key, True or False"

    owner, row = np.repeat([0, 1, 2], [3, 1, 5]), np.arange(9)
    same, past = owner[:, None] == owner[None, :], row[:, None] >= row[None, :]
    right = same & past
    diagnose(
        mask,
        {
            "row 3, the first of request 1, sees key 0 of request 0: a causal mask alone lets "
            "request B see request A": past,
            "row 0 sees key 2 of its own request: the mask lets the past see the future": same,
            "the mask is transposed: its rows must be queries and its columns keys": right.T,
            "True and False are exchanged: True means that a query may see a key": ~right,
            "row 0 does not see key 0, but a query sees itself": same & (past & ~past.T),
        },
    )
    if (mask & ~same).any():
        i, j = np.argwhere(mask & ~same)[0]
        raise Finding(
            f"row {i} of request {owner[i]} sees key {j} of request {owner[j]}: requests share "
            "one product, but not their keys"
        )
    expect_close(mask, right, "the mask", axes=("query", "key"))
    yield "a query sees itself and what came before it in its own request"

    rng = np.random.default_rng(1)
    for lengths in ([1], [2, 2], [4, 1, 1, 6], rng.integers(1, 6, 5).tolist()):
        ends = np.concatenate([[0], np.cumsum(lengths)])
        t = int(ends[-1])
        mask = packed_mask(ends)
        expect_shape(mask, (t, t), f"the mask of lengths {lengths}", letters="T T")
        expect_dtype(mask, bool, f"the mask of lengths {lengths}")
        q, k, v = (rng.standard_normal((t, 2, 4)).astype(np.float32) for _ in range(3))
        scores = np.where(mask, np.einsum("thd,shd->hts", q, k) / 2, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        o = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v)
        for a, b in zip(ends[:-1], ends[1:], strict=True):
            place = np.arange(b - a)
            alone = attend(q[a:b], k[a:b], v[a:b], place, place)
            expect_close(o[a:b], alone, f"attention of rows {a} to {b - 1}", axes=("row", "head"))
    yield "masked attention over all rows equals attention in each request alone"


@checker
def check_append_rows(append_rows: Callable[..., Any]) -> Iterator[str]:
    """append_rows(slots (B, S, Hkv, D), new (B, Hkv, D), lengths (B,)) → lengths + 1; slots
    change in place."""
    append = guarded(bare(append_rows), may_modify=True)
    rng = np.random.default_rng(2)
    lengths = np.array([5, 2, 3], dtype=np.int64)
    slots = _filled(rng, lengths)
    yield from _append_once(append, slots, lengths, rng)

    # The longest row leaves; what is left must not remember it.
    slots, lengths = slots[1:].copy(), lengths[1:] + 1
    before, new = slots.copy(), rng.standard_normal((2, 2, 4)).astype(np.float32)
    after = append(slots, new, lengths.copy())
    wanted = before.copy()
    wanted[[0, 1], lengths] = new
    expect_close(slots, wanted, "slots after the longest row left", axes=("row", "slot"))
    what = "the lengths after the longest row left"
    expect_equal(numbers(after, what), (lengths + 1).tolist(), what)

    rows = 2000
    slots, new = (np.zeros((rows, *shape), np.float32) for shape in ((2, 1, 1), (1, 1)))
    steps = python_steps(append, slots, new, np.zeros(rows, np.int64))[1]
    if steps >= rows:
        raise Finding(
            f"{rows:,} rows took {steps:,} steps of Python: somewhere a loop goes over the rows. "
            "One assignment can write them all: index slots with the numbers of the rows and with "
            "the lengths"
        )
    yield "the same holds after the longest row has left"


def _filled(rng: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Slots (3, 8, 2, 4) whose free part is NaN, so that a hole is seen."""
    slots = np.full((len(lengths), 8, 2, 4), np.nan, dtype=np.float32)
    for i, n in enumerate(lengths):
        slots[i, :n] = rng.standard_normal((n, 2, 4))
    return slots


def _append_once(
    append: Callable[..., Any], slots: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> Iterator[str]:
    before, new = slots.copy(), rng.standard_normal((3, 2, 4)).astype(np.float32)
    handed = lengths.copy()
    after = append(slots, new, handed)
    expect_unchanged(handed, lengths, "lengths")
    if slots.tobytes() == before.tobytes():
        raise Finding("slots is unchanged: write into it, slots[...] = new")

    def written(rows: Any, places: Any, values: np.ndarray = new) -> np.ndarray:
        result = before.copy()
        result[rows, places] = values
        return result

    rows = np.arange(3)
    diagnose(
        slots,
        {
            "row 1 holds 2 tokens and its new key went to slot 5, the longest row's end: slots 2 "
            "to 4 stay empty and will be attended to. Use each row's own length": written(rows, 5),
            "row 1 holds 2 tokens, in slots 0 and 1, and slot 1 was overwritten: the next free "
            "slot is lengths[i], not lengths[i] - 1": written(rows, lengths - 1),
            "row 1 holds 2 tokens and its new key went to slot 3: slot 2 stays empty and will be "
            "attended to. Slots count from 0": written(rows, lengths + 1),
            "every new key went to row 0: one cache is shared by all rows": written(0, lengths),
            "slots[:, lengths] crosses every row with every length: index the rows, too, as in "
            "slots[np.arange(B), lengths]": written(slice(None), lengths),
        },
    )
    expect_close(slots, written(rows, lengths), "slots", axes=("row", "slot", "head"))
    yield "row i's new key lies in slot lengths[i], and nothing else was touched"

    after = numbers(after, "the returned lengths")
    expect_shape(after, (3,), "the returned lengths", letters="B")
    diagnose(after, {"the returned lengths are those before the append: add 1": lengths})
    expect_equal(after, (lengths + 1).tolist(), "the returned lengths")
    yield "the returned lengths are one longer, and the lengths passed in are unchanged"
