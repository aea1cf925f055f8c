"""The cache that the others are made from; any allocator goes with any codec, rule and attention.

A layer sees a request as pages of stored tokens, counted from the first one that has not been given
back; every distance between two tokens is what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST, check_flag, describe
from kvlib.arrays import Array, to_numpy
from kvlib.attention import attend_causal
from kvlib.attention.batched import alike, attend_rows, by_text, short, taken, together
from kvlib.attention.causal import (
    VIEWED,
    Buffers,
    Cut,
    Pieces,
    Slices,
    StoredPieces,
    attend_pieces,
    cut,
)
from kvlib.attention.trees import attend_tree
from kvlib.blas import piece_of_a_chunk
from kvlib.caches.allocation.table import Allocator, Ask, Move, State, Table, first_changed
from kvlib.caches.checks import check_run, get_open
from kvlib.caches.protocol import Answer, Attention, Cache
from kvlib.caches.retention.rules import LayerGroup, Rules, first_of, rules_of
from kvlib.caches.retention.seen import Watched, positions_of
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Extra, Request, Step
from kvlib.caches.store import GUESSES, Residual, Store
from kvlib.caches.stored_bytes import memory_of
from kvlib.caches.trees import depths
from kvlib.codecs import PLAIN, Codec
from kvlib.codecs import codec as codec_of
from kvlib.codecs.base import TensorCodec
from kvlib.errors import OutOfBlocks
from kvlib.meter import OPEN, report


class Placement:
    """Where the requests of one step are stored in the layers of a group.

    lens: how many tokens each has there, those of the step included. slots: the (page, slot in it)
    of each new token in a decode step whose tokens are written alone; else None. batches: which
    requests attend in one product. cuts: how a request is cut into pieces.
    """

    __slots__ = ("_numbers", "batches", "cuts", "lens", "slots", "tables")

    def __init__(
        self, tables: list[Table], seq_lens: Sequence[int], one_each: bool, size: int
    ) -> None:
        self.tables = tables
        self.lens = [end - table.gone for table, end in zip(tables, seq_lens, strict=True)]
        self.batches: dict[tuple[int, int | None, int], list[list[int]]] = {}
        self.cuts: dict[tuple[int, ...], Cut] = {}
        self._numbers: list[np.ndarray] | None = None
        self.slots: list[tuple[int, int]] | None = None
        if one_each and all(table.own is None for table in tables):
            self.slots = [
                (table.pages[(n - 1) // size], (n - 1) % size)
                for table, n in zip(tables, self.lens, strict=True)
            ]

    def numbers(self) -> list[np.ndarray]:
        """The pages of each request as an array int64 of NumPy."""
        if self._numbers is None:
            self._numbers = [np.asarray(table.pages, dtype=np.int64) for table in self.tables]
        return self._numbers


class StoredCache(Cache):
    """A cache made of four parts: an allocator, a codec, a retention rule and attention.

    allocator: a `Rows` or `Blocks` that no other cache uses. codec: a Codec or its name
    (kvlib.codecs.NAMES); None stores numbers as they are. retention: one Retention for all layers
    or one per layer; each layer's own window unless given.

    >>> import numpy as np
    >>> from kvlib import LayerSpec
    >>> from kvlib.caches import Rows
    >>> layers = [LayerSpec(1, 4, window=8), LayerSpec(1, 4)]  # 32 bytes per token and layer
    >>> cache = StoredCache(layers, Rows(1, 1000), xp=np)
    >>> cache.memory().reserved  # 1000 tokens; for the window, 7 + 8 / 4
    32288
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        allocator: Allocator,
        *,
        codec: Codec | str | None = None,
        retention: Rules = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        super().__init__(layers, dtype=dtype, xp=xp, attention=attention)
        self.codec = PLAIN if codec is None else codec_of(codec)
        if allocator.size % self.codec.group:
            raise ValueError(
                f"{allocator.size_name} must be a multiple of the {self.codec.group} tokens that "
                f"{self.codec.made_by} encodes together, got {allocator.size}"
            )
        rules = rules_of(self.layers, retention)
        for rule in rules:
            if rule.holes and self.codec.waits:
                raise ValueError(
                    f"{self.codec.made_by} encodes tokens later and together, and {rule!r} may "
                    "take any of them out: keep all, or use a codec that writes each token alone, "
                    "such as int8, or PerToken(4, 32) for keys and for values"
                )
        self.allocator = allocator
        self.groups: Sequence[LayerGroup] = allocator.groups(self.layers, rules)
        of = {layer: g for g, group in enumerate(self.groups) for layer in group.layers}
        self.group_of = tuple(of[layer] for layer in range(len(self.layers)))
        self.plain = self.codec.plain and not self.codec.waits
        narrow = self.dtype not in (self.xp.float32, self.xp.float64)
        # Tokens that are decoded together; 0 for numbers that are read as they are.
        self.together = self.codec.group if narrow or not self.codec.plain else 0
        self.in_rows = self.plain and allocator.one_page
        self.lent = threading.local()  # memory for copies of keys and of values, for each thread
        self.watches = any(rule.alone for rule in rules)
        self.holes = any(rule.holes for rule in rules)
        self._all_stay: Sequence[np.ndarray | None] = (None,) * len(self.groups)
        self.forgets = any(rule.holes or first_of(rule, LARGEST) for rule in rules)
        if self.codec.waits and self.codec.group > 1:
            self.undoable = GUESSES  # a longer step's tokens are not kept as they came
        # A way to attend that wants the bounds of pages says in which layers, or refuses the cache.
        bounded = getattr(attention, "bounded", None)
        layers_bounded: Sequence[int] = () if bounded is None else bounded(self)
        self.stores = self._new_stores()
        for layer in layers_bounded:
            self.stores[layer].keep_bounds()
        fields = [field for s in self.stores for both in s.both for field in both.fields.values()]
        # Whether a token is written as soon as it comes, and into entries of its own.
        self.each_alone = not self.codec.waits and all(field.per == 1 for field in fields)

    def _new_stores(self) -> list[Store]:
        """The arrays of each layer; layers that the allocator gives one key share them."""
        made: dict[int, Store] = {}
        found = []
        asked = self.allocator.serve(self.layers, self.groups, self.codec.group)
        for spec, (key, pages, size) in zip(self.layers, asked, strict=True):
            if key not in made:
                made[key] = Store(self.xp, self.codec, spec, pages, size, self.dtype)
            found.append(made[key])
        return found

    # Where tokens are --------------------------------------------------------------------------

    def placement(self, layer: int, step: Step) -> Placement:
        """Where the requests of a step are stored in a layer."""
        group = self.group_of[layer]
        found: Placement | None = step.by_group.get(group)
        if found is None:
            tables = [state.tables[group] for state in step.states]
            one_each = self.each_alone and step.whole and len(tables) == step.qo_indptr[-1]
            found = Placement(tables, step.seq_lens, one_each, self.stores[layer].size)
            step.by_group[group] = found
        return found

    def store(self, table: Table, layer: int) -> Store:
        """The arrays in which the tokens of a table lie."""
        return self.stores[layer] if table.own is None else table.own[layer]

    def pages(self, step: Step, layer: int = 0) -> list[Sequence[int]] | None:
        """The rows or blocks in which each request of a step lies, in the order of its tokens.

        None where one lies elsewhere for this step. Layers of one `group_of` lie alike.
        """
        tables = self.placement(layer, step).tables
        return None if any(t.own for t in tables) else [t.pages for t in tables]

    def paged_lens(self, step: Step, layer: int = 0) -> list[int]:
        """How many tokens of each request are stored in its pages; the rest wait to be encoded."""
        if not self.codec.waits:
            return self.placement(layer, step).lens
        group = self.group_of[layer]
        return [state.coded - state.tables[group].gone for state in step.states]

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        return tuple((fields.codec, fields.arrays) for fields in self.stores[layer].both)

    def _decoded(self, g: int, request: Request) -> tuple[Array, Array]:
        """What the first layer of a group holds: k (Hkv, S, Dk), v (Hkv, S, Dv), decoded."""
        layer, table = self.groups[g].layers[0], request.state.tables[g]
        coded, n = self.held(request) - table.gone, request.length - table.gone
        store, waiting = self.store(table, layer), request.state.residual(layer)
        return store.decoded(table.pages, waiting, coded, n, as_view=self.in_rows)

    def kept_by(self, request: Request) -> int:
        """The length that a request may still have to be truncated to; what it needs there stays.

        That is what its pages hold, or less where an unfinished step has left a gap.
        """
        gap, settled = self._gap(request), self.settled(request)
        return settled if gap is None else min(gap, settled)

    def held(self, request: Request) -> int:
        """The length of a request without the tokens that wait beside its pages."""
        return request.state.coded if self.codec.waits else request.length

    def settled(self, request: Request) -> int:
        """The same if no layer appends in the last step any more: without what some lack."""
        missed = self.codec.waits and not request.finished(len(self.layers))
        return request.state.before if missed else self.held(request)

    def coded_in(self, layer: int, request: Request) -> int:
        """How many of a request's first tokens are codes in a layer, in the middle of a step."""
        state, ticket = request.state, request.ticket
        return state.coded if ticket is None or layer in ticket.appended else state.before

    def _due(self, request: Request, n: int) -> int:
        """How many tokens of a request are in its pages after a plan of n more, if some wait."""
        settled = self.settled(request)
        if self._gap(request) is not None:  # no layer will append them
            return settled
        return max(settled, self.codec.coded(request.length + n))

    # Opening and closing ----------------------------------------------------------------------

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> Request:
        residuals = self._new_residuals()  # first, because there may be no memory for them
        state = self.allocator.open(seq_id, tokens, extra)
        state.residuals = residuals
        request = Request(state)
        request.length = request.begun = state.start = state.coded
        return request

    def _new_residuals(self) -> list[Residual]:
        """Room in each layer for a request's tokens that wait; [] where none ever do."""
        return [store.new_residual() for store in self.stores] if self.codec.waits else []

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        old = source.state
        residuals = [residual.copy() for residual in old.residuals]
        longer = [
            None if table.own is None else {i: s.longer(s.size) for i, s in table.own.items()}
            for table in old.tables
        ]
        new = State([], residuals, old.coded, list(old.tokens), old.extra, start=old.start)
        self.allocator.copy(old, seq_id, new)
        if self.allocator.one_page:
            self._copy_rows(source, new, longer)
        self._roll_back(new, self.settled(source))
        self._settle_residuals(new)
        new.start, new.before = source.length, new.coded
        self._hold_waiting(new, source.length)
        return Request(new)

    def _copy_rows(self, source: Request, new: State, longer: Sequence[Any]) -> None:
        """Copy what the rows of a request hold to those of its fork."""
        copied = 0
        for g, (old, table) in enumerate(zip(source.state.tables, new.tables, strict=True)):
            table.own = longer[g]
            if table.own is not None:
                table.pages = [0]
            tokens = self.settled(source) - old.gone
            for layer in self.groups[g].layers:
                target, origin = self.store(table, layer), self.store(old, layer)
                copied += target.move(origin, old.pages[0], table.pages[0], 0, tokens)
        report("fork", copied=copied)

    def _release(self, request: Request) -> None:
        self.allocator.release(request.state, self.kept_by(request))

    def settle(self, seq_id: Hashable) -> None:
        """End the last step of a request, as its next ``plan`` would: no layer can run it again.

        From now on, lookups find the blocks that the step has filled.
        """
        super().settle(seq_id)
        request = get_open(self._requests, seq_id)
        self.allocator.settle(request.state, self.kept_by(request))

    def check_room(self, seq_id: Hashable, length: int) -> None:
        self.allocator.check_room(seq_id, length)

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        lengths = ((self.seq_len(name), other) for name, other in others)
        return self.allocator.waits_for(tokens, lengths)

    # Planning ---------------------------------------------------------------------------------

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[State]:
        for waits in (True, False):  # in a pool that is short of blocks, no token waits to go
            new = zip(requests, q_lens, strict=True)
            asks = [self._ask(request, n, waits) for request, n in new]
            try:
                moves = self.allocator.plan(asks)
                break
            except OutOfBlocks:
                if not waits:
                    raise
        rows = {
            id(move): {i: self.stores[i].longer(move.row) for i in self.groups[move.group].layers}
            for own in moves
            for move in own
            if move.row
        }
        # Up to here, nothing has changed. From here on, nothing is refused.
        states = [request.state for request in requests]
        for state, ask, own in zip(states, asks, moves, strict=True):
            self._shrink(state, ask, own)
        at, shares = 0, tokens is not None and not self.allocator.one_page
        for request, state, ask, own in zip(requests, states, asks, moves, strict=True):
            for move in own:
                if move.leaves is not None:
                    self._leave(state, ask, move, rows.get(id(move)))
                if move.more:
                    pages = self.allocator.take(state, move.more)
                    state.tables[move.group].pages.extend(pages)
            if shares and len(state.tokens) == ask.length:
                state.tokens.extend((tokens or ())[at : at + ask.new])
            at += ask.new
            self._settle(request, ask)
        return self._sent(states)

    def _ask(self, request: Request, n: int, waits: bool) -> Ask:
        """What a plan of n more tokens asks of the allocator, and which tokens stay before it."""
        kept, length, stay = self.kept_by(request), request.length, self._all_stay
        settled, due = length, length + n
        if self.codec.waits:
            settled, due = self.settled(request), self._due(request, n)
        if self.holes:
            stay = [
                self._staying(g, request, kept, waits) if group.retention.holes else None
                for g, group in enumerate(self.groups)
            ]
        return Ask(request.name, length, n, kept, settled, due, request.state.tables, stay)

    def _shrink(self, state: State, ask: Ask, moves: Sequence[Move]) -> None:
        """Give back the pages that a request needs no longer."""
        self.allocator.settle(state, ask.kept)
        for move in moves:
            table = state.tables[move.group]
            if move.stay is not None and move.leaves is None:
                self._take_out(table, ask, move)
            if move.spare:
                self.allocator.give_back(table.pages[-move.spare :])
                del table.pages[-move.spare :]
            if move.dropped:
                self.allocator.give_back(table.pages[: move.dropped])
                del table.pages[: move.dropped]
                table.gone, table.since = move.gone, ask.kept

    def _leave(self, state: State, ask: Ask, move: Move, own: dict[int, Store] | None) -> None:
        """Move what stays into other pages, from page `move.leaves` on, or into a longer row."""
        table, first = state.tables[move.group], move.leaves or 0
        new = self.allocator.take(state, move.fresh) if own is None else [0]
        if move.stay is not None:
            self._take_out(table, ask, move, new, own)
        else:
            copied, start = 0, max(0, move.gone - table.gone)
            tokens = ask.settled - move.gone - first * self.allocator.size
            for layer in self.groups[move.group].layers if tokens > 0 else ():
                source, target = self.store(table, layer), (own or self.stores)[layer]
                copied += target.move(source, table.pages[first], new[0], start, tokens)
            report(move.label, copied=copied)
            if move.gone > table.gone:
                table.gone, table.since = move.gone, ask.kept
        self.allocator.give_back(table.pages[first:])
        table.pages[first:], table.own = new, own

    def _take_out(
        self,
        table: Table,
        ask: Ask,
        move: Move,
        new: Sequence[int] | None = None,
        own: dict[int, Store] | None = None,
    ) -> None:
        """Move the tokens that stay together: into the pages `new`, or within their own."""
        stay: Any = move.stay
        positions = table.positions(ask.length)
        for layer in self.groups[move.group].layers:
            store = target = self.store(table, layer)
            start = first_changed(stay)
            if new is not None:
                target, start = (own or self.stores)[layer], (move.leaves or 0) * store.size
            page = start // store.size
            which, at = stay[..., start:] - page * store.size, start - page * store.size
            slots = table.pages[page:], which, table.pages[page:] if new is None else new, at
            both = zip(store.both, target.both, strict=True)
            copied = sum(mine.gather_into(other, *slots) for mine, other in both)
            report("move", copied=copied)
        if table.watched is not None:
            table.watched.settle(ask.length, stay)
        table.kept, table.since = positions_of(stay, positions), ask.length
        table.gone = move.gone

    def _settle(self, request: Request, ask: Ask) -> None:
        """The last step of a request has become final, and a step of `ask.new` tokens is next."""
        state = request.state
        for table in state.tables if self.watches and ask.kept >= ask.length else ():
            if table.watched is not None and table.watched.q is not None:
                table.watched.settle(ask.length)
        if state.residuals:
            self._roll_back(state, ask.settled)
            self._settle_residuals(state)
        state.start, state.before = ask.length, state.coded
        if request.tree is None:  # of guesses, nothing is encoded before some are kept
            state.coded = ask.due
            if state.residuals:
                self._hold_waiting(state, ask.length + ask.new)

    def _staying(self, g: int, request: Request, kept: int, waits: bool) -> np.ndarray | None:
        """Which stored tokens of a group stay: their numbers (n,), or None where all do.

        (Hkv, n) where each kv head keeps its own. waits: whether tokens may stay longer than their
        rule asks, until as many can go as have to move.
        """
        table, rule = request.state.tables[g], self.groups[g].retention
        if kept < request.length:  # it can still be taken back to before a gap
            return None
        if rule.alone:
            return self._best(g, request)
        positions = table.positions(request.length)
        if not len(positions):
            return None
        stays = np.asarray(rule.kept(positions, request.length))
        if stays.shape != positions.shape or stays.dtype != bool:
            raise ValueError(
                f"kept of {rule!r} must give one boolean for each of {len(positions)} tokens, got "
                f"{stays.dtype} of shape {stays.shape}"
            )
        stay = np.flatnonzero(stays)
        least = rule.every or (len(stay) - first_changed(stay) if waits else 1)
        return None if len(stays) - len(stay) < max(1, least) else stay

    def _best(self, g: int, request: Request) -> np.ndarray | None:
        """The numbers (Hkv, budget) of the tokens of highest score; None while there is room."""
        rule: Any = self.groups[g].retention  # a Scored: no other rule is `alone`
        table = request.state.tables[g]
        if request.length - table.gone < rule.budget + rule.every:
            if table.watched is not None and table.watched.q is not None:
                self._folded(g, request, self._decoded(g, request)[0])
            return None
        k, v = self._decoded(g, request)
        score = rule.policy.score(self._folded(g, request, k), k, v)
        if getattr(score, "shape", None) != k.shape[:2]:
            raise ValueError(
                f"score of {rule.policy!r} must give a number for each of {k.shape[1]} tokens in "
                f"each of {k.shape[0]} kv heads, got {describe(score)}"
            )
        return to_numpy(rule.chosen(score)).astype(np.int64)

    def _folded(self, g: int, request: Request, k: Array) -> Any:
        """What a policy has noted of the stored keys k (Hkv, S, D), the last step included."""
        table, rule = request.state.tables[g], self.groups[g].retention
        if table.watched is None:
            return None
        policy, spec = getattr(rule, "policy", None), self.layers[self.groups[g].layers[0]]
        table.watched.folding = table.watched.folded(policy, spec, k, table.gone)
        return table.watched.folding

    def _sent(self, states: list[State]) -> list[State]:
        """Send the pages of a step's requests to the device, in one copy for all layers."""
        if self.xp is np or self.allocator.one_page:
            return states
        tables = [table for state in states for table in state.tables]
        pages = [page for table in tables for page in table.pages]
        whole, at = self.xp.asarray(pages, dtype=self.xp.int64), 0
        for table in tables:
            table.array = whole[at : at + len(table.pages)]
            at += len(table.pages)
        return states

    def _seen_again(self, requests: list[Request]) -> list[State]:
        return self._sent([request.state for request in requests])

    # Undoing ----------------------------------------------------------------------------------

    def _truncate(self, request: Request, length: int) -> None:
        state, settled = request.state, self.settled(request)
        before, coded = None, min(settled, length)
        waits = state.residuals and length < request.length
        if waits:
            coded, before = self._coded_after(request, length)
        self._roll_back(state, settled)
        self.allocator.truncate(request, length)
        for table in state.tables if self.watches else ():
            if table.watched is not None:
                table.watched.go_back(length)
        state.coded = coded
        if waits:
            for store, residual in zip(self.stores, state.residuals, strict=True):
                residual.go_back(before, coded, length, store.room)
        self._settle_residuals(state)
        state.start, state.before = length, state.coded
        self._hold_waiting(state, length)

    def _check_truncate(self, request: Request, length: int) -> None:
        if request.state.residuals and length < request.length:
            self._coded_after(request, length)
        self._check_kept(request, length)

    def _check_kept(self, request: Request, length: int) -> None:
        """Refuse a length at which a layer would need tokens that it has given back."""
        for g, table in enumerate(request.state.tables) if length else ():
            group, watched = self.groups[g], table.watched
            if watched is not None and length < watched.length:
                raise ValueError(
                    f"request {describe(request.name)} cannot go back to {length} tokens: the "
                    f"scores of "
                    f"layer {group.layers[0]} ({group.retention}) come from queries up to token "
                    f"{watched.length}; it can to 0 and to {watched.length} ... {request.length}"
                )
            if not table.gone:
                continue
            back = table.since
            if table.kept is None:  # the newest tokens, and the rule says how many are needed
                while back and first_of(group.retention, back - 1) >= table.gone:
                    back -= 1
            if length < back:
                raise ValueError(
                    f"request {describe(request.name)} cannot go back to {length} tokens: layer "
                    f"{group.layers[0]} has given {table.gone} of them back ({group.retention}); "
                    f"it can to 0 and to {back} ... {request.length}"
                )

    def _roll_back(self, state: State, settled: int) -> None:
        """Let every layer hold as codes what `settled` says, if only some have encoded more."""
        if settled == state.coded or not state.residuals:
            return
        for store, residual in zip(self.stores, state.residuals, strict=True):
            if residual.previous is not None:
                residual.go_back(settled, settled, state.start, store.room)
            residual.previous = None
        state.coded = settled

    def _hold_waiting(self, state: State, length: int) -> None:
        """Make residuals long enough for tokens behind a gap, which nobody encodes or writes."""
        for residual in state.residuals if length - state.coded > self.stores[0].room else ():
            residual.resize(length - state.coded)

    def _settle_residuals(self, state: State) -> None:
        """Forget what the last step pushed out of the residuals: it cannot be undone now."""
        for residual in state.residuals:
            residual.previous = None

    def _coded_after(self, request: Request, length: int) -> tuple[int, int | None]:
        """How many tokens are codes after a cut to `length`, where some wait to be encoded.

        The second number is None if nothing of the last step is undone; else it is the first of the
        tokens that waited before it (`Residual.go_back`). Raises ValueError for a length that would
        cut a group that is encoded for good.
        """
        state, group, gap = request.state, self.codec.group, self._gap(request)
        short = request.length - state.start <= GUESSES  # then the step's own tokens have been kept
        back = request.length if short else state.start
        if state.before <= length <= back:
            due = self.codec.coded(length if gap is None else min(gap, length))
            return max(state.before, due), state.before
        if length < state.coded and length % group:
            spans = dict.fromkeys(((state.before, back), (state.coded, request.length)))
            others = " and to ".join(f"{a} ... {b}" for a, b in spans)
            raise ValueError(
                f"request {describe(request.name)} cannot go back to {length} tokens: "
                f"{self.codec.made_by} has encoded the first {state.coded} in groups of {group}; "
                f"it can to multiples of {group}, and to {others}"
            )
        return min(self.settled(request), length), None

    # Trees of guesses -------------------------------------------------------------------------

    def _check_trees(self) -> None:
        """Refuse trees where a policy scores tokens by what all queries of a step saw."""
        for group in self.groups:
            policy: Any = getattr(group.retention, "policy", None)
            if policy is not None and policy.queries != 0:
                raise ValueError(
                    f"parents must be left out: {group.retention!r} of layer {group.layers[0]} "
                    "scores tokens by the attention that they get, and the queries of wrong "
                    "guesses would count; verify a chain of guesses, or use a rule that does not "
                    "watch queries"
                )

    def _keep(self, request: Request, path: Sequence[int]) -> None:
        state, start, end = request.state, request.begun, request.begun + len(path)
        moved = next((i for i, number in enumerate(path) if number != i), len(path))
        due = self.codec.coded(end) if self.codec.waits else end
        coded = max(state.coded, due)
        if self.codec.waits:
            self._keep_waiting(request, path, coded)
        elif moved < len(path):
            self._close_up(request, start + moved, [start + number for number in path[moved:]])
        if len(state.tokens) == request.length:
            state.tokens[start:] = [state.tokens[start + number] for number in path]
        self.allocator.truncate(request, end)
        state.coded = state.before = coded
        state.start = end

    def _close_up(self, request: Request, target: int, sources: Sequence[int]) -> None:
        """Tokens number `sources` of a request to number `target` and on, in all layers."""
        copied = 0
        for g, group in enumerate(self.groups):
            table = request.state.tables[g]
            which, at = [number - table.gone for number in sources], target - table.gone
            for layer in group.layers:
                for fields in self.store(table, layer).both:
                    copied += fields.close_up(table.pages, which, at)
        report("keep", copied=copied)

    def _keep_waiting(self, request: Request, path: Sequence[int], coded: int) -> None:
        """The same where new tokens wait to be encoded: what is due is encoded now."""
        state, start = request.state, request.begun
        waiting = start - state.coded
        which, written = [*range(waiting), *(waiting + number for number in path)], 0
        for layer, residual in enumerate(state.residuals):
            table = state.tables[self.group_of[layer]]
            counted = state.coded - table.gone, coded - table.gone
            written += self.store(table, layer).keep(table.pages, residual, which, counted)
        report("keep", written=written)

    # Keys and values --------------------------------------------------------------------------

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        fits = type(layer) is int and 0 <= layer < len(self.layers) and type(step) is Step
        fits = fits and step.owner is self and layer not in step.ticket.appended
        fits = fits and step.ticket.live and step.ticket.gap is None and step.whole
        if fits and type(k) is self.array_type and k.dtype == self.dtype:
            spec, t = self.layers[layer], step.qo_indptr[-1]
            fits = k.shape == (t, spec.num_kv_heads, spec.head_dim)
            if v is None or spec.v_from_k:
                fits = fits and v is None and spec.v_from_k
            else:
                fits = fits and type(v) is self.array_type and v.dtype == self.dtype
                fits = fits and v.shape == (t, spec.num_kv_heads, spec.v_head_dim)
        else:
            fits = False
        if not fits:
            self._check_append(layer, k, v, step)
        dtype, written = self.dtype, 0
        new = [x if x.dtype == dtype else self.xp.astype(x, dtype) for x in (k, v) if x is not None]
        owners = [x.base for x in new if getattr(getattr(x, "base", None), "ndim", 0) == 4]
        if owners and len(new) > 1 and any(x is own for x in owners for own in self.storage()):
            # what `read` gave: the keys would overwrite the values
            new = [self.xp.asarray(x, copy=True) for x in new]
        here: Placement = step.by_group.get(self.group_of[layer]) or self.placement(layer, step)
        by_head = [self.xp.permute_dims(x, (1, 0, 2)) for x in new]
        if here.slots is not None:  # a decode step: one token each
            for fields, x in zip(self.stores[layer].both, by_head, strict=True):
                encoded = {"x": x} if self.plain else fields.encoded(x)
                for name, whole in fields.arrays.items():
                    part = encoded[name]
                    for i, (page, at) in enumerate(here.slots):
                        whole[page, :, at, ...] = part[:, i, ...]
                if fields.bounds is not None:
                    for page, _ in here.slots:
                        fields.bounds.fresh[page] = False
            if OPEN:
                written = self.stores[layer].nbytes(len(here.slots))
        else:
            for i, (state, table) in enumerate(zip(step.states, here.tables, strict=True)):
                a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
                span = here.lens[i] - b + a, here.lens[i]
                coded = state.before - table.gone, state.coded - table.gone
                mine = [x[:, a:b, :] for x in by_head]
                waiting = state.residuals[layer] if state.residuals else None
                written += self.store(table, layer).write(table.pages, waiting, span, coded, mine)
        if OPEN:
            report("append", written=written)
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return copies, or views of a row of plain numbers, without dropped tokens."""
        request, xp = self._requests[seq_id], self.xp
        state = request.state
        table = state.tables[self.group_of[layer]]
        store = self.store(table, layer)
        coded = self.coded_in(layer, request) if self.codec.waits else request.length
        coded, n = coded - table.gone, request.length - table.gone
        found = store.decoded(table.pages, state.residual(layer), coded, n, as_view=self.in_rows)
        k, v = (xp.permute_dims(x, (1, 0, 2)) for x in found)
        positions = table.positions(request.length)
        if request.tree is not None:
            positions[..., -len(request.tree) :] = np.add(request.begun, depths(request.tree))
        return k, v, xp.asarray(positions, dtype=xp.int64)

    def storage(self) -> Iterator[Array]:
        """Every field of every layer, the rows of requests' own, and the residuals."""
        for store in dict.fromkeys(self.stores):
            yield from store.arrays()
        for request in self._requests.values():
            for table in request.state.tables:
                for store in (table.own or {}).values():
                    yield from store.arrays()
            for residual in request.state.residuals:
                yield from residual.arrays()

    def memory(self) -> Memory:
        return memory_of(self)

    # Attention --------------------------------------------------------------------------------

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """q (T, Hq, Dk) → o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq).

        Short requests with equally many new tokens, and few, share a product where that is faster.
        """
        here: Placement = step.by_group.get(self.group_of[layer]) or self.placement(layer, step)
        tables = here.tables
        if len(tables) == 1:
            return self.attend_one(layer, q, step, 0, return_lse)
        parts: dict[int, Any] = {}
        for batch in self.batches(layer, step, q.shape[1] // self.layers[layer].num_kv_heads):
            found = self._attend_batch(layer, q, step, batch, return_lse)
            if len(batch) == len(tables) and batch == sorted(batch):
                return found
            parts |= by_text(found, batch, step.q_lens[batch[0]])
        for i in range(len(tables)):
            if i not in parts:
                parts[i] = self.attend_one(layer, q, step, i, return_lse)
        return self.join([parts[i] for i in range(len(parts))], return_lse)

    def attend_one(self, layer: int, q: Array, step: Step, i: int, return_lse: bool) -> Any:
        """Request i of a step over all that it holds; q (T, Hq, Dk) of all of them."""
        here: Placement = step.by_group.get(self.group_of[layer]) or self.placement(layer, step)
        table, spec = here.tables[i], self.layers[layer]
        n = step.seq_lens[i] - table.gone
        rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
        if step.parents is not None and step.parents[i] is not None:
            return self._attend_tree(layer, rows, step, i, return_lse)
        if self.in_rows:
            k, v = self._row(layer, table, n)
            return attend_causal(rows, k, v, return_lse=return_lse, **spec.settings)
        first = 0 if spec.window is None else max(0, n - rows.shape[0] - spec.window + 1)
        pieces = self.pieces_of(layer, step, i, first=first)
        return attend_pieces(rows, pieces, n, self.xp, return_lse=return_lse, **spec.settings)

    def _row(self, layer: int, table: Table, n: int) -> tuple[Array, Array]:
        """Views of the first n tokens in a request's row: k (Hkv, n, Dk), v (Hkv, n, Dv)."""
        store = self.stores[layer] if table.own is None else table.own[layer]
        spec, row = self.layers[layer], table.pages[0]
        k = store.keys.arrays["x"][row, :, :n, :]
        return k, k[..., : spec.v_dim] if spec.v_from_k else store.values.arrays["x"][row, :, :n, :]

    def _attend_tree(self, layer: int, rows: Array, step: Step, i: int, return_lse: bool) -> Any:
        """Request i of a step, whose new tokens are a tree; rows (T, Hq, Dk) of its own."""
        table, spec = self.placement(layer, step).tables[i], self.layers[layer]
        n = step.seq_lens[i] - table.gone
        if self.in_rows:
            stacked = rows.shape[0] * rows.shape[1] // spec.num_kv_heads
            piece = piece_of_a_chunk(self.xp, stacked, max(spec.head_dim, spec.v_dim))
            pieces: Pieces = Slices(self.xp, *self._row(layer, table, n), piece)
        else:
            older = n - step.tree(i)[1].shape[1]
            first = 0 if spec.window is None else max(0, older - spec.window + 1)
            pieces = self.pieces_of(layer, step, i, first=first)
        return attend_tree(
            rows, pieces, n, self.xp, *step.tree(i), return_lse=return_lse, **spec.settings
        )

    def pieces_of(
        self, layer: int, step: Step, i: int, *, first: int = 0, skipped: int = 0
    ) -> StoredPieces:
        """What request i of a step holds in a layer, from about its stored token `first` on.

        skipped: how many leading pages are left out; tokens are then counted from their end.
        """
        here: Placement = step.by_group.get(self.group_of[layer]) or self.placement(layer, step)
        table, state, spec = here.tables[i], step.states[i], self.layers[layer]
        residual = state.residuals[layer] if state.residuals else None
        store = self.stores[layer] if table.own is None else table.own[layer]
        key = i, spec.num_kv_heads, first, skipped
        if key not in here.cuts:
            gone, end = table.gone + skipped * store.size, here.lens[i] - skipped * store.size
            last = end if residual is None else state.coded - gone
            array = here.numbers()[i] if table.array is None else table.array
            here.cuts[key] = cut(
                self.xp, table.pages[skipped:], array[skipped:], spec.num_kv_heads, store.size,
                self.together, first=first, last=last, end=end,
            )  # fmt: skip
        waiting = () if residual is None else residual.both
        return StoredPieces(here.cuts[key], store.keys, store.values, spec.v_dim, waiting)

    def batches(self, layer: int, step: Step, groups: int) -> list[list[int]]:
        """Which requests of a step attend in one product: none in a step with trees of guesses.

        groups: query heads that share a kv head. Small blocks have to be gathered anyway, so
        gathering several requests at once costs nothing more. Codes and 16-bit numbers are left
        out: they become floats one piece at a time.
        """
        spec, xp, in_rows = self.layers[layer], self.xp, self.in_rows
        in_blocks = not in_rows and xp is np and self.stores[layer].size < VIEWED
        floats = self.plain and self.dtype in (xp.float32, xp.float64)
        if not floats or not (in_rows or in_blocks) or step.parents is not None:
            return []
        placed, about = self.placement(layer, step), (spec.num_kv_heads * spec.v_dim, spec.window)
        found = placed.batches.get((*about, groups))
        if found is None:
            here = [
                i for i, (table, n) in enumerate(zip(placed.tables, step.q_lens, strict=True))
                if short(n, groups) and table.own is None
            ]  # fmt: skip
            lens, queries = [placed.lens[i] for i in here], [step.q_lens[i] for i in here]
            if in_rows:
                rows = [placed.tables[i].pages[0] for i in here]
                found = together(rows, lens, queries, *about)
            else:
                found = alike(lens, queries, *about)
            found = placed.batches[*about, groups] = [[here[i] for i in batch] for batch in found]
        return found

    def _attend_batch(
        self, layer: int, q: Array, step: Step, batch: list[int], return_lse: bool
    ) -> Any:
        spec, store, xp = self.layers[layer], self.stores[layer], self.xp
        here = self.placement(layer, step)
        tables, lens = [here.tables[i] for i in batch], [here.lens[i] for i in batch]
        if self.in_rows:
            left_out = 0
            rows = slice(tables[0].pages[0], tables[-1].pages[0] + 1)
            k = store.keys.arrays["x"][rows, ...]
            v = k[..., : spec.v_dim] if spec.v_from_k else store.values.arrays["x"][rows, ...]
        else:
            # Pages before the window are skipped. The requests then have one length (see `pays`),
            # so `attend_rows` does not look at the ends, which still count the skipped tokens.
            first = 0 if spec.window is None else max(0, max(lens) - spec.window) // store.size
            left_out = first * store.size
            # Kept between calls, about GATHERED numbers each for layers of one shape: fresh memory
            # from the system would cost more than the copies themselves.
            buffers = self.lent.__dict__.setdefault("buffers", ({}, {}))
            pages = [table.pages for table in tables]
            k, v = side_by_side(store, pages, first, max(lens) - left_out, buffers)
        if any(table.gone for table in tables):
            ends = xp.asarray(lens, dtype=xp.int64)
        else:  # they are at hand where the cache lives
            ends = taken(xp, step.lengths, batch, range(len(step.q_lens) + 1))
        q, lens = taken(xp, q, batch, step.qo_indptr), [n - left_out for n in lens]
        return attend_rows(q, k, v, lens, ends, return_lse=return_lse, **spec.settings)

    def watch(self, layer: int, q: Array, lse: Array, step: Step) -> None:
        """Show the queries of a step, and their lse, to the policy of a layer that has one."""
        policy = getattr(self.groups[self.group_of[layer]].retention, "policy", None)
        if policy is None or policy.queries == 0:  # only a Scored has one
            return
        q = self.xp.asarray(q, copy=True)  # until the next plan; the caller may reuse the array
        for i, table in enumerate(self.placement(layer, step).tables):
            a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
            if table.watched is None:
                table.watched = Watched(policy.by_token)
            table.watched.see(q[a:b, ...], lse[a:b, ...], step.seq_lens[i] - b + a)


def side_by_side(
    store: Store,
    tables: Sequence[Sequence[int]],
    first: int,
    tokens: int,
    buffers: tuple[Buffers, Buffers],
) -> tuple[Array, Array]:
    """Copy the pages of several requests: k (B, Hkv, S, Dk) and v (B, Hkv, S, Dv), plain numbers.

    tables: the pages of each. first: how many pages to leave out. tokens: of the longest request,
    after those; what a shorter one has no pages for is copied from its last, and not to be read.
    buffers: where the copies of keys and of values go; the next call that is given them overwrites.
    """
    count = -(-tokens // store.size)
    rows = [own[first : first + count] for own in tables]
    rows = [[*own, *[own[-1]] * (count - len(own))] for own in rows]
    index = store.xp.asarray(rows, dtype=store.xp.int64)
    both = zip(store.both, buffers, strict=False)
    k, *rest = (fields.side_by_side(index, room) for fields, room in both)
    return k, rest[0] if rest else k[..., : store.spec.v_dim]


def run_alone(
    cache: StoredCache, layer: int, q: Array, step: Step, return_lse: bool = False
) -> Answer:
    """Attend as ``cache.run`` does, one request after the other: use ``attention=run_alone``.

    q (T, Hq, Dk) → o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(2, 4)], 2, 16, attention=run_alone)
    """
    check_run(cache, layer, q, step)
    return_lse = check_flag("return_lse", return_lse)
    tables = cache.placement(layer, step).tables
    parts = [cache.attend_one(layer, q, step, i, return_lse) for i in range(len(tables))]
    return cache.join(parts, return_lse)


run_alone.trees = True  # type: ignore[attr-defined]  # `attend_one` looks at step.parents
