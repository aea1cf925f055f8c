"""Where one request lies in a cache, a table for each group of layers; and who decides it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.pieces import Cut
from kvlib.caches.residual import Residual
from kvlib.caches.retention.rules import LayerGroup, Retention, by_rule
from kvlib.caches.retention.watched import Watched
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import Extra, Request
from kvlib.caches.store import Store


@dataclass(slots=True, eq=False)
class Table:
    """Where the tokens of one request lie in the layers of one group.

    pages  rows or blocks, in the order of their tokens
    gone   how many of its tokens have been given back: the newest tokens lie `gone` slots
           before their position
    since  the length at which tokens were given back last
    kept   the positions (n,) of the first n stored tokens, where others are missing between them,
           or (Hkv, n) where each kv head keeps its own; None where the stored tokens are those
           from position `gone` on
    watched  what a policy that scores tokens has noted of them
    own    a longer row of the request's own, layer → Store; None where its pages are the cache's
    array  the pages as an array where the cache lives, for the step at hand; NumPy needs none
    """

    pages: list[int]
    gone: int = 0
    since: int = 0
    kept: np.ndarray | None = None
    own: dict[int, Store] | None = None
    array: Array | None = None
    watched: Watched | None = None

    def copy(self) -> Table:
        """The same tokens in the same pages, for a fork."""
        watched = None if self.watched is None else self.watched.copy()
        return Table(list(self.pages), self.gone, self.since, self.kept, watched=watched)

    def positions(self, length: int) -> np.ndarray:
        """The positions int64 of the stored tokens of a request of `length` tokens.

        (n,), or (Hkv, n) where the kv heads keep different ones.
        """
        if self.kept is None:
            return np.arange(self.gone, length, dtype=np.int64)
        run = np.arange(self.gone + self.kept.shape[-1], length, dtype=np.int64)
        run = np.broadcast_to(run, (*self.kept.shape[:-1], len(run)))
        return np.concatenate([self.kept, run], axis=-1)


class Placement:
    """Where the requests of one step are stored in the layers of a group: once for all of them.

    tables: one per request. lens: how many tokens each has there, those of the step included.
    slots: the (page, slot in it) of each new token in a decode step whose tokens are written
    alone; else None. batches: which requests attend in one product, and cuts: how a request is cut
    into pieces, both by what they depend on in a layer.
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


@dataclass(slots=True, eq=False)
class State:
    """What a cache notes about one request.

    tables         a Table for each group of layers
    residuals      for each layer the tokens that wait to be encoded; [] where none ever do
    coded          how many of the first tokens are codes
    start, before  its length and `coded` at the last plan, to which a step can be taken back
    row            its row, in a cache of rows
    tokens, extra  what is known of its text, and what else its keys depend on
    node           the last piece of its text that others can find, and
    published      how many pieces (blocks of tokens) that is
    """

    tables: list[Table]
    residuals: list[Residual]
    coded: int = 0
    tokens: list[int] = field(default_factory=list)
    extra: Extra = ()
    node: int | None = None
    published: int = 0
    row: int = 0
    start: int = 0
    before: int = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.coded

    def residual(self, layer: int) -> Residual | None:
        """The tokens that wait in a layer."""
        return self.residuals[layer] if self.residuals else None


class Allocator(ABC):
    """Who gets which pages. It serves one cache, and refuses before it changes anything."""

    size: int  # tokens of a page, and what that is called where the cache is made
    size_name: str
    one_page: bool  # whether a request lies in one page, so that a layer reads it as one array

    def groups(self, layers: Sequence[LayerSpec], rules: Sequence[Retention]) -> list[LayerGroup]:
        """The layers that share tables."""
        return by_rule(rules)

    @abstractmethod
    def serve(self, cache: Any) -> list[Store]:
        """Become the allocator of this cache, and return a store for each layer."""

    @abstractmethod
    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        """Return the state of a new request, or raise CacheFull."""

    @abstractmethod
    def reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> None:
        """Free what no layer keeps and make room for new tokens, or raise and change nothing."""

    def truncate(self, request: Request, length: int) -> None:
        """Let go of all tokens after the first `length`."""
        for table in request.state.tables if not length else ():
            table.gone, table.kept, table.watched = 0, None, None

    @abstractmethod
    def copy(self, source: Request, seq_id: Hashable, state: State) -> None:
        """Fill the tables of `state`, which belongs to a fork, with what `source` holds."""

    @abstractmethod
    def release(self, request: Request) -> None:
        """Give back the pages of a request."""

    def settle(self, request: Request) -> None:  # noqa: B027  (rows have nothing to do)
        """The last step of a request has become final."""

    @abstractmethod
    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to so many tokens even if it were alone."""

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether another request is computing what this prompt begins with."""
        return False
