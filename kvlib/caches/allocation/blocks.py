"""Blocks: pages that requests take from a pool as they grow."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from kvlib.arguments import check_integer, describe, type_of
from kvlib.caches.allocation.changes import changes_of, take_out
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.sharing import Sharing
from kvlib.caches.allocation.table import Allocator, State
from kvlib.caches.layers import StoredLayers
from kvlib.caches.retention.rules import (
    LayerGroup,
    Retention,
    alike,
    first_of,
    layer_groups,
)
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import Extra, Request
from kvlib.caches.store import Store
from kvlib.errors import OutOfBlocks
from kvlib.meter import report


class Blocks(Allocator):
    """Blocks of ``pool.block_size`` tokens; a request has one block table per group of layers.

    All groups draw from one pool. If layers keep different tokens but have the same shape, the
    groups get equally many layers each, so that a block takes the same bytes in all of them
    (`layer_groups`). If the shapes differ, too, each group has arrays of its own, with room for
    every block of the pool. When one group uses a block, its room in the other groups' arrays stays
    unused. If the pool has too few free blocks for a call, it raises OutOfBlocks and changes
    nothing.

    >>> Blocks(BlockPool(8, block_size=16)).size
    16
    """

    size_name, one_page = "block_size", False

    def __init__(self, pool: BlockPool) -> None:
        if not isinstance(pool, BlockPool):
            raise TypeError(f"pool must be a BlockPool, got {type_of(pool)}")
        self.pool, self.size = pool, pool.block_size

    def groups(self, layers: Sequence[LayerSpec], rules: Sequence[Retention]) -> list[LayerGroup]:
        return layer_groups(layers, rules)

    def serve(self, cache: StoredLayers) -> list[Store]:
        self.cache = weakref.proxy(cache)  # a cache goes as soon as nobody holds it
        holes = next((g.retention for g in cache.groups if g.retention.holes), None)
        if holes is not None and self.pool.own_index:
            raise ValueError(
                f"the pool finds blocks again by a {type(self.pool.index).__name__}, but {holes!r} "
                "takes tokens out of blocks, which then no longer hold the tokens that they would "
                "be found by; leave index out of the BlockPool, or keep all tokens"
            )
        self.pool.claim()
        self.sharing = Sharing(self.pool, cache.groups)
        # Groups of one shape share arrays, because a block belongs to one group at a time.
        one = len(cache.groups) > 1 and alike(cache.layers)
        where = {x: n if one else x for group in cache.groups for n, x in enumerate(group.layers)}
        made: dict[int, Store] = {}
        for layer, key in where.items():
            if key not in made:
                spec, blocks = cache.layers[layer], self.pool.num_blocks
                made[key] = Store(cache.xp, cache.codec, spec, blocks, self.size, cache.dtype)
        return [made[where[layer]] for layer in range(len(cache.layers))]

    # Opening and closing ------------------------------------------------------------------------

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        residuals = self.cache.new_residuals()  # first, because there may be no memory for them
        # Never the last token: somebody wants its logits.
        held, tables, node = self.sharing.take(tokens[:-1], extra)
        state = State(tables, residuals, held, list(tokens[:held]), extra)
        state.published, state.node = held // self.size, node
        return state

    def copy(self, source: Request, seq_id: Hashable, state: State) -> None:
        state.tables = [table.copy() for table in source.state.tables]
        for table in state.tables:
            self.pool.touch(table.pages)
        state.published, state.node = source.state.published, source.state.node
        self.sharing.hold(state.node)

    def release(self, request: Request) -> None:
        self.settle(request)
        self.sharing.leave_blocks(request.state)
        for table in request.state.tables:
            self.pool.free(table.pages)

    def settle(self, request: Request) -> None:
        """Let lookups find the blocks that the last step filled; that step is now final."""
        state = request.state  # blocks behind a gap do not surely hold their text
        self.sharing.publish(state, min(len(state.tokens), self.cache.kept_by(request)))

    def truncate(self, request: Request, length: int) -> None:
        state = request.state
        for table in state.tables:
            keep = max(0, -(-(length - table.gone) // self.size)) if length else 0
            self.pool.free(table.pages[keep:])
            del table.pages[keep:]
        super().truncate(request, length)
        del state.tokens[length:]
        self.sharing.go_back(state, length // self.size)

    # Growing ------------------------------------------------------------------------------------

    def reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> None:
        changes = changes_of(self.cache, self.pool, requests, q_lens)
        for request, own in zip(requests, changes, strict=True):
            self.settle(request)
            for g, (table, change) in enumerate(zip(request.state.tables, own, strict=True)):
                if change.stay is not None and change.moved is None:
                    self._move(g, request, change.stay, None)
                if change.dropped:
                    self.pool.free(table.pages[: change.dropped])
                    del table.pages[: change.dropped]
                    table.gone, table.since = change.gone, self.cache.kept_by(request)
        at = 0
        for request, n, own in zip(requests, q_lens, changes, strict=True):
            state = request.state
            for g, (table, change) in enumerate(zip(state.tables, own, strict=True)):
                if change.stay is not None and change.moved is not None:
                    self._move(g, request, change.stay, change.moved)
                elif change.copied:
                    self._copy_last(g, request)
                table.pages.extend(self.pool.allocate(change.more))
            if tokens is not None and len(state.tokens) == request.length:
                state.tokens.extend(tokens[at : at + n])
            at += n

    def _copy_last(self, g: int, request: Request) -> None:
        table, copied = request.state.tables[g], 0
        old, (new,) = table.pages[-1], self.pool.allocate(1)
        used = self.cache.settled(request) - table.gone - (len(table.pages) - 1) * self.size
        for layer in self.cache.groups[g].layers if used > 0 else ():
            copied += self.cache.stores[layer].move(self.cache.stores[layer], old, new, 0, used)
        table.pages[-1] = new
        self.pool.free([old])
        report("copy on write", copied=copied)

    def _move(self, g: int, request: Request, stay: np.ndarray, moved: int | None) -> None:
        """Move what stays together, into new blocks if others hold one of the old ones."""
        table, needed = request.state.tables[g], -(-stay.shape[-1] // self.size)
        if moved is None:
            take_out(self.cache, g, request, stay)
            self.pool.free(table.pages[needed:])
            del table.pages[needed:]
            return
        new = self.pool.allocate(needed - moved)
        take_out(self.cache, g, request, stay, new)
        self.pool.free(table.pages[moved:])
        table.pages[moved:] = new

    # Before a request is opened -----------------------------------------------------------------

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Raise OutOfBlocks if the whole pool is too small for a request of `length` tokens."""
        length = check_integer("length", length, 0)
        rules = [group.retention for group in self.cache.groups]
        held = [length - first_of(rule, length - 1) if not rule.holes else 0 for rule in rules]
        needed = sum(-(-n // self.size) for n in held)
        if needed > self.pool.num_blocks:
            room = self.pool.num_blocks * self.size // len(rules)
            raise OutOfBlocks(
                f"request {describe(seq_id)} may grow to {length} tokens, and the cache has room "
                f"for "
                f"{room}: {self.pool.num_blocks} blocks"
            )

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether another request is filling a block that this prompt also begins with.

        Lookups find that block as soon as it is full; the prompt should be opened then.
        """
        size = self.size
        for name, other in others if self.sharing.possible else ():
            end = (self.cache.seq_len(name) // size + 1) * size  # of the block that comes next
            if end >= len(tokens) or end > len(other):  # a prompt's last token is always computed
                continue
            if tokens[end - size : end] == other[end - size : end] and tokens[:end] == other[:end]:
                return True
        return False
