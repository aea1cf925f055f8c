"""A cache whose attention runs on the kernels, where they suit it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.states import with_sink
from kvlib.caches.protocol import Cache
from kvlib.caches.step import Step, Ticket
from kvlib.kernels import engine
from kvlib.kernels.cache_steps import (
    StepTables,
    decode_cache,
    rows_work,
    step_tables,
    stored,
    unsuited,
)
from kvlib.kernels.codes import Codes
from kvlib.kernels.guesses import attend_guesses
from kvlib.kernels.prefill import prefill_attention
from kvlib.kernels.trees import MOST_NODES, Tree, tree_of

C = TypeVar("C", bound=Cache)


def use_kernels(cache: C, *, run_on: str | None = None) -> C:
    """Let a cache compute attention with the kernels; returns the same cache.

    Steps of one token per request go to :func:`decode_cache`, for plain numbers and for codes.
    Other steps, trees of guesses among them, go to :func:`prefill_attention` if the cache holds
    numbers of q's type. If it holds codes, only steps of a few guesses have a kernel, and only in
    layers where no window hides a token yet. A layer that the kernels do not suit, for example one
    with another head_dim, runs as before.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    Raises ValueError, with the reason, if the kernels suit no layer of the cache.

    >>> import kvlib
    >>> model = kvlib.load_reference_model()  # on a device, where there is one
    >>> cache = use_kernels(model.new_cache(max_seqs=1, max_seq_len=32))
    >>> by_kernels = kvlib.generate(model, ["def "], cache=cache, max_new_tokens=8)
    >>> by_kernels == kvlib.generate(model, ["def "], max_new_tokens=8)
    True
    """
    kernels = Kernels(run_on=run_on)
    kernels.suited(cache)
    cache.attention = kernels
    return cache


class Kernels:
    """Attention by the kernels, chosen when a cache is built: ``attention=Kernels()``.

    If no kernel fits a layer or a step, the cache computes it itself (see `use_kernels`). Make one
    `Kernels` per cache.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    >>> import numpy as np
    >>> from kvlib import DenseCache, LayerSpec
    >>> DenseCache([LayerSpec(1, 64)], 1, 8, xp=np, attention=Kernels(run_on="twin")).attention
    Kernels(run_on='twin')
    """

    trees = True  # it looks at step.parents

    def __init__(self, *, run_on: str | None = None) -> None:
        self.run_on = run_on
        self._layers: Any = None
        self._suited: list[bool] = []
        self._last = _Last()

    def __repr__(self) -> str:
        return f"Kernels(run_on={self.run_on!r})"

    def suited(self, cache: Cache) -> list[bool]:
        """Which layers of a cache the kernels suit. Raises ValueError if they suit none."""
        if self._layers is not cache.layers:
            found = [unsuited(cache, layer) is None for layer in range(len(cache.layers))]
            if not any(found):
                raise ValueError(
                    f"the kernels suit no layer of this cache: {unsuited(cache, 0)}. "
                    "Use the cache as it is, without use_kernels"
                )
            self._layers, self._suited = cache.layers, found
        return self._suited

    def __call__(
        self, cache: Any, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """What ``cache.run(layer, q, step, return_lse)`` gives."""
        if not self.suited(cache)[layer] or not q.size:
            return cache.attend(layer, q, step, return_lse)
        tables = self._last.tables(cache, step, layer)
        if tables is None:
            return cache.attend(layer, q, step, return_lse)
        if step.parents is None and all(n == 1 for n in step.q_lens):
            return decode_cache(
                cache, layer, q, step, tables=tables, return_lse=return_lse, run_on=self.run_on
            )
        if any(own is not None and len(own) > MOST_NODES for own in step.parents or ()):
            return cache.attend(layer, q, step, return_lse)
        found = _several(cache, layer, q, step, tables, self._last, self.run_on)
        if found is None:
            return cache.attend(layer, q, step, return_lse)
        o, lse = found
        spec = cache.layers[layer]
        if spec.sinks is not None:
            o, lse = with_sink(cache.xp, o, lse, spec.sinks)
        return (o, lse) if return_lse else o


class _Last:
    """Tables of the step at hand: all layers of a group ask for the same ones.

    The step is remembered by its ticket and lengths. To keep the step itself would keep its cache
    alive, because a step refers to the cache that planned it.
    """

    def __init__(self) -> None:
        self._of: tuple[Ticket | None, tuple[int, ...]] = None, ()
        self._tables: dict[int, StepTables | None] = {}
        self.offsets: Array | None = None
        self.tree: Tree | None = None

    def tables(self, cache: Any, step: Step, layer: int) -> StepTables | None:
        ticket, q_lens = self._of
        if step.ticket is not ticket or step.q_lens != q_lens:
            self._of, self._tables = (step.ticket, step.q_lens), {}
            self.offsets = cache.xp.asarray(np.array(step.qo_indptr, dtype=np.int32))
            self.tree = None
        group = cache.group_of[layer]
        if group not in self._tables:
            self._tables[group] = step_tables(cache, step, layer)
        return self._tables[group]

    def tree_of(self, cache: Any, step: Step) -> Tree | None:
        """The trees of the step, whose tables have been asked for; None if there are none."""
        if self.tree is None and step.parents is not None:
            self.tree = tree_of(step.parents, cache.xp)
        return self.tree


def _several(
    cache: Any,
    layer: int,
    q: Array,
    step: Step,
    tables: StepTables,
    last: _Last,
    run_on: str | None,
) -> tuple[Array, Array] | None:
    """Several tokens of some request: o and lse without sinks, or None where no kernel fits."""
    spec = cache.layers[layer]  # `run` has checked the arguments
    (k, v), tree = stored(cache, layer), last.tree_of(cache, step)
    if isinstance(k, Codes) or isinstance(v, Codes) or cache.codec.waits:
        return attend_guesses(cache, layer, q, step, tables, last.offsets, tree, run_on)
    if k.dtype != q.dtype:
        return None
    q = cache.xp.ascontiguousarray(q)
    found: tuple[Array, Array] = prefill_attention(
        q, k, v, last.offsets, tables.stored, tables.block_table,
        window=spec.window, sm_scale=spec.sm_scale, softcap=spec.softcap,
        max_new=max(step.q_lens), tree=tree,
        work=rows_work(q, spec, step, tables, engine.chosen(run_on, q)),
        return_lse=True, run_on=run_on,
    )  # fmt: skip
    return found
