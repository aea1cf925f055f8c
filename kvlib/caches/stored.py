"""The cache that the others are made from; any allocator goes with any codec, rule and attention.

A layer sees a request as pages of stored tokens, counted from the first that is still stored.
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
from kvlib.attention.causal import VIEWED, StoredPieces, attend_pieces, cut
from kvlib.caches import undo
from kvlib.caches.allocation.table import Allocator, Ask, Move, State, Table
from kvlib.caches.batches import attend_batch, attend_guesses, batches
from kvlib.caches.checks import get_open
from kvlib.caches.protocol import Answer, Attention, Cache
from kvlib.caches.retention import leaving
from kvlib.caches.retention.groups import LayerGroup, Rules, rules_of
from kvlib.caches.retention.rules import first_kept
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import CachedSequence, Extra, Placement, Step
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
        # Whether several requests may attend in one product: small blocks have to be gathered
        # anyway, codes and 16-bit numbers become floats one piece at a time.
        in_blocks = not self.in_rows and self.xp is np and allocator.size < VIEWED
        self.batched = self.plain and not narrow and (self.in_rows or in_blocks)
        self.lent = threading.local()  # memory for copies of keys and of values, for each thread
        self.settings = [spec.settings for spec in self.layers]  # of attention
        self.observes_queries = any(rule.per_layer for rule in rules)
        self.holes = any(rule.holes for rule in rules)
        self._all_stay: Sequence[np.ndarray | None] = (None,) * len(self.groups)
        self.forgets = any(rule.holes or first_kept(rule, LARGEST) for rule in rules)
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
        asked = self.allocator.bind(self.layers, self.groups, self.codec.group)
        for spec, (key, pages, size) in zip(self.layers, asked, strict=True):
            if key not in made:
                made[key] = Store(self.xp, self.codec, spec, pages, size, self.dtype)
            found.append(made[key])
        return found

    # Where tokens are --------------------------------------------------------------------------

    def placement(self, layer: int, step: Step) -> Placement:
        """Where the requests of a step are stored in a layer."""
        group = self.group_of[layer]
        placement = step.placements.get(group)
        if placement is None:
            tables = [state.tables[group] for state in step.states]
            one_each = self.each_alone and step.whole and len(tables) == step.qo_indptr[-1]
            placement = Placement(tables, step.seq_lens, one_each, self.stores[layer].size)
            step.placements[group] = placement
        return placement

    def store(self, table: Table, layer: int) -> Store:
        """The arrays in which the tokens of a table lie."""
        return self.stores[layer] if table.private_row is None else table.private_row[layer]

    def pages(self, step: Step, layer: int = 0) -> list[Sequence[int]] | None:
        """The rows or blocks of each request of a step, in order; None if one has a longer row."""
        tables = self.placement(layer, step).tables
        return None if any(t.private_row for t in tables) else [t.pages for t in tables]

    def paged_lens(self, step: Step, layer: int = 0) -> list[int]:
        """How many tokens of each request are stored in its pages; the rest wait to be encoded."""
        if not self.codec.waits:
            return self.placement(layer, step).stored_lens
        group = self.group_of[layer]
        return [state.num_encoded - state.tables[group].freed for state in step.states]

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        return tuple((fields.codec, fields.arrays) for fields in self.stores[layer].both)

    def kept_by(self, seq: CachedSequence) -> int:
        """The length that a request may still be truncated to: what its pages hold before a gap."""
        gap, settled = self._gap(seq), self.settled(seq)
        return settled if gap is None else min(gap, settled)

    def held(self, seq: CachedSequence) -> int:
        """The length of a request without the tokens that wait beside its pages."""
        return seq.state.num_encoded if self.codec.waits else seq.length

    def settled(self, seq: CachedSequence) -> int:
        """The same if no layer appends in the last step any more: without what some lack."""
        missed = self.codec.waits and not seq.finished(len(self.layers))
        return seq.state.undo_encoded if missed else self.held(seq)

    def coded_in(self, layer: int, seq: CachedSequence) -> int:
        """How many of a request's first tokens are codes in a layer, in the middle of a step."""
        state, ticket = seq.state, seq.ticket
        return (
            state.num_encoded if ticket is None or layer in ticket.appended else state.undo_encoded
        )

    def _due(self, seq: CachedSequence, n: int) -> int:
        """How many tokens of a request are in its pages after a plan of n more, if some wait."""
        settled = self.settled(seq)
        if self._gap(seq) is not None:  # no layer will append them
            return settled
        return max(settled, self.codec.coded(seq.length + n))

    # Opening and closing ----------------------------------------------------------------------

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> CachedSequence:
        residuals = self._new_residuals()  # first, because there may be no memory for them
        state = self.allocator.open(seq_id, tokens, extra)
        state.residuals = residuals
        seq = CachedSequence(state)
        seq.length = seq.begun = state.undo_length = state.num_encoded
        return seq

    def _new_residuals(self) -> list[Residual]:
        """Room in each layer for a request's tokens that wait; [] where none ever do."""
        return [store.new_residual() for store in self.stores] if self.codec.waits else []

    def _copy(self, source: CachedSequence, seq_id: Hashable) -> CachedSequence:
        return undo.fork(self, source, seq_id)

    def _release(self, seq: CachedSequence) -> None:
        self.allocator.release(seq.state, self.kept_by(seq))

    def settle(self, seq_id: Hashable) -> None:
        """End a request's last step, as its next ``plan`` would; lookups find its full blocks."""
        super().settle(seq_id)
        seq = get_open(self._sequences, seq_id)
        self.allocator.publish(seq.state, self.kept_by(seq))

    def check_room(self, seq_id: Hashable, length: int) -> None:
        self.allocator.check_room(seq_id, length)

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        lengths = ((self.seq_len(name), other) for name, other in others)
        return self.allocator.waits_for(tokens, lengths)

    # Planning ---------------------------------------------------------------------------------

    def _reserve(
        self, sequences: list[CachedSequence], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[State]:
        # In a pool that is short of blocks, no token waits to leave a hole.
        for waits in (True, False) if self.holes else (False,):
            new = zip(sequences, q_lens, strict=True)
            asks = [self._ask(seq, n, waits) for seq, n in new]
            try:
                moves = self.allocator.plan(asks)
                break
            except OutOfBlocks:
                if not waits:
                    raise
        rows = {
            id(move): {
                i: self.stores[i].longer(move.row_length) for i in self.groups[move.group].layers
            }
            for own in moves
            for move in own
            if move.row_length
        }
        # Up to here, nothing has changed. From here on, nothing is refused.
        states = [seq.state for seq in sequences]
        for state, ask, own in zip(states, asks, moves, strict=True):
            self._shrink(state, ask, own)
        at, shares = 0, tokens is not None and not self.allocator.one_page
        for seq, state, ask, own in zip(sequences, states, asks, moves, strict=True):
            for move in own:
                if move.copy_from is not None:
                    self._leave(state, ask, move, rows.get(id(move)))
                if move.new_pages:
                    pages = self.allocator.allocate(state, move.new_pages)
                    state.tables[move.group].pages.extend(pages)
            if shares and len(state.tokens) == ask.length:
                state.tokens.extend((tokens or ())[at : at + ask.new])
            at += ask.new
            self._settle(seq, ask)
        return self._sent(states)

    def _ask(self, seq: CachedSequence, n: int, waits: bool) -> Ask:
        """What a plan of n more tokens asks of the allocator, and which tokens stay before it."""
        kept, length, stay = self.kept_by(seq), seq.length, self._all_stay
        settled, due = length, length + n
        if self.codec.waits:
            settled, due = self.settled(seq), self._due(seq, n)
        if self.holes:
            stay = [
                leaving.staying(self, g, seq, kept, waits) if group.retention.holes else None
                for g, group in enumerate(self.groups)
            ]
        return Ask(seq.name, length, n, kept, settled, due, seq.state.tables, stay)

    def _shrink(self, state: State, ask: Ask, moves: Sequence[Move]) -> None:
        """Give back the pages that a request needs no longer."""
        self.allocator.publish(state, ask.safe_length)
        for move in moves:
            table = state.tables[move.group]
            if move.kept_slots is not None and move.copy_from is None:
                leaving.take_out(self, table, ask, move)
            if move.spare_pages:
                self.allocator.free(table.pages[-move.spare_pages :])
                del table.pages[-move.spare_pages :]
            if move.freed_pages:
                self.allocator.free(table.pages[: move.freed_pages])
                del table.pages[: move.freed_pages]
                table.freed, table.freed_at = move.freed, ask.safe_length

    def _leave(self, state: State, ask: Ask, move: Move, own: dict[int, Store] | None) -> None:
        """Move what stays into other pages, from page `move.copy_from` on, or into a longer row."""
        table, first = state.tables[move.group], move.copy_from or 0
        new = self.allocator.allocate(state, move.copy_pages) if own is None else [0]
        if move.kept_slots is not None:
            leaving.take_out(self, table, ask, move, new, own)
        else:
            copied, start = 0, max(0, move.freed - table.freed)
            tokens = ask.paged_length - move.freed - first * self.allocator.size
            for layer in self.groups[move.group].layers if tokens > 0 else ():
                source, target = self.store(table, layer), (own or self.stores)[layer]
                copied += target.move(source, table.pages[first], new[0], start, tokens)
            report(move.meter_label, copied=copied)
            if move.freed > table.freed:
                table.freed, table.freed_at = move.freed, ask.safe_length
        self.allocator.free(table.pages[first:])
        table.pages[first:], table.private_row = new, own

    def _settle(self, seq: CachedSequence, ask: Ask) -> None:
        """The last step of a request has become final, and a step of `ask.new` tokens is next."""
        state = seq.state
        for table in (
            state.tables if self.observes_queries and ask.safe_length >= ask.length else ()
        ):
            if table.policy_state is not None and table.policy_state.q is not None:
                table.policy_state.commit(ask.length)
        if state.residuals:
            self._roll_back(state, ask.paged_length)
            self._settle_residuals(state)
        state.undo_length, state.undo_encoded = ask.length, state.num_encoded
        if seq.tree is None:  # of guesses, nothing is encoded before some are kept
            state.num_encoded = ask.paged_after
            if state.residuals:
                self._hold_waiting(state, ask.length + ask.new)

    def _sent(self, states: list[State]) -> list[State]:
        """Send the pages of a step's requests to the device, in one copy for all layers."""
        if self.xp is np or self.allocator.one_page:
            return states
        tables = [table for state in states for table in state.tables]
        pages = [page for table in tables for page in table.pages]
        whole, at = self.xp.asarray(pages, dtype=self.xp.int64), 0
        for table in tables:
            table.device_pages = whole[at : at + len(table.pages)]
            at += len(table.pages)
        return states

    def _seen_again(self, sequences: list[CachedSequence]) -> list[State]:
        return self._sent([seq.state for seq in sequences])

    def _truncate(self, seq: CachedSequence, length: int) -> None:
        undo.truncate(self, seq, length)

    def _check_truncate(self, seq: CachedSequence, length: int) -> None:
        undo.check_truncate(self, seq, length)

    def _roll_back(self, state: State, settled: int) -> None:
        """Let every layer hold as codes what `settled` says, if only some have encoded more."""
        if settled == state.num_encoded or not state.residuals:
            return
        for store, residual in zip(self.stores, state.residuals, strict=True):
            if residual.previous is not None:
                residual.go_back(settled, settled, state.undo_length, store.room)
            residual.previous = None
        state.num_encoded = settled

    def _hold_waiting(self, state: State, length: int) -> None:
        """Make residuals long enough for tokens behind a gap, which nobody encodes or writes."""
        for residual in state.residuals if length - state.num_encoded > self.stores[0].room else ():
            residual.resize(length - state.num_encoded)

    def _settle_residuals(self, state: State) -> None:
        """Forget what the last step pushed out of the residuals: it cannot be undone now."""
        for residual in state.residuals:
            residual.previous = None

    def _check_trees(self) -> None:
        undo.check_trees(self)

    def _keep(self, seq: CachedSequence, path: Sequence[int]) -> None:
        undo.keep(self, seq, path)

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
        placement = self.placement(layer, step)
        by_head = [self.xp.permute_dims(x, (1, 0, 2)) for x in new]
        if placement.slots is not None:  # a decode step: one token each
            for fields, x in zip(self.stores[layer].both, by_head, strict=True):
                encoded = {"x": x} if self.plain else fields.encoded(x)
                for name, whole in fields.arrays.items():
                    part = encoded[name]
                    for i, (page, at) in enumerate(placement.slots):
                        whole[page, :, at, ...] = part[:, i, ...]
                if fields.bounds is not None:
                    for page, _ in placement.slots:
                        fields.bounds.fresh[page] = False
            if OPEN:
                written = self.stores[layer].nbytes(len(placement.slots))
        else:
            for i, (state, table) in enumerate(zip(step.states, placement.tables, strict=True)):
                a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
                span = placement.stored_lens[i] - b + a, placement.stored_lens[i]
                coded = state.undo_encoded - table.freed, state.num_encoded - table.freed
                mine = [x[:, a:b, :] for x in by_head]
                waiting = state.residuals[layer] if state.residuals else None
                written += self.store(table, layer).write(table.pages, waiting, span, coded, mine)
        if OPEN:
            report("append", written=written)
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return copies, or views of a row of plain numbers, without dropped tokens."""
        seq, xp = self._sequences[seq_id], self.xp
        state = seq.state
        table = state.tables[self.group_of[layer]]
        store = self.store(table, layer)
        coded = self.coded_in(layer, seq) if self.codec.waits else seq.length
        coded, n = coded - table.freed, seq.length - table.freed
        found = store.decoded(table.pages, state.residual(layer), coded, n, as_view=self.in_rows)
        k, v = (xp.permute_dims(x, (1, 0, 2)) for x in found)
        positions = table.positions(seq.length)
        if seq.tree is not None:
            positions[..., -len(seq.tree) :] = np.add(seq.begun, depths(seq.tree))
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

    def memory(self) -> Memory:
        return memory_of(self)

    # Attention --------------------------------------------------------------------------------

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """q (T, Hq, Dk) → o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)."""
        placement = self.placement(layer, step)
        tables = placement.tables
        if len(tables) == 1:
            return self.attend_one(layer, q, step, 0, return_lse)
        parts: dict[int, Any] = {}
        heads_per_kv = q.shape[1] // self.layers[layer].num_kv_heads
        for batch in batches(self, layer, step, heads_per_kv) if self.batched else ():
            found = attend_batch(self, layer, q, step, batch, return_lse)
            if len(batch) == len(tables) and batch == sorted(batch):
                return found
            parts |= by_text(found, batch, step.q_lens[batch[0]])
        for i in range(len(tables)):
            if i not in parts:
                parts[i] = self.attend_one(layer, q, step, i, return_lse)
        return self.join([parts[i] for i in range(len(parts))], return_lse)

    def attend_one(self, layer: int, q: Array, step: Step, i: int, return_lse: bool) -> Any:
        """Request i of a step over all that it holds; q (T, Hq, Dk) of all of them."""
        placement = self.placement(layer, step)
        table, spec = placement.tables[i], self.layers[layer]
        n = step.seq_lens[i] - table.freed
        rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
        if step.parents is not None and step.parents[i] is not None:
            return attend_guesses(self, layer, rows, step, i, return_lse)
        if self.in_rows:
            k, v = self._row(layer, table, n)
            return attend_causal(rows, k, v, return_lse=return_lse, **self.settings[layer])
        first = 0 if spec.window is None else max(0, n - rows.shape[0] - spec.window + 1)
        pieces = self.pieces_of(layer, step, i, first=first)
        settings = self.settings[layer]
        return attend_pieces(rows, pieces, n, self.xp, return_lse=return_lse, **settings)

    def _row(self, layer: int, table: Table, n: int) -> tuple[Array, Array]:
        """Views of the first n tokens in a request's row: k (Hkv, n, Dk), v (Hkv, n, Dv)."""
        store = self.stores[layer] if table.private_row is None else table.private_row[layer]
        spec, row = self.layers[layer], table.pages[0]
        k = store.keys.arrays["x"][row, :, :n, :]
        return k, k[..., : spec.v_dim] if spec.v_from_k else store.values.arrays["x"][row, :, :n, :]

    def pieces_of(
        self, layer: int, step: Step, i: int, *, first: int = 0, skipped: int = 0
    ) -> StoredPieces:
        """What request i of a step holds in a layer, from about its stored token `first` on.

        skipped: leading pages that are left out; tokens are then counted from their end.
        """
        placement = self.placement(layer, step)
        table, state, spec = placement.tables[i], step.states[i], self.layers[layer]
        residual = state.residuals[layer] if state.residuals else None
        store = self.stores[layer] if table.private_row is None else table.private_row[layer]
        key = i, spec.num_kv_heads, first, skipped
        if key not in placement.cuts:
            before = skipped * store.size
            end = placement.stored_lens[i] - before
            last = end if residual is None else state.num_encoded - table.freed - before
            placement.cuts[key] = cut(
                self.xp, table.pages[skipped:], placement.page_array(i)[skipped:],
                spec.num_kv_heads, store.size, self.together, first=first, last=last, end=end,
            )  # fmt: skip
        waiting = () if residual is None else residual.both
        return StoredPieces(placement.cuts[key], store.keys, store.values, spec.v_dim, waiting)

    def observe_queries(self, layer: int, q: Array, lse: Array, step: Step) -> None:
        leaving.observe_queries(self, layer, q, lse, step)
