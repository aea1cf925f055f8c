"""Rows: room for each request, set aside in advance."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from kvlib.arguments import check_integer, describe
from kvlib.caches.allocation.changes import given_back, staying, take_out
from kvlib.caches.allocation.table import Allocator, State, Table
from kvlib.caches.layers import StoredLayers
from kvlib.caches.step import Extra, Request
from kvlib.caches.store import Store
from kvlib.errors import CacheFull
from kvlib.meter import report


class Rows(Allocator):
    """A row for each of `max_seqs` requests of up to `max_seq_len` tokens, in every layer.

    Under a `Window`, a row is about a quarter longer than the window. When it is full, the tokens
    that are still needed move to its front. Under the rules `Sinks` and `Scored`, too, a row has
    room for the tokens that stay and a quarter more. A step that is too long for its row, such as a
    prompt, gets a longer row until its request is planned again. Raises CacheFull if all rows are
    taken or a request grows too long.

    >>> Rows(max_seqs=8, max_seq_len=2048).size
    2048
    """

    size_name, one_page = "max_seq_len", True

    def __init__(self, max_seqs: int, max_seq_len: int) -> None:
        self.max_seqs = check_integer("max_seqs", max_seqs)
        self.size = check_integer("max_seq_len", max_seq_len)
        # Rows that were given back, and how many have been given out so far: nothing here grows
        # with max_seqs before the arrays have been allocated.
        self._free: list[int] = []
        self._given = 0

    def serve(self, cache: StoredLayers) -> list[Store]:
        self.cache = weakref.proxy(cache)  # a cache goes as soon as nobody holds it
        together = cache.codec.group
        rules = [group.retention for group in cache.groups]
        rooms = [rule.room(self.size) for rule in rules]
        # Whole groups of the codec are given back, so a part of one may stay in front.
        rooms = [-(-(n + together - 1) // together) * together for n in rooms]
        self._sizes = [min(self.size, n) for n in rooms]
        # Groups whose tokens may have to move; in the others, a row holds a whole request.
        self._moving = [g for g, rule in enumerate(rules) if rule.holes or rooms[g] < self.size]
        sizes = [self._sizes[g] for g in cache.group_of]
        return [
            Store(cache.xp, cache.codec, spec, self.max_seqs, size, cache.dtype)
            for spec, size in zip(cache.layers, sizes, strict=True)
        ]

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        residuals = self.cache.new_residuals()  # first, because there may be no memory for them
        row = self._take(seq_id)
        state = State([Table([row]) for _ in self.cache.groups], residuals)
        state.row = row
        return state

    def _take(self, seq_id: Hashable) -> int:
        if self._free:
            return self._free.pop()
        if self._given == self.max_seqs:
            raise CacheFull(
                f"no row for request {describe(seq_id)}: all {self.max_seqs} rows (max_seqs) are "
                "taken"
            )
        self._given += 1
        return self._given - 1

    def reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> None:
        for request, n in zip(requests, q_lens, strict=True):
            if request.length + n > self.size:
                raise CacheFull(
                    f"request {describe(request.name)} holds {request.length} tokens and {n} more "
                    f"were asked for: {request.length + n - self.size} too many for max_seq_len = "
                    f"{self.size}"
                )
        moves = [
            self._planned(request, n, g)
            for g in self._moving
            for request, n in zip(requests, q_lens, strict=True)
        ]
        for move in moves:
            if move is not None:
                move()

    def _planned(self, request: Request, n: int, g: int) -> Callable[[], None] | None:
        """How a request makes room for n more tokens in a group of layers; None where it has room.

        A longer row is allocated here, so that nothing has changed where that fails.
        """
        cache, state = self.cache, request.state
        table, length, room = state.tables[g], request.length, self._sizes[g]
        # How many tokens the row must hold after those given back; others may wait.
        end = cache.due(request, n)
        holes = cache.groups[g].retention.holes
        stay = staying(cache, g, request) if holes else None
        gone = table.gone if stay is None else length - stay.shape[-1]
        if table.own is None and end - gone <= room:
            return None if stay is None else partial(take_out, cache, g, request, stay)
        group, own = cache.codec.group, None
        gone = gone if holes else given_back(cache, g, request, group)
        if end - gone > room:
            tokens = -(-(end - gone) // group) * group
            own = {layer: cache.stores[layer].longer(tokens) for layer in cache.groups[g].layers}
        if stay is not None:
            return partial(self._take_over, request, g, stay, own)
        return partial(self._carry_out, request, g, gone, cache.kept_by(request), own)

    def _take_over(
        self, request: Request, g: int, stay: np.ndarray, own: dict[int, Store] | None
    ) -> None:
        """Move the tokens that stay, wherever they lie, to the front of another row."""
        cache, table = self.cache, request.state.tables[g]
        pages = [request.state.row if own is None else 0]
        take_out(cache, g, request, stay, pages, own or dict(enumerate(cache.stores)))
        table.pages, table.own = pages, own

    def _carry_out(
        self, request: Request, g: int, gone: int, needed: int, own: dict[int, Store] | None
    ) -> None:
        """Move what stays to the front of its row, or into a longer one and back.

        gone: how many tokens are given back then; needed: the length at which they are not needed.
        """
        cache, state = self.cache, request.state
        table, held = state.tables[g], cache.settled(request)
        new = state.row if own is None else 0
        for layer in cache.groups[g].layers if held > gone else ():
            source, target = cache.store(table, layer), (own or cache.stores)[layer]
            copied = target.move(source, table.pages[0], new, gone - table.gone, held - gone)
            report("move", copied=copied)
        table.pages, table.own = [new], own
        if gone > table.gone:
            table.gone, table.since = gone, needed

    def copy(self, source: Request, seq_id: Hashable, state: State) -> None:
        cache, copied = self.cache, 0
        state.row = self._take(seq_id)
        for table, group in zip(source.state.tables, cache.groups, strict=True):
            new = table.copy()
            new.pages = [state.row]
            if table.own is not None:
                new.pages = [0]
                new.own = {i: store.longer(store.size) for i, store in table.own.items()}
            tokens = cache.settled(source) - table.gone
            for layer in group.layers:
                target, origin = cache.store(new, layer), cache.store(table, layer)
                copied += target.move(origin, table.pages[0], new.pages[0], 0, tokens)
            state.tables.append(new)
        report("fork", copied=copied)

    def release(self, request: Request) -> None:
        self._free.append(request.state.row)

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Raise CacheFull if a request of `length` tokens would outgrow its row."""
        if check_integer("length", length, 0) > self.size:
            raise CacheFull(
                f"request {describe(seq_id)} may grow to {length} tokens, and the cache has room "
                f"for {self.size} of one request"
            )
