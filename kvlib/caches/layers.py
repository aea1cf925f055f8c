"""Where the layers of a cache keep everything: the parts it is made of, and what lies in them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST
from kvlib.arrays import Array
from kvlib.caches.allocation.table import Allocator, Placement, Table
from kvlib.caches.protocol import Attention, Cache
from kvlib.caches.residual import GUESSES, Residual
from kvlib.caches.retention.rules import LayerGroup, Rules, first_of, rules_of
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import Request, Step
from kvlib.caches.store import Store
from kvlib.caches.trees import depths
from kvlib.codecs import PLAIN, Codec
from kvlib.codecs import codec as codec_of
from kvlib.codecs.base import TensorCodec


class StoredLayers(Cache):
    """The arrays of a `StoredCache`, and the tables that say what lies where in them.

    stores: the arrays of each layer. groups: layers that share tables. plain: whether numbers are
    stored as they come. in_rows: whether each request lies in one row, as plain numbers.
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
        self.forgets = any(rule.holes or first_of(rule, LARGEST) for rule in rules)
        if self.codec.waits and self.codec.group > 1:
            self.undoable = GUESSES  # a longer step's tokens are not kept as they came
        # A way to attend that wants the bounds of pages says in which layers, or refuses the cache.
        bounded = getattr(attention, "bounded", None)
        layers_bounded: Sequence[int] = () if bounded is None else bounded(self)
        self.stores = allocator.serve(self)
        for layer in layers_bounded:
            self.stores[layer].keep_bounds()
        fields = [field for s in self.stores for both in s.both for field in both.fields.values()]
        # Whether a token is written as soon as it comes, and into entries of its own.
        self.each_alone = not self.codec.waits and all(field.per == 1 for field in fields)

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

    def decoded(self, g: int, request: Request) -> tuple[Array, Array]:
        """What the first layer of a group holds: k (Hkv, S, Dk), v (Hkv, S, Dv), decoded."""
        layer, table = self.groups[g].layers[0], request.state.tables[g]
        coded, n = self.held(request) - table.gone, request.length - table.gone
        store, waiting = self.store(table, layer), request.state.residual(layer)
        return store.decoded(table.pages, waiting, coded, n, as_view=self.in_rows)

    def new_residuals(self) -> list[Residual]:
        """Room in each layer for a request's tokens that wait; [] where none ever do."""
        return [store.new_residual() for store in self.stores] if self.codec.waits else []

    def kept_by(self, request: Request) -> int:
        """The length that a request may still have to be truncated to; what it needs there stays.

        That is what its pages hold, or less where an unfinished step has left a gap.
        """
        gap, settled = self._gap(request), self.settled(request)
        return settled if gap is None else min(gap, settled)

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

    def due(self, request: Request, n: int) -> int:
        """How many tokens of a request lie in its pages after a plan of n more."""
        if not self.codec.waits:
            return request.length + n
        settled = self.settled(request)
        if self._gap(request) is not None:  # no layer will append them
            return settled
        return max(settled, self.codec.coded(request.length + n))
