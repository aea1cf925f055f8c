"""The cache that the others are made from; any allocator goes with any codec, rule and attention.

A layer sees a request as pages of stored tokens, counted from the first that is still stored.
These lengths of a request are counted from the beginning of its text:

    seq.length        its tokens, those of the last plan included; seq.start: without them
    state.num_paged   those in pages once all layers have appended the last step; the others wait in
                      residuals, as they came, until the codec encodes them in groups
    num_paged(seq)    those in pages if the last step ends now, finished or not
    final_length(seq) those that are final if the last step ends now: all layers have them, in
                      pages, so no truncation has to undo them
    table.freed       those that a group of layers has dropped, wherever they were
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST
from kvlib.arrays import Array
from kvlib.attention import attend_causal
from kvlib.attention.batched import by_text
from kvlib.attention.causal import attend_pieces
from kvlib.attention.pieces import StoredPieces, cut
from kvlib.caches import undo
from kvlib.caches.allocation.allocator import Allocator, Ask, Move
from kvlib.caches.allocation.table import Extra, State, Table
from kvlib.caches.batches import attend_batch, attend_guesses, batches
from kvlib.caches.checks import get_open
from kvlib.caches.protocol import Answer, Attention, Cache
from kvlib.caches.retention import eviction
from kvlib.caches.retention.base import first_kept
from kvlib.caches.retention.rules import LayerGroup, Rules, rules_of
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import CachedSequence, Placement, Step
from kvlib.caches.store import GUESSES, Residual, Store
from kvlib.caches.stored_bytes import memory_of
from kvlib.caches.trees import depths
from kvlib.codecs import PLAIN, Codec
from kvlib.codecs import codec as codec_of
from kvlib.codecs.base import TensorCodec
from kvlib.errors import OutOfBlocks
from kvlib.meter import OPEN, report


class StoredCache(Cache):
    """A cache made of four parts: an allocator, a codec, a retention rule and attention.

    allocator: a `Rows` or `Blocks` that no other cache uses. codec: a Codec or its name; None
    stores numbers as they are. retention: one Retention for all layers or one per layer; each
    layer's own window unless given.

    >>> from kvlib import LayerSpec
    >>> from kvlib.caches import Rows
    >>> layers = [LayerSpec(1, 4, window=8), LayerSpec(1, 4)]  # 32 bytes per token and layer
    >>> StoredCache(layers, Rows(1, 1000)).memory().reserved  # 1000 tokens; window: 7 + 8 / 4
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
        if allocator.claimed:
            raise ValueError("allocator must serve no other cache: make one for each cache")
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
        self.plain = self.codec.plain and not self.codec.waits
        narrow = self.dtype not in (self.xp.float32, self.xp.float64)
        # Tokens that are decoded together; 0 for numbers that are read as they are.
        self.decode_group = self.codec.group if narrow or not self.codec.plain else 0
        self.one_array = self.plain and allocator.one_page  # so that a layer attends to one array
        self.buffers = threading.local()  # into which `attend_batch` copies, for each thread
        self.wants_queries = any(rule.per_layer for rule in rules)
        self.forgets = any(rule.holes or first_kept(rule, LARGEST) for rule in rules)
        if self.codec.waits and self.codec.group > 1:
            self.undoable = GUESSES  # a longer step's tokens are not kept as they came
        # A way to attend that wants the bounds of pages says in which layers, or refuses the cache.
        bounded = getattr(attention, "bounded", None)
        layers_bounded: Sequence[int] = () if bounded is None else bounded(self)
        shapes, stores = allocator.bind(self.layers, rules, self.codec.group), dict[int, Store]()
        for spec, (key, pages, size) in zip(self.layers, shapes, strict=True):
            if key not in stores:  # layers of one key share their arrays
                stores[key] = Store(self.xp, self.codec, spec, pages, size, self.dtype)
        self.stores = [stores[key] for key, _, _ in shapes]
        self.groups: Sequence[LayerGroup] = allocator.groups
        of = {layer: g for g, group in enumerate(self.groups) for layer in group.layers}
        self.group_of = tuple(of[layer] for layer in range(len(self.layers)))
        for layer in layers_bounded:
            self.stores[layer].keep_bounds()
        allocator.claim()  # last, because codecs may refuse layers, and memory may run out

    def placement(self, layer: int, step: Step) -> Placement:
        """Return where the requests of a step are stored in a layer."""
        group = self.group_of[layer]
        placement = step.placements.get(group)
        if placement is None:
            tables = [state.tables[group] for state in step.states]
            one_each = step.appends and len(tables) == step.qo_indptr[-1] and not self.codec.waits
            size, xp = self.stores[layer].size, np if self.allocator.one_page else self.xp
            placement = Placement(tables, step.seq_lens, one_each, size, xp)
            step.placements[group] = placement
        return placement

    def store(self, table: Table, layer: int) -> Store:
        """The arrays of a layer in which the tokens of a table are stored."""
        return self.stores[layer] if table.private_row is None else table.private_row[layer]

    def pages(self, step: Step, layer: int = 0) -> list[Sequence[int]] | None:
        """Return the rows or blocks of each request of a step; None if one has a private row."""
        tables = self.placement(layer, step).tables
        return None if any(t.private_row for t in tables) else [t.pages for t in tables]

    def paged_lens(self, step: Step, layer: int = 0) -> list[int]:
        """Return how many stored tokens of each request are in its pages; the rest wait."""
        group = self.group_of[layer]
        return [state.num_paged - state.tables[group].freed for state in step.states]

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        return tuple((tensor.codec, tensor.arrays) for tensor in self.stores[layer].tensors)

    def final_length(self, seq: CachedSequence) -> int:
        """Return how many first tokens of a request are final: in the pages of every layer."""
        gap, paged = seq.next_gap(), self.num_paged(seq)
        return paged if gap is None else min(gap, paged)

    def num_paged(self, seq: CachedSequence) -> int:
        """Return how many tokens are in pages if the last step ends now."""
        if self.codec.waits and not seq.finished():
            return seq.state.undo_paged
        return seq.state.num_paged

    def num_paged_in(self, layer: int, seq: CachedSequence) -> int:
        """Return how many tokens are in the pages of one layer, which may not have appended yet."""
        missed = seq.ticket is not None and layer not in seq.ticket.appended
        return seq.state.undo_paged if missed and self.codec.waits else seq.state.num_paged

    def _num_paged_after(self, seq: CachedSequence, n: int) -> int:
        """Return how many tokens are in pages once the layers have appended n more."""
        if not self.codec.waits:
            return seq.length + n
        paged = self.num_paged(seq)
        if seq.next_gap() is not None:  # no layer will append them
            return paged
        return max(paged, self.codec.coded(seq.length + n))

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> CachedSequence:
        # First, because there may be no memory for them.
        waiting = self.stores if self.codec.waits else ()
        residuals = [Residual(s.xp, s.spec, s.room, s.dtype) for s in waiting]
        state = self.allocator.open(seq_id, tokens, extra)
        state.residuals = residuals
        seq = CachedSequence(state)
        seq.length = seq.start = state.undo_length = state.num_paged
        return seq

    _copy, _keep, _check_trees = undo.fork, undo.keep, undo.check_trees
    _check_truncate, _truncate = undo.check_truncate, undo.truncate
    memory, observe_queries = memory_of, eviction.observe_queries

    def _release(self, seq: CachedSequence) -> None:
        self.allocator.release(seq.state, self.final_length(seq))
        seq.state.residuals = []

    def settle(self, seq_id: Hashable) -> None:
        """End a request's last step, as its next ``plan`` would; lookups find its full blocks."""
        super().settle(seq_id)
        seq = get_open(self._sequences, seq_id)
        self.allocator.publish(seq.state, self.final_length(seq))

    def check_room(self, seq_id: Hashable, length: int) -> None:
        self.allocator.check_room(seq_id, length)

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        lengths = ((self.seq_len(name), other) for name, other in others)
        return self.allocator.waits_for(tokens, lengths)

    def _reserve(
        self, sequences: list[CachedSequence], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[State]:
        asks, moves = self._plan_moves(sequences, q_lens)
        private_rows = {
            id(move): {
                layer: self.stores[layer].longer(move.row_length)
                for layer in self.groups[move.group].layers
            }
            for of_one in moves for move in of_one if move.row_length
        }  # fmt: skip
        # Up to here, nothing has changed. From here on, nothing is refused.
        states = [seq.state for seq in sequences]
        for state, ask, of_one in zip(states, asks, moves, strict=True):
            self._free_pages(state, ask, of_one)
        for seq, ask, of_one in zip(sequences, asks, moves, strict=True):
            for move in of_one:
                if move.copy_from is not None:
                    self._copy_pages(seq.state, ask, move, private_rows.get(id(move)))
                if move.new_pages:
                    pages = self.allocator.allocate(seq.state, move.new_pages)
                    seq.state.tables[move.group].pages.extend(pages)
            self._begin_step(seq, ask)
        if tokens is not None and not self.allocator.one_page:
            first = 0
            for state, ask in zip(states, asks, strict=True):
                if len(state.tokens) == ask.length:
                    state.tokens.extend(tokens[first : first + ask.new])
                first += ask.new
        return states

    def _plan_moves(
        self, sequences: list[CachedSequence], q_lens: Sequence[int]
    ) -> tuple[list[Ask], list[list[Move]]]:
        """Return what the requests ask of the allocator, and its moves for each."""
        new = list(zip(sequences, q_lens, strict=True))
        asks = [self._ask(seq, n, may_wait=True) for seq, n in new]
        try:
            return asks, self.allocator.plan(asks)
        except OutOfBlocks:
            if not any(group.retention.holes for group in self.groups):
                raise
        asks = [self._ask(seq, n, may_wait=False) for seq, n in new]
        return asks, self.allocator.plan(asks)

    def _ask(self, seq: CachedSequence, n: int, may_wait: bool) -> Ask:
        """Return what a plan of n more tokens asks of the allocator, by `kept_ranks`."""
        final = self.final_length(seq)
        kept_ranks = [
            eviction.kept_ranks(self, g, seq, final, may_wait) if group.retention.holes else None
            for g, group in enumerate(self.groups)
        ]
        paged = self.num_paged(seq), self._num_paged_after(seq, n)
        return Ask(seq.name, seq.length, n, final, *paged, seq.state.tables, kept_ranks)

    def _free_pages(self, state: State, ask: Ask, moves: Sequence[Move]) -> None:
        """Free the pages that a request needs no longer, and publish those of its last step."""
        self.allocator.publish(state, ask.final_length)
        for move in moves:
            table = state.tables[move.group]
            if move.kept_ranks is not None and move.copy_from is None:
                eviction.close_holes(self, table, ask, move)
            if move.spare_pages:
                self.allocator.free(table.pages[-move.spare_pages :])
                del table.pages[-move.spare_pages :]
            if move.freed_pages:
                self.allocator.free(table.pages[: move.freed_pages])
                del table.pages[: move.freed_pages]
                table.freed, table.freed_at = move.freed, ask.final_length

    def _copy_pages(self, state: State, ask: Ask, move: Move, row: dict[int, Store] | None) -> None:
        """Copy what stays, from page `move.copy_from` on, to other pages or to a private row."""
        table, first = state.tables[move.group], move.copy_from or 0
        pages = self.allocator.allocate(state, move.copy_pages) if row is None else [0]
        if move.kept_ranks is not None:
            eviction.close_holes(self, table, ask, move, pages, row)
        else:
            copied, start = 0, max(0, move.freed - table.freed)
            tokens = ask.num_paged - move.freed - first * self.allocator.size
            for layer in self.groups[move.group].layers if tokens > 0 else ():
                source, target = self.store(table, layer), (row or self.stores)[layer]
                copied += target.move(source, table.pages[first], pages[0], start, tokens)
            report(move.meter_label, copied=copied)
            if move.freed > table.freed:
                table.freed, table.freed_at = move.freed, ask.final_length
        self.allocator.free(table.pages[first:])
        table.pages[first:], table.private_row = pages, row

    def _begin_step(self, seq: CachedSequence, ask: Ask) -> None:
        """Make the last step of a request final, and record what undoes the next one."""
        state, complete = seq.state, ask.final_length >= ask.length
        for table in state.tables if self.wants_queries and complete else ():
            if table.policy_state is not None and table.policy_state.q is not None:
                table.policy_state.commit(ask.length)
        self._roll_back(state, ask.num_paged)
        self._forget_undo(state)
        state.undo_length, state.undo_paged = ask.length, state.num_paged
        # Guesses wait until some are kept, if the codec lets any token wait.
        if seq.tree is None or not self.codec.waits:
            state.num_paged = ask.num_paged_after
            self._resize_residuals(state, ask.length + ask.new)

    def _roll_back(self, state: State, num_paged: int) -> None:
        """Undo the encoding of a step that ends unfinished: `num_paged` tokens stay in pages."""
        if num_paged == state.num_paged or not state.residuals:
            return
        for store, residual in zip(self.stores, state.residuals, strict=True):
            if residual.previous is not None:
                residual.roll_back(num_paged, num_paged, state.undo_length, store.room)
            residual.previous = None
        state.num_paged = num_paged

    def _resize_residuals(self, state: State, length: int) -> None:
        """Make residuals long enough for a request with a gap: all tokens after it wait."""
        for residual in state.residuals if length - state.num_paged > self.stores[0].room else ():
            residual.resize(length - state.num_paged)

    def _forget_undo(self, state: State) -> None:
        """Forget what waited before the last step, which can't be undone now."""
        for residual in state.residuals:
            residual.previous = None

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        kind, dtype = self.array_type, self.dtype
        fits = type(layer) is int and 0 <= layer < len(self.layers) and type(step) is Step
        fits = fits and step.owner is self and layer not in step.ticket.appended and step.appends
        fits = fits and step.ticket.live and step.ticket.gap is None
        if fits and type(k) is kind and k.dtype == dtype:
            spec, shape = self.layers[layer], (step.qo_indptr[-1], self.layers[layer].num_kv_heads)
            fits = k.shape == (*shape, spec.head_dim) and (v is None) is spec.v_from_k
            if v is not None:
                fits = fits and type(v) is kind and v.dtype == dtype
                fits = fits and v.shape == (*shape, spec.v_dim)
        else:
            fits = False
        if not fits:
            self._check_append(layer, k, v, step)
        new = [k] if v is None else [k, v]
        new = [x if x.dtype == dtype else self.xp.astype(x, dtype) for x in new]
        bases = [x.base for x in new if getattr(getattr(x, "base", None), "ndim", 0) == 4]
        if bases and len(new) > 1 and any(x is base for base in bases for x in self.storage()):
            # `read` returned them: writing the keys would change the values.
            new = [self.xp.asarray(x, copy=True) for x in new]
        placement, written = self.placement(layer, step), 0
        by_head = [self.xp.permute_dims(x, (1, 0, 2)) for x in new]
        if placement.slots is not None:  # a decode step: one token each
            written = self.stores[layer].write_slots(placement.slots, by_head)
        else:
            for i, (state, table) in enumerate(zip(step.states, placement.tables, strict=True)):
                a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
                span = placement.stored_lens[i] - b + a, placement.stored_lens[i]
                paged = state.undo_paged - table.freed, state.num_paged - table.freed
                store, part = self.store(table, layer), [x[:, a:b, :] for x in by_head]
                residual = state.residuals[layer] if state.residuals else None
                written += store.write(table.pages, residual, span, paged, part)
        if OPEN:
            report("append", written=written)
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return copies, or views of a row of plain numbers, without dropped tokens."""
        seq, xp = self._sequences[seq_id], self.xp
        state = seq.state
        table = state.tables[self.group_of[layer]]
        store = self.store(table, layer)
        paged, n = self.num_paged_in(layer, seq) - table.freed, seq.length - table.freed
        by_head = store.decoded(table.pages, state.residual(layer), paged, n, self.one_array)
        k, v = (xp.permute_dims(x, (1, 0, 2)) for x in by_head)
        positions = table.positions(seq.length)
        if seq.tree is not None:
            positions[..., -len(seq.tree) :] = np.add(seq.start, depths(seq.tree))
        return k, v, xp.asarray(positions, dtype=xp.int64)

    def storage(self) -> Iterator[Array]:
        """Every field of every layer, the rows of requests' own, and the residuals."""
        for store in dict.fromkeys(self.stores):
            yield from store.arrays()
        for seq in self._sequences.values():
            for table in seq.state.tables:
                for store in (table.private_row or {}).values():
                    yield from store.arrays()
            for residual in seq.state.residuals:
                yield from residual.arrays()

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        count = len(step.q_lens)
        if count == 1:
            return self.attend_one(layer, q, step, 0, return_lse)
        results: dict[int, Any] = {}
        heads_per_kv = q.shape[1] // self.layers[layer].num_kv_heads
        for batch in batches(self, layer, step, heads_per_kv):
            result = attend_batch(self, layer, q, step, batch, return_lse)
            if len(batch) == count and batch == sorted(batch):
                return result
            results |= by_text(result, batch, step.q_lens[batch[0]])
        for i in range(count):
            if i not in results:
                results[i] = self.attend_one(layer, q, step, i, return_lse)
        return self.join([results[i] for i in range(count)], return_lse)

    def attend_one(self, layer: int, q: Array, step: Step, i: int, return_lse: bool) -> Any:
        """Attend from the queries of request i, of all q (T, Hq, Dk), to all that it holds."""
        placement, spec = self.placement(layer, step), self.layers[layer]
        table, n = placement.tables[i], placement.stored_lens[i]
        rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
        if step.parents is not None and step.parents[i] is not None:
            return attend_guesses(self, layer, rows, step, placement, i, return_lse)
        if self.one_array:
            k, v = self._row(layer, table, n)
            return attend_causal(rows, k, v, return_lse=return_lse, **spec.settings)
        first = 0 if spec.window is None else max(0, n - rows.shape[0] - spec.window + 1)
        pieces = self.pieces_of(layer, step, placement, i, first=first)
        return attend_pieces(rows, pieces, n, self.xp, return_lse=return_lse, **spec.settings)

    def _row(self, layer: int, table: Table, n: int) -> tuple[Array, Array]:
        """Return views of the first n tokens in a row: k (Hkv, n, Dk), v (Hkv, n, Dv)."""
        store, row = self.store(table, layer), table.pages[0]
        k, v = (x.arrays["x"][row, :, :n, :] for x in (store.keys, store.values))
        return k, v[..., : self.layers[layer].v_dim]

    def pieces_of(
        self,
        layer: int,
        step: Step,
        placement: Placement,
        i: int,
        *,
        first: int = 0,
        skipped: int = 0,
    ) -> StoredPieces:
        """Return the pieces that request i of a step holds in a layer, from about token `first` on.
        skipped: leading pages that are left out; tokens are then counted from their end."""
        table, state, spec = placement.tables[i], step.states[i], self.layers[layer]
        residual = state.residuals[layer] if state.residuals else None
        store = self.stores[layer] if table.private_row is None else table.private_row[layer]
        key = i, spec.num_kv_heads, first, skipped
        if key not in placement.cuts:
            before = skipped * store.size
            end = placement.stored_lens[i] - before
            last = end if residual is None else state.num_paged - table.freed - before
            placement.cuts[key] = cut(
                self.xp, table.pages[skipped:], placement.page_array(i)[skipped:],
                spec.num_kv_heads, store.size, self.decode_group, first=first, last=last, end=end,
            )  # fmt: skip
        waiting = () if residual is None else residual.waiting
        return StoredPieces(placement.cuts[key], store.keys, store.values, spec.v_dim, waiting)
