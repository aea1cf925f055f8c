"""The protocol of all caches, and what they share (long, for a whole cache stands in it).

    cache.add("a")                             open a request
    step = cache.plan(["a"], [T])              room for T new tokens, in all layers, or an error
    for each layer:
        cache.append(layer, k, v, step)        store
        o = cache.run(layer, q, step)          attend
    cache.truncate("a", n); cache.fork("a", "b"); cache.free("a")

A pass that fails is taken back with ``truncate``, exactly, until the request's next ``plan``. A
request may also be planned again without: then what the pass left unappended is a gap, over which
no layer appends or runs until the request is truncated to before it.

A cache of your own needs this much. ``run`` checks its arguments and calls ``attend``, which is
attention over ``read``, right and slow, until you override it to be fast:

* ``_open`` gives a `Request`; what the cache notes in its ``state`` is its own affair.
* ``append`` first asks ``self._check_append``, which refuses what does not fit; it stores
  rows ``step.qo_indptr[i]`` to ``step.qo_indptr[i + 1]`` for request i, and at the end says so:
  ``step.ticket.appended.add(layer)``. Without that, ``run`` refuses the layer.
* ``read`` gives all of it back, and ``_truncate`` forgets, exactly to where the last step began.
  What cannot be undone (eviction, say) belongs into ``_reserve``, which ``plan`` calls.
* ``_copy`` for ``fork``, ``_release`` for what ``free`` must give back, ``storage`` and ``memory``
  for whoever counts bytes (the kit below does). A cache works without them.

>>> class Growing(Cache):
...     def _open(self, seq_id, tokens, extra):
...         shapes = [((0, s.num_kv_heads, s.head_dim), (0, s.num_kv_heads, s.v_dim))
...                   for s in self.layers]
...         return Request([[np.zeros(x, self.dtype) for x in pair] for pair in shapes])
...     def _truncate(self, request, length):
...         request.state = [[x[:length] for x in pair] for pair in request.state]
...     def _copy(self, source, seq_id):
...         return Request([list(pair) for pair in source.state])
...     def append(self, layer, k, v, step):
...         self._check_append(layer, k, v, step)
...         for i, seq_id in enumerate(step.seq_ids):
...             new = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
...             pair = self._requests[seq_id].state[layer]
...             pair[:] = [np.concatenate([x, y[new]]) for x, y in zip(pair, (k, v))]
...         step.ticket.appended.add(layer)
...     def read(self, layer, seq_id):
...         k, v = self._requests[seq_id].state[layer]
...         return k, v, np.arange(len(k))
...     def storage(self):
...         return (x for r in self._requests.values() for pair in r.state for x in pair)
...     def memory(self):
...         held = sum(x.nbytes for x in self.storage())
...         return Memory(payload=held, metadata=0, reserved=held, wasted=0)

The kit of ``kvlib.exercises`` plays random lives of it against float64 (book/extend.ipynb):

>>> from kvlib.exercises import kit
>>> trial = kit.check_cache(
...     lambda layers: Growing(layers, xp=np), schedules=5, max_seq_len=None, v_from_k=False, xp=np
... )
>>> trial.passed
True
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array, default_namespace, is_numpy
from kvlib.attention import attend
from kvlib.attention.checks import describe, is_integer
from kvlib.caches.checks import (
    check_append,
    check_extra,
    check_layers,
    check_library,
    check_new,
    check_plan,
    check_run,
    get_open,
    token_ids,
)
from kvlib.caches.groups import LayerGroup
from kvlib.caches.request import Request
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step, Ticket
from kvlib.codecs.base import PLAIN, Codec, TensorCodec

# (cache, layer, q, step, return_lse) → o, or (o, lse)
Attention = Callable[["Cache", int, Array, Step, bool], Any]


class Cache:
    """Keys and values of many requests, for all layers of one model.

    layers: one LayerSpec a layer. dtype: what is stored (float32 unless given). xp: the array
    library (``kvlib.arrays.default_namespace()`` unless given). attention: how ``run`` computes, a
    function (cache, layer, q, step, return_lse) such as ``kvlib.caches.run_cascade`` or
    ``kvlib.kernels.Kernels()``; the cache's own way, ``attend``, unless given.
    Errors leave the cache as it was: CacheFull or OutOfBlocks where there is no room, ValueError
    or TypeError for input that does not fit, KeyError never.

    Every cache is used alike:

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(num_kv_heads=2, head_dim=4)], max_seqs=2, max_seq_len=16)
    >>> isinstance(cache, Cache), cache.add("a"), cache.seq_len("a")
    (True, 0, 0)
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        *,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
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
        probe = self.xp.empty((0,), dtype=self.xp.float32 if dtype is None else dtype)
        if not self.xp.isdtype(probe.dtype, "real floating"):
            raise TypeError(f"dtype must be floating, got {probe.dtype}")
        self.dtype, self.array_type = probe.dtype, type(probe)
        self.group_of: Sequence[int] = (0,) * len(self.layers)  # layers of a group lie alike
        for i, spec in enumerate(self.layers):
            if spec.sinks is not None:
                check_library(self, "sinks", spec.sinks, i)
        self._requests: dict[Hashable, Request] = {}

    # Where keys are stored, for code that reads them in place (kernels, cascade) ------------------

    codec: Codec = PLAIN
    block_size: Any = None  # tokens of a block, where requests lie in blocks of a pool
    groups: Sequence[LayerGroup] = ()  # layers that share tables, in a cache that has tables

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        """The codec and the arrays (pages, Hkv, size / per, ...) of a layer's keys and its values.

        Only those of the keys if values are taken from keys; none if the cache has no pages.
        """
        return ()

    def pages(self, step: Step, layer: int = 0) -> list[Sequence[int]] | None:
        """The rows or blocks in which each request of a step lies, in the order of its tokens.

        None where one lies elsewhere for this step. Layers of one `group_of` lie alike.
        """
        raise TypeError(f"a cache of rows or of blocks needed, got a {type(self).__name__}")

    def stored_lens(self, step: Step, layer: int = 0) -> Sequence[int]:
        """How many tokens of each request a layer still has, those of the step included."""
        return step.seq_lens

    def paged_lens(self, step: Step, layer: int = 0) -> Sequence[int]:
        """How many of those are stored in its pages; the rest wait to be encoded."""
        return self.stored_lens(step, layer)

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

        Returns what the step should carry for ``append`` and ``run`` as ``step.states``.
        """
        return None

    def _truncate(self, request: Request, length: int) -> None:
        """Forget what lies behind ``length`` tokens."""

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        """A second request with the content of ``source``, or raise."""
        raise TypeError(f"{type(self).__name__} cannot fork requests")

    def _release(self, request: Request) -> None:
        """Take the place of a request back."""

    def _sure(self, request: Request) -> int:
        """Tokens that every layer holds of a request if its last pass stays unfinished."""
        return request.begun

    def storage(self) -> Iterator[Array]:
        """Every array that the cache has allocated."""
        raise TypeError(f"{type(self).__name__} does not name its arrays")

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Store the step's keys and values: k (T, Hkv, Dk), v (T, Hkv, Dv)."""
        raise TypeError(f"{type(self).__name__} cannot append")

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """All that a layer holds of a request: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,).

        Decoded, in the order of positions; views of the storage where that is possible, so not to
        be written to. A cache that evicts per head gives positions (Hkv, S), each head's in order.
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
        check_new(self._requests, seq_id)
        check_extra(extra)
        request = self._open(seq_id, token_ids(tokens), extra)
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
        The lengths of the requests grow now; a pass that fails is undone with ``truncate``. One
        that is planned over, unfinished, leaves a gap: the request can be planned, but no layer
        appends or runs until it is truncated to where the gap begins.
        """
        requests, q_lens, tokens = check_plan(self._requests, seq_ids, q_lens, tokens)
        gaps = [r.gap_after(len(self.layers), self._sure(r)) for r in requests]
        states = self._reserve(requests, q_lens, tokens)
        ticket = Ticket()
        starts = [r.length for r in requests]
        for seq_id, request, n, gap in zip(seq_ids, requests, q_lens, gaps, strict=True):
            if request.ticket is not None:
                request.ticket.live = False
            request.ticket = ticket
            request.begun = request.length
            request.length += n
            request.gap = gap
            if gap is not None:
                ticket.gap = seq_id, gap
        if all(n == 1 for n in q_lens):
            positions = np.asarray(starts, dtype=np.int64)
        else:
            ranges = [
                np.arange(a, a + n, dtype=np.int64) for a, n in zip(starts, q_lens, strict=True)
            ]
            positions = np.concatenate(ranges)
        seq_lens, lengths = tuple(r.length for r in requests), None
        if not is_numpy(self.xp):  # in one copy
            both = self.xp.asarray(np.concatenate([positions, np.asarray(seq_lens, np.int64)]))
            positions, lengths = both[: -len(seq_lens)], both[-len(seq_lens) :]
        return Step(
            self,
            ticket,
            tuple(seq_ids),
            q_lens,
            seq_lens,
            positions,
            states,
            lengths=lengths,
        )

    def run(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Attend from the step's queries to all that their requests hold.

        q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq).
        """
        self._check_run(layer, q, step)
        if self.attention is not None:
            return self.attention(self, layer, q, step, return_lse)
        return self.attend(layer, q, step, return_lse)

    def attend(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Compute the result of ``run``, after ``run`` has checked the arguments."""
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
        return self.join(parts, return_lse)

    def seq_len(self, seq_id: Hashable) -> int:
        """Tokens the request has seen: its absolute length, not what is still stored of it."""
        return get_open(self._requests, seq_id).length

    def truncate(self, seq_id: Hashable, length: int) -> None:
        """Take a request back to its first ``length`` tokens."""
        request = get_open(self._requests, seq_id)
        if not is_integer(length) or not 0 <= length <= request.length:
            raise ValueError(
                f"request {seq_id!r} holds {request.length} tokens and can be truncated to "
                f"0 ... {request.length}, got {length!r}"
            )
        gap = request.gap  # what the last pass missed is gone with it
        if length > request.begun:
            gap = request.gap_after(len(self.layers), self._sure(request))
        self._truncate(request, int(length))
        request.gap = None if gap is None or gap >= length else gap
        request.length = int(length)
        self._end_step(request)

    def settle(self, seq_id: Hashable) -> None:
        """Make the last step of a request final, as its next ``plan`` would."""
        self.truncate(seq_id, self.seq_len(seq_id))

    def fork(self, src: Hashable, dst: Hashable) -> None:
        """Open request ``dst`` with everything that ``src`` holds; the two then go their ways."""
        source = get_open(self._requests, src)
        check_new(self._requests, dst)
        gap = source.gap_after(len(self.layers), self._sure(source))
        request = self._copy(source, dst)
        request.length = request.begun = source.length
        request.gap = gap
        self._requests[dst] = request

    def free(self, seq_id: Hashable) -> None:
        """Close a request and take its room back."""
        request = get_open(self._requests, seq_id)
        self._release(request)
        self._end_step(request)
        del self._requests[seq_id]

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to `length` tokens even if it were alone.

        Raises CacheFull or OutOfBlocks. A cache without a fixed room refuses nobody.
        """

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether a prompt should be opened later, because another request is computing its tokens.

        tokens: the prompt. others: names and prompts of open requests. False in a cache whose
        requests share nothing.
        """
        return False

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

    @staticmethod
    def _end_step(request: Request) -> None:
        if request.ticket is not None:
            request.ticket.live = False
            request.ticket = None

    def _check_append(self, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
        return check_append(self, layer, k, v, step)

    def _check_run(self, layer: int, q: Array, step: Step) -> LayerSpec:
        return check_run(self, layer, q, step)

    def join(self, parts: list[Any], return_lse: bool) -> Any:
        """The results of single requests, packed again."""
        if len(parts) == 1:
            return parts[0]
        if not return_lse:
            return self.xp.concat(parts, axis=0)
        return tuple(self.xp.concat([p[i] for p in parts], axis=0) for i in (0, 1))
