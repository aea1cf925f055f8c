"""Attention over keys that lie in pieces: blocks of a pool, or codes that are decoded as they go.

A cache hands over Pieces in place of two arrays. Each piece scores the queries against its keys and
weighs its values, so that no piece but the one at hand is ever gathered or decoded.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from kvlib.arrays import Array
from kvlib.attention.causal import CHUNK_ROWS
from kvlib.attention.checks import check_settings, check_sinks
from kvlib.attention.direct import as_dtype, cap, scaled
from kvlib.attention.products import columns_together
from kvlib.attention.states import with_sink
from kvlib.meter import counting, report


class Pieces(Protocol):
    """The keys and values of one request in one layer, at positions 0 ... length − 1.

    spans: the (first, last + 1) positions of each piece, one after the other.
    """

    spans: list[tuple[int, int]]
    num_kv_heads: int
    v_dim: int

    def scores(self, i: int, rows: Array) -> Array:
        """rows (Hkv, R, Dk) · keys of piece i → (Hkv, R, n)."""

    def weigh(self, i: int, p: Array) -> Array:
        """p (Hkv, R, n) · values of piece i → (Hkv, R, Dv)."""

    def nbytes(self, i: int) -> int:
        """Bytes that piece i takes where it is stored: what reading it costs."""


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

    The same function as :func:`kvlib.attend_causal`. One query reads the pieces twice, keys and
    then values, with a plain softmax between; more are taken CHUNK_ROWS rows a kv head at a time
    through the online softmax (arXiv:2205.14135), so that scores take O(CHUNK_ROWS · piece).
    """
    check_sinks(q, sinks)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    t, num_qo_heads, dim = q.shape
    num_kv_heads, groups = pieces.num_kv_heads, num_qo_heads // pieces.num_kv_heads
    # (T, Hq, D) → (Hkv, G, T, D): the rows of one kv head lie together
    qh = xp.reshape(scaled(xp, q, sm_scale), (t, num_kv_heads, groups, dim))
    qh = xp.permute_dims(qh, (1, 2, 0, 3))
    step = t if t == 1 else max(1, CHUNK_ROWS // groups)
    parts = []
    for a in range(0, t, step):
        b = min(a + step, t)
        first = length - t + a  # position of the first of these queries
        low = 0 if window is None else max(0, first - window + 1)
        used = [i for i, (x, y) in enumerate(pieces.spans) if y > low and x < first + b - a]
        rows = xp.reshape(qh[:, :, a:b, :], (num_kv_heads, groups * (b - a), dim))
        work = _Chunk(xp, pieces, used, first, b - a, window, softcap)
        o, top, total = work.decode(rows) if t == 1 else work.extend(rows)
        o /= total
        lse = top + xp.log(total)
        parts.append((_tokens_first(xp, o, b - a), _tokens_first(xp, lse, b - a)[..., 0]))
    o = parts[0][0] if len(parts) == 1 else xp.concat([p[0] for p in parts], axis=0)
    if sinks is None and not return_lse:
        return as_dtype(xp, o, q.dtype)
    lse = parts[0][1] if len(parts) == 1 else xp.concat([p[1] for p in parts], axis=0)
    if sinks is not None:
        o, lse = with_sink(xp, o, lse, sinks)
    o = as_dtype(xp, o, q.dtype)
    return (o, lse) if return_lse else o


class _Chunk:
    """Some queries in a row, and the pieces that at least one of them sees."""

    def __init__(
        self,
        xp: Any,
        pieces: Pieces,
        used: list[int],
        first: int,
        queries: int,
        window: int | None,
        softcap: float | None,
    ) -> None:
        self.xp, self.pieces, self.used = xp, pieces, used
        self.first, self.queries, self.window, self.softcap = first, queries, window, softcap

    def decode(self, rows: Array) -> tuple[Array, Array, Array]:
        """One query: all scores, the softmax, all values. rows (Hkv, G, D) → o, top, total."""
        xp, spans = self.xp, self.pieces.spans
        begin, end = spans[self.used[0]][0], spans[self.used[-1]][1]
        scores = xp.empty((*rows.shape[:2], end - begin), dtype=rows.dtype, device=rows.device)
        rows = columns_together(xp, rows)
        for i in self.used:
            a, b = spans[i]
            scores[..., a - begin : b - begin] = self._scores(i, rows)
        low = self.first + 1 - (self.window or self.first + 1)
        if low > begin:
            scores[..., : low - begin] = -math.inf
        top = xp.max(scores, axis=-1, keepdims=True)
        scores -= top
        p = xp.exp(scores)
        total = xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)
        o = None
        for i in self.used:
            a, b = spans[i]
            part = self.pieces.weigh(i, p[..., a - begin : b - begin])
            o = part if o is None else o + part
        return o, top, total

    def extend(self, rows: Array) -> tuple[Array, Array, Array]:
        """Several queries, online softmax. rows (Hkv, G·n, D) → o, top (…, 1), total (…, 1)."""
        xp, shape = self.xp, rows.shape[:2]
        top = xp.full((*shape, 1), -math.inf, dtype=rows.dtype, device=rows.device)
        total = xp.zeros((*shape, 1), dtype=rows.dtype, device=rows.device)
        o = xp.zeros((*shape, self.pieces.v_dim), dtype=rows.dtype, device=rows.device)
        for i in self.used:
            s = self._hide(i, self._scores(i, rows))
            new_top = xp.maximum(top, xp.max(s, axis=-1, keepdims=True))
            safe = xp.where(new_top == -math.inf, xp.zeros_like(new_top), new_top)
            s -= safe
            p = xp.exp(s)
            shrink = xp.exp(top - safe)
            total = total * shrink + xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)
            o *= shrink
            o += self.pieces.weigh(i, p)
            top = new_top
        return o, top, total

    def _scores(self, i: int, rows: Array) -> Array:
        s = cap(self.xp, self.pieces.scores(i, rows), self.softcap)
        if counting():
            a, b = self.pieces.spans[i]
            dims = rows.shape[2] + self.pieces.v_dim
            flops = 2 * rows.shape[0] * rows.shape[1] * (b - a) * dims
            report("attention", flops=flops, read=self.pieces.nbytes(i))
        return s

    def _hide(self, i: int, s: Array) -> Array:
        """−inf where a query may not look: keys after it, keys behind its window."""
        xp, (a, b) = self.xp, self.pieces.spans[i]
        last = self.first + self.queries - 1
        future = b > self.first + 1
        behind = self.window is not None and a < last - self.window + 1
        if not future and not behind:
            return s
        device = s.device
        q_pos = xp.arange(self.first, last + 1, dtype=xp.int64, device=device)[:, None]
        distance = q_pos - xp.arange(a, b, dtype=xp.int64, device=device)[None, :]
        hidden = distance < 0
        if self.window is not None:
            hidden = hidden | (distance >= self.window)
        groups = s.shape[1] // self.queries
        s = xp.reshape(s, (s.shape[0], groups, self.queries, b - a))
        s = xp.where(hidden[None, None, :, :], -math.inf, s)
        return xp.reshape(s, (s.shape[0], groups * self.queries, b - a))


def _tokens_first(xp: Any, x: Array, queries: int) -> Array:
    """(Hkv, G·n, last) → (n, Hq, last)."""
    num_kv_heads, rows, last = x.shape
    x = xp.reshape(x, (num_kv_heads, rows // queries, queries, last))
    return xp.reshape(xp.permute_dims(x, (2, 0, 1, 3)), (queries, -1, last))
