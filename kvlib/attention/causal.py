"""Attention where keys lie in order at positions 0 ... S−1, as most caches hold them.

Nothing here is a different function from :func:`kvlib.attend`; knowing the positions in advance
saves the mask almost everywhere. A decoding query sees every key, and of a chunk of queries only
the square on the diagonal (and the window's edge) is partly hidden.
"""

from __future__ import annotations

import math
from typing import Any

from kvlib.arrays import Array, is_numpy, namespace
from kvlib.attention import products
from kvlib.attention.checks import check_dtypes, check_settings, check_sinks
from kvlib.attention.direct import as_dtype, cap, count, scaled, widened
from kvlib.attention.products import PIECE, WIDE_PIECE
from kvlib.attention.states import with_sink

CHUNK_ROWS = 192  # query rows a kv head in one product: fastest from 512 to 1024 tokens


def attend_causal(
    q: Array,
    k: Array,
    v: Array,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Attention of the last T positions of a text over all its S keys.

    q (T, Hq, Dk)   k (Hkv, S, Dk)   v (Hkv, S, Dv), heads first, key j at position j
    →   o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)

    Query i stands at position S − T + i. The other arguments are those of ``kvlib.attend``.
    Queries are taken CHUNK_ROWS rows a kv head at a time, each chunk against the keys up to its
    own end, so peak memory is O(CHUNK_ROWS · S) and half of the score matrix is never computed.
    Raises ValueError for shapes and settings that do not fit, TypeError for dtypes.

    >>> import numpy as np
    >>> k = v = np.eye(3, dtype=np.float32)[None]  # one head, three keys
    >>> attend_causal(np.zeros((2, 1, 3), np.float32), k, v).round(2)[:, 0]
    array([[0.5 , 0.5 , 0.  ],
           [0.33, 0.33, 0.33]], dtype=float32)
    """
    xp = namespace(q, k, v)
    _check_shapes(q, k, v)
    if not q.dtype == k.dtype == v.dtype == xp.float32:
        check_dtypes(xp, q, k, v)
    check_sinks(q, sinks)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    given, q = q.dtype, scaled(xp, q, sm_scale)
    t, s = q.shape[0], k.shape[1]
    if t == 1:
        first = 0 if window is None else max(0, s - window)
        o, top, total = _decode(xp, q, k[:, first:, :], v[:, first:, :], softcap)
    else:
        o, top, total = _prefill(xp, q, k, v, window, softcap)
    if sinks is None and not return_lse:
        return as_dtype(xp, o, given)
    lse = top + xp.log(total)
    if sinks is not None:
        o, lse = with_sink(xp, o, lse, sinks)
    o = as_dtype(xp, o, given)
    return (o, lse) if return_lse else o


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    fit = q.ndim == k.ndim == v.ndim == 3 and k.shape[0] and q.shape[1] % k.shape[0] == 0
    fit = fit and q.shape[2] == k.shape[2] and k.shape[:2] == v.shape[:2]
    if not fit or q.shape[0] > k.shape[1] or not q.shape[2]:
        raise ValueError(
            f"q (T, Hq, Dk), k (Hkv, S, Dk), v (Hkv, S, Dv) with T <= S, Hq a multiple of Hkv and "
            f"Dk at least 1 needed, got {q.shape}, {k.shape}, {v.shape}"
        )


def _decode(
    xp: Any, q: Array, k: Array, v: Array, softcap: float | None
) -> tuple[Array, Array, Array]:
    """One query over all keys it is given: nothing is hidden, so nothing is masked."""
    _, num_qo_heads, dim = q.shape
    num_kv_heads, s = k.shape[0], k.shape[1]
    groups = num_qo_heads // num_kv_heads
    count(q, k, v, pairs=s)
    qh = xp.reshape(q, (num_kv_heads, groups, dim))
    # One row a kv head is a matrix-vector product, which nothing makes faster. A narrower cache is
    # widened a piece at a time: never the whole of it.
    step = PIECE if is_numpy(xp) and groups > 1 else s
    if k.dtype != q.dtype:
        step = PIECE if is_numpy(xp) else WIDE_PIECE
    scores = cap(xp, _scores(xp, qh, k, step), softcap)
    top = xp.max(scores, axis=-1, keepdims=True)
    scores -= top
    p = xp.exp(scores)
    total = xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)
    o = _weigh(xp, p, v, step)
    o /= total
    rows = (1, num_qo_heads)
    return xp.reshape(o, (*rows, v.shape[2])), xp.reshape(top, rows), xp.reshape(total, rows)


def _scores(xp: Any, qh: Array, k: Array, step: int) -> Array:
    """qh (Hkv, G, Dk), k (Hkv, S, Dk) → (Hkv, G, S), `step` keys at a time."""
    s = k.shape[1]
    if s <= step and qh.shape[1] == 1:
        return products.scores(xp, qh, as_dtype(xp, k, qh.dtype))
    found = xp.empty((*qh.shape[:2], s), dtype=qh.dtype, device=qh.device)
    qh = products.columns_together(xp, qh)
    for a in range(0, s, step):
        piece = as_dtype(xp, k[:, a : a + step, :], qh.dtype)
        found[..., a : a + step] = products.scores(xp, qh, piece)
    return found


def _weigh(xp: Any, p: Array, v: Array, step: int) -> Array:
    """p (Hkv, G, S), v (Hkv, S, Dv) → (Hkv, G, Dv), `step` values at a time."""
    o = products.weigh(xp, p[..., :step], as_dtype(xp, v[:, :step, :], p.dtype))
    for a in range(step, v.shape[1], step):
        piece = as_dtype(xp, v[:, a : a + step, :], p.dtype)
        o += products.weigh(xp, p[..., a : a + step], piece)
    return o


def _prefill(
    xp: Any, q: Array, k: Array, v: Array, window: int | None, softcap: float | None
) -> tuple[Array, Array, Array]:
    """Many queries, a chunk at a time: (o, top, total) with tokens first."""
    t, num_qo_heads, dim = q.shape
    num_kv_heads, s, v_dim = v.shape
    groups = num_qo_heads // num_kv_heads
    start = s - t
    # (T, Hq, D) → (Hkv, G, T, D): the rows of one kv head lie together
    qh = xp.permute_dims(xp.reshape(q, (t, num_kv_heads, groups, dim)), (1, 2, 0, 3))
    o = xp.empty((t, num_qo_heads, v_dim), dtype=q.dtype, device=q.device)
    top = xp.empty((t, num_qo_heads, 1), dtype=q.dtype, device=q.device)
    total = xp.empty((t, num_qo_heads, 1), dtype=q.dtype, device=q.device)
    step = max(1, CHUNK_ROWS // max(1, groups))
    for a in range(0, t, step):
        b = min(a + step, t)
        high = start + b
        low = 0 if window is None else max(0, start + a - window + 1)
        kc, vc = k[:, low:high, :], v[:, low:high, :]
        count(q, kc, vc, pairs=(b - a) * (high - low))
        kc, vc = widened(xp, q, kc, vc)
        rows = xp.reshape(qh[:, :, a:b, :], (num_kv_heads, groups * (b - a), dim))
        # OpenBLAS splits a product between threads along its longer side only in one of the two
        # orders, and is 2.5 times slower in the other: keys first unless they are the fewer.
        if high - low > rows.shape[1]:
            scores = xp.matmul(kc, rows.mT).mT
        else:
            scores = xp.matmul(rows, kc.mT)
        scores = cap(xp, scores, softcap)
        scores = xp.reshape(scores, (num_kv_heads, groups, b - a, high - low))
        _hide(xp, scores, first_query=start + a - low, window=window)
        m = xp.max(scores, axis=-1, keepdims=True)
        scores -= m
        p = xp.exp(scores)
        n = xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)
        p = xp.reshape(p, (num_kv_heads, groups * (b - a), high - low))
        oc = xp.reshape(xp.matmul(p, vc), (num_kv_heads, groups, b - a, v_dim))
        oc /= n
        for whole, part in ((o, oc), (top, m), (total, n)):
            part = xp.permute_dims(part, (2, 0, 1, 3))
            whole[a:b, :, :] = xp.reshape(part, (b - a, num_qo_heads, part.shape[-1]))
    return o, top[..., 0], total[..., 0]


def _hide(xp: Any, scores: Array, first_query: int, window: int | None) -> None:
    """Set to −inf, in place, what a chunk of queries may not see.

    scores (Hkv, G, n, S') whose query i stands ``first_query`` + i places after the first key.
    Only the last n columns can lie in the future, only the first few behind the window.
    """
    n, columns = scores.shape[2], scores.shape[3]
    if n > 1:
        future = xp.triu(xp.full((n, n), -math.inf, dtype=scores.dtype, device=scores.device), k=1)
        scores[..., columns - n :] += future
    if window is None:
        return
    behind = first_query + n - window  # columns out of the last query's sight
    if behind > 0:
        device = scores.device
        i = xp.arange(first_query, first_query + n, dtype=xp.int64, device=device)[:, None]
        j = xp.arange(behind, dtype=xp.int64, device=device)[None, :]
        edge = scores[..., :behind]
        scores[..., :behind] = xp.where(i - j >= window, -math.inf, edge)
