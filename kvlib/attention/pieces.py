"""What attention reads in place of two arrays: keys and values in pieces, each read when it is due.

Keys may be slices of an array, blocks of a pool, codes that become floats as they are read, or
tokens that wait to be encoded. No piece but the one at hand is ever gathered or decoded, and
gathering reuses one buffer, so memory doesn't grow with the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib import blas
from kvlib.arrays import Array, both_nbytes, itemsize, nbytes
from kvlib.attention.states import as_dtype
from kvlib.codecs.base import Field, Parts, TensorCodec
from kvlib.meter import report

VIEWED = 64  # tokens from which a page is read where it is stored, nothing copied
# Tokens that smaller pages are gathered into, or larger ones cut to; 256 fit the processor's cache.
# With 2 heads of 64 numbers, pieces of 64 took over twice as long, because of their calls; with 8
# heads of 128, about as long (pages of 16 tokens, 2,048 and 8,192 tokens, one thread).
PIECE = 256
Buffers = dict[str, Array]  # kind of row → so many of them to copy into
# Where a piece is: (page, a, b), slots of a page, read where they are stored; (rows, a, b), tokens
# of some pages, copied one after the other, with rows from `page_rows`; (None, a, b), tokens that
# wait to be encoded.
Where = tuple[Any, int, int]


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

    def __init__(self, xp: Any, k: Array, v: Array, step: int) -> None:
        self.xp, self.k, self.v, self.step = xp, k, v, step
        self.spans: list[tuple[int, int]] = []
        self.num_kv_heads, _, self.v_dim = v.shape

    def seen(self, low: int, high: int) -> range:
        """Cut keys low ... high − 1 into pieces of much the same size; all of them are seen."""
        count = round((high - low) / self.step) or 1
        step = -(-(high - low) // count)
        self.spans = [(a, min(a + step, high)) for a in range(low, high, step)]
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
        # Keys and values of one shape take turns in one buffer.
        self._kinds = {name: f"{name} {x.shape[1:]} {x.dtype}" for name, x in arrays.items()}
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

    def view(self, page: int, a: int, b: int) -> Parts:
        """Tokens a ... b of one page, where they are stored."""
        return {
            name: self.arrays[name][page, :, a // field.per : b // field.per, ...]
            for name, field in self.fields.items()
        }

    def read(self, where: Where, buffers: Buffers | None) -> Parts:
        """One piece. buffers: where to copy to; the next call that is given them overwrites it."""
        what, a, b = where
        if type(what) is int:
            return self.view(what, a, b)
        xp, count, found = self.xp, what.shape[0], {}
        for name, field in self.fields.items():
            whole = self.arrays[name]
            pairs = whole.shape[0] * self.heads
            flat = xp.reshape(whole, (pairs, whole.size // pairs))
            if buffers is None or xp is not np:
                part = xp.take(flat, what, axis=0)
            else:
                kind = self._kinds[name]
                part = buffers.get(kind)
                if part is None or part.shape[0] < count:
                    part = buffers[kind] = np.empty((count, flat.shape[1]), flat.dtype)
                # mode: NumPy copies straight into `out`; a page is never outside
                part = flat.take(what, axis=0, out=part[:count], mode="clip")
            entries = count // self.heads * (self.size // field.per)
            part = xp.reshape(part, (self.heads, entries, *field.shape))
            found[name] = part[:, a // field.per : b // field.per, ...]
        return found


def page_rows(xp: Any, pages: Array, heads: int) -> Array:
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

    pages: their numbers; None if each head has its own. table: the same as an array where the
    layers are, (n,) or (Hkv, n). together: tokens that are encoded together; 0 for numbers that
    need no decoding.
    """
    if size < VIEWED:
        step = max(1, PIECE // size) * size
    else:
        step = min(size, max(1, PIECE // together) * together) if together else size
    spans: list[tuple[int, int]] = []
    where: list[Where] = []
    at = first // step * step
    while at < last:
        stop, page = min(at + step, last), at // size
        if size >= VIEWED:  # never over the end of a page that is read where it is
            stop = min(stop, (page + 1) * size)
        a, b = at - page * size, stop - page * size
        if pages is not None and b <= size:
            where.append((pages[page], a, b))
        else:
            where.append((page_rows(xp, table[..., page : -(-stop // size)], heads), a, b))
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
