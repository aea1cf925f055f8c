"""Where one request lies in a cache: a table for each group of layers, and what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvlib.arrays import Array
from kvlib.caches.step import Extra
from kvlib.caches.store import Residual, Store


@dataclass(slots=True, eq=False)
class Table:
    """Where the tokens of one request lie in the layers of one group.

    pages  rows or blocks, in the order of their tokens
    gone   how many of its tokens have been given back: the newest tokens lie `gone` slots
           before their position
    since  the length at which tokens were given back last
    kept   the positions (n,) of the first n stored tokens, where others are missing between them;
           None where the stored tokens are those from position `gone` on
    own    a longer row of the request's own, layer → Store; None where its pages are the cache's
    array  the pages as an array where the cache lives, for the step at hand; NumPy needs none
    """

    pages: list[int]
    gone: int = 0
    since: int = 0
    kept: np.ndarray | None = None
    own: dict[int, Store] | None = None
    array: Array | None = None

    def copy(self) -> Table:
        """The same tokens in the same pages, for a fork."""
        return Table(list(self.pages), self.gone, self.since, self.kept)

    def positions(self, length: int) -> np.ndarray:
        """The positions (n,) int64 of the stored tokens of a request of `length` tokens."""
        if self.kept is None:
            return np.arange(self.gone, length, dtype=np.int64)
        run = np.arange(self.gone + len(self.kept), length, dtype=np.int64)
        return np.concatenate([self.kept, run])


class Lying:
    """Where the requests of one step lie in the layers of a group: worked out once for all layers.

    tables: one a request. lens: how many tokens each has there, those of the step included.
    slots: the (page, slot in it) of each new token where every request has one; None in other
    steps, and where a request has a row of its own. batches: which requests attend in one product,
    by what that depends on in a layer.
    """

    __slots__ = ("batches", "lens", "slots", "tables")

    def __init__(
        self, tables: list[Table], seq_lens: Sequence[int], one_each: bool, size: int
    ) -> None:
        self.tables = tables
        self.lens = [end - table.gone for table, end in zip(tables, seq_lens, strict=True)]
        self.batches: dict[tuple[int, int | None], list[list[int]]] = {}
        self.slots: list[tuple[int, int]] | None = None
        if one_each and all(table.own is None for table in tables):
            self.slots = [
                (table.pages[(n - 1) // size], (n - 1) % size)
                for table, n in zip(tables, self.lens, strict=True)
            ]


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
