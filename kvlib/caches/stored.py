"""The cache that the others are made from; any allocator goes with any codec, rule and attention.

A layer sees a request as pages of stored tokens, counted from the first one that has not been given
back; every distance between two tokens is what it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array
from kvlib.caches.allocation.table import State
from kvlib.caches.checks import get_open
from kvlib.caches.hooks import Answer
from kvlib.caches.kept import check_trees, coded_after, keep
from kvlib.caches.layers import StoredLayers
from kvlib.caches.retention.rules import first_of
from kvlib.caches.retention.watched import Watched
from kvlib.caches.spec import Memory
from kvlib.caches.step import Extra, Request, Step
from kvlib.caches.stored_attention import attend_stored
from kvlib.caches.stored_bytes import memory_of
from kvlib.meter import OPEN, report


class StoredCache(StoredLayers):
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

    # Requests -----------------------------------------------------------------------------------

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> Request:
        state = self.allocator.open(seq_id, tokens, extra)
        request = Request(state)
        request.length = request.begun = state.start = state.coded
        return request

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[State]:
        self.allocator.reserve(requests, q_lens, tokens)
        for request in requests if self.watches else ():
            self._settle_notes(request)
        states = [request.state for request in requests]
        for request, state, n in zip(requests, states, q_lens, strict=True):
            due = self.due(request, n)
            self._roll_back(state, self.settled(request))
            self._settle_residuals(state, request.length)
            if request.tree is None:  # of guesses, nothing is encoded before some are kept
                state.coded = due
                self._hold_waiting(state, request.length + n)
        return self._sent(states)

    def _seen_again(self, requests: list[Request]) -> list[State]:
        return self._sent([request.state for request in requests])

    def _settle_notes(self, request: Request) -> None:
        """Keep the notes that the plan has made of the last step: it cannot be undone now."""
        if self.kept_by(request) < request.length:
            return
        for table in request.state.tables:
            if table.watched is not None and table.watched.q is not None:
                table.watched.settle(request.length)

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

    def _truncate(self, request: Request, length: int) -> None:
        state, settled = request.state, self.settled(request)
        before, coded = None, min(settled, length)
        waits = state.residuals and length < request.length
        if waits:
            coded, before = coded_after(self, request, length)
        self._roll_back(state, settled)
        self.allocator.truncate(request, length)
        for table in state.tables if self.watches else ():
            if table.watched is not None:
                table.watched.go_back(length)
        state.coded = coded
        if waits:
            for store, residual in zip(self.stores, state.residuals, strict=True):
                residual.go_back(before, coded, length, store.room)
        self._settle_residuals(state, length)
        self._hold_waiting(state, length)

    def _check_truncate(self, request: Request, length: int) -> None:
        if request.state.residuals and length < request.length:
            coded_after(self, request, length)
        self._check_kept(request, length)

    def _check_trees(self) -> None:
        check_trees(self)

    def _keep(self, request: Request, path: Sequence[int]) -> None:
        keep(self, request, path)

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

    def _settle_residuals(self, state: State, length: int) -> None:
        """Forget what the last step pushed out of the residuals: it cannot be taken back now."""
        for residual in state.residuals:
            residual.previous = None
        state.start, state.before = length, state.coded

    def settle(self, seq_id: Hashable) -> None:
        """End the last step of a request, as its next ``plan`` would: no layer can run it again.

        From now on, lookups find the blocks that the step has filled.
        """
        super().settle(seq_id)
        self.allocator.settle(get_open(self._requests, seq_id))

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        old = source.state
        residuals = [residual.copy() for residual in old.residuals]
        new = State([], residuals, old.coded, list(old.tokens), old.extra, start=old.start)
        self.allocator.copy(source, seq_id, new)
        self._roll_back(new, self.settled(source))
        self._settle_residuals(new, source.length)
        self._hold_waiting(new, source.length)
        return Request(new)

    def _release(self, request: Request) -> None:
        self.allocator.release(request)

    def check_room(self, seq_id: Hashable, length: int) -> None:
        self.allocator.check_room(seq_id, length)

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        return self.allocator.waits_for(tokens, others)

    # Keys and values ----------------------------------------------------------------------------

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
        here = self.placement(layer, step)
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
                mine, waiting = [x[:, a:b, :] for x in by_head], state.residual(layer)
                written += self.store(table, layer).write(table.pages, waiting, span, coded, mine)
        if OPEN:
            report("append", written=written)
        step.ticket.appended.add(layer)

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        return attend_stored(self, layer, q, step, return_lse)

    def memory(self) -> Memory:
        return memory_of(self)
