"""The protocol that every cache keeps, and the part of it that all caches share.

    cache.add("a")                             open a request
    step = cache.plan(["a"], [T])              room for T new tokens, in all layers, or an error
    for each layer:
        cache.append(layer, k, v, step)        store
        o = cache.run(layer, q, step)          attend
    cache.truncate("a", n); cache.fork("a", "b"); cache.free("a")

A new kind of cache overrides the methods that start with an underscore, ``append`` and ``read``;
``run`` is then attention over ``read``, right and slow, until it is overridden to be fast.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array, default_namespace, is_numpy
from kvlib.attention import attend
from kvlib.caches.checks import check_append, check_plan, check_run, is_integer, known
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step, Ticket


class Request:
    """What every cache remembers of an open request; a cache may keep more in ``place``."""

    __slots__ = ("length", "place", "ticket")

    def __init__(self, place: Any) -> None:
        self.length = 0
        self.place = place
        self.ticket: Ticket | None = None


class Cache:
    """Keys and values of many requests, for all layers of one model.

    layers: one LayerSpec a layer. dtype: what is stored (float32 unless given). xp: the array
    library (``kvlib.arrays.default_namespace()`` unless given).
    Errors leave the cache as it was: CacheFull or OutOfBlocks where there is no room, ValueError
    or TypeError for input that does not fit, KeyError never.

    Every cache is used alike:

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(num_kv_heads=2, head_dim=4)], max_seqs=2, max_seq_len=16)
    >>> isinstance(cache, Cache), cache.add("a"), cache.seq_len("a")
    (True, 0, 0)
    """

    def __init__(self, layers: Sequence[LayerSpec], *, dtype: Any = None, xp: Any = None) -> None:
        self.layers = tuple(layers)
        if not self.layers:
            raise ValueError("layers must hold at least one LayerSpec, got none")
        for spec in self.layers:
            if not isinstance(spec, LayerSpec):
                raise TypeError(f"layers must hold LayerSpec, got a {type(spec).__name__}")
        self.xp = default_namespace() if xp is None else xp
        probe = self.xp.empty((0,), dtype=self.xp.float32 if dtype is None else dtype)
        if not self.xp.isdtype(probe.dtype, "real floating"):
            raise TypeError(f"dtype must be floating, got {probe.dtype}")
        self.dtype, self.array_type = probe.dtype, type(probe)
        self._requests: dict[Hashable, Request] = {}

    # What a cache decides for itself ------------------------------------------------------------

    def _open(
        self, seq_id: Hashable, tokens: Sequence[int], extra: tuple[Hashable, ...]
    ) -> Request:
        """Find a place for a new request, or raise. ``request.length`` is what is already held."""
        return Request(None)

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> Any:
        """Make room for all of the new tokens, or raise before changing anything.

        Returns what the step should carry for ``append`` and ``run`` as ``step.places``.
        """
        return None

    def _truncate(self, request: Request, length: int) -> None:
        """Forget what lies behind ``length`` tokens."""

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        """A second request with the content of ``source``, or raise."""
        raise TypeError(f"{type(self).__name__} cannot fork requests")

    def _release(self, request: Request) -> None:
        """Take the place of a request back."""

    def storage(self) -> Iterator[Array]:
        """Every array that the cache has allocated."""
        raise TypeError(f"{type(self).__name__} does not name its arrays")

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Store the step's keys and values: k (T, Hkv, Dk), v (T, Hkv, Dv)."""
        raise TypeError(f"{type(self).__name__} cannot append")

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """All that a layer holds of a request: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,).

        Decoded, in the order of positions; views of the storage where that is possible, so not to
        be written to.
        """
        raise TypeError(f"{type(self).__name__} cannot be read")

    def memory(self) -> Memory:
        """Bytes held, measured from the arrays."""
        raise TypeError(f"{type(self).__name__} does not measure its memory")

    # What all caches do alike -------------------------------------------------------------------

    def add(
        self,
        seq_id: Hashable,
        tokens: Sequence[int] = (),
        *,
        extra: tuple[Hashable, ...] = (),
    ) -> int:
        """Open a request; ``tokens`` are those of its prompt, if they may be found held already.

        extra: what else the keys depend on (an adapter, a tenant's salt); requests of another
        extra never share.

        Returns how many of them are held, so that the pass starts there; always fewer than
        len(tokens), because the last one has to be computed for its logits.
        """
        if seq_id in self._requests:
            raise ValueError(f"request {seq_id!r} is open already; free it first or choose a name")
        if not isinstance(extra, tuple):
            raise TypeError(f"extra must be a tuple of keys, such as ('tenant',), got {extra!r}")
        request = self._open(seq_id, tokens, extra)
        self._requests[seq_id] = request
        return request.length

    def plan(
        self,
        seq_ids: Sequence[Hashable],
        q_lens: Sequence[int],
        tokens: Sequence[int] | None = None,
    ) -> Step:
        """Reserve room for new tokens of some requests, once for all layers; all or nothing.

        seq_ids B names, each once; q_lens B lengths of at least 1; tokens the T = Σ q_lens new
        token ids packed in that order, for caches that look at them.
        The lengths of the requests grow now; a pass that fails is undone with ``truncate``.
        """
        requests, q_lens = check_plan(self._requests, seq_ids, q_lens, tokens)
        places = self._reserve(requests, q_lens, tokens)
        ticket = Ticket()
        starts = [r.length for r in requests]
        for request, n in zip(requests, q_lens, strict=True):
            if request.ticket is not None:
                request.ticket.live = False
            request.ticket = ticket
            request.length += n
        if all(n == 1 for n in q_lens):
            positions = np.asarray(starts, dtype=np.int64)
        else:
            ranges = [
                np.arange(a, a + n, dtype=np.int64) for a, n in zip(starts, q_lens, strict=True)
            ]
            positions = np.concatenate(ranges)
        return Step(
            self,
            ticket,
            tuple(seq_ids),
            q_lens,
            tuple(r.length for r in requests),
            positions if is_numpy(self.xp) else self.xp.asarray(positions),
            places,
        )

    def run(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Attend from the step's queries to all that their requests hold.

        q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq).
        """
        self._check_run(layer, q, step)
        parts = []
        for i, seq_id in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v, positions = self.read(layer, seq_id)
            parts.append(
                attend(
                    q[rows, ...],
                    k,
                    v,
                    step.positions[rows],
                    positions,
                    return_lse=return_lse,
                    **self.layers[layer].settings,
                )
            )
        return self._join(parts, return_lse)

    def seq_len(self, seq_id: Hashable) -> int:
        """Tokens the request has seen: its absolute length, not what is still stored of it."""
        return known(self._requests, seq_id).length

    def truncate(self, seq_id: Hashable, length: int) -> None:
        """Take a request back to its first ``length`` tokens."""
        request = known(self._requests, seq_id)
        if not is_integer(length) or not 0 <= length <= request.length:
            raise ValueError(
                f"request {seq_id!r} holds {request.length} tokens and can be truncated to "
                f"0 ... {request.length}, got {length!r}"
            )
        self._truncate(request, int(length))
        request.length = int(length)
        self._end_step(request)

    def fork(self, src: Hashable, dst: Hashable) -> None:
        """Open request ``dst`` with everything that ``src`` holds; the two then go their ways."""
        source = known(self._requests, src)
        if dst in self._requests:
            raise ValueError(f"request {dst!r} is open already; free it first or choose a name")
        request = self._copy(source, dst)
        request.length = source.length
        self._requests[dst] = request

    def free(self, seq_id: Hashable) -> None:
        """Close a request and take its room back."""
        request = known(self._requests, seq_id)
        self._release(request)
        self._end_step(request)
        del self._requests[seq_id]

    @property
    def seq_ids(self) -> tuple[Hashable, ...]:
        """The open requests, in the order they were opened."""
        return tuple(self._requests)

    def __repr__(self) -> str:
        tokens = sum(r.length for r in self._requests.values())
        return (
            f"{type(self).__name__}({len(self.layers)} layers, {len(self._requests)} requests, "
            f"{tokens} tokens, {self.memory().reserved:,} bytes)"
        )

    @staticmethod
    def _end_step(request: Request) -> None:
        if request.ticket is not None:
            request.ticket.live = False
            request.ticket = None

    def _check_append(self, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
        return check_append(self, layer, k, v, step)

    def _check_run(self, layer: int, q: Array, step: Step) -> LayerSpec:
        return check_run(self, layer, q, step)

    def _join(self, parts: list[Any], return_lse: bool) -> Any:
        """The results of single requests, packed again."""
        if len(parts) == 1:
            return parts[0]
        if not return_lse:
            return self.xp.concat(parts, axis=0)
        return tuple(self.xp.concat([p[i] for p in parts], axis=0) for i in (0, 1))
