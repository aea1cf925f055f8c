"""Attention from absolute positions, at once or by tiles: the definition."""

import math
from typing import Any

from kvlib.arguments import check_flag, check_integer
from kvlib.arrays import Array, kv_nbytes, namespace
from kvlib.attention.checks import check_inputs, check_settings
from kvlib.attention.partials import (
    Partial,
    answer,
    as_dtype,
    by_head,
    by_token,
    cap,
    join,
    scaled,
    softmax_parts,
    visible,
)
from kvlib.meter import OPEN, report


def attend(
    q: Array,
    k: Array,
    v: Array,
    q_pos: Array,
    kv_pos: Array,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Causal attention of T queries over S keys, masked by their positions in the text.

    q (T, Hq, Dk)   k (S, Hkv, Dk)   v (S, Hkv, Dv)   q_pos (T,)   kv_pos (S,) or (Hkv, S)
    →   o (T, Hq, Dv) in q's dtype, and with ``return_lse`` lse (T, Hq), natural log

    Inputs narrower than float32 are widened first, so scores, sums and lse are float32 or wider.

    Query head h reads key head h // (Hq // Hkv) (grouped-query attention, arXiv:2305.13245).
    Key j is visible to query i when ``0 <= q_pos[i] - kv_pos[j]`` and, with a ``window`` W,
    ``< W``: the window counts the query itself. Scores are q·k · ``sm_scale`` (1/√Dk unless
    given), then ``softcap`` · tanh(score / softcap) if one is set. ``sinks`` (Hq,) are learned
    logits, one per query head; each enters the softmax like the score of one more key, whose value
    is zero. A query that sees no key returns (0, −inf).

    The whole (T, S) score matrix is in memory at once. Attention: arXiv:1706.03762.
    Raises ValueError for shapes and settings that do not fit, TypeError for dtypes.

    >>> import numpy as np
    >>> k = v = np.eye(3, dtype=np.float32)[:, None, :]  # three keys of one head
    >>> q = np.zeros((1, 1, 3), np.float32)  # a query with the same score for each key
    >>> attend(q, k, v, np.array([1]), np.arange(3))  # at position 1 it sees two
    array([[[0.5, 0.5, 0. ]]], dtype=float32)
    """
    xp = namespace(q, k, v, q_pos, kv_pos)
    q_pos, kv_pos = check_inputs(xp, q, k, v, q_pos, kv_pos, sinks)
    return_lse = check_flag("return_lse", return_lse)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    rows = by_head(xp, scaled(xp, q, sm_scale), k.shape[1])
    partial = attend_part(xp, rows, k, v, q_pos, kv_pos, window, softcap)
    return finish(xp, partial, q, k, v, sinks, return_lse)


def attend_tiled(
    q: Array,
    k: Array,
    v: Array,
    q_pos: Array,
    kv_pos: Array,
    *,
    tile: int = 128,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """The same function as :func:`kvlib.attend`, reading ``tile`` keys at a time.

    Three running values per query are enough: the largest score so far (top), the sum of
    e^(score − top) (total) and the sum of e^(score − top)·v (o). When a tile raises top, both
    sums so far are multiplied by e^(old top − new top). Peak memory is O(T · tile), not O(T · S).
    arXiv:1805.02867; arXiv:2112.05682; FlashAttention, arXiv:2205.14135.

    >>> import numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 5, 2, 4)).astype(np.float32)
    >>> at = np.arange(5)
    >>> np.allclose(attend_tiled(q, k, v, at, at, tile=2), attend(q, k, v, at, at), atol=1e-6)
    True
    """
    tile = check_integer("tile", tile)  # NumPy's small integers overflow in a long text
    xp = namespace(q, k, v, q_pos, kv_pos)
    q_pos, kv_pos = check_inputs(xp, q, k, v, q_pos, kv_pos, sinks)
    return_lse = check_flag("return_lse", return_lse)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    rows = by_head(xp, scaled(xp, q, sm_scale), k.shape[1])
    partial: Any = None
    for start in range(0, k.shape[0] or 1, tile):
        at = slice(start, min(start + tile, k.shape[0]))
        new = attend_part(xp, rows, k[at, ...], v[at, ...], q_pos, kv_pos[..., at], window, softcap)
        partial = new if partial is None else join(xp, partial, new)
    return finish(xp, partial, q, k, v, sinks, return_lse)


def attend_part(
    xp: Any,
    rows: Array,
    k: Array,
    v: Array,
    q_pos: Array,
    kv_pos: Array,
    window: int | None,
    softcap: float | None,
) -> Partial:
    """Attend to some keys: rows (Hkv, G·T, Dk), scaled → o (Hkv, G·T, Dv), top, total (..., 1)."""
    k, v = (xp.permute_dims(as_dtype(xp, x, rows.dtype), (1, 0, 2)) for x in (k, v))
    s = cap(xp, xp.matmul(rows, k.mT), softcap)
    hidden = ~visible(q_pos, kv_pos, window)  # (T, S) or (Hkv, T, S)
    hidden = hidden[:, None, :, :] if hidden.ndim == 3 else hidden[None, None, :, :]
    t, (num_kv_heads, stacked, n) = q_pos.shape[0], s.shape
    s = xp.reshape(s, (num_kv_heads, stacked // max(1, t), t, n))
    s = xp.reshape(xp.where(hidden, -math.inf, s), (num_kv_heads, stacked, n))
    p, top, total = softmax_parts(xp, s)
    return xp.matmul(p, v), top, total


def finish(
    xp: Any, partial: Partial, q: Array, k: Array, v: Array, sinks: Array | None, return_lse: bool
) -> Array | tuple[Array, Array]:
    """Divide (o, top, total) by the softmax's sum: o (T, Hq, Dv), and lse (T, Hq) if wanted."""
    o, top, total = partial
    if OPEN:
        pairs = q.shape[0] * k.shape[0] * q.shape[1]
        flops = 2 * pairs * (q.shape[2] + v.shape[2])
        report("attention", flops=flops, read=kv_nbytes(k, v))
    empty = total == 0
    divisor = xp.where(empty, xp.ones_like(total), total)
    o, lse = by_token(xp, o / divisor, *q.shape[:2]), None
    if sinks is not None or return_lse:
        lse = by_token(xp, xp.where(empty, top, top + xp.log(divisor)), *q.shape[:2])
    return answer(xp, o, lse, q.dtype, sinks, return_lse)
