"""Causal attention where keys are in order at positions 0 ... S − 1, read piece by piece."""

import math
from collections.abc import Callable
from typing import Any

from kvlib.arguments import check_flag
from kvlib.arrays import Array, namespace
from kvlib.attention import partials
from kvlib.attention.checks import check_dtypes, check_settings, check_sinks
from kvlib.attention.pieces import Pieces, Slices, piece_length, report_piece
from kvlib.blas import column_major, multiplies_small, row_major
from kvlib.meter import OPEN

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

    Query i is at position S − T + i. The other arguments are those of ``kvlib.attend``. Chunks of
    CHUNK_ROWS rows per kv head, one for each query and query head, read about 1024 keys at a time,
    so peak memory is O(CHUNK_ROWS · 1024), however long the text is.
    Raises ValueError for shapes and settings that do not fit, TypeError for dtypes.

    >>> import numpy as np
    >>> k = v = np.eye(3, dtype=np.float32)[None]  # one head, three keys
    >>> attend_causal(np.zeros((1, 1, 3), np.float32), k, v).round(2)
    array([[[0.33, 0.33, 0.33]]], dtype=float32)
    """
    xp = namespace(q, k, v)
    fit = q.ndim == k.ndim == v.ndim == 3 and k.shape[0] and q.shape[1] % k.shape[0] == 0
    fit = fit and q.shape[2] == k.shape[2] and k.shape[:2] == v.shape[:2]
    if not fit or q.shape[0] > k.shape[1] or not q.shape[2]:
        raise ValueError(
            f"q (T, Hq, Dk), k (Hkv, S, Dk), v (Hkv, S, Dv) with T <= S, Hq a multiple of Hkv and "
            f"Dk at least 1 needed, got {q.shape}, {k.shape}, {v.shape}"
        )
    if not q.dtype == k.dtype == v.dtype == xp.float32:
        check_dtypes(xp, q, k, v)
    if sinks is not None:
        check_sinks(q, sinks)
    if return_lse is not True and return_lse is not False:
        return_lse = check_flag("return_lse", return_lse)
    if window is not None or sm_scale is not None or softcap is not None:
        window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    dtype, q = q.dtype, partials.scaled(xp, q, sm_scale)
    pieces = Slices(xp, k, v, piece_length(xp, q, k, v))
    attend_queries = attend_one_query if q.shape[0] == 1 else attend_chunk
    want_lse = return_lse or sinks is not None
    o, lse = attend_queries(xp, q, pieces, k.shape[1], window, softcap, want_lse)
    return partials.answer(xp, o, lse, dtype, sinks, return_lse)


def attend_pieces(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """`attend_causal` of the last T of `length` positions, of arguments that are known to fit."""
    attend_queries = attend_one_query if q.shape[0] == 1 else attend_chunk
    want_lse = return_lse or sinks is not None
    rows = partials.scaled(xp, q, sm_scale)
    o, lse = attend_queries(xp, rows, pieces, length, window, softcap, want_lse)
    return partials.answer(xp, o, lse, q.dtype, sinks, return_lse)


def attend_one_query(
    xp: Any,
    q: Array,
    pieces: Pieces,
    length: int,
    window: int | None,
    softcap: float | None,
    want_lse: bool,
) -> tuple[Array, Array | None]:
    """One query: all scores, the softmax, all values. Twice as fast as a chunk of one."""
    (_, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    low = 0 if window is None else max(0, length - window)
    used, spans = pieces.seen(low, length), pieces.spans
    begin, end = spans[used[0]][0], spans[used[-1]][1]
    rows = column_major(xp, xp.reshape(q, (heads, num_qo_heads // heads, dim)))
    if len(used) == rows.shape[1] == 1:
        scores = pieces.scores(used[0], rows)
    else:
        scores = xp.empty((*rows.shape[:2], end - begin), dtype=rows.dtype, device=rows.device)
        for i in used:
            a, b = spans[i]
            scores[..., a - begin : b - begin] = pieces.scores(i, rows)
    if softcap is not None:
        scores = partials.cap(xp, scores, softcap)
    if OPEN:
        for i in used:
            report_piece(pieces, i, rows)
    if low > begin:
        scores[..., : low - begin] = -math.inf
    p, top, total = partials.softmax_seen(xp, scores)
    o: Any = None
    for i in used:
        a, b = spans[i]
        part = pieces.weigh(i, p[..., a - begin : b - begin])
        o = part if o is None else o + part
    o, logs = partials.divided(xp, (o, top, total), want_lse)
    return xp.reshape(o, (1, num_qo_heads, pieces.v_dim)), logs


def attend_chunk(
    xp: Any,
    q: Array,
    pieces: Pieces,
    length: int,
    window: int | None,
    softcap: float | None,
    want_lse: bool,
) -> tuple[Array, Array | None]:
    """Attend by online softmax: q (T, Hq, Dk), scaled → o (T, Hq, Dv), lse (T, Hq, 1) if wanted."""
    t, num_qo_heads, _ = q.shape
    results = [
        xp.empty((t, num_qo_heads, last), dtype=q.dtype, device=q.device)
        for last in (pieces.v_dim, 1)[: 1 + want_lse]
    ]
    chunk = max(1, CHUNK_ROWS // max(1, num_qo_heads // pieces.num_kv_heads))
    for a in range(0, t, chunk):
        n = min(chunk, t - a)
        first = length - t + a  # position of the first of these queries
        low = 0 if window is None else max(0, first - window + 1)
        rows = partials.by_head(xp, q[a : a + n, :, :], pieces.num_kv_heads)
        if multiplies_small():
            rows = column_major(xp, rows)

        def mask(scores: Array, at: int, first: int = first) -> bool:
            return _apply_mask(xp, scores, first_query=first - at, window=window)

        state = online_softmax(xp, rows, n, pieces, low, first + n, softcap, mask)
        for result, x in zip(results, partials.divided(xp, state, want_lse), strict=False):
            result[a : a + n, :, :] = partials.by_token(xp, x, n, num_qo_heads)
    return results[0], results[1] if want_lse else None


def _apply_mask(xp: Any, scores: Array, first_query: int, window: int | None) -> bool:
    """Set to −inf what n queries may not see of scores (Hkv, G, n, m); whether one sees nothing."""
    n, m = scores.shape[2:]
    before_window = 0 if window is None else min(m, first_query + n - window)
    for a, b in ((0, before_window), (max(0, first_query + 1), m)):
        if a < b:
            device = scores.device
            q_pos = xp.arange(first_query, first_query + n, dtype=xp.int64, device=device)
            kv_pos = xp.arange(a, b, dtype=xp.int64, device=device)
            mask = xp.zeros((n, b - a), dtype=scores.dtype, device=device)
            scores[..., a:b] += xp.where(partials.visible(q_pos, kv_pos, window), mask, -math.inf)
    return first_query < 0 or before_window == m


def online_softmax(
    xp: Any,
    rows: Array,
    n: int,
    pieces: Pieces,
    low: int,
    high: int,
    softcap: float | None,
    mask: Callable[[Array, int], bool],
) -> partials.Partial:
    """Attend from n queries, rows (Hkv, G · n, Dk), to tokens low ... high − 1: o, top and total of
    rows. mask(scores, a) does what `_apply_mask` does to the piece that begins with key a."""
    heads, stacked, _ = rows.shape
    state: Any = None
    for i in pieces.seen(low, high):
        a, b = pieces.spans[i]
        s = pieces.scores(i, rows)
        if softcap is not None:
            s = partials.cap(xp, s, softcap)
        if OPEN:
            report_piece(pieces, i, rows)
        s = xp.reshape(row_major(xp, s), (heads, stacked // n, n, b - a))
        may_see_none = mask(s, a)
        s = xp.reshape(s, (heads, stacked, b - a))
        p, top, total = (partials.softmax_parts if may_see_none else partials.softmax_seen)(xp, s)
        new = pieces.weigh(i, p), top, total
        state = new if state is None else partials.join(xp, state, new)
    return state  # type: ignore[no-any-return]


def attend_before(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    *,
    sm_scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array]:
    """All queries over all of `length` keys: q (T, Hq, Dk) → o (T, Hq, Dv), lse (T, Hq)."""
    (t, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    heads_per_kv = num_qo_heads // heads
    chunk, results = max(1, CHUNK_ROWS // heads_per_kv), []
    settings: dict[str, Any] = {"sm_scale": sm_scale, "softcap": softcap, "return_lse": True}
    for a in range(0, t, chunk):
        n = min(chunk, t - a)
        rows = partials.by_head(xp, q[a : a + n, :, :], heads)
        one_query = xp.reshape(rows, (1, num_qo_heads * n, dim))
        partial = attend_pieces(one_query, pieces, length, xp, **settings)
        o, lse = (xp.reshape(x, (heads, heads_per_kv * n, -1)) for x in partial)
        lse = partials.by_token(xp, lse, n, num_qo_heads)[..., 0]
        results.append((partials.by_token(xp, o, n, num_qo_heads), lse))
    if len(results) == 1:
        return results[0]
    return tuple(xp.concat(x, axis=0) for x in zip(*results))  # type: ignore[return-value]
