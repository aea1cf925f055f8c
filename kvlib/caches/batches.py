"""Several requests of one step in one product; and the tokens of a tree, or all requests, apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import check_flag
from kvlib.arrays import Array
from kvlib.attention import batched
from kvlib.attention.pieces import VIEWED, Buffers, PagedTensor, Pieces, Slices
from kvlib.attention.trees import attend_tree
from kvlib.blas import piece_of_a_chunk
from kvlib.caches.checks import check_run
from kvlib.caches.protocol import Answer
from kvlib.caches.step import Placement, Step
from kvlib.caches.store import Store


def batches(cache: Any, layer: int, step: Step, heads_per_kv: int) -> list[list[int]]:
    """Return which requests of a step attend in one product: none in a step with trees."""
    spec, placement = cache.layers[layer], cache.placement(layer, step)
    width, window = spec.num_kv_heads * spec.v_dim, spec.window
    key = width, window, heads_per_kv
    if key in placement.batches:
        return placement.batches[key]
    wide = cache.dtype in (cache.xp.float32, cache.xp.float64)
    gathered = cache.xp is np and cache.allocator.size < VIEWED
    share = cache.plain and wide and (cache.one_array or gathered) and step.parents is None
    few = [
        i for i, (table, n) in enumerate(zip(placement.tables, step.q_lens, strict=True))
        if share and batched.few_queries(n, heads_per_kv) and table.private_row is None
    ]  # fmt: skip
    lens, queries = [placement.stored_lens[i] for i in few], [step.q_lens[i] for i in few]
    if cache.one_array:
        rows = [placement.tables[i].pages[0] for i in few]
        found = batched.batches_in_place(rows, lens, queries, width, window)
    else:
        found = batched.batches_copied(lens, queries, width, window)
    placement.batches[key] = [[few[i] for i in batch] for batch in found]
    return placement.batches[key]


def attend_batch(
    cache: Any, layer: int, q: Array, step: Step, batch: list[int], return_lse: bool
) -> Any:
    spec, store, xp = cache.layers[layer], cache.stores[layer], cache.xp
    placement = cache.placement(layer, step)
    tables = [placement.tables[i] for i in batch]
    lens = [placement.stored_lens[i] for i in batch]
    if cache.one_array:
        left_out = 0
        rows = slice(tables[0].pages[0], tables[-1].pages[0] + 1)
        k = store.keys.arrays["x"][rows, ...]
        v = k[..., : spec.v_dim] if spec.v_from_k else store.values.arrays["x"][rows, ...]
    else:
        # Pages before the window are skipped. The requests then have one length, or one product
        # wouldn't pay, so `attend_texts` does not look at the ends, which count the skipped tokens.
        first = 0 if spec.window is None else max(0, max(lens) - spec.window) // store.size
        left_out = first * store.size
        # Kept between calls, about GATHERED numbers each for layers of one shape: fresh memory
        # from the system would cost more than the copies themselves.
        buffers = cache.buffers.__dict__.setdefault("buffers", ({}, {}))
        pages = [table.pages for table in tables]
        k, v = side_by_side(store, pages, first, max(lens) - left_out, buffers)
    if any(table.freed for table in tables):
        ends = xp.asarray(lens, dtype=xp.int64)
    else:  # they are at hand where the cache lives
        ends = batched.batch_rows(xp, step.lengths, batch, range(len(step.q_lens) + 1))
    q, lens = batched.batch_rows(xp, q, batch, step.qo_indptr), [n - left_out for n in lens]
    return batched.attend_texts(q, k, v, lens, ends, return_lse=return_lse, **spec.settings)


def side_by_side(
    store: Store,
    tables: Sequence[Sequence[int]],
    first: int,
    tokens: int,
    buffers: tuple[Buffers, Buffers],
) -> tuple[Array, Array]:
    """Copy pages of several requests, without `first` of each: k (B, Hkv, S, Dk), v (B, Hkv, S,
    Dv). tokens: of the longest request after those. buffers: overwritten."""
    count = -(-tokens // store.size)
    rows = [pages[first : first + count] for pages in tables]
    rows = [[*pages, *[pages[-1]] * (count - len(pages))] for pages in rows]
    index = store.xp.asarray(rows, dtype=store.xp.int64)
    pairs = zip(store.tensors, buffers, strict=False)
    k, *values = (copied(tensor, index, buffer) for tensor, buffer in pairs)
    return k, values[0] if values else k[..., : store.spec.v_dim]


def copied(tensor: PagedTensor, tables: Array, buffers: Buffers) -> Array:
    """Copy plain numbers of several requests: (B, n) pages → (B, Hkv, n · size, D)."""
    xp, (requests, n) = tensor.xp, tables.shape
    heads = xp.arange(tensor.heads, dtype=xp.int64)[None, :, None]
    index = xp.reshape(tables[:, None, :] * tensor.heads + heads, (-1,))
    x = tensor.read((index, 0, requests * n * tensor.size), buffers)["x"]
    return xp.reshape(x, (requests, tensor.heads, n * tensor.size, tensor.dim))


def attend_guesses(
    cache: Any,
    layer: int,
    rows: Array,
    step: Step,
    placement: Placement,
    i: int,
    return_lse: bool,
) -> Any:
    """Attend from rows (T, Hq, Dk) of request i of a step, whose new tokens are a tree."""
    n, spec = placement.stored_lens[i], cache.layers[layer]
    if cache.one_array:
        stacked = rows.shape[0] * rows.shape[1] // spec.num_kv_heads
        piece = piece_of_a_chunk(cache.xp, stacked, max(spec.head_dim, spec.v_dim))
        k, v = cache._row(layer, placement.tables[i], n)
        pieces: Pieces = Slices(cache.xp, k, v, piece)
    else:
        older = n - step.tree(i)[1].shape[1]
        first = 0 if spec.window is None else max(0, older - spec.window + 1)
        pieces = cache.pieces_of(layer, step, placement, i, first=first)
    return attend_tree(
        rows, pieces, n, cache.xp, *step.tree(i), return_lse=return_lse, **spec.settings
    )


def run_alone(cache: Any, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
    """Attend as ``cache.run`` does, one request after the other: use ``attention=run_alone``.

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(2, 4)], 2, 16, attention=run_alone)
    """
    check_run(cache, layer, q, step)
    return_lse = check_flag("return_lse", return_lse)
    count = len(step.q_lens)
    results = [cache.attend_one(layer, q, step, i, return_lse) for i in range(count)]
    return cache.join(results, return_lse)


run_alone.trees = True  # type: ignore[attr-defined]  # `attend_one` looks at step.parents
