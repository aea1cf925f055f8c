"""What a plan has to do to the tables of requests, worked out before anything is changed.

`changes_of` says which blocks are given back, copied and added. `staying` and `take_out` serve the
rules that take tokens out from between others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array, to_numpy
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.table import Table
from kvlib.caches.layers import StoredLayers
from kvlib.caches.retention.rules import first_of
from kvlib.caches.retention.watched import positions_of
from kvlib.caches.step import Request
from kvlib.caches.store import Store
from kvlib.errors import OutOfBlocks
from kvlib.meter import report


class Change(NamedTuple):
    """What a plan does to one table before it grows.

    gone     tokens given back afterwards, where they are the first ones
    dropped  leading blocks that go with them
    stay     where tokens between others go: the numbers of those that stay; else None
    moved    from which block on those are moved into new blocks; None where they move within
             theirs, because nobody else holds these
    copied   whether its last block is copied first, because somebody else relies on it
    more     blocks to take after those
    """

    gone: int
    dropped: int
    stay: np.ndarray | None
    moved: int | None
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
                first = len(table.pages) if change.moved is None else change.moved
                free -= -(-change.stay.shape[-1] // size) - first
        found.append(own)
        if free < 0:
            raise OutOfBlocks(
                f"request {describe(request.name)} holds {request.length} tokens and {n} more "
                f"were asked "
                f"for, but the pool lacks {-free} block{'s' * (free < -1)} of {size} tokens "
                f"({pool.num_free} of {pool.num_blocks} are free); free a request, or make the "
                "pool larger"
            )
    return found


def _change(
    cache: StoredLayers, pool: BlockPool, g: int, request: Request, n: int, left: Counter[int]
) -> Change:
    size, rule, length = pool.block_size, cache.groups[g].retention, request.length
    table = request.state.tables[g]
    stay = staying(cache, g, request) if rule.holes else None
    if stay is not None:
        gone, moved = length - stay.shape[-1], first_changed(stay) // size
        more = -(-(length + n - gone) // size) - -(-stay.shape[-1] // size)
        alone = all(pool.references(block) == 1 for block in table.pages[moved:])
        return Change(gone, 0, stay, None if alone else moved, False, more)
    gone = table.gone if rule.holes else given_back(cache, g, request, size)
    dropped = (gone - table.gone) // size
    more = -(-(length + n - gone) // size) - (len(table.pages) - dropped)
    return Change(gone, dropped, None, 0, must_copy(pool, table, length, left), more)


def given_back(cache: StoredLayers, g: int, request: Request, unit: int) -> int:
    """How many first tokens a group has no use for: whole units of those that it has stored."""
    gone = request.state.tables[g].gone
    first = first_of(cache.groups[g].retention, cache.kept_by(request))
    return gone if first <= gone else max(gone, min(first, cache.settled(request)) // unit * unit)


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


def staying(cache: StoredLayers, g: int, request: Request) -> np.ndarray | None:
    """Which stored tokens of a group stay: their numbers (n,), or None where all do.

    (Hkv, n) where each kv head keeps its own.
    """
    table, rule = request.state.tables[g], cache.groups[g].retention
    if cache.kept_by(request) < request.length:  # it can still be taken back to before a gap
        return None
    if rule.alone:
        return best(cache, g, request)
    positions = table.positions(request.length)
    if not len(positions):
        return None
    stays = np.asarray(rule.kept(positions, request.length))
    if stays.shape != positions.shape or stays.dtype != bool:
        raise ValueError(
            f"kept of {rule!r} must give one boolean for each of {len(positions)} tokens, got "
            f"{stays.dtype} of shape {stays.shape}"
        )
    waits = len(stays) - int(stays.sum()) < rule.every
    return None if waits else np.flatnonzero(stays)


def best(cache: StoredLayers, g: int, request: Request) -> np.ndarray | None:
    """The numbers (Hkv, budget) of the tokens of highest score; None while there is room."""
    rule: Any = cache.groups[g].retention  # a Scored: no other rule is `alone`
    table = request.state.tables[g]
    if request.length - table.gone < rule.budget + rule.every:
        if table.watched is not None and table.watched.q is not None:
            folded(cache, g, request, cache.decoded(g, request)[0])
        return None
    k, v = cache.decoded(g, request)
    score = rule.policy.score(folded(cache, g, request, k), k, v)
    if getattr(score, "shape", None) != k.shape[:2]:
        raise ValueError(
            f"score of {rule.policy!r} must give a number for each of {k.shape[1]} tokens in each "
            f"of {k.shape[0]} kv heads, got {describe(score)}"
        )
    return to_numpy(rule.chosen(score)).astype(np.int64)


def folded(cache: StoredLayers, g: int, request: Request, k: Array) -> Any:
    """What a policy has noted of the stored keys k (Hkv, S, D), the last step included."""
    table, rule = request.state.tables[g], cache.groups[g].retention
    if table.watched is None:
        return None
    policy, spec = getattr(rule, "policy", None), cache.layers[cache.groups[g].layers[0]]
    table.watched.folding = table.watched.folded(policy, spec, k, table.gone)
    return table.watched.folding


def take_out(
    cache: StoredLayers,
    g: int,
    request: Request,
    stay: np.ndarray,
    pages: list[int] | None = None,
    stores: Mapping[int, Store] | None = None,
) -> None:
    """Move the tokens that stay together.

    stay: their numbers, from `staying`. pages: those they are moved into, from the first page that
    changes on; its own unless given. stores: for each layer the arrays with those pages, if all
    tokens move into others.
    """
    table = request.state.tables[g]
    positions = table.positions(request.length)
    changed = first_changed(stay) if stores is None else 0
    for layer in cache.groups[g].layers:
        store = cache.store(table, layer)
        target = store if stores is None else stores[layer]
        page = changed // store.size
        start = page * store.size if pages is not None else changed
        which = stay[..., start:] - page * store.size
        into = table.pages[page:] if pages is None else pages
        slots = table.pages[page:], which, into, start - page * store.size
        both = zip(store.both, target.both, strict=True)
        copied = sum(mine.gather_into(other, *slots) for mine, other in both)
        report("move", copied=copied)
    if table.watched is not None:
        table.watched.settle(request.length, stay)
    table.kept, table.since = positions_of(stay, positions), request.length
    table.gone = request.length - stay.shape[-1]


def first_changed(stay: np.ndarray) -> int:
    """The first slot in which another token will lie."""
    n = stay.shape[-1]
    if n == 0:
        return 0
    same = (stay == np.arange(n)).reshape(-1, n).all(axis=0)
    return n if same.all() else int(np.argmin(same))
