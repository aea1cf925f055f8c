"""Quest (arXiv:2406.10774): every token stays, and a decode step reads only the best blocks.

The largest and smallest numbers of a block's keys give a score that no key of the block exceeds. A
query reads the blocks with the highest scores, and always the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvlib.arguments import check_integer
from kvlib.arrays import Array, at_least_float32, namespace, nbytes
from kvlib.attention.causal import attend_pieces
from kvlib.attention.partials import as_dtype, by_head
from kvlib.attention.pieces import StoredPieces, cut
from kvlib.caches.protocol import Answer
from kvlib.caches.step import Step
from kvlib.caches.store import Store, bounds_of
from kvlib.meter import OPEN, report

TOGETHER = 4096  # tokens whose bounds are computed at a time


@dataclass(frozen=True)
class Quest:
    """A way to attend that reads at most `budget` tokens per kv head in a decode step.

    The budget is rounded down to whole blocks, and the last block is one of them. Steps of several
    tokens of a request read everything, as do the first `dense_layers` layers and layers with a
    window. lse is that of the tokens that were read. Each kv head takes the mean of its query
    heads' bounds; in the authors' code, each query head chooses. `memory` counts the bounds as
    metadata, and `Meter` counts their bytes under "bounds".

    >>> from kvlib import BlockPool, LayerSpec, PagedCache
    >>> pool = BlockPool(16, block_size=4)
    >>> cache = PagedCache([LayerSpec(1, 4)], pool, attention=Quest(16, dense_layers=0))
    """

    budget: int
    dense_layers: int = 2
    trees = True  # (not a field) a tree has several tokens, and its step reads everything

    def __post_init__(self) -> None:
        for name, least in (("budget", 1), ("dense_layers", 0)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))

    def bounded(self, cache: Any) -> list[int]:
        """Return the layers in which heads choose blocks; refuse a cache that doesn't fit."""
        if cache.block_size is None:
            raise TypeError(
                "Quest chooses among the blocks of a PagedCache, and a "
                f"{type(cache).__name__} has none"
            )
        if self.budget < cache.block_size:
            raise ValueError(
                f"budget must hold a block, and blocks have {cache.block_size} tokens here, got "
                f"{self.budget}; use a larger budget or smaller blocks"
            )
        if cache.wants_queries:
            raise ValueError(
                "Scored scores tokens by the attention they get, and Quest leaves tokens unread: "
                "use Quest, which loses no token, or Scored, which frees memory"
            )
        return [i for i, spec in enumerate(cache.layers) if self._chooses(i, spec.window)]

    def _chooses(self, layer: int, window: int | None) -> bool:
        return layer >= self.dense_layers and window is None

    def __call__(
        self, cache: Any, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Answer:
        """Return what ``cache.run`` does: q (T, Hq, Dk) → o (T, Hq, Dv), and lse (T, Hq)."""
        if not self._chooses(layer, cache.layers[layer].window):
            return cache.attend(layer, q, step, return_lse)  # type: ignore[no-any-return]
        if cache.block_size is None or cache.stores[layer].keys.bounds is None:
            for i in self.bounded(cache):  # a cache that was built to attend in another way
                cache.stores[i].keep_bounds()
        store, size = cache.stores[layer], cache.block_size
        pages = cache.placement(layer, step).page_arrays()
        counts = [-(-n // size) for n in cache.paged_lens(step, layer)]
        # The last block is always read, and the next token may change it.
        full = [blocks[: max(0, n - 1)] for blocks, n in zip(pages, counts, strict=True)]
        refresh_bounds(store, full)
        most = self.budget // size
        chooses = [
            step.appends and length == 1 and n > most
            for length, n in zip(step.q_lens, counts, strict=True)
        ]
        if not any(chooses):
            return cache.attend(layer, q, step, return_lse)  # type: ignore[no-any-return]
        parts = [
            attend_chosen(cache, layer, q, step, i, most, return_lse)
            if chooses[i]
            else cache.attend_one(layer, q, step, i, return_lse)
            for i in range(len(chooses))
        ]
        return cache.join(parts, return_lse)  # type: ignore[no-any-return]


def refresh_bounds(store: Store, blocks: Sequence[np.ndarray]) -> None:
    """Compute the bounds of those blocks, all full, whose keys have changed."""
    bounds, keys = store.keys.bounds, store.keys
    assert bounds is not None
    changed = [some[~bounds.fresh[some]] for some in blocks]
    if not any(map(len, changed)):
        return
    stale = np.unique(np.concatenate(changed))
    count, (_, heads, wide) = max(1, TOGETHER // store.size), bounds.array.shape
    for a in range(0, len(stale), count):
        some = stale[a : a + count]
        k = keys.codec.decode(keys.gather(some.tolist(), len(some) * store.size), store.dtype)
        found = bounds_of(store.xp.reshape(k, (heads, len(some), store.size, wide // 2)))
        for n, page in enumerate(some.tolist()):
            bounds.array[page, :, :] = found[:, n, :]
    bounds.fresh[stale] = True
    read = sum(keys.payload_and_metadata(store.size)) * len(stale)
    report("bounds", read=read, written=bounds.nbytes(len(stale)))


def attend_chosen(
    cache: Any,
    layer: int,
    q: Array,
    step: Step,
    i: int,
    most: int,
    return_lse: bool,
) -> Any:
    """Attend with the one query of request i to `most` of its blocks per kv head."""
    xp, spec, store = cache.xp, cache.layers[layer], cache.stores[layer]
    placement, held = cache.placement(layer, step), cache.paged_lens(step, layer)[i]
    query = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
    blocks = placement.page_array(i)[: -(-held // store.size)]
    bounds = xp.take(store.keys.bounds.array, blocks[:-1], axis=0)
    rows = by_head(xp, at_least_float32(xp, query), spec.num_kv_heads)
    if OPEN:
        report("bounds", read=nbytes(bounds), flops=2 * bounds.size)
    best = highest(page_scores(rows, bounds), most - 1)
    chosen = xp.take(blocks, xp.reshape(best, (-1,)), axis=0)
    last = xp.broadcast_to(blocks[-1:][None, :], (spec.num_kv_heads, 1))
    chosen = xp.concat([xp.reshape(chosen, best.shape), last], axis=1)
    read = (most - 1) * store.size + held - (blocks.shape[0] - 1) * store.size
    waiting = placement.stored_lens[i] - held
    residual = step.states[i].residual(layer)
    # The query sees all these tokens, so they are counted as if there were no other pages.
    sizes = spec.num_kv_heads, store.size, cache.decode_group
    pieces = StoredPieces(
        cut(xp, None, chosen, *sizes, first=0, last=read, end=read + waiting),
        *(store.keys, store.values, spec.v_dim),
        () if residual is None else residual.waiting,
    )
    return attend_pieces(query, pieces, read + waiting, xp, return_lse=return_lse, **spec.settings)


def highest(scores: Array, count: int) -> Array:
    """Return the columns (Hkv, count) of each row's highest scores (Hkv, n), in rising order."""
    xp = namespace(scores)
    order = xp.argsort(-scores, axis=1, stable=True)[:, :count]
    return xp.sort(order, axis=1)


def page_scores(rows: Array, bounds: Array) -> Array:
    """rows (Hkv, G, Dk), bounds (n, Hkv, 2 · Dk) → scores (Hkv, n) that no key exceeds, because
    Σ_d max(q_d max_d, q_d min_d) >= q·k for each key k of a page; the mean over G query heads."""
    xp = namespace(rows)
    zero = xp.zeros((), dtype=rows.dtype, device=rows.device)
    signs = [xp.where(rows > 0, rows, zero), xp.where(rows > 0, zero, rows)]
    wide = xp.mean(xp.concat(signs, axis=-1), axis=1)  # (Hkv, 2 · Dk)
    heads_first = xp.permute_dims(as_dtype(xp, bounds, rows.dtype), (1, 0, 2))
    return xp.matmul(heads_first, wide[:, :, None])[:, :, 0]
