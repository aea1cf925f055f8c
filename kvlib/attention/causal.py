"""Attention where keys are in order at positions 0 ... S−1: in two arrays, or in pieces.

Knowing the positions in advance saves the mask almost everywhere. `attend_one_query` and
`attend_chunk` read pieces: slices of an array, blocks of a pool, codes that become floats as they
are read, or tokens that wait to be encoded. Gathering reuses one buffer, so memory doesn't grow
with the text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib import blas
from kvlib.arguments import check_flag
from kvlib.arrays import Array, both_nbytes, itemsize, namespace, nbytes
from kvlib.attention.checks import check_dtypes, check_settings, check_sinks
from kvlib.attention.states import (
    answer,
    as_dtype,
    cap,
    divided,
    join,
    scaled,
    softmax_parts,
    softmax_seen,
    visible,
)
from kvlib.blas import columns_together, multiplies_small, piece_of_a_chunk, rows_together
from kvlib.codecs.base import Encoded, Field, TensorCodec
from kvlib.meter import OPEN, report

CHUNK_ROWS = 192  # query rows a kv head in one product: fastest from 512 to 1024 tokens
VIEWED = 64  # tokens from which a page is read where it is stored, nothing copied
# Tokens that smaller pages are gathered into, or larger ones cut to; 256 fit the processor's cache.
# With 2 heads of 64 numbers, pieces of 64 took over twice as long, because of their calls; with 8
# heads of 128, about as long (pages of 16 tokens, 2,048 and 8,192 tokens, one thread).
STORED_PIECE = 256
Buffers = dict[str, Array]  # kind of row → so many of them to copy into
# Where a piece is: (page, a, b), slots of a page, read where they are stored; (index, a, b), tokens
# of some pages, copied one after the other, with index from `page_head_index`; (None, a, b), tokens
# that wait to be encoded.
Where = tuple[Any, int, int]


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
    CHUNK_ROWS queries per kv head read about 1024 keys at a time, so peak memory is
    O(CHUNK_ROWS · 1024), however long the text is.
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
    dtype, q = q.dtype, scaled(xp, q, sm_scale)
    pieces = Slices(xp, k, v, _piece_length(xp, q, k, v))
    attend_queries = attend_one_query if q.shape[0] == 1 else attend_chunk
    want_lse = return_lse or sinks is not None
    o, lse = attend_queries(xp, q, pieces, k.shape[1], window, softcap, want_lse)
    return answer(xp, o, lse, dtype, sinks, return_lse)


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

    The same function as :func:`kvlib.attend_causal`, of arguments that are known to fit.
    """
    attend_queries = attend_one_query if q.shape[0] == 1 else attend_chunk
    want_lse = return_lse or sinks is not None
    rows = scaled(xp, q, sm_scale)
    o, lse = attend_queries(xp, rows, pieces, length, window, softcap, want_lse)
    return answer(xp, o, lse, q.dtype, sinks, return_lse)


def _piece_length(xp: Any, q: Array, k: Array, v: Array) -> int:
    """Keys in a piece: few enough for the processor's cache, many where each costs a launch."""
    if q.shape[0] > 1:
        rows = q.shape[0] * q.shape[1] // k.shape[0]
        return piece_of_a_chunk(xp, rows, max(q.shape[2], v.shape[2]))
    if k.dtype == q.dtype and not (xp is np and q.shape[1] > k.shape[0]):
        return max(1, k.shape[1])
    return blas.DECODE_PIECE if xp is np else blas.DEVICE_PIECE


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
    o, logs = divided(xp, (o, top, total), want_lse)
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
    """The last T of `length` positions by online softmax, CHUNK_ROWS rows a kv head at a time.

    q (T, Hq, Dk), scaled  →  o (T, Hq, Dv), and lse (T, Hq, 1) if wanted
    """
    (t, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    heads_per_kv = num_qo_heads // heads
    # (T, Hq, D) → (Hkv, G, T, D): the rows of one kv head lie together
    qh = xp.permute_dims(xp.reshape(q, (t, heads, heads_per_kv, dim)), (1, 2, 0, 3))
    results = [
        xp.empty((t, num_qo_heads, last), dtype=q.dtype, device=q.device)
        for last in (pieces.v_dim, 1)[: 1 + want_lse]
    ]
    chunk = max(1, CHUNK_ROWS // max(1, heads_per_kv))
    for a in range(0, t, chunk):
        n = min(chunk, t - a)
        first = length - t + a  # position of the first of these queries
        low = 0 if window is None else max(0, first - window + 1)
        rows = xp.reshape(qh[:, :, a : a + n, :], (heads, heads_per_kv * n, dim))
        if multiplies_small():
            rows = columns_together(xp, rows)
        partial: Any = None
        for i in pieces.seen(low, first + n):
            at, end = pieces.spans[i]
            s = pieces.scores(i, rows)
            if softcap is not None:
                s = cap(xp, s, softcap)
            if OPEN:
                report_piece(pieces, i, rows)
            s = xp.reshape(rows_together(xp, s), (heads, heads_per_kv, n, end - at))
            _apply_mask(xp, s, first_query=first - at, window=window)
            may_see_none = at > first or (window is not None and end <= first + n - window)
            p, top, total = (softmax_parts if may_see_none else softmax_seen)(xp, s)
            o = pieces.weigh(i, xp.reshape(p, (heads, heads_per_kv * n, end - at)))
            new = xp.reshape(o, (heads, heads_per_kv, n, pieces.v_dim)), top, total
            partial = new if partial is None else join(xp, partial, new)
        for result, x in zip(results, divided(xp, partial, want_lse), strict=False):
            x = xp.permute_dims(x, (2, 0, 1, 3))
            result[a : a + n, :, :] = xp.reshape(x, (n, num_qo_heads, x.shape[3]))
    return results[0], results[1] if want_lse else None


def _apply_mask(xp: Any, scores: Array, first_query: int, window: int | None) -> None:
    """Set to −inf, in place, what n queries may not see of a piece: scores (Hkv, G, n, m).

    first_query: how many positions the first query is after the first key of the piece.
    """
    n, m = scores.shape[2:]
    before_window = 0 if window is None else min(m, first_query + n - window)
    for a, b in ((0, before_window), (max(0, first_query + 1), m)):
        if a < b:
            device = scores.device
            q_pos = xp.arange(first_query, first_query + n, dtype=xp.int64, device=device)
            kv_pos = xp.arange(a, b, dtype=xp.int64, device=device)
            mask = xp.zeros((n, b - a), dtype=scores.dtype, device=device)
            scores[..., a:b] += xp.where(visible(q_pos, kv_pos, window), mask, -math.inf)


# Pieces ------------------------------------------------------------------------------------------


class Pieces:
    """The keys and values of one request in one layer, at positions 0 ... length − 1.

    spans: the (first, last + 1) positions of each piece, one after the other.
    """

    spans: list[tuple[int, int]]
    num_kv_heads: int
    v_dim: int

    def scores(self, i: int, rows: Array) -> Array:
        """rows (Hkv, R, Dk) · keys of piece i → (Hkv, R, n), an array that may be overwritten."""
        raise NotImplementedError

    def weigh(self, i: int, p: Array) -> Array:
        """p (Hkv, R, n) · values of piece i → (Hkv, R, Dv), an array that may be overwritten."""
        raise NotImplementedError

    def nbytes(self, i: int) -> int:
        """Bytes that piece i takes where it is stored: what reading it costs."""
        raise NotImplementedError

    def seen(self, low: int, high: int) -> Sequence[int]:
        """Which pieces hold a token of low ... high − 1; asked once for each chunk of queries."""
        return [i for i, (a, b) in enumerate(self.spans) if b > low and a < high]


def report_piece(pieces: Pieces, i: int, rows: Array) -> None:
    """Report what attention from rows (Hkv, R, Dk) to piece i computes and reads."""
    a, b = pieces.spans[i]
    dims = rows.shape[2] + pieces.v_dim
    flops = 2 * rows.shape[0] * rows.shape[1] * (b - a) * dims
    report("attention", flops=flops, read=pieces.nbytes(i))


class Slices(Pieces):
    """k (Hkv, S, Dk) and v (Hkv, S, Dv), cut anew for each chunk of queries."""

    def __init__(self, xp: Any, k: Array, v: Array, piece_length: int) -> None:
        self.xp, self.k, self.v, self.piece_length = xp, k, v, piece_length
        self.spans: list[tuple[int, int]] = []
        self.num_kv_heads, _, self.v_dim = v.shape

    def seen(self, low: int, high: int) -> range:
        """Cut keys low ... high − 1 into pieces of much the same size; all of them are seen."""
        count = round((high - low) / self.piece_length) or 1
        length = -(-(high - low) // count)
        self.spans = [(a, min(a + length, high)) for a in range(low, high, length)]
        return range(len(self.spans))

    def scores(self, i: int, rows: Array) -> Array:
        a, b = self.spans[i]
        return blas.scores(self.xp, rows, as_dtype(self.xp, self.k[:, a:b, :], rows.dtype))

    def weigh(self, i: int, p: Array) -> Array:
        a, b = self.spans[i]
        return blas.weigh(self.xp, p, as_dtype(self.xp, self.v[:, a:b, :], p.dtype))

    def nbytes(self, i: int) -> int:
        a, b = self.spans[i]
        return both_nbytes(self.k[:, a:b, :], self.v[:, a:b, :])


class Vectors:
    """The keys, or the values, of one layer as a codec writes them, in pages of `size` tokens.

    arrays: name → (pages, Hkv, size / per, ...), an entry for every `per` tokens of a field.
    """

    def __init__(
        self, xp: Any, codec: TensorCodec, heads: int, dim: int, size: int,
        fields: Mapping[str, Field], arrays: dict[str, Array],
    ) -> None:  # fmt: skip
        self.xp, self.codec, self.heads, self.dim, self.size = xp, codec, heads, dim, size
        self.fields, self.arrays = fields, arrays
        # For `read`, of each field: tokens and shape of an entry, the buffer in which keys and
        # values of one shape take turns, its array's shape with a row for each page and head.
        self._kinds: list[tuple[str, int, tuple[int, ...], str, tuple[int, int]]] = []
        for name, field in fields.items():
            x, kind = arrays[name], f"{name} {arrays[name].shape[1:]} {arrays[name].dtype}"
            pairs = x.shape[0] * heads
            flat = pairs, x.size // max(1, pairs)
            self._kinds.append((name, field.per, field.shape, kind, flat))
        # bytes of what `field.per` tokens take
        self._entries = [
            (field, nbytes(arrays[name]) // max(1, arrays[name].shape[0] * (size // field.per)))
            for name, field in fields.items()
        ]

    def payload_and_metadata(self, tokens: int) -> tuple[int, int]:
        """Bytes of so many tokens (whole groups): of numbers or codes, and of scales and zeros."""
        found = [0, 0]
        for field, entry in self._entries:
            found[not field.payload] += entry * -(-tokens // field.per)
        return found[0], found[1]

    def view(self, page: int, a: int, b: int) -> Encoded:
        """Tokens a ... b of one page, where they are stored."""
        return {
            name: self.arrays[name][page, :, a // field.per : b // field.per, ...]
            for name, field in self.fields.items()
        }

    def read(self, where: Where, buffers: Buffers | None) -> Encoded:
        """One piece. buffers: where to copy to; the next call that is given them overwrites it."""
        what, a, b = where
        if type(what) is int:
            return self.view(what, a, b)
        xp, count, found = self.xp, what.shape[0], {}
        for name, per, shape, kind, flat in self._kinds:
            whole, entries = self.arrays[name], count // self.heads * (self.size // per)
            if buffers is None or xp is not np:
                part = xp.take(xp.reshape(whole, flat), what, axis=0)
                part = xp.reshape(part, (self.heads, entries, *shape))
            else:
                room = buffers.get(kind)
                if room is None or room.shape[0] < count:
                    room = buffers[kind] = np.empty((count, flat[1]), whole.dtype)
                # mode: NumPy copies straight into `out`; a page is never outside
                part = whole.reshape(flat).take(what, axis=0, out=room[:count], mode="clip")
                part = part.reshape(self.heads, entries, *shape)
            found[name] = part[:, a // per : b // per, ...]
        return found


def page_head_index(xp: Any, pages: Array, heads: int) -> Array:
    """Where each head's part of some pages is among the (page, head) pairs: (Hkv · n,).

    pages: (n,), or (Hkv, n) if each head has its own. The parts of one head are neighbours.
    """
    pages = pages * heads + xp.arange(heads, dtype=xp.int64)[:, None]
    return xp.reshape(pages, (-1,))


class Cut(NamedTuple):
    """How what is stored of a request is cut into pieces; the same for layers that store alike."""

    spans: list[tuple[int, int]]
    where: list[Where]


def cut(
    xp: Any,
    pages: Sequence[int] | None,
    table: Array,
    heads: int,
    size: int,
    together: int,
    *,
    first: int,
    last: int,
    end: int,
) -> Cut:
    """Cut tokens from about `first` to `last` in pages of `size`, and those that wait until `end`.

    pages: their numbers; None if each head has its own. table: the same as an array, (n,) or
    (Hkv, n). together: tokens encoded together; 0 for numbers that need no decoding.
    """
    if size < VIEWED:
        length = max(1, STORED_PIECE // size) * size
    else:
        length = min(size, max(1, STORED_PIECE // together) * together) if together else size
    spans: list[tuple[int, int]] = []
    where: list[Where] = []
    at = first // length * length
    while at < last:
        stop, page = min(at + length, last), at // size
        if size >= VIEWED:  # never over the end of a page that is read where it is
            stop = min(stop, (page + 1) * size)
        a, b = at - page * size, stop - page * size
        if pages is not None and b <= size:
            where.append((pages[page], a, b))
        else:
            some = table[..., page : -(-stop // size)]
            where.append((page_head_index(xp, some, heads), a, b))
        spans.append((at, stop))
        at = stop
    if end > last:
        spans.append((last, end))
        where.append((None, 0, end - last))
    return Cut(spans, where)


class StoredPieces(Pieces):
    """Pages of codes or numbers, then the tokens that wait: what a `Cut` says of a request.

    waiting: keys (Hkv, n, Dk) and, unless they are taken from the keys, values (Hkv, n, Dv).
    """

    def __init__(
        self, cut: Cut, keys: Vectors, values: Vectors, v_dim: int, waiting: Sequence[Array]
    ) -> None:
        self.spans, self.where = cut
        self.keys, self.values, self.waiting = keys, values, waiting
        self.num_kv_heads, self.v_dim = keys.heads, v_dim
        self.buffers: Buffers = {}  # of this run alone: another thread has its own

    def scores(self, i: int, rows: Array) -> Array:
        where = self.where[i]
        if where[0] is None:
            return blas.scores(self.keys.xp, rows, self._waiting(0, where, rows.dtype))
        return self.keys.codec.scores(rows, self.keys.read(where, self.buffers))

    def weigh(self, i: int, p: Array) -> Array:
        where = self.where[i]
        if where[0] is None:
            values = self._waiting(-1, where, p.dtype)[..., : self.v_dim]
            return blas.weigh(self.keys.xp, p, values)
        return self.values.codec.weigh(p, self.values.read(where, self.buffers), self.v_dim)

    def _waiting(self, which: int, where: Where, dtype: Any) -> Array:
        """The keys (which = 0) or values (-1) that wait."""
        return as_dtype(self.keys.xp, self.waiting[which][:, where[1] : where[2], :], dtype)

    def nbytes(self, i: int) -> int:
        a, b = self.spans[i]
        if self.where[i][0] is None:
            tokens = [(x.shape[0] * x.shape[2], x.dtype) for x in self.waiting]
            return (b - a) * sum(n * itemsize(self.keys.xp, dtype) for n, dtype in tokens)
        both = [self.keys] if self.values is self.keys else [self.keys, self.values]
        return sum(sum(vectors.payload_and_metadata(b - a)) for vectors in both)
