"""Launch choices: pure arithmetic on sizes, so that each can be tested and explained.

A decoding step has few query rows and many keys. One block a kv head leaves most of a device idle
(8 kv heads feed 8 of 132 multiprocessors), so the keys of a request are split between blocks until
there are enough of them; every split costs one more partial result to merge.
"""

from __future__ import annotations

from typing import NamedTuple

from kvlib.kernels.device import H200, Device

THREADS = 128
WARPS = THREADS // 32
# Blocks of decode that a multiprocessor holds at once: of its 65,536 registers a thread takes up to
# 168 with four query rows, and a block has 128 threads.
BLOCKS_PER_SM = 3
LEAST_KEYS = 128  # a split: fewer, and merging costs more than the split gains
MOST_SPLITS = 128
UNROLL = 4  # keys of a group of lanes in flight at a time (layouts.cuh)
ROWS = (1, 2, 4, 8)  # query heads of one kv head in a block


class DecodePlan(NamedTuple):
    """rows of query heads a block   tiles of rows a kv head   splits of the keys
    shared: bytes of shared memory a block   merges: whether partial results are merged"""

    rows: int
    tiles: int
    splits: int
    shared: int

    @property
    def merges(self) -> bool:
        return self.splits > 1


def rows_of(head_dim: int, plain: bool) -> tuple[int, ...]:
    """Query rows that there are kernels for. Each is compiled for every type or codec, so they are
    few: those of heads of 64 and 128, which most models have, and 4 where others would serve.
    """
    if plain:
        return (1, 4, 8) if head_dim in (64, 128) else (4,)
    return (4, 8) if head_dim == 128 else (4,)


def rows_for(groups: int, choices: tuple[int, ...] = ROWS) -> int:
    """Query rows of a block: the least choice that holds a kv head's query heads, or the most.

    A row that is not there costs arithmetic and no bytes; a second tile would read every key again.
    """
    return next((rows for rows in choices if groups <= rows), choices[-1])


def splits_for(blocks: int, keys: int, sms: int) -> int:
    """Splits of each request's keys so that `blocks` blocks without splits become enough.

    blocks: requests · kv heads · tiles   keys: of the longest request

    Enough is BLOCKS_PER_SM on every multiprocessor, in whole waves: the last wave should not be
    nearly empty, so the splits are rounded down to fill one wave rather than up into a second.
    """
    room = sms * BLOCKS_PER_SM
    wanted = max(1, room // max(1, blocks))
    return max(1, min(wanted, MOST_SPLITS, keys // LEAST_KEYS))


def plan_decode(
    batch: int,
    num_kv_heads: int,
    groups: int,
    head_dim: int,
    keys: int,
    *,
    choices: tuple[int, ...] = ROWS,
    splits: int | None = None,
    device: Device = H200,
) -> DecodePlan:
    """How decode attention is launched; `splits` given by hand is taken as it is.

    choices: query rows of a block that there are kernels for (:func:`rows_of`)
    """
    rows = rows_for(groups, choices)
    tiles = -(-groups // rows)
    if splits is None:
        splits = splits_for(batch * num_kv_heads * tiles, keys, device.sms)
    shared = 4 * WARPS * rows * (head_dim + 2)  # a warp's o, m and l, as float
    return DecodePlan(rows, tiles, splits, shared)
