"""What a cache is built from, and its open requests as Python's own functions see them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kvlib.arguments import describe
from kvlib.arrays import Array, default_namespace
from kvlib.caches.checks import check_append, check_kind_of_cache, check_library
from kvlib.caches.hooks import CacheHooks
from kvlib.caches.spec import LayerSpec, check_layers
from kvlib.caches.step import Request, Step


class OpenRequests(CacheHooks):
    """A cache is a collection of its open requests; it cannot be copied or pickled.

    The arguments are those of `Cache`.
    """

    _requests: dict[Hashable, Request]

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        *,
        dtype: Any = None,
        xp: Any = None,
        attention: Any = None,
    ) -> None:
        check_kind_of_cache(type(self))
        self.layers = check_layers(layers)
        if attention is not None and not callable(attention):
            raise TypeError(
                "attention must be a function (cache, layer, q, step, return_lse), such as "
                f"kvlib.caches.run_cascade, got {describe(attention)}"
            )
        self.attention = attention
        self.xp = default_namespace() if xp is None else xp
        if not hasattr(self.xp, "isdtype"):
            raise TypeError(f"xp must be an array library, the module itself, got {describe(xp)}")
        try:
            probe = self.xp.empty((0,), dtype=self.xp.float32 if dtype is None else dtype)
        except (TypeError, ValueError):
            raise TypeError(f"dtype must be floating, got {describe(dtype)}") from None
        native = getattr(probe.dtype, "isnative", True)  # other arrays would not fit its bytes
        if not self.xp.isdtype(probe.dtype, "real floating") or not native:
            raise TypeError(
                f"dtype must be floating, in the machine's byte order, got {probe.dtype}"
            )
        self.dtype, self.array_type = probe.dtype, type(probe)
        self.group_of: Sequence[int] = (0,) * len(self.layers)  # layers of a group lie alike
        for i, spec in enumerate(self.layers):
            if spec.sinks is not None:
                check_library(self, "sinks", spec.sinks, i)
        self._requests = {}

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

    def _check_append(self, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
        """The layer's spec, after refusing keys and values that do not fit it or the step."""
        return check_append(self, layer, k, v, step)
