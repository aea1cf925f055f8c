"""The pieces of one request in one layer, as attention takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib import blas
from kvlib.arrays import Array, itemsize
from kvlib.attention.pieces import Pieces
from kvlib.caches.residual import Residual
from kvlib.caches.store import Rooms, Store
from kvlib.codecs.base import Parts

VIEWED = 64  # tokens from which a page is read as it lies, nothing copied
# Tokens that smaller pages are gathered into, or larger ones cut to; 256 fit the processor's cache.
# With 2 heads of 64 numbers, pieces of 64 took over twice as long, because of their calls; with 8
# heads of 128, about as long (pages of 16 tokens, 2,048 and 8,192 tokens, one thread).
PIECE = 256


def side_by_side(
    store: Store,
    tables: Sequence[Sequence[int]],
    first: int,
    tokens: int,
    rooms: tuple[Rooms, Rooms],
) -> tuple[Array, Array]:
    """Copy the pages of several requests: k (B, Hkv, S, Dk) and v (B, Hkv, S, Dv), plain numbers.

    tables: the pages of each. first: how many pages to leave out. tokens: of the longest request,
    after those; what a shorter one has no pages for is copied from its last, and not to be read.
    rooms: where the copies of keys and of values go; the next call that is lent them overwrites.
    """
    count = -(-tokens // store.size)
    rows = [own[first : first + count] for own in tables]
    rows = [[*own, *[own[-1]] * (count - len(own))] for own in rows]
    index = store.xp.asarray(rows, dtype=store.xp.int64)
    both = zip(store.both, rooms, strict=False)
    k, *rest = (fields.side_by_side(index, room) for fields, room in both)
    return k, rest[0] if rest else k[..., : store.spec.v_dim]


class StoredPieces(Pieces):
    """Pages of codes, then the residual: what a request holds from about `first` to `end`."""

    def __init__(
        self,
        store: Store,
        pages: Sequence[int],
        residual: Residual | None,
        coded: int,
        first: int,
        end: int,
        table: Array | None = None,
    ) -> None:
        """table: `pages` as an array where the store lives, so that gathering sends nothing."""
        self.table = table
        # One room for all pieces, of this run alone: another thread has its own, nothing is kept.
        self.rooms: Rooms = {}
        self.store, self.pages, self.residual, self.coded = store, pages, residual, coded
        self.num_kv_heads, self.v_dim = store.spec.num_kv_heads, store.spec.v_dim
        size, group = store.size, store.codec.group
        if size < VIEWED:
            step = max(1, PIECE // size) * size
        else:
            narrow = store.dtype not in (store.xp.float32, store.xp.float64)
            lies_ready = store.codec.plain and not narrow  # nothing to decode or widen
            step = size if lies_ready else min(size, max(1, PIECE // group) * group)
        at, last = first // step * step, coded if residual is not None else end
        self.spans: list[tuple[int, int]] = []
        while at < last:
            stop = min(at + step, last)
            if size >= VIEWED:  # never over the end of a page that is read as it lies
                stop = min(stop, at - at % size + size)
            self.spans.append((at, stop))
            at = stop
        if end > last:
            self.spans.append((last, end))

    def scores(self, i: int, rows: Array) -> Array:
        """rows (Hkv, R, Dk) · keys of piece i → (Hkv, R, n)."""
        if self._in_residual(i):
            return blas.scores(self.store.xp, rows, self._waiting(i, 0, rows.dtype))
        fields = self.store.keys
        return fields.codec.scores(rows, self._parts(fields, i))

    def weigh(self, i: int, p: Array) -> Array:
        """p (Hkv, R, n) · values of piece i → (Hkv, R, Dv)."""
        if self._in_residual(i):
            values = self._waiting(i, -1, p.dtype)[..., : self.v_dim]
            return blas.weigh(self.store.xp, p, values)
        fields = self.store.values
        return fields.codec.weigh(p, self._parts(fields, i), self.v_dim)

    def nbytes(self, i: int) -> int:
        """Bytes that piece i takes where it is stored."""
        a, b = self.spans[i]
        if not self._in_residual(i):
            return self.store.nbytes(b - a)
        spec = self.store.spec
        dims = spec.head_dim + (0 if spec.v_from_k else spec.v_dim)
        return (b - a) * spec.num_kv_heads * dims * itemsize(self.store.xp, self.store.dtype)

    def _in_residual(self, i: int) -> bool:
        return self.residual is not None and self.spans[i][0] >= self.coded

    def _waiting(self, i: int, which: int, dtype: Any) -> Array:
        """The keys (which = 0) or values (-1) of a piece of the residual."""
        assert self.residual is not None
        a, b = self.spans[i]
        x = self.residual.both[which][:, a - self.coded : b - self.coded, :]
        return x if x.dtype == dtype else self.store.xp.astype(x, dtype)

    def _parts(self, fields: Any, i: int) -> Parts:
        (a, b), size = self.spans[i], self.store.size
        page = a // size
        if b <= (page + 1) * size:  # always, where pages are read as they lie
            return fields.view(self.pages[page], a - page * size, b - page * size)
        pages = self.pages if self.table is None else self.table
        return fields.gather(pages[page : -(-b // size)], b - a, self.rooms)
