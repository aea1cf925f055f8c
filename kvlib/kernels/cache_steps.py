"""A decode step of a cache through the kernels, on the arrays as they are stored.

What a cache keeps as codes is one piece of a request's keys, the newest tokens as they came are a
second; both are attended to where they lie, and their results merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_flag, type_of
from kvlib.arrays import Array, namespace
from kvlib.attention.states import with_sink
from kvlib.caches.checks import check_run
from kvlib.caches.protocol import Cache
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import Step
from kvlib.codecs import Plain
from kvlib.codecs.base import TensorCodec
from kvlib.kernels import engine
from kvlib.kernels.codes import Codes, unread
from kvlib.kernels.decode import keys_read, piece_of, settings_of
from kvlib.kernels.decode_pieces import attend
from kvlib.kernels.pieces import Piece, Settings
from kvlib.kernels.prefill_work import split_work
from kvlib.kernels.types import HEAD_DIMS
from kvlib.kernels.work import Work


class StepTables(NamedTuple):
    """What the kernels ask of a step, where the cache lives; the same for layers that lie alike.

    block_table (B, W) int32   stored (B,) int32: tokens in the blocks   waiting (B,) or None:
    those behind them that lie apart   lens: both as Python ints   work: the work items of the
    layers so far (kvlib.kernels.work)   shared: what layers share in a step with several rows per
    request (`rows_work`, kvlib.kernels.guesses)
    """

    block_table: Array
    stored: Array
    waiting: Array | None
    lens: tuple[tuple[int, ...], tuple[int, ...]]
    work: dict[Any, Work]
    shared: dict[Any, Any]


def step_tables(cache: Any, step: Step, layer: int = 0) -> StepTables | None:
    """Block tables and lengths of a step, sent to the device once and not for each layer.

    layer: for all layers of its group. None where a request lies elsewhere than in the cache's
    pages for this step (a long prompt in a small row).
    """
    xp, lens = cache.xp, cache.placement(layer, step).lens
    pages, waits = cache.pages(step, layer), cache.codec.waits
    if pages is None:
        return None
    stored = cache.paged_lens(step, layer)
    table = np.zeros((len(pages), max(1, *map(len, pages))), np.int32)
    for row, own in zip(table, pages, strict=True):
        row[: len(own)] = own
    waiting = [n - m for n, m in zip(lens, stored, strict=True)]
    behind = xp.asarray(np.array(waiting, np.int32)) if waits else None
    sizes = xp.asarray(np.array(stored, np.int32))
    return StepTables(xp.asarray(table), sizes, behind, (tuple(stored), tuple(waiting)), {}, {})


def rows_work(q: Array, spec: LayerSpec, step: Step, tables: StepTables, where: str) -> Work | None:
    """How blocks share the keys of a step of few new tokens; the same for layers that are alike."""
    key = q.shape[1:], np.dtype(q.dtype).name, spec.num_kv_heads, spec.window
    if key not in tables.shared:
        lens = tables.lens[0]
        if spec.window is not None:
            both = zip(lens, step.q_lens, strict=True)
            lens = tuple(min(end, spec.window + n - 1) for end, n in both)
        tables.shared[key] = split_work(q, spec.num_kv_heads, step.q_lens, lens, where=where)
    found: Work | None = tables.shared[key]
    return found


def unsuited(cache: Cache, layer: int) -> str | None:
    """Why the kernels cannot run this layer of this cache; None where they can."""
    spec = cache.layers[layer]
    if spec.v_from_k or spec.v_dim != spec.head_dim:
        return "values must be of their own, and as long as keys"
    if spec.head_dim not in HEAD_DIMS:
        return f"head_dim must be one of {HEAD_DIMS}, got {spec.head_dim}"
    if np.dtype(cache.dtype).name not in ("float32", "float16"):
        return f"the cache must hold float32 or float16, got {cache.dtype}"
    if cache.block_size is not None and cache.block_size & (cache.block_size - 1):
        return f"block_size must be a power of two, got {cache.block_size}"
    if not cache.fields(layer):
        return f"a cache of rows or of blocks needed, got {type_of(cache)}"
    return unread(cache.codec.keys, cache.codec.values)


def decode_cache(
    cache: Cache,
    layer: int,
    q: Array,
    step: Step,
    *,
    tables: StepTables | None = None,
    return_lse: bool = False,
    run_on: str | None = None,
) -> Array | tuple[Array, Array]:
    """The same as ``cache.run(layer, q, step)``, by kernels, for a step of one query per request.

    q (B, Hq, D)   →   o (B, Hq, D), and with ``return_lse`` lse (B, Hq) float32

    tables: ``step_tables(cache, step, layer)``, made once for all layers of a group.
    run_on: "device", "processor" or "twin"; the arrays decide by default.
    Raises ValueError or TypeError for what ``cache.run`` refuses, for steps with more than one
    query per request, and for layers that the kernels do not suit.

    >>> import numpy as np
    >>> from kvlib import BlockPool, LayerSpec, PagedCache
    >>> cache = PagedCache([LayerSpec(1, 64)], BlockPool(4, 16), xp=np)
    >>> held = [cache.add("a"), cache.add("b")]
    >>> step = cache.plan(["a", "b"], [1, 1])  # a token each
    >>> k = np.ones((2, 1, 64), np.float32)
    >>> cache.append(0, k, k, step)
    >>> np.array_equal(decode_cache(cache, 0, k, step), cache.run(0, k, step))
    True
    """
    spec = check_run(cache, layer, q, step)
    return_lse = check_flag("return_lse", return_lse)
    why = unsuited(cache, layer)
    if why is not None:
        raise ValueError(f"layer {layer} has no decode kernel: {why}")
    if step.parents is not None:
        raise ValueError(
            "a decode step has one query per request, which sees all its tokens, got a step with a "
            "tree of guesses; call cache.run"
        )
    if any(n != 1 for n in step.q_lens):
        raise ValueError(
            f"a decode step has one query per request, got q_lens {list(step.q_lens)}; "
            "call cache.run for other steps"
        )
    where = engine.chosen(run_on, q)
    tables = step_tables(cache, step, layer) if tables is None else tables
    if tables is None:
        raise ValueError(f"layer {layer} has no rows that kernels read in this step: {step!r}")
    q = namespace(q).ascontiguousarray(q) if not q.flags.c_contiguous else q
    settings = settings_of(q, spec.sm_scale, spec.softcap, spec.window)
    pieces = _pieces(cache, layer, q, step, tables, settings, where)
    o, lse = attend(q, pieces, settings, where, tables.work)
    if spec.sinks is not None:
        o, lse = with_sink(cache.xp, o, lse, spec.sinks)
    return (o, lse) if return_lse else o


def _pieces(
    cache: Any, layer: int, q: Array, step: Step, tables: StepTables, settings: Settings, where: str
) -> list[Piece]:
    k, v = stored(cache, layer)
    (older, newer), found = tables.lens, []
    if any(older):
        found.append(
            piece_of(
                q, k, v, tables.stored, tables.block_table, settings, behind=tables.waiting,
                lens=keys_read(older, newer, settings.window), where=where,
            )
        )  # fmt: skip
    if any(newer):
        residuals = [state.residuals[layer].both for state in step.states]
        k, v = (_beside(cache.xp, list(some)) for some in zip(*residuals, strict=True))
        lens = keys_read(newer, [0] * len(newer), settings.window)
        found.append(piece_of(q, k, v, tables.waiting, None, settings, lens=lens, where=where))
    return found


def stored(cache: Any, layer: int) -> tuple[Array | Codes, Array | Codes]:
    """Keys and values of a layer as they lie: rows, blocks, or blocks of codes."""
    k, v = (_as_they_lie(codec, arrays) for codec, arrays in cache.fields(layer))
    return k, v


def _as_they_lie(codec: TensorCodec, arrays: Mapping[str, Array]) -> Array | Codes:
    """The pages of keys, or of values."""
    return arrays["x"] if type(codec) is Plain else Codes(codec, **arrays)


def _beside(xp: Any, residuals: list[Array]) -> Array:
    """Tails (Hkv, room, D) of B requests as rows (B, Hkv, room, D): copied, one alone not."""
    return residuals[0][None] if len(residuals) == 1 else xp.stack(residuals)


__all__ = ["StepTables", "decode_cache", "rows_work", "step_tables", "stored", "unsuited"]
