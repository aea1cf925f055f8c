"""Cascade attention: what all requests of a step share is attended to once, for all together.

Each request's own blocks are attended to apart, and `merge_state` joins the two. Hydragen,
arXiv:2402.05099; ChunkAttention, arXiv:2402.15220; FlashInfer, arXiv:2501.01005.
"""

from itertools import takewhile
from typing import Any

from kvlib.arguments import check_flag
from kvlib.arrays import Array, at_least_float32
from kvlib.attention.causal import attend_before, attend_pieces
from kvlib.attention.partials import merge_state, with_sink
from kvlib.attention.pieces import StoredPieces, cut
from kvlib.attention.trees import attend_tree
from kvlib.caches.checks import check_layer, check_run
from kvlib.caches.constructors import PagedCache
from kvlib.caches.protocol import Answer
from kvlib.caches.step import Step


def shared_tokens(cache: PagedCache, layer: int, step: Step) -> int:
    """How many first tokens all requests of a step hold in the same whole blocks, without the
    step's own; 0 for one request, and where the layer's window hides a part."""
    check_layer(cache, layer)
    tables, window = cache.placement(layer, step).tables, cache.layers[layer].window
    if len(tables) < 2 or any(table.freed or table.private_row for table in tables):
        return 0  # what is shared is counted from the start of the texts
    if window is not None and max(step.seq_lens) > window:
        return 0
    # Every query of the step must follow what is shared.
    most = min(*step.starts, *cache.paged_lens(step, layer)) // cache.block_size
    columns = zip(*(table.pages[:most] for table in tables), strict=True)
    same = takewhile(lambda column: len(set(column)) == 1, columns)
    return sum(1 for _ in same) * cache.block_size


def run_cascade(
    cache: PagedCache, layer: int, q: Array, step: Step, return_lse: bool = False
) -> Answer:
    """The result of ``cache.run``, but blocks that belong to all requests are read only once.

    q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq), natural log

    The same up to the order of summation; ``attention=run_cascade`` makes a cache always attend
    this way. Raises TypeError for a cache without blocks.

    >>> from kvlib import BlockPool, LayerSpec, PagedCache
    >>> pool = BlockPool(8, block_size=2)
    >>> cache = PagedCache([LayerSpec(1, 4)], pool, attention=run_cascade)
    """
    if cache.block_size is None:
        raise TypeError(f"cache must be a PagedCache, whose blocks can be shared, got {cache!r}")
    spec = check_run(cache, layer, q, step)
    return_lse = check_flag("return_lse", return_lse)
    shared = shared_tokens(cache, layer, step)
    if not shared:
        return cache.attend(layer, q, step, return_lse)
    dtype, q = q.dtype, at_least_float32(cache.xp, q)  # narrowed once, after the merge
    settings = {"sm_scale": spec.sm_scale, "softcap": spec.softcap}  # no window hides anything here
    placement, store = cache.placement(layer, step), cache.stores[layer]
    shared_cut = cut(
        cache.xp, placement.tables[0].pages, placement.page_array(0), spec.num_kv_heads,
        cache.block_size, cache.decode_group, first=0, last=shared, end=shared,
    )  # fmt: skip
    pieces = StoredPieces(shared_cut, store.keys, store.values, spec.v_dim, ())
    o, lse = merge_state(
        *attend_before(q, pieces, shared, cache.xp, **settings),
        *_private_parts(cache, layer, q, step, shared, settings),
    )
    if spec.sinks is not None:  # once, not in every part
        o, lse = with_sink(cache.xp, o, lse, spec.sinks)
    o = cache.xp.astype(o, dtype, copy=False)
    return (o, lse) if return_lse else o


run_cascade.trees = True  # type: ignore[attr-defined]  # it looks at step.parents


def _private_parts(
    cache: PagedCache, layer: int, q: Array, step: Step, shared: int, settings: dict[str, Any]
) -> tuple[Array, Array]:
    """Each request's queries over its tokens from `shared` on: o (T, Hq, Dv), lse (T, Hq)."""
    skipped, placement = shared // cache.block_size, cache.placement(layer, step)
    results = []
    for i, end in enumerate(step.seq_lens):
        rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
        # Counted from the end of the shared part, distances between tokens stay what they are.
        pieces = cache.pieces_of(layer, step, placement, i, skipped=skipped)
        args = rows, pieces, end - shared, cache.xp
        if step.parents is None or step.parents[i] is None:
            result = attend_pieces(*args, return_lse=True, **settings)
        else:
            result = attend_tree(*args, *step.tree(i), return_lse=True, **settings)
        results.append(result)
    return cache.join(results, return_lse=True)  # type: ignore[no-any-return]
