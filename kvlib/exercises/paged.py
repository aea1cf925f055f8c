"""Checkers of the chapter on paging: slot mapping and the free list here, attention over blocks in
`paged_attention`, the append that has to be mended in `paged_append`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvlib.errors import OutOfBlocks
from kvlib.exercises.paged_append import check_append
from kvlib.exercises.paged_attention import check_paged_decode
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_array,
    expect_close,
    expect_equal,
    expect_shape,
    guarded,
)

__all__ = ["check_append", "check_free_list", "check_paged_decode", "check_slot_mapping"]


@checker
def check_slot_mapping(slot_mapping: Callable[..., Any]) -> Iterator[str]:
    """slot_mapping(block_table (B, max_blocks), qo_indptr (B + 1,), positions (T,), block_size)
    → (T,) integers."""
    table = np.array([[7, 2, 5], [4, 0, 0], [9, 3, 0]], dtype=np.int32)
    indptr, positions = np.array([0, 5, 6, 8]), np.array([2, 3, 4, 5, 6, 0, 3, 4])
    slots = slot_mapping(table, indptr, positions, 4)
    expect_shape(slots, (8,), "the slots", letters="T")
    if expect_array(slots, "the slots").dtype.kind not in "iu":
        raise Finding(
            f"the slots are {slots.dtype}, needed integers: / divides into floats, use //"
        )
    _diagnose_slots(slots, table, np.repeat([0, 1, 2], [5, 1, 2]), positions)
    wanted = _slots(table, indptr, positions, 4)
    expect_close(slots, wanted, "the slots of three requests", axes=("row",))
    yield "chunks of three requests: each row goes where its own request's table says"

    rng = np.random.default_rng(3)
    for size in (1, 3, 16, 128):
        lengths = rng.integers(1, 4 * size + 1, 6)
        blocks = -(-lengths // size)
        table = np.zeros((6, blocks.max()), dtype=np.int32)
        names = iter(rng.permutation(blocks.sum() + 5).tolist())
        for row, n in zip(table, blocks, strict=True):
            row[:n] = [next(names) for _ in range(n)]
        new = [int(rng.integers(1, n + 1)) for n in lengths]
        indptr = np.cumsum([0, *new])
        parts = [np.arange(n - t, n) for n, t in zip(lengths, new, strict=True)]
        positions = np.concatenate(parts)
        slots = slot_mapping(table, indptr, positions, size)
        wanted = _slots(table, indptr, positions, size)
        expect_close(slots, wanted, f"slots, blocks of {size}", axes=("row",))
        assert len(set(wanted.tolist())) == len(wanted)
    yield "any block size, chunks that cross blocks; no two tokens share a slot"


def _slots(table: Any, indptr: Any, positions: Any, size: int) -> np.ndarray:
    owner = np.repeat(np.arange(len(table)), np.diff(indptr))
    return np.asarray(table[owner, positions // size] * size + positions % size)


def _diagnose_slots(slots: Any, table: np.ndarray, owner: np.ndarray, pos: np.ndarray) -> None:
    """What people make of blocks of 4."""
    block = table[owner, pos // 4]
    suspects = {
        "row 5 belongs to request 1 and was looked up in request 0's table: which request owns a "
        "row is said by qo_indptr": table[0, pos // 4] * 4 + pos % 4,
        "these are the positions themselves: no table was asked, so all requests share slots": pos,
        "these are blocks, not slots: a block has 4 slots, so its first is block * 4": block,
        "block + offset: a block has 4 slots, so its first is block * 4": block + pos % 4,
        "every token goes to the first slot of its block: add the offset, position % 4": block * 4,
        "the slots are one too far: offsets count from 0": block * 4 + pos % 4 + 1,
        "the logical block was taken for the physical one: position // 4 is an entry of the table, "
        "and the table says where that block lies": pos // 4 * 4 + pos % 4 + owner * 12,
    }
    rows = np.arange(len(pos))
    within = rows - np.searchsorted(owner, owner)
    counted = "was taken for its position: a chunk may begin anywhere in its request, use positions"
    suspects[f"the number of a row {counted}"] = table[owner, rows // 4] * 4 + rows % 4
    suspects[f"the number of a row within its request {counted}"] = (
        table[owner, within // 4] * 4 + within % 4
    )
    swapped = np.minimum(pos % 4, 2)
    suspects["// and % are exchanged: the block is position // 4, the offset position % 4"] = (
        table[owner, swapped] * 4 + pos // 4
    )
    diagnose(slots, suspects)


# The free list -----------------------------------------------------------------------------------


@checker
def check_free_list(free_list: type) -> Iterator[str]:
    """FreeList(num_blocks) with allocate(count) → list and free(blocks)."""
    if not isinstance(free_list, type):
        raise Finding("hand over the class FreeList itself, not one of its objects")
    pool = _Pool(free_list, 6)
    first = pool.allocate(2, "2 of 6 free blocks")
    second = pool.allocate(4, "the other 4 blocks, all free")
    everything = sorted([*first, *second])
    if everything == list(range(1, 7)):
        raise Finding("blocks 1 to 6 were handed out: a pool of 6 has blocks 0 to 5")
    if len(set(everything)) < 6:
        raise Finding(f"allocate gave {first} and then {second}: a block now has two owners")
    expect_equal(everything, list(range(6)), "the blocks of a pool of 6, all handed out")
    expect_equal(pool.allocate(0), [], "allocate(0)")
    yield "every block is handed out once"

    pool.free(second[:2])
    pool.refuses(3, free=2)
    left = pool.allocate(2, "after three blocks were refused, the two that are free")
    if sorted(left) != sorted(second[:2]):
        raise Finding(f"blocks {second[:2]} were free, and {left} were handed out")
    pool.refuses(1, free=0)
    yield "too few: OutOfBlocks, and what was free stays free"

    pool.free(left)
    _refuses_twice(pool, left[:1])
    _refuses_whole(pool, first[0], left)
    yield "a block that is free cannot be freed again"
    _random_life(free_list)
    yield "500 random requests: no block has two owners, none is lost"


class _Pool:
    """The learner's object, guarded."""

    def __init__(self, free_list: type, num_blocks: int) -> None:
        pool = guarded(free_list, may_return_none=True)(num_blocks)
        for method in ("allocate", "free"):
            if not callable(getattr(pool, method, None)):
                raise Finding(f"FreeList has no method {method}")
        self._allocate, self.refused = guarded(pool.allocate), False
        self.free = guarded(pool.free, may_return_none=True)

    def allocate(self, count: int, what: str = "") -> list[int]:
        try:
            blocks = self._allocate(count)
        except Finding as finding:
            if what and isinstance(finding.__cause__, OutOfBlocks) and not self.refused:
                raise Finding(
                    f"{what}: allocate({count}) raised OutOfBlocks, and enough were free: refuse "
                    "only where count is larger than what is free"
                ) from None
            if what and finding.__cause__ is not None:
                raise Finding(
                    f"{what} could not be had any more: a request that is refused must change "
                    "nothing. Count before you take the first block"
                ) from None
            raise
        if not isinstance(blocks, list | tuple):
            raise Finding(f"allocate returned {type(blocks).__name__}, needed a list of blocks")
        if len(blocks) != count:
            raise Finding(f"allocate({count}) gave {len(blocks)} blocks: {list(blocks)}")
        return [int(b) for b in blocks]

    def refuses(self, count: int, free: int) -> None:
        """allocate(count) with too few free must raise OutOfBlocks."""
        self.refused = True
        try:
            got = self._allocate(count)
        except Finding as finding:
            cause = finding.__cause__
            if isinstance(cause, OutOfBlocks):
                return
            if cause is None:  # it returned None, which guarded takes for a stub
                got = None
            else:
                words = f" ({cause})" if isinstance(cause, NameError) else ""
                raise Finding(
                    f"allocate({count}) with {free} free raised {type(cause).__name__}{words}: "
                    "raise OutOfBlocks, and before anything is taken"
                ) from None
        raise Finding(
            f"allocate({count}) with {free} free gave {got!r}: raise OutOfBlocks. Who gets less "
            "than asked for writes the rest into nothing"
        )


def _refuses_twice(pool: _Pool, block: list[int]) -> None:
    try:
        pool.free(block)
    except Finding as finding:
        if isinstance(finding.__cause__, ValueError):
            return
        raise
    raise Finding(
        f"block {block[0]} was free and was freed again: it now stands in the list twice, and two "
        "requests will get it. Raise ValueError"
    )


def _refuses_whole(pool: _Pool, held: int, left: list[int]) -> None:
    """A list with one block twice, or with a free one, is refused before any of it is taken back.

    left: the two blocks that are free.
    """
    for blocks, why in (
        ([held, held], "one block twice in one call"),
        ([held, left[0]], f"block {left[0]} is free already"),
    ):
        what = f"free({blocks}): {why}"
        try:
            pool.free(list(blocks))
        except Finding as finding:
            if not isinstance(finding.__cause__, ValueError):
                raise
        else:
            raise Finding(f"{what}, so two requests will get it. Raise ValueError")
        taken: list[int] = []
        try:
            while len(taken) < 6:
                taken += pool.allocate(1)
        except Finding as finding:
            if not isinstance(finding.__cause__, OutOfBlocks):
                raise
        if sorted(taken) != sorted(left):
            raise Finding(
                f"{what}, and it was refused, but then blocks {sorted(taken)} were free, needed "
                f"{sorted(left)}: check all of the list before any is taken back"
            )
        pool.free(taken)


def _random_life(free_list: type) -> None:
    rng, pool, held = np.random.default_rng(5), _Pool(free_list, 20), dict[int, list[int]]()
    for i in range(500):
        used = sum(map(len, held.values()))
        if held and rng.random() < 0.45:
            pool.free(held.pop(int(rng.choice(list(held)))))
            continue
        count = int(rng.integers(1, 7))
        if count > 20 - used:
            pool.refuses(count, free=20 - used)
            continue
        blocks = pool.allocate(count, f"{count} of {20 - used} free blocks")
        owners = {b: name for name, others in held.items() for b in others}
        for block in blocks:
            if block in owners or not 0 <= block < 20:
                raise Finding(f"block {block} was handed out while request {owners.get(block)} had")
        held[i] = blocks
