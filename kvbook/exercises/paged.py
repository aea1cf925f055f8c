"""Checkers of the chapter on paging: slot mapping here.

The free list is in `paged_free_list`, attention over blocks in `paged_attention`, the append that
has to be mended in `paged_append`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.counted import python_steps
from kvbook.exercises.paged_append import check_append
from kvbook.exercises.paged_attention import check_paged_decode
from kvbook.exercises.paged_free_list import check_free_list
from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, diagnose, expect_close, expect_shape

__all__ = ["check_append", "check_free_list", "check_paged_decode", "check_slot_mapping"]


@checker
def check_slot_mapping(slot_mapping: Callable[..., Any]) -> Iterator[str]:
    """slot_mapping(block_table (B, max_blocks), qo_indptr (B + 1,), positions (T,), block_size)
    → (T,) integers."""
    table = np.array([[7, 2, 5], [4, 6, 0], [9, 3, 0]], dtype=np.int32)
    indptr, positions = np.array([0, 5, 6, 8]), np.array([2, 3, 4, 5, 6, 7, 3, 4])
    slots = numbers(slot_mapping(table, indptr, positions, 4), "the slots")
    expect_shape(slots, (8,), "the slots", letters="T")
    _expect_integers(slots)
    _diagnose_slots(slots, table, np.repeat([0, 1, 2], [5, 1, 2]), positions)
    wanted = _slots(table, indptr, positions, 4)
    expect_close(slots, wanted, "the slots of three requests", axes=("row",))
    yield "chunks of three requests: each row goes where its own request's table says"

    rng = np.random.default_rng(3)
    for size in (1, 3, 16, 128):
        lengths = rng.integers(1, 4 * size + 1, 6)
        blocks = -(-lengths // size)
        table = np.zeros((6, blocks.max()), dtype=np.int32)
        most = 5 if size < 128 else 600  # slots that 16 bits cannot hold
        names = iter(rng.permutation(blocks.sum() + most)[::-1].tolist())
        for row, n in zip(table, blocks, strict=True):
            row[:n] = [next(names) for _ in range(n)]
        new = [int(rng.integers(1, n + 1)) for n in lengths]
        indptr = np.cumsum([0, *new])
        parts = [np.arange(n - t, n) for n, t in zip(lengths, new, strict=True)]
        positions = np.concatenate(parts)
        slots = numbers(slot_mapping(table, indptr, positions, size), "the slots")
        wanted = _slots(table, indptr, positions, size)
        expect_close(slots, wanted, f"slots, blocks of {size}", axes=("row",))
        assert len(set(wanted.tolist())) == len(wanted)
    yield "it holds for any block size and for chunks that cross blocks; no two tokens share a slot"

    table = 7 + rng.permutation(400).reshape(4, 100).astype(np.int32)
    indptr = np.array([0, 1600, 3200, 4799, 4800])
    positions = np.concatenate([np.arange(n) for n in np.diff(indptr)])
    slots = numbers(slot_mapping(table, indptr, positions, 16), "the slots")
    expect_close(slots, _slots(table, indptr, positions, 16), "4,800 slots", axes=("row",))
    steps = python_steps(slot_mapping, table, indptr, positions, 16)[1]
    if steps >= len(positions):  # there are 300 blocks: a loop over them stays below
        raise Finding(
            f"4,800 tokens took {steps:,} steps of Python: somewhere a loop goes over the tokens, "
            "or a function is called for each. Arithmetic on whole arrays takes only a few steps"
        )
    yield "4,800 tokens get their slots without a loop over tokens"


def _expect_integers(slots: np.ndarray) -> None:
    kind = slots.dtype
    if kind.kind not in "iu":
        why = ": / gives floats, so use //" if kind.kind == "f" else ""
        raise Finding(f"the slots are {kind}, needed integers{why}")
    if kind.itemsize < 4:
        raise Finding(
            f"the slots are {kind}, which ends at {np.iinfo(kind).max:,}, but a pool has more "
            "slots. Use int32 or int64"
        )


def _slots(table: Any, indptr: Any, positions: Any, size: int) -> np.ndarray:
    owner = np.repeat(np.arange(len(table)), np.diff(indptr))
    return np.asarray(table[owner, positions // size] * size + positions % size)


def _diagnose_slots(slots: Any, table: np.ndarray, owner: np.ndarray, pos: np.ndarray) -> None:
    """What people make of blocks of 4."""
    block = table[owner, pos // 4]
    suspects = {
        "row 5 belongs to request 1 but was looked up in the table of request 0; qo_indptr "
        "says which request owns a row": table[0, pos // 4] * 4 + pos % 4,
        "these are the positions themselves: the table was not used, so all requests share "
        "slots": pos,
        "these are blocks, not slots: a block has 4 slots, so its first is block * 4": block,
        "this is block + offset, but a block has 4 slots, so its first is block * 4": block
        + pos % 4,
        "every token goes to the first slot of its block: add the offset, position % 4": block * 4,
        "the slots are one too far: offsets count from 0": block * 4 + pos % 4 + 1,
        "position // 4 was used as the block, but it is an index into the table, and the block "
        "is the entry there": pos // 4 * 4 + pos % 4 + owner * 12,
    }
    jumps = np.concatenate([[0], np.cumsum(np.diff(pos) != 1)])
    suspects[
        "a new request was assumed to begin where the positions jump, but row 5, of the next "
        "request, happens to continue the positions of row 4; qo_indptr says which request "
        "owns a row"
    ] = table[np.minimum(jumps, 2), pos // 4] * 4 + pos % 4
    rows = np.arange(len(pos))
    within = rows - np.searchsorted(owner, owner)
    counted = (
        "was used as its position: a chunk may begin anywhere in its request, so use positions"
    )
    suspects[f"the number of a row {counted}"] = table[owner, rows // 4] * 4 + rows % 4
    suspects[f"the number of a row within its request {counted}"] = (
        table[owner, within // 4] * 4 + within % 4
    )
    swapped = np.minimum(pos % 4, 2)
    suspects["// and % are exchanged: the block is position // 4, the offset position % 4"] = (
        table[owner, swapped] * 4 + pos // 4
    )
    diagnose(slots, suspects)
