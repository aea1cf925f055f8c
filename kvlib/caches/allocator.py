"""What an allocator is: who gets which pages, that is, rows or blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from kvlib.caches.retention import LayerGroup, Retention, by_rule
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import Extra, Request
from kvlib.caches.store import Store
from kvlib.caches.table import State


class Allocator:
    """Who gets which pages. It serves one cache, and refuses before it changes anything."""

    size: int  # tokens of a page, and what that is called where the cache is made
    size_name: str
    one_page: bool  # whether a request lies in one page, so that a layer reads it as one array

    def groups(self, layers: Sequence[LayerSpec], rules: Sequence[Retention]) -> list[LayerGroup]:
        """The layers that share tables."""
        return by_rule(rules)

    def serve(self, cache: Any) -> list[Store]:
        """Become the allocator of this cache; a store for each layer."""
        raise NotImplementedError

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        """The state of a new request, or CacheFull."""
        raise NotImplementedError

    def reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> None:
        """Let go of what no layer keeps, and make room for new tokens: all of it or an error."""
        raise NotImplementedError

    def truncate(self, request: Request, length: int) -> None:
        """Let go of all tokens after the first `length`."""
        for table in request.state.tables:
            if not length:
                table.gone, table.kept = 0, None

    def copy(self, source: Request, seq_id: Hashable, state: State) -> None:
        """Fill the tables of `state`, that of a fork, with what `source` holds."""
        raise NotImplementedError

    def release(self, request: Request) -> None:
        """Take the pages of a request back."""
        raise NotImplementedError

    def settle(self, request: Request) -> None:
        """The last step of a request has become final."""

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to so many tokens even if it were alone."""

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether another request is computing what this prompt begins with."""
        return False
