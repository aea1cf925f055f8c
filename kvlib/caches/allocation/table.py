"""Where one request lies in a cache, a table for each group of layers; and who decides it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kvlib.arrays import Array
from kvlib.caches.retention.groups import LayerGroup, by_rule
from kvlib.caches.retention.rules import Retention
from kvlib.caches.retention.seen import Watched
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import CachedSequence, Extra
from kvlib.caches.store import Residual, Store


@dataclass(slots=True, eq=False)
class Table:
    """Where the tokens of one request are stored in the layers of one group.

    pages    rows or blocks, in the order of their tokens
    gone     how many tokens have been given back; since: the length at which they last were
    kept     the positions (n,) or (Hkv, n) of the first n stored tokens, if others are missing
             between them; None if the stored tokens are those from position `gone` on
    own      a longer row of this request, layer → Store; None if its pages are the cache's
    array    the pages as an array where the cache is, for the step at hand; NumPy needs none
    watched  what a policy that scores tokens has noted of them
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
        """The positions int64 (n,), or (Hkv, n), of the stored tokens of `length` tokens."""
        if self.kept is None:
            return np.arange(self.gone, length, dtype=np.int64)
        run = np.arange(self.gone + self.kept.shape[-1], length, dtype=np.int64)
        run = np.broadcast_to(run, (*self.kept.shape[:-1], len(run)))
        return np.concatenate([self.kept, run], axis=-1)


@dataclass(slots=True, eq=False)
class State:
    """What a cache notes about one request.

    tables         a Table for each group of layers
    residuals      for each layer the tokens that wait to be encoded; [] if none ever do
    coded          how many of the first tokens are codes
    start, before  its length and `coded` at the last plan, to which a step can be undone
    tokens, extra  what is known of its text, and what else its keys depend on
    node           the last piece of its text that others can find; published: how many that is
    """

    tables: list[Table]
    residuals: list[Residual] = field(default_factory=list)
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


class Ask(NamedTuple):
    """What a plan asks for one request: values that an allocator only reads.

    name, length, new  its name, its tokens so far, and how many more it gets
    kept               the length that it may still have to be truncated to
    settled, due       how many of its tokens are in its pages now, and after the plan
    stay               for each group the numbers (n,) or (Hkv, n) of the stored tokens that stay;
                       None if none are taken out from between others
    """

    name: Hashable
    length: int
    new: int
    kept: int
    settled: int
    due: int
    tables: Sequence[Table]
    stay: Sequence[np.ndarray | None]


class Move(NamedTuple):
    """What a plan does to the table of one group before its new tokens come.

    gone     how many tokens are no longer stored afterwards
    stay     as in `Ask`
    dropped  leading pages that are given back
    spare    pages that are left over at the end once what stays has moved together
    leaves   the page, of those that remain, from which on tokens move into others; None if none do
    fresh    how many other pages they get; row: tokens of a longer row that they get instead
    more     pages to take for new tokens
    label    what `Meter` calls the bytes that are copied
    """

    group: int
    gone: int
    stay: np.ndarray | None = None
    dropped: int = 0
    spare: int = 0
    leaves: int | None = None
    fresh: int = 0
    row: int = 0
    more: int = 0
    label: str = "move"


def first_changed(stay: np.ndarray) -> int:
    """The first slot that another token gets if those of numbers `stay` move together."""
    n = stay.shape[-1]
    if n == 0:
        return 0
    same = (stay == np.arange(n)).reshape(-1, n).all(axis=0)
    return n if same.all() else int(np.argmin(same))


class Allocator(ABC):
    """Who gets which pages, in numbers: it never sees an array, and knows no cache."""

    size: int  # tokens of a page, and what that is called where the cache is made
    size_name: str
    one_page: bool  # whether a request is in one page, so that a layer reads it as one array
    rules: Sequence[Retention]  # of the groups that it serves

    def groups(self, layers: Sequence[LayerSpec], rules: Sequence[Retention]) -> list[LayerGroup]:
        """The layers that share tables."""
        return by_rule(rules)

    @abstractmethod
    def serve(
        self, layers: Sequence[LayerSpec], groups: Sequence[LayerGroup], together: int
    ) -> list[tuple[int, int, int]]:
        """Become the allocator of a cache; (key, pages, tokens of a page) for each layer.

        Layers of one key share arrays. together: tokens that the codec encodes together.
        """

    @abstractmethod
    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        """The state of a new request, or CacheFull."""

    @abstractmethod
    def plan(self, asks: Sequence[Ask]) -> list[list[Move]]:
        """The moves that each request needs, or CacheFull. Changes nothing."""

    @abstractmethod
    def take(self, state: State, count: int) -> list[int]:
        """So many pages for a request, which `plan` has counted."""

    def give_back(self, pages: Sequence[int]) -> None:  # noqa: B027  (rows have nothing to do)
        """Take pages back that a plan has emptied."""

    def truncate(self, seq: CachedSequence, length: int) -> None:
        """Let go of all tokens after the first `length`."""
        for table in seq.state.tables if not length else ():
            table.gone, table.kept, table.watched = 0, None, None

    @abstractmethod
    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        """Give `state`, which belongs to a fork, tables for what `source` holds."""

    @abstractmethod
    def release(self, state: State, kept: int) -> None:
        """Give back the pages of a request."""

    def settle(self, state: State, kept: int) -> None:  # noqa: B027  (rows have nothing to do)
        """The last step of a request has become final, of which `kept` tokens are in pages."""

    @abstractmethod
    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to so many tokens even if it were alone."""

    def waits_for(self, tokens: Sequence[int], others: Iterable[tuple[int, Sequence[int]]]) -> bool:
        """Whether another request, of (length, prompt), computes what this prompt begins with."""
        return False
