"""A cache whose attention runs on the kernels, where they suit it."""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.states import with_sink
from kvlib.caches.checks import check_run
from kvlib.caches.protocol import Cache
from kvlib.caches.step import Step
from kvlib.codecs import PLAIN
from kvlib.kernels.cache_steps import StepTables, decode_cache, step_tables, stored, unsuited
from kvlib.kernels.codes import Codes
from kvlib.kernels.prefill import prefill_attention

C = TypeVar("C", bound=Cache)


def use_kernels(cache: C, *, run_on: str | None = None) -> C:
    """The same cache, whose ``run`` goes through the kernels; gives the cache back.

    Steps of one token a request go to :func:`decode_cache`, on numbers and codes alike; others to
    :func:`prefill_attention`, where the cache holds numbers of q's type. What the kernels do not
    suit runs as before: a layer with other heads than they have, for example. run_on: "device",
    "processor" or "twin" (kvlib.kernels.engine); by default what the arrays say.

    Raises ValueError, with the reason, where they suit no layer: a cache that is neither rows nor
    blocks, a codec that they do not know.

    >>> import kvlib
    >>> model = kvlib.load_reference_model()  # on a device, where there is one
    >>> cache = use_kernels(model.new_cache(max_seqs=1, max_seq_len=32))
    >>> by_kernels = kvlib.generate(model, ["def "], cache=cache, max_new_tokens=8)
    >>> by_kernels == kvlib.generate(model, ["def "], max_new_tokens=8)
    True
    """
    suited = [unsuited(cache, layer) is None for layer in range(len(cache.layers))]
    if not any(suited):
        raise ValueError(
            f"the kernels suit no layer of this cache: {unsuited(cache, 0)}. "
            "Use the cache as it is, without use_kernels"
        )
    plain, last = type(cache).run, _Last()
    weakly = weakref.ref(cache)  # else the cache would hold itself, and its memory outlive it

    def run(
        layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        cache = weakly()
        assert cache is not None, "run is called as a method of the cache"
        if not suited[layer] or not q.size:
            return plain(cache, layer, q, step, return_lse)
        if all(n == 1 for n in step.q_lens):
            tables = last.tables(cache, step)
            return decode_cache(
                cache, layer, q, step, tables=tables, return_lse=return_lse, run_on=run_on
            )
        k, _ = stored(cache, layer)
        codec = getattr(cache, "codec", PLAIN)
        if isinstance(k, Codes) or codec.waits or k.dtype != q.dtype:
            return plain(cache, layer, q, step, return_lse)
        return _prefill(cache, layer, q, step, last, return_lse, run_on)

    cache.run = run  # type: ignore[method-assign]
    return cache


class _Last:
    """Tables of the step at hand: all layers of a step ask for the same ones."""

    def __init__(self) -> None:
        self._step: Step | None = None
        self._tables: StepTables | None = None
        self._offsets: Array | None = None

    def tables(self, cache: Any, step: Step) -> StepTables:
        if step is not self._step or self._tables is None:
            self._step, self._tables = step, step_tables(cache, step)
            offsets = np.array(step.qo_indptr, dtype=np.int32)
            self._offsets = cache.xp.asarray(offsets)
        return self._tables

    def offsets(self, cache: Any, step: Step) -> Array:
        self.tables(cache, step)
        return self._offsets


def _prefill(
    cache: Any, layer: int, q: Array, step: Step, last: _Last, return_lse: bool, run_on: str | None
) -> Array | tuple[Array, Array]:
    """Several tokens of some request, over numbers as they lie."""
    spec = check_run(cache, layer, q, step)
    k, v = stored(cache, layer)
    q = cache.xp.ascontiguousarray(q)
    tables = last.tables(cache, step)
    o, lse = prefill_attention(
        q, k, v, last.offsets(cache, step), tables.stored, tables.block_table,
        window=spec.window, sm_scale=spec.sm_scale, softcap=spec.softcap,
        max_new=max(step.q_lens), return_lse=True, run_on=run_on,
    )  # fmt: skip
    if spec.sinks is not None:
        o, lse = with_sink(cache.xp, o, lse, spec.sinks)
    return (o, lse) if return_lse else o
