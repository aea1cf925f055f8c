"""The open requests of a cache, as Python's own functions see them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kvlib.caches.hooks import CacheHooks
from kvlib.caches.step import Request


class OpenRequests(CacheHooks):
    """A cache is a collection of its open requests; it cannot be copied or pickled."""

    _requests: dict[Hashable, Request]

    @property
    def seq_ids(self) -> tuple[Hashable, ...]:
        """The open requests, in the order they were opened."""
        return tuple(self._requests)

    def __len__(self) -> int:
        """How many requests are open."""
        return len(self._requests)

    def __contains__(self, seq_id: Hashable) -> bool:
        return seq_id in self._requests

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache: ``cache or another`` must not drop it

    def __repr__(self) -> str:
        tokens = sum(r.length for r in self._requests.values())
        try:
            held = f"{self.memory().reserved:,} bytes"
        except Exception:  # a cache of somebody's own, half written; repr is how they look at it
            held = "bytes not measured"
        return (
            f"{type(self).__name__}({len(self.layers)} layers, {len(self._requests)} requests, "
            f"{tokens} tokens, {held})"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: its arrays, its pool and the "
            "steps under way belong together. fork copies a request; to_dense and from_dense "
            "(kvlib.caches.layouts) carry requests into another cache, as arrays that can be saved"
        )
