"""Work items: which keys of which request a block reads, cut so that blocks end together.

The keys of a batch are cut into items of near-equal size: a request of n keys has n / size of them,
rounded up, and at least one. A block takes an item for one kv head. What is decided here is
how many splits each request has, and in which order they start; the first and last key of a split
are worked out by its block, from the lengths on the device. So a plan that was made for other
lengths is never wrong, only less even.

One size for all requests, so that the longest cannot keep the device waiting, is also what
the plans of FlashInfer 0.7.2 use (include/flashinfer/attention/scheduler.cuh).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

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

    Blocks run in waves of `room`. For each number of waves, from the least that has room for all
    requests on, the size is the smallest whose blocks fit. A wave takes as long as an item, and
    `least` keys more for what a block does besides reading. The least time decides.

    >>> balanced((65_536,), 8, 396)  # one request fills the room by itself
    (49,)
    >>> splits = balanced((65_536, *63 * [500]), 8, 396)
    >>> splits[:3], sum(splits)
    ((128, 1, 1), 191)
    """
    if not lens:
        return ()
    longest = max(1, *lens) if len(lens) > 1 else max(1, lens[0])
    shortest = min(longest, max(least, -(-longest // MOST_SPLITS)))
    keys = np.maximum(np.array(lens, dtype=np.int64), 1)
    first = max(1, -(-len(lens) * blocks // room))
    best, size = None, longest
    for waves in range(first, first + MORE_WAVES):
        found = _smallest(keys, waves * room // blocks, shortest, longest)
        time = waves * (found + least)
        if best is None or time < best:
            best, size = time, found
    return tuple((-(-keys // size)).tolist())


def _smallest(keys: np.ndarray, allowed: int, least: int, longest: int) -> int:
    """The smallest size, from `least` on, that makes at most `allowed` items."""
    total, spare = int(keys.sum()), allowed - len(keys)
    if spare <= 0:
        return longest
    # Rounding up adds less than one item per request, so the answer lies between two quotients.
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
    """The work items of one call, as arrays where the kernels are to find them.

    items: of each piece, (n, 4) int32: request, split, splits, part; the longest first. None where
    all requests have equally many splits, in order
    first (B + 1,) int32: each request's first part, or None likewise; parts: of all requests;
    most: of one. A request with one part has none to merge; its blocks write the result.
    """

    items: tuple[np.ndarray | None, ...]
    first: np.ndarray | None
    parts: int
    most: int


def work_of(splits: Sequence[Sequence[int]], lens: Sequence[Sequence[int]] = ()) -> Work:
    """Work items from each piece's splits (B,) of a batch; lens: keys of each, for the order.

    >>> work = work_of([(1, 3)], [(500, 900)])
    >>> work.items[0].tolist(), work.first.tolist()  # request 1 first, for its splits are longer
    ([[0, 0, 1, -1], [1, 0, 3, 0], [1, 1, 3, 1], [1, 2, 3, 2]], [0, 0, 3])
    """
    counts = np.array(splits, dtype=np.int32)  # (pieces, B)
    of_request = counts.sum(axis=0)
    most = int(of_request.max(initial=1))
    if len(counts) == 1 and len({*splits[0]}) <= 1:
        return Work((None,), None, int(of_request.sum()) if most > 1 else 0, most)
    held = np.where(of_request > 1, of_request, 0)
    first = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
    items, before = [], first[:-1].copy()
    for i, own in enumerate(counts):
        request = np.repeat(np.arange(len(own), dtype=np.int32), own)
        split = np.arange(len(request), dtype=np.int32) - np.repeat(np.cumsum(own) - own, own)
        part = np.where(of_request[request] > 1, before[request] + split, -1)
        table = np.stack([request, split, own[request], part], axis=1).astype(np.int32)
        if lens:
            each = -(-np.array(lens[i]) // np.maximum(own, 1))
            table = table[np.argsort(-each[request], kind="stable")]
        items.append(table)
        before += own
    return Work(tuple(items), first, int(held.sum()), most)


def work_of_rows(splits: Sequence[int], q_lens: Sequence[int], lens: Sequence[int]) -> Work:
    """The same where a request has several rows of queries: prefill_tree.cu.

    splits, q_lens, lens (B,): of each request its splits, new tokens and keys
    Each token has as many parts as its request has splits, one behind the other; an item holds the
    part of the request's first token. `first` (T + 1,) is each token's first part.

    >>> work = work_of_rows([1, 2], [1, 3], [40, 900])
    >>> work.items[0].tolist(), work.first.tolist(), work.parts
    ([[1, 0, 2, 0], [1, 1, 2, 1], [0, 0, 1, -1]], [0, 0, 2, 4, 6], 6)
    """
    held = [s if s > 1 else 0 for s in splits]
    of_token = np.repeat(np.array(held, dtype=np.int64), np.array(q_lens, dtype=np.int64))
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
    """Keys that the busiest place reads, and the share of the places' time that is idle.

    A place holds one block at a time. The place that ends first gets the next block; the longest
    blocks come first.
    This counts places and keys. On a device a block that is left alone reads faster, so an idle
    place costs less than its share.

    >>> lens = (65_536, *63 * [500])
    >>> plans = [1] * 64, balanced(lens, 8, 396)
    >>> [round(handed_out(lens, splits, 8, 396)[1], 2) for splits in plans]
    [0.97, 0.04]
    """
    sizes = sorted(
        (end - begin for n, s in zip(lens, splits, strict=True) for begin, end in ranges(n, s)),
        reverse=True,
    )
    places = [0] * room
    for keys in sizes:
        for _ in range(blocks):
            heapq.heappush(places, heapq.heappop(places) + keys)
    busiest = max(places)
    return busiest, 1 - sum(places) / (room * busiest) if busiest else 0.0


def ranges(keys: int, splits: int) -> list[tuple[int, int]]:
    """First key and end of each split, as the kernels work them out (work.cuh).

    >>> ranges(100, 3)
    [(0, 34), (34, 68), (68, 100)]
    """
    each = -(-keys // splits)
    return [(min(keys, i * each), min(keys, (i + 1) * each)) for i in range(splits)]
