"""Attention where keys lie in order at positions 0 ... S−1, in two arrays or in pieces.

Nothing here is a different function from :func:`kvlib.attend`; knowing the positions in advance
saves the mask almost everywhere. A decoding query sees every key, and of a chunk of queries only
the square on the diagonal (and the window's edge) is partly hidden. `decode` and `extend` read
pieces, so arrays, blocks and codes share them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvlib.arguments import check_flag
from kvlib.arrays import Array, namespace
from kvlib.attention.checks import check_dtypes, check_settings, check_sinks
from kvlib.attention.pieces import Pieces, Slices, report_piece
from kvlib.attention.states import (
    answer,
    cap,
    divided,
    join,
    scaled,
    softmax_parts,
    softmax_seen,
    visible,
)
from kvlib.blas import (
    PIECE,
    WIDE_PIECE,
    columns_together,
    multiplies_small,
    piece_of_a_chunk,
    rows_together,
)
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

    Query i stands at position S − T + i. The other arguments are those of ``kvlib.attend``.
    The queries are split into chunks of CHUNK_ROWS rows per kv head. Each chunk reads the keys up
    to its own end, some 1024 of them at a time. So peak memory is O(CHUNK_ROWS · 1024),
    however long the text is, and half of the score matrix is never computed.
    Raises ValueError for shapes and settings that do not fit, TypeError for dtypes.

    >>> import numpy as np
    >>> k = v = np.eye(3, dtype=np.float32)[None]  # one head, three keys
    >>> attend_causal(np.zeros((2, 1, 3), np.float32), k, v).round(2)[:, 0]
    array([[0.5 , 0.5 , 0.  ],
           [0.33, 0.33, 0.33]], dtype=float32)
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
    given, q = q.dtype, scaled(xp, q, sm_scale)
    pieces = Slices(xp, k, v, _step(xp, q, k, v))
    form, lse = decode if q.shape[0] == 1 else extend, return_lse or sinks is not None
    found = form(xp, q, pieces, k.shape[1], window, softcap, lse)
    return answer(xp, *found, given, sinks, return_lse)


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
    """Attention of the last T of `length` positions over all of them, piece by piece.

    q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)

    The same function as :func:`kvlib.attend_causal`, of arguments that are known to fit. One query
    reads the pieces twice, keys and then values, with a plain softmax between; more are taken
    CHUNK_ROWS rows a kv head at a time through the online softmax (arXiv:2205.14135), so that
    scores take O(CHUNK_ROWS · piece).
    """
    form, lse = decode if q.shape[0] == 1 else extend, return_lse or sinks is not None
    found = form(xp, scaled(xp, q, sm_scale), pieces, length, window, softcap, lse)
    return answer(xp, *found, q.dtype, sinks, return_lse)


def _step(xp: Any, q: Array, k: Array, v: Array) -> int:
    """Keys in a piece: few enough for the processor's cache, many where each costs a launch.

    One row a kv head is a matrix-vector product, which no piece makes faster. A narrower cache is
    widened a piece at a time: never the whole of it.
    """
    if q.shape[0] > 1:
        rows = q.shape[0] * q.shape[1] // k.shape[0]
        return piece_of_a_chunk(xp, rows, max(q.shape[2], v.shape[2]))
    if k.dtype == q.dtype and not (xp is np and q.shape[1] > k.shape[0]):
        return max(1, k.shape[1])
    return PIECE if xp is np else WIDE_PIECE


def decode(
    xp: Any,
    q: Array,
    pieces: Pieces,
    length: int,
    window: int | None,
    softcap: float | None,
    lse: bool,
) -> tuple[Array, Array | None]:
    """One query: all scores, the softmax, all values. Arguments and result as of `extend`.

    Apart from `extend` because online softmax takes up to twice as long for one row of scores.
    """
    (_, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    low = 0 if window is None else max(0, length - window)
    used, spans = pieces.seen(low, length), pieces.spans
    begin, end = spans[used[0]][0], spans[used[-1]][1]
    rows = columns_together(xp, xp.reshape(q, (heads, num_qo_heads // heads, dim)))
    if len(used) == rows.shape[1] == 1:
        scores = pieces.scores(used[0], rows)
    else:
        scores = xp.empty((*rows.shape[:2], end - begin), dtype=rows.dtype, device=rows.device)
        for i in used:
            a, b = spans[i]
            scores[..., a - begin : b - begin] = pieces.scores(i, rows)
    if softcap is not None:
        scores = cap(xp, scores, softcap)
    if OPEN:
        for i in used:
            report_piece(pieces, i, rows)
    if low > begin:
        scores[..., : low - begin] = -math.inf
    p, top, total = softmax_seen(xp, scores)
    o: Any = None
    for i in used:
        a, b = spans[i]
        part = pieces.weigh(i, p[..., a - begin : b - begin])
        o = part if o is None else o + part
    o, logs = divided(xp, (o, top, total), lse)
    return xp.reshape(o, (1, num_qo_heads, pieces.v_dim)), logs


def extend(
    xp: Any,
    q: Array,
    pieces: Pieces,
    length: int,
    window: int | None,
    softcap: float | None,
    lse: bool,
) -> tuple[Array, Array | None]:
    """The last T of `length` positions by online softmax, CHUNK_ROWS rows a kv head at a time.

    q (T, Hq, Dk), scaled  →  o (T, Hq, Dv), and (T, Hq, 1) where `lse` asks for it
    """
    (t, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    groups = num_qo_heads // heads
    # (T, Hq, D) → (Hkv, G, T, D): the rows of one kv head lie together
    qh = xp.permute_dims(xp.reshape(q, (t, heads, groups, dim)), (1, 2, 0, 3))
    results = [
        xp.empty((t, num_qo_heads, last), dtype=q.dtype, device=q.device)
        for last in (pieces.v_dim, 1)[: 1 + lse]
    ]
    step = max(1, CHUNK_ROWS // max(1, groups))
    for a in range(0, t, step):
        n = min(step, t - a)
        first = length - t + a  # position of the first of these queries
        low = 0 if window is None else max(0, first - window + 1)
        rows = xp.reshape(qh[:, :, a : a + n, :], (heads, groups * n, dim))
        if multiplies_small():
            rows = columns_together(xp, rows)
        parts: Any = None
        for i in pieces.seen(low, first + n):
            at, end = pieces.spans[i]
            s = pieces.scores(i, rows)
            if softcap is not None:
                s = cap(xp, s, softcap)
            if OPEN:
                report_piece(pieces, i, rows)
            s = xp.reshape(rows_together(xp, s), (heads, groups, n, end - at))
            _hide(xp, s, first_query=first - at, window=window)
            blind = at > first or (window is not None and end <= first + n - window)
            p, top, total = (softmax_parts if blind else softmax_seen)(xp, s)
            o = pieces.weigh(i, xp.reshape(p, (heads, groups * n, end - at)))
            new = xp.reshape(o, (heads, groups, n, pieces.v_dim)), top, total
            parts = new if parts is None else join(xp, parts, new)
        for result, x in zip(results, divided(xp, parts, lse), strict=False):
            x = xp.permute_dims(x, (2, 0, 1, 3))
            result[a : a + n, :, :] = xp.reshape(x, (n, num_qo_heads, x.shape[3]))
    return results[0], results[1] if lse else None


def _hide(xp: Any, scores: Array, first_query: int, window: int | None) -> None:
    """Set to −inf, in place, what a chunk of queries may not see of a piece.

    scores (Hkv, G, n, m) whose query i stands ``first_query`` + i places after the first key of
    the piece. Only keys after the first query can lie in the future, only the first few behind the
    window.
    """
    n, m = scores.shape[2:]
    behind = 0 if window is None else min(m, first_query + n - window)
    for a, b in ((0, behind), (max(0, first_query + 1), m)):
        if a < b:
            device = scores.device
            q_pos = xp.arange(first_query, first_query + n, dtype=xp.int64, device=device)
            kv_pos = xp.arange(a, b, dtype=xp.int64, device=device)
            mask = xp.zeros((n, b - a), dtype=scores.dtype, device=device)
            scores[..., a:b] += xp.where(visible(q_pos, kv_pos, window), mask, -math.inf)
