"""What a plan asks of an allocator, the moves that it answers with, and what an allocator does."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kvlib.caches.allocation.table import Extra, State, Table
from kvlib.caches.retention.base import Retention
from kvlib.caches.retention.rules import LayerGroup
from kvlib.caches.spec import LayerSpec


class Ask(NamedTuple):
    """What a plan asks for one request: values that an allocator only reads.

    name, length, new  its name, its tokens so far, and how many more it gets
    final_length       its first so many tokens are final
    num_paged          how many of its tokens are in pages now; num_paged_after: after the plan
    tables             where they are stored, for each group of layers
    kept_ranks         for each group which stored tokens stay: (n,) or (Hkv, n), counted from the
                       first stored one; None if no token between others is freed
    """

    name: Hashable
    length: int
    new: int
    final_length: int
    num_paged: int
    num_paged_after: int
    tables: Sequence[Table]
    kept_ranks: Sequence[np.ndarray | None]


class Move(NamedTuple):
    """What a plan does to the table of one group before new tokens are appended.

    freed        how many tokens are no longer stored afterwards
    kept_ranks   as in `Ask`
    freed_pages  leading pages to free
    spare_pages  pages to free at the end, once the kept tokens have moved together
    copy_from    the page, of those that remain, from which on tokens are copied to other pages;
                 None if none are
    copy_pages   how many pages they are copied to; row_length: tokens of a private row instead
    new_pages    pages to allocate for new tokens
    meter_label  what `Meter` calls the copied bytes
    """

    group: int
    freed: int
    kept_ranks: np.ndarray | None = None
    freed_pages: int = 0
    spare_pages: int = 0
    copy_from: int | None = None
    copy_pages: int = 0
    row_length: int = 0
    new_pages: int = 0
    meter_label: str = "move"


def first_changed(kept_ranks: np.ndarray) -> int:
    """Return how many first tokens stay where they are when the others move up to close holes."""
    n = kept_ranks.shape[-1]
    if n == 0:
        return 0
    same = (kept_ranks == np.arange(n)).reshape(-1, n).all(axis=0)
    return n if same.all() else int(np.argmin(same))


class Allocator(ABC):
    """Decides which request gets which pages. It sees none of the cache's arrays."""

    size: int  # tokens of a page
    size_name: str  # the name of that argument where the cache is built
    one_page: bool  # whether a request is in one page, so that a layer reads it as one array
    groups: Sequence[LayerGroup]  # layers that share a table, and their rule; set by `bind`
    claimed = False  # whether a cache has been built on it

    @abstractmethod
    def bind(
        self, layers: Sequence[LayerSpec], rules: Sequence[Retention], codec_group: int
    ) -> list[tuple[int, int, int]]:
        """Return (key, pages, tokens of a page) for each layer; a key is for shared arrays."""

    def claim(self) -> None:
        """Serve that cache from now on: its arrays are allocated. ValueError if it can't."""
        self.claimed = True

    @abstractmethod
    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        """Return the state of a new request, or raise CacheFull."""

    @abstractmethod
    def plan(self, asks: Sequence[Ask]) -> list[list[Move]]:
        """Return the moves that each request needs, or raise CacheFull. Changes nothing."""

    @abstractmethod
    def allocate(self, state: State, count: int) -> list[int]:
        """Return `count` pages for a request, which `plan` has counted."""

    def free(self, pages: Sequence[int]) -> None:  # noqa: B027  (a row stays with its request)
        """Free pages of a request."""

    def truncate(self, state: State, length: int) -> None:
        """Forget all tokens after the first `length`."""
        if not length:
            for table in state.tables:
                table.freed, table.kept_positions, table.policy_state = 0, None, None

    @abstractmethod
    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        """Give `state`, the state of a fork, tables for the tokens of `source`."""

    @abstractmethod
    def release(self, state: State, final_length: int) -> None:
        """Free all pages of a request, whose first `final_length` tokens are final."""

    def publish(self, state: State, final_length: int) -> None:  # noqa: B027  (rows have no lookups)
        """Let lookups find the first `final_length` tokens of a request, which are final."""

    @abstractmethod
    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that couldn't grow to `length` tokens even if it were alone."""

    def waits_for(self, tokens: Sequence[int], others: Iterable[tuple[int, Sequence[int]]]) -> bool:
        """Return whether another (length, prompt) computes the start of this prompt."""
        return False
