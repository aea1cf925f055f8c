"""Launch choices: pure arithmetic on sizes, so that each can be tested and explained.

A decoding step has few query rows and many keys. One block per kv head leaves most of a device idle
(8 kv heads feed 8 of 132 multiprocessors), so the keys are split between blocks until there are
enough of them; every split costs one more partial result to merge. Where the lengths of a batch are
known, all blocks get items of near-equal size (kvlib.kernels.work).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvlib.kernels.device import H200, Device
from kvlib.kernels.work import LEAST_KEYS, MOST_SPLITS, balanced

THREADS = 128
WARPS = THREADS // 32
REGISTERS = 65_536  # of a multiprocessor, on each capability that kernels are compiled for
# Blocks of decode that a multiprocessor holds at once where nothing else is known: a thread takes
# up to 168 registers, and a block has 128 threads.
BLOCKS_PER_SM = 3
UNROLL = 4  # keys of a group of lanes in flight at a time (layouts.cuh)
ROWS = (1, 2, 4, 8)  # query heads of one kv head in a block
TENSOR_ROWS = 8  # the same on tensor cores: half of the rows of a product (decode_tensor.cu)


class DecodePlan(NamedTuple):
    """rows of query heads a block   tiles of rows a kv head   splits (B,) of each request's keys
    shared: bytes of shared memory a block   lens (B,): keys of each, where they were known
    """

    rows: int
    tiles: int
    splits: tuple[int, ...]
    shared: int
    lens: tuple[int, ...] | None = None

    @property
    def merges(self) -> bool:
        """Whether partial results are merged."""
        return max(self.splits, default=1) > 1


def rows_of(head_dim: int, bits: int) -> tuple[int, ...]:
    """Query rows for which there are kernels without tensor cores, for plain numbers of `bits`.

    float32 has no tensor core that keeps it exact. Of 16-bit numbers a single query head asks for
    too little arithmetic to be worth one; more rows are there for heads of 128, to compare.
    """
    if bits == 32:
        return (1, 4, 8) if head_dim in (64, 128) else (4,)
    return {64: (1,), 128: (1, 4, 8)}.get(head_dim, ())


def suits_tensor_cores(groups: int, head_dim: int, bits: int, plain: bool) -> bool:
    """Whether decode goes to tensor cores: `groups` query heads share keys of `bits` a number.

    By instructions a byte: at four query heads and bfloat16 the ordinary units issue five times as
    many as tensor cores and hardly keep up with an H200's memory; codes have half the bytes for the
    same arithmetic, and unpacking on top.
    """
    return not plain or (bits == 16 and not (groups == 1 and rows_of(head_dim, bits)))


def blocks_that_fit(registers: int, shared: int, device: Device = H200) -> int:
    """Blocks of THREADS threads that a multiprocessor holds at once.

    registers a thread, handed out eight at a time; shared bytes a block, and 1 KiB that the system
    takes of each.
    """
    by_registers = REGISTERS // (-(-registers // 8) * 8 * THREADS)
    return max(1, min(by_registers, (device.shared + 1024) // (shared + 1024)))


def rows_for(groups: int, choices: tuple[int, ...] = ROWS) -> int:
    """Query rows of a block: the least choice that holds a kv head's query heads, or the most.

    A row that is not there costs arithmetic and no bytes; a second tile would read every key again.
    """
    return next((rows for rows in choices if groups <= rows), choices[-1])


def splits_for(blocks: int, keys: int, sms: int, per_sm: int = BLOCKS_PER_SM) -> int:
    """Splits of each request's keys where only the longest is known: all get as many.

    blocks: requests · kv heads · tiles   keys: of the longest request

    `per_sm` blocks on every multiprocessor are one wave. The splits are rounded down to stay within
    it; requests that fill it without splits are not split.
    """
    room = sms * per_sm
    wanted = max(1, room // max(1, blocks))
    return max(1, min(wanted, MOST_SPLITS, keys // LEAST_KEYS))


def plan_decode(
    batch: int,
    num_kv_heads: int,
    groups: int,
    head_dim: int,
    keys: int | Sequence[int],
    *,
    choices: tuple[int, ...] = ROWS,
    splits: int | None = None,
    device: Device = H200,
    registers: Mapping[int, int] | None = None,
) -> DecodePlan:
    """How decode attention is launched; `splits` given by hand is taken as it is, for each request.

    keys: that each request reads, and blocks are balanced by them; or only the most that one reads,
    and every request gets as many splits
    choices: query rows of a block that there are kernels for (:func:`rows_of`)
    registers: what a thread of the kernel takes, by its rows; none known: BLOCKS_PER_SM blocks fit

    >>> plan_decode(1, 8, 4, 128, 65_536).splits  # 392 blocks, and there is room for 396
    (49,)
    >>> plan_decode(3, 8, 4, 128, [65_536, 500, 500]).splits
    (47, 1, 1)
    """
    rows = rows_for(groups, choices)
    tiles = -(-groups // rows)
    blocks = num_kv_heads * tiles
    shared = 4 * WARPS * rows * (head_dim + 2)  # a warp's o, m and l, as float
    taken = (registers or {}).get(rows)
    per_sm = blocks_that_fit(taken, shared, device) if taken else BLOCKS_PER_SM
    lens = None if isinstance(keys, int) else tuple(keys)
    if lens is not None and len(lens) != batch:
        raise ValueError(f"keys must be of {batch} requests, got {len(lens)}")
    if splits is not None:
        return DecodePlan(rows, tiles, (splits,) * batch, shared, lens)
    if lens is not None:
        return DecodePlan(rows, tiles, balanced(lens, blocks, device.sms * per_sm), shared, lens)
    assert isinstance(keys, int)
    even = splits_for(batch * blocks, keys, device.sms, per_sm)
    return DecodePlan(rows, tiles, (even,) * batch, shared)
