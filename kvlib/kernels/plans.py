"""Launch choices: pure arithmetic on sizes, so that each can be tested and explained.

A decode step has few query rows and many keys. One block per kv head leaves most of a device idle
(8 kv heads feed 8 of 132 multiprocessors), so the keys are split between blocks; every split costs
one more partial result to merge. If the lengths of a batch are known, its keys are cut into work
items of near-equal size, as in FlashInfer 0.7.2 (include/flashinfer/attention/scheduler.cuh). A
block takes an item for one kv head and computes its first and last key from the lengths on the
device, so a plan that was made for other lengths is never wrong, only less even.
"""

import heapq
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kvlib.arrays import Array, namespace
from kvlib.kernels.launch import H200, Device

THREADS = 128
WARPS = THREADS // 32
REGISTERS = 65_536  # of a multiprocessor, on each capability that kernels are compiled for
# Blocks of decode that a multiprocessor holds at once where nothing else is known: a thread takes
# up to 168 registers, and a block has 128 threads.
BLOCKS_PER_SM = 3
UNROLL = 4  # keys of a group of lanes in flight at a time (layouts.cuh)
ROWS = (1, 2, 4, 8)  # query heads of one kv head in a block


class DecodePlan(NamedTuple):
    """rows of query heads a block   tiles of rows a kv head   splits (B,) of each request's keys
    shared: bytes of shared memory a block   lens (B,): keys of each, where they were known
    warps of a block   measured: template arguments that were the fastest on this card, if any
    """

    rows: int
    tiles: int
    splits: tuple[int, ...]
    shared: int
    lens: tuple[int, ...] | None = None
    warps: int = WARPS
    measured: tuple[int, ...] = ()

    @property
    def merges(self) -> bool:
        """Whether partial results are merged."""
        return max(self.splits, default=1) > 1


def rows_of(head_dim: int, bits: int) -> tuple[int, ...]:
    """Return the query rows of kernels without tensor cores, for plain numbers of `bits`."""
    if bits == 32:
        return (1, 4, 8) if head_dim in (64, 128) else (4,)
    return {64: (1,), 128: (1, 4, 8)}.get(head_dim, ())


def tensor_rows_of(head_dim: int) -> tuple[int, ...]:
    """Return the query rows of kernels with tensor cores: a product of eight columns, or two."""
    return (4, 8) if head_dim <= 128 else (4,)


def tensor_warps_of(head_dim: int, rows: int, plain: bool) -> int:
    """Return the warps of a block with tensor cores (Codec::warps in pair_codecs.cuh)."""
    return 8 if plain and head_dim <= 128 and rows == 4 else WARPS


def suits_tensor_cores(groups: int, head_dim: int, bits: int, plain: bool) -> bool:
    """Return whether tensor cores decode when `groups` query heads share keys of `bits` a number.

    At four query heads and bfloat16, ordinary units issue five times as many instructions a byte
    and hardly keep up with an H200's memory. Codes have half the bytes, and are unpacked as well.
    """
    return not plain or (bits == 16 and not (groups == 1 and rows_of(head_dim, bits)))


def blocks_that_fit(
    registers: int, shared: int, device: Device = H200, threads: int = THREADS
) -> int:
    """How many blocks with these registers per thread and shared bytes fit a multiprocessor."""
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    return max(1, min(by_registers, (device.shared + 1024) // (shared + 1024)))


def rows_for(groups: int, choices: tuple[int, ...] = ROWS) -> int:
    """Query rows of a block: the least choice that holds a kv head's query heads, or the most.
    A row too many costs arithmetic and no bytes; a second tile would read every key again."""
    return next((rows for rows in choices if groups <= rows), choices[-1])


def splits_for(blocks: int, keys: int, room: int, tensor: bool) -> int:
    """Return equal splits for all requests, in one wave of blocks.

    blocks: requests · kv heads · tiles   keys: of the longest request   room: blocks of a wave
    On an H200, a key takes a block of ordinary units 60 ns (float32, three heads of 64), and one of
    tensor cores 9 ns (float16, four). Merging two splits takes as long as 250 keys of the latter.
    """
    wanted = keys // 32 if not tensor else keys // 256 if keys > 512 else 1
    return max(1, min(wanted, MOST_SPLITS, room // max(1, blocks)))


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
    registers: Mapping[int, int | None] | None = None,
    warps: Mapping[int, int] | None = None,
) -> DecodePlan:
    """How decode attention is launched.

    keys: that each request reads, by which blocks are balanced; or only the most that one reads,
    and every request gets as many splits
    choices: query rows of a block that there are kernels for (:func:`rows_of`)
    splits: of each request, instead of the plan's
    registers: that a thread of the kernel takes, by its rows; unknown: BLOCKS_PER_SM blocks fit
    warps: of a block of the kernel, by its rows; WARPS unless given
    """
    rows = rows_for(groups, choices)
    tiles = -(-groups // rows)
    blocks = num_kv_heads * tiles
    in_block = (warps or {}).get(rows, WARPS)
    shared = 4 * in_block * rows * (head_dim + head_dim // 8 + 8)  # a warp's o, m and l, as float
    taken = (registers or {}).get(rows)
    per_sm = max(1, BLOCKS_PER_SM * WARPS // in_block)
    if taken:
        per_sm = blocks_that_fit(taken, shared, device, 32 * in_block)
    lens = None if isinstance(keys, int) else tuple(keys)
    if lens is not None and len(lens) != batch:
        raise ValueError(f"keys must be of {batch} requests, got {len(lens)}")
    if splits is not None:
        chosen = (splits,) * batch
    elif lens is not None:
        chosen = balanced(lens, blocks, device.sms * per_sm)
    else:
        assert isinstance(keys, int)
        room = device.sms * per_sm
        chosen = (splits_for(batch * blocks, keys, room, warps is not None),) * batch
    return DecodePlan(rows, tiles, chosen, shared, lens, in_block)


LEAST_KEYS = 128  # a split: fewer, and merging costs more than the split gains
MOST_SPLITS = 128  # of one request
MORE_WAVES = 4  # numbers of waves that are compared


@lru_cache(maxsize=256)
def balanced(
    lens: tuple[int, ...], blocks: int, room: int, least: int = LEAST_KEYS
) -> tuple[int, ...]:
    """Splits of each request's keys.

    lens: keys that each request reads   blocks: that read each item (kv heads · tiles)
    room: blocks that are resident at once   least: keys of a split

    Blocks run in waves of `room`. A wave takes as long as an item and `least` keys more, for what a
    block does besides reading. The number of waves with the least time decides.

    >>> balanced((65_536,), 8, 396)  # one request fills the room by itself
    (49,)
    >>> splits = balanced((65_536, *63 * [500]), 8, 396)
    >>> splits[:3], sum(splits)
    ((128, 1, 1), 191)
    """
    if not lens:
        return ()
    longest = max(1, *lens)
    shortest = min(longest, max(least, -(-longest // MOST_SPLITS)))
    keys = np.maximum(np.array(lens, dtype=np.int64), 1)
    first = max(1, -(-len(lens) * blocks // room))
    best, size = None, longest
    for waves in range(first, first + MORE_WAVES):
        candidate = _smallest(keys, waves * room // blocks, shortest, longest)
        time = waves * (candidate + least)
        if best is None or time < best:
            best, size = time, candidate
    return tuple((-(-keys // size)).tolist())


def _smallest(keys: np.ndarray, allowed: int, least: int, longest: int) -> int:
    """The smallest size, from `least` on, that makes at most `allowed` items."""
    total, spare = int(keys.sum()), allowed - len(keys)
    if spare <= 0:
        return longest
    # Rounding up adds less than one item per request, so the answer is between two quotients.
    low = min(longest, max(least, -(-total // allowed)))
    high = max(low, min(longest, total // spare + 1))
    while low < high:
        middle = (low + high) // 2
        if int((-(-keys // middle)).sum()) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


class Work(NamedTuple):
    """The work items of one call.

    items: of each piece, (n, 4) int32: request, split, splits, part; the longest first. None where
    all requests have equally many splits, in order
    first (B + 1,) int32: each request's first part, or None likewise   parts: of all requests
    most: of one. A request with one part has none to merge; its blocks write the result.
    """

    items: tuple[Array | None, ...]
    first: Array | None
    parts: int
    most: int

    def on_device_of(self, x: Array) -> "Work":
        """The same with its arrays in the library and on the device of x."""
        xp = namespace(x)
        sent = [None if a is None else xp.asarray(a) for a in (*self.items, self.first)]
        return self._replace(items=tuple(sent[:-1]), first=sent[-1])


def work_of(splits: Sequence[Sequence[int]], lens: Sequence[Sequence[int]] = ()) -> Work:
    """Work items from each piece's splits (B,) of a batch; lens: keys of each, for the order."""
    counts = np.array(splits, dtype=np.int32)  # (pieces, B)
    of_request = counts.sum(axis=0)
    most = int(of_request.max(initial=1))
    if len(counts) == 1 and len({*splits[0]}) <= 1:
        return Work((None,), None, int(of_request.sum()) if most > 1 else 0, most)
    merged = np.where(of_request > 1, of_request, 0)
    first = np.concatenate([[0], np.cumsum(merged)]).astype(np.int32)
    items, before = [], first[:-1].copy()
    for i, shares in enumerate(counts):
        request = np.repeat(np.arange(len(shares), dtype=np.int32), shares)
        firsts = np.repeat(np.cumsum(shares) - shares, shares)
        split = np.arange(len(request), dtype=np.int32) - firsts
        part = np.where(of_request[request] > 1, before[request] + split, -1)
        table = np.stack([request, split, shares[request], part], axis=1).astype(np.int32)
        if lens:
            each = -(-np.array(lens[i]) // np.maximum(shares, 1))
            table = table[np.argsort(-each[request], kind="stable")]
        items.append(table)
        before += shares
    return Work(tuple(items), first, int(merged.sum()), most)


def work_of_rows(splits: Sequence[int], q_lens: Sequence[int], lens: Sequence[int]) -> Work:
    """Work items where a request has several rows of queries: prefill_tree.cu.

    splits, q_lens, lens (B,): of each request its splits, new tokens and keys
    Each token has as many parts as its request has splits, in order; an item holds the part of the
    request's first token. `first` (T + 1,) is each token's first part.
    """
    merged = [s if s > 1 else 0 for s in splits]
    of_token = np.repeat(np.array(merged, dtype=np.int64), np.array(q_lens, dtype=np.int64))
    first = np.concatenate([[0], np.cumsum(of_token)]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int64)
    items = [
        (b, i, s, int(first[starts[b]]) + i if s > 1 else -1)
        for b, s in enumerate(splits)
        for i in range(s)
    ]
    items.sort(key=lambda item: -lens[item[0]] // item[2])  # the longest first
    table = np.array(items, dtype=np.int32).reshape(-1, 4)
    return Work((table,), first, int(first[-1]), max(splits, default=1))


def handed_out(
    lens: Sequence[int], splits: Sequence[int], blocks: int, room: int
) -> tuple[int, float]:
    """Return the keys that the busiest slot reads, and the idle share of the slots' time.

    A slot runs one block at a time, the longest first. On a device a block that runs alone reads
    faster, so an idle slot costs less than its share.

    >>> lens = (65_536, *63 * [500])
    >>> plans = [1] * 64, balanced(lens, 8, 396)
    >>> [round(handed_out(lens, splits, 8, 396)[1], 2) for splits in plans]
    [0.97, 0.04]
    """
    sizes = sorted(
        (end - begin for n, s in zip(lens, splits, strict=True) for begin, end in ranges(n, s)),
        reverse=True,
    )
    slots = [0] * room
    for keys in sizes:
        for _ in range(blocks):
            heapq.heappush(slots, heapq.heappop(slots) + keys)
    busiest = max(slots)
    return busiest, 1 - sum(slots) / (room * busiest) if busiest else 0.0


def ranges(keys: int, splits: int) -> list[tuple[int, int]]:
    """First key and end of each split, as the kernels work them out (work.cuh)."""
    each = -(-keys // splits)
    return [(min(keys, i * each), min(keys, (i + 1) * each)) for i in range(splits)]


FEW_TILES = 4  # of rows of one kv head: with more, a step makes blocks enough without splits


class PrefillPlan(NamedTuple):
    """rows of queries and keys of a tile   shared: bytes a block   tensor: tensor cores or not

    bands: of 16 rows that a warp has   stages: tiles of keys in shared memory at once
    warpgroups: that multiply 64 rows each (prefill_wgmma.cu), or 0
    """

    rows: int
    keys: int
    shared: int
    tensor: bool
    bands: int = 1
    stages: int = 1
    warpgroups: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.warpgroups:
            return THREADS * (self.warpgroups + 1)  # one copies
        return 2 * self.rows // self.bands if self.tensor else THREADS

    def tiles(self, rows: int) -> int:
        """Blocks that so many rows of one kv head take."""
        return max(1, -(-rows // self.rows))


def tiled(head_dim: int, bands: int, warps: int, keys: int, stages: int) -> PrefillPlan:
    """The plan of prefill_tiles.cuh with these template arguments."""
    rows = 16 * bands * warps
    numbers = 2 * stages * keys + (rows if bands > 1 or head_dim > 128 else 0)
    return PrefillPlan(rows, keys, 2 * head_dim * numbers, True, bands, stages)


def plan_prefill(
    head_dim: int, itemsize: int, rows: int = 1 << 30, device: Device = H200
) -> PrefillPlan:
    """How attention of many query tokens is launched; rows: of a kv head in a request, at most.

    Each key that a warp has read from shared memory serves its two bands of 16 rows: with one,
    shared memory would keep the tensor cores waiting. So few rows that one band each is enough for
    four warps wait for the device's memory instead. In a head of 256, one band fills the registers,
    so eight warps share the keys of a block, where a block may have that much shared memory.
    """
    if itemsize == 2:
        if head_dim > 128:
            plan = tiled(head_dim, 1, 8, 64, 2)
            fits = rows > 64 and plan.shared <= device.shared
            return plan if fits else tiled(head_dim, 1, 4, 32, 2)
        if rows <= 64:
            return tiled(head_dim, 1, 4, 32, 4)
        return tiled(head_dim, 2, 4, 64, 2 if head_dim > 96 else 3)
    rows, keys = 32, 16 if head_dim > 128 else 32
    return PrefillPlan(
        rows, keys, 4 * ((rows + 2 * keys) * (head_dim + 4) + rows * (keys + 1)), False
    )


WIDE_ROWS = 32  # of a kv head in a request: from here on warpgroups were faster on an H200


def suits_warpgroups(itemsize: int, block_size: int, dense: bool) -> bool:
    """Return whether prefill_wgmma.cu can read such keys: the copy engine copies eight or more."""
    return itemsize == 2 and (dense or block_size >= 8)


def plan_warpgroups(head_dim: int) -> PrefillPlan:
    """Return the plan of prefill_wgmma.cu. Rows take whole 128 bytes, and barriers 8 bytes each.
    A head of 64 needs fewer registers, so a third warpgroup fits and shares the same keys."""
    sides, stages = 3 if head_dim == 64 else 2, 2
    keys = 64 if head_dim > 128 else 128
    row = -(-head_dim // 64) * 128
    shared = 1024 + (64 * sides + 2 * stages * keys) * row + 8 * (3 + 4 * stages)
    return PrefillPlan(64 * sides, keys, shared, True, stages=stages, warpgroups=sides)


def splits_of_rows(
    plan: PrefillPlan,
    q_lens: Sequence[int],
    lens: Sequence[int],
    num_kv_heads: int,
    groups: int,
    device: Device = H200,
) -> tuple[int, ...]:
    """Splits (B,) of each request's keys in a step of few new tokens; one each in any other step.

    q_lens, lens (B,): new tokens, and keys that are read   groups: query heads of a kv head

    A split writes and reads a float32 result for each row, so it takes enough keys that these bytes
    are at most theirs: with 16-bit numbers 2 keys per row. Two blocks on a multiprocessor keep the
    memory as busy as three do, and make fewer results.
    """
    rows = max(q_lens, default=0) * groups
    if rows > FEW_TILES * plan.rows:
        return (1,) * len(q_lens)
    room = device.sms * blocks_that_fit(255, plan.shared, device)
    least = max(LEAST_KEYS, 4 * rows // (2 if plan.tensor else 4))
    return balanced(tuple(lens), num_kv_heads * plan.tiles(rows), room, least)
