"""The checker of a free list: all or nothing, and no block with two owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, checker, expect_equal, guarded, method
from kvlib.errors import OutOfBlocks


@checker
def check_free_list(free_list: type) -> Iterator[str]:
    """FreeList(num_blocks) with allocate(count) → list and free(blocks)."""
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
    back = pool.allocate(2, f"blocks {second[:2]}, just freed,")
    if sorted(back) != sorted(second[:2]):
        raise Finding(f"blocks {second[:2]} were free, and {back} were handed out")
    pool.free(back)
    pool.refuses(3, free=2)
    left = pool.allocate(2, "the two free blocks, after a request for three was refused")
    if sorted(left) != sorted(second[:2]):
        raise Finding(f"blocks {second[:2]} were free, and {left} were handed out")
    pool.refuses(1, free=0)
    yield "with too few blocks, allocate raises OutOfBlocks, and the free blocks stay free"

    pool.free(left)
    _refuses_twice(pool, left[:1])
    _refuses_whole(pool, first[0], left)
    yield "a block that is free cannot be freed again"
    _two_pools(free_list)
    _random_life(free_list)
    yield "two pools at once, 500 random requests: no block has two owners, and none is lost"


def _two_pools(free_list: type) -> None:
    """Objects that share a list on the class give each other's blocks away."""
    one = _Pool(free_list, 4)
    held = one.allocate(3)
    two = _Pool(free_list, 4)
    words = "two pools of 4 blocks: 3 blocks of the first were taken, and then"
    try:
        others = sorted(two.allocate(4))
    except Finding as finding:
        if isinstance(finding.__cause__, OutOfBlocks):
            why = "the second had fewer than 4. Each keeps its own list, made in __init__"
            raise Finding(f"{words} {why}") from None
        raise
    expect_equal(others, [0, 1, 2, 3], f"{words} all of the second")
    try:
        last = one.allocate(1)
    except Finding as finding:
        if isinstance(finding.__cause__, OutOfBlocks):
            why = "4 of the second, so the first had none left. Each keeps its own list"
            raise Finding(f"{words} {why}") from None
        raise
    expect_equal(sorted([*held, *last]), [0, 1, 2, 3], f"{words} all of the first")


class _Pool:
    """The learner's object, guarded."""

    def __init__(self, free_list: type, num_blocks: int) -> None:
        pool = guarded(free_list, may_return_none=True)(num_blocks)
        self._allocate, self.refused = method(pool, "allocate", "FreeList"), False
        # whether free keeps or changes the list is looked at below
        self._free = method(pool, "free", "FreeList", may_modify=True, may_return_none=True)
        self._given: list[tuple[Any, list[int]]] = []

    def free(self, blocks: list[int], held: bool = True) -> None:
        """held: the blocks have not been freed before, so there is nothing to refuse."""
        given = list(blocks)
        try:
            self._free(given)
        except Finding as finding:
            if held and isinstance(finding.__cause__, ValueError):
                raise Finding(
                    f"free({blocks}) raised ValueError although all of these were held: refuse "
                    "only a block that is free already"
                ) from None
            raise
        finally:
            changed = given != blocks
            given[:] = [-1] * len(given)  # the caller uses its list for something else
        if changed:
            raise Finding(f"free({blocks}) changed the list that it was given: copy it first")

    def allocate(self, count: int, what: str = "") -> list[int]:
        try:
            blocks = self._allocate(count)
        except Finding as finding:
            cause = finding.__cause__
            if what and isinstance(cause, OutOfBlocks) and not self.refused:
                if "freed" in what:
                    raise Finding(
                        f"{what} could not be allocated any more: did free take back all of the "
                        "list?"
                    ) from None
                raise Finding(
                    f"{what}: allocate({count}) raised OutOfBlocks although enough were free: "
                    "refuse only if count is larger than the number of free blocks"
                ) from None
            if what and cause is not None and self.refused:
                raise Finding(
                    f"{what} could not be allocated any more: a request that is refused must "
                    "change nothing. Count before you take the first block"
                ) from None
            raise
        if not isinstance(blocks, list | tuple):
            raise Finding(f"allocate returned {type(blocks).__name__}, needed a list of blocks")
        if len(blocks) != count:
            raise Finding(f"allocate({count}) gave {len(blocks)} blocks: {list(blocks)}")
        numbers = [whole(b, f"allocate({count}) gave {blocks}: a block") for b in blocks]
        if -1 in numbers:
            raise Finding(
                "block -1 was handed out: free kept the caller's own list, and the caller has "
                "written something else into it since. Copy its content instead"
            )
        for earlier, was in self._given:
            if list(earlier) != was:
                raise Finding(
                    f"allocate gave {was}, and a later call changed that list to {list(earlier)}: "
                    "hand out a new list each time"
                )
        self._given.append((blocks, list(blocks)))
        return numbers

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
            f"allocate({count}) with {free} free gave {got!r}: raise OutOfBlocks. A request that "
            "gets fewer blocks than it asked for has nowhere to write the rest"
        )


def _refuses_twice(pool: _Pool, block: list[int]) -> None:
    try:
        pool.free(block, held=False)
    except Finding as finding:
        cause = finding.__cause__
        if isinstance(cause, ValueError):
            return
        if cause is not None:
            raise Finding(
                f"free({block}) of a block that is free already raised {type(cause).__name__}: "
                "raise ValueError"
            ) from None
        raise
    raise Finding(
        f"block {block[0]} was free and was freed again without an error: it now stands in the "
        "list twice, so two requests will get it. Raise ValueError"
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
            pool.free(list(blocks), held=False)
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
                f"{sorted(left)}: check the whole list before you free any of its blocks"
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
                where = f"request {owners[block]} holds it" if block in owners else "there are 20"
                raise Finding(f"block {block} was handed out, and {where}")
        held[i] = blocks
    for blocks in held.values():
        pool.free(blocks)
    everything = sorted(pool.allocate(20, "all 20 blocks, after every request had ended,"))
    expect_equal(everything, list(range(20)), "all blocks, after every request had ended")
