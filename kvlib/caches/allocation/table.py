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
from kvlib.caches.retention.seen import PolicyState
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import CachedSequence, Extra
from kvlib.caches.store import Residual, Store


@dataclass(slots=True, eq=False)
class Table:
    """Where the tokens of one request are stored in the layers of one group.

    pages           rows or blocks, in the order of their tokens
    freed           how many of its tokens are no longer stored; freed_at: its length at that time
    kept_positions  the positions (n,) or (Hkv, n) of the first n stored tokens, if tokens between
                    them have been freed; None if all tokens from position `freed` on are stored
    private_row     a longer row for this request alone, layer → Store; None if it has none
    device_pages    `pages` as an array on the device, for the current step; None with NumPy
    policy_state    what a `Scored` rule has recorded about its queries
    """

    pages: list[int]
    freed: int = 0
    freed_at: int = 0
    kept_positions: np.ndarray | None = None
    private_row: dict[int, Store] | None = None
    device_pages: Array | None = None
    policy_state: PolicyState | None = None

    def copy(self) -> Table:
        """The same tokens in the same pages, for a fork."""
        policy_state = None if self.policy_state is None else self.policy_state.copy()
        return Table(
            list(self.pages),
            self.freed,
            self.freed_at,
            self.kept_positions,
            policy_state=policy_state,
        )

    def positions(self, length: int) -> np.ndarray:
        """The positions int64 (n,), or (Hkv, n), of the stored tokens of `length` tokens."""
        if self.kept_positions is None:
            return np.arange(self.freed, length, dtype=np.int64)
        run = np.arange(self.freed + self.kept_positions.shape[-1], length, dtype=np.int64)
        run = np.broadcast_to(run, (*self.kept_positions.shape[:-1], len(run)))
        return np.concatenate([self.kept_positions, run], axis=-1)


@dataclass(slots=True, eq=False)
class State:
    """What a cache records about one request.

    tables         a Table for each group of layers
    residuals      for each layer the tokens that wait to be encoded; [] if none ever do
    num_encoded    how many of its tokens are in pages once the last step is appended; others wait
    undo_length    its length at the last plan, to which the step can be undone; undo_encoded: its
                   `num_encoded` at that time
    tokens, extra  its known token ids, and what else its keys depend on
    num_published  how many blocks of its text lookups can find; prefix_node: the last one's node
    row            its row in a dense cache
    """

    tables: list[Table]
    residuals: list[Residual] = field(default_factory=list)
    num_encoded: int = 0
    tokens: list[int] = field(default_factory=list)
    extra: Extra = ()
    prefix_node: int | None = None
    num_published: int = 0
    row: int = 0
    undo_length: int = 0
    undo_encoded: int = field(init=False)

    def __post_init__(self) -> None:
        self.undo_encoded = self.num_encoded

    def residual(self, layer: int) -> Residual | None:
        """The tokens that wait in a layer."""
        return self.residuals[layer] if self.residuals else None


class Ask(NamedTuple):
    """What a plan asks for one request: values that an allocator only reads.

    name, length, new  its name, its tokens so far, and how many more it gets
    safe_length        the shortest length that it may still have to be truncated to
    paged_length       how many of its tokens are in pages now; paged_after: after the plan
    kept_slots         for each group the slots (n,) or (Hkv, n) of the stored tokens that stay;
                       None if no token between others is freed
    """

    name: Hashable
    length: int
    new: int
    safe_length: int
    paged_length: int
    paged_after: int
    tables: Sequence[Table]
    kept_slots: Sequence[np.ndarray | None]


class Move(NamedTuple):
    """What a plan does to the table of one group before new tokens are appended.

    freed        how many tokens are no longer stored afterwards
    kept_slots   as in `Ask`
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
    kept_slots: np.ndarray | None = None
    freed_pages: int = 0
    spare_pages: int = 0
    copy_from: int | None = None
    copy_pages: int = 0
    row_length: int = 0
    new_pages: int = 0
    meter_label: str = "move"


def first_changed(kept_slots: np.ndarray) -> int:
    """Return the first slot that changes its token when those in `kept_slots` move together."""
    n = kept_slots.shape[-1]
    if n == 0:
        return 0
    same = (kept_slots == np.arange(n)).reshape(-1, n).all(axis=0)
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
    def bind(
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
    def allocate(self, state: State, count: int) -> list[int]:
        """So many pages for a request, which `plan` has counted."""

    def free(self, pages: Sequence[int]) -> None:  # noqa: B027  (rows have nothing to do)
        """Take pages back that a plan has emptied."""

    def truncate(self, seq: CachedSequence, length: int) -> None:
        """Let go of all tokens after the first `length`."""
        for table in seq.state.tables if not length else ():
            table.freed, table.kept_positions, table.policy_state = 0, None, None

    @abstractmethod
    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        """Give `state`, which belongs to a fork, tables for what `source` holds."""

    @abstractmethod
    def release(self, state: State, safe_length: int) -> None:
        """Give back the pages of a request."""

    def publish(self, state: State, safe_length: int) -> None:  # noqa: B027  (rows have nothing to do)
        """The last step of a request has become final, of which `kept` tokens are in pages."""

    @abstractmethod
    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to so many tokens even if it were alone."""

    def waits_for(self, tokens: Sequence[int], others: Iterable[tuple[int, Sequence[int]]]) -> bool:
        """Whether another request, of (length, prompt), computes what this prompt begins with."""
        return False
