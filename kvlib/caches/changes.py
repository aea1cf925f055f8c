"""What a plan has to do to block tables, worked out before anything is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvlib.caches.blocks import BlockPool
from kvlib.caches.layers import StoredLayers
from kvlib.caches.step import Request
from kvlib.caches.table import Table
from kvlib.caches.takeout import first_changed, staying
from kvlib.errors import OutOfBlocks


class Change(NamedTuple):
    """What a plan does to one table before it grows.

    gone     tokens given back afterwards, where they are the first ones
    dropped  leading blocks that go with them
    stay     where tokens between others go: the numbers of those that stay; else None
    moved    from which block on those are moved into new blocks
    copied   whether its last block is copied first, because somebody else relies on it
    more     blocks to take behind those
    """

    gone: int
    dropped: int
    stay: np.ndarray | None
    moved: int
    copied: bool
    more: int


def changes_of(
    cache: StoredLayers, pool: BlockPool, requests: list[Request], q_lens: Sequence[int]
) -> list[list[Change]]:
    """What to do for each request and group of layers; OutOfBlocks where the pool is too small.

    Blocks that are let go in this plan, by all who hold them, count as free.
    """
    size, free = pool.block_size, pool.num_free
    found: list[list[Change]] = []
    left, let_go = Counter[int](), Counter[int]()
    for request, n in zip(requests, q_lens, strict=True):
        own = []
        for g, table in enumerate(request.state.tables):
            change = _change(cache, pool, g, request, n, left)
            own.append(change)
            for block in table.pages[: change.dropped]:
                let_go[block] += 1
                free += let_go[block] == pool.references(block)
            free -= change.more + change.copied
            if change.stay is not None:
                free -= -(-len(change.stay) // size) - change.moved
        found.append(own)
        if free < 0:
            name = next(s for s, r in cache._requests.items() if r is request)
            raise OutOfBlocks(
                f"request {name!r} holds {request.length} tokens and {n} more were asked for: "
                f"{-free} blocks of {size} too few ({pool.num_free} of {pool.num_blocks} are free)"
            )
    return found


def _change(
    cache: StoredLayers, pool: BlockPool, g: int, request: Request, n: int, left: Counter[int]
) -> Change:
    size, rule, length = pool.block_size, cache.groups[g].retention, request.length
    table = request.state.tables[g]
    stay = staying(cache, g, request) if rule.holes else None
    if stay is not None:
        gone, moved = length - len(stay), first_changed(stay) // size
        more = -(-(length + n - gone) // size) - -(-len(stay) // size)
        return Change(gone, 0, stay, moved, False, more)
    first = 0 if rule.holes else rule.first(cache.kept_by(request))
    dropped = 0
    if first > table.gone:
        dropped = max(0, min(first, cache.held(request)) // size - table.gone // size)
    gone = table.gone + dropped * size
    more = -(-(length + n - gone) // size) - (len(table.pages) - dropped)
    return Change(gone, dropped, None, 0, must_copy(pool, table, length, left), more)


def must_copy(pool: BlockPool, table: Table, length: int, left: Counter[int]) -> bool:
    """Whether the next token would be written into a block that somebody else relies on.

    That is a block which another request holds too, or which a lookup can find; it is copied
    first. Of several requests that hold one block and write in the same plan, the last needs no
    copy: `left` counts, for each block, how many before it have been given theirs.
    """
    if (length - table.gone) % pool.block_size == 0:
        return False
    block = table.pages[(length - table.gone) // pool.block_size]
    holders = pool.references(block) - left[block]
    if holders == 1 and block not in pool.index:
        return False
    left[block] += 1
    return True
