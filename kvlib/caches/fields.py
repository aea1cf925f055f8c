"""Keys, or values, of one layer: the arrays of a codec, in pages of so many tokens each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.arrays import Array, is_numpy, nbytes
from kvlib.codecs.base import Field, Parts, TensorCodec

Rooms = dict[str, Array]  # a kind of row → so many of them to copy into


class Fields:
    """The fields of keys, or of values, of one layer: pages of `size` tokens each.

    arrays: name → (pages, Hkv, size / per, ...)
    """

    def __init__(
        self, xp: Any, codec: TensorCodec, heads: int, dim: int, pages: int, size: int, dtype: Any
    ) -> None:
        codec.check(dim)
        self.xp, self.codec, self.heads, self.dim = xp, codec, heads, dim
        self.pages, self.size = pages, size
        self.fields: dict[str, Field] = codec.fields(dim, xp, dtype)
        self.arrays = {
            name: xp.empty((pages, heads, size // field.per, *field.shape), dtype=field.dtype)
            for name, field in self.fields.items()
        }
        # Keys and values of one shape take turns in one room.
        self._kinds = {name: f"{name} {x.shape[1:]} {x.dtype}" for name, x in self.arrays.items()}

    def write(self, pages: Sequence[int], at: int, x: Array) -> int:
        """Encode x (Hkv, n, D) as the stored tokens from `at` on; gives the bytes written."""
        return self.put(pages, at, self.codec.encode(x))

    def put(self, pages: Sequence[int], at: int, encoded: Parts) -> int:
        """Write fields of n tokens as the stored tokens from `at` on; gives the bytes written."""
        written = 0
        for name, field in self.fields.items():
            whole, part, per = self.arrays[name], encoded[name], field.per
            entries, first, done = self.size // per, at // per, 0
            while done < part.shape[1]:
                page, entry = divmod(first + done, entries)
                n = min(entries - entry, part.shape[1] - done)
                whole[pages[page], :, entry : entry + n, ...] = part[:, done : done + n, ...]
                done += n
            written += nbytes(part)
        return written

    def move(self, source: Fields, origin: int, target: int, first: int, tokens: int) -> int:
        """The `tokens` tokens from `first` on of a page of `source`, to the front of page `target`.

        Gives the bytes copied. The two pages may be one.
        """
        parts = source.view(origin, first, first + tokens)
        if not is_numpy(self.xp):  # NumPy copes with a source that its target overlaps
            parts = {name: self.xp.asarray(x, copy=True) for name, x in parts.items()}
        return self.put([target], 0, parts)

    def view(self, page: int, a: int, b: int) -> Parts:
        """Tokens a ... b of one page, as they lie."""
        return {
            name: self.arrays[name][page, :, a // field.per : b // field.per, ...]
            for name, field in self.fields.items()
        }

    def gather(
        self, pages: Sequence[int] | Array, tokens: int, rooms: Rooms | None = None
    ) -> Parts:
        """The first `tokens` tokens of some pages, copied one after the other.

        rooms: what the caller lends for the copies; the next call that is lent it overwrites them.
        """
        xp = self.xp
        index: Any = pages if hasattr(pages, "dtype") else xp.asarray(pages, dtype=xp.int64)
        n = index.shape[0]
        # Rows of one head in one page, so that a head's tokens come out one after the other.
        index = index[None, :] * self.heads + xp.arange(self.heads, dtype=xp.int64)[:, None]
        index, found = xp.reshape(index, (-1,)), {}
        for name, field in self.fields.items():
            piece = self._take(name, index, rooms)
            piece = xp.reshape(piece, (self.heads, n * (self.size // field.per), *field.shape))
            found[name] = piece[:, : tokens // field.per, ...]
        return found

    def side_by_side(self, tables: Array, rooms: Rooms) -> Array:
        """Copy plain numbers of several requests: (B, n) pages → (B, Hkv, n · size, D)."""
        xp, (requests, n) = self.xp, tables.shape
        heads = xp.arange(self.heads, dtype=xp.int64)[None, :, None]
        index = xp.reshape(tables[:, None, :] * self.heads + heads, (-1,))
        found = self._take("x", index, rooms)
        return xp.reshape(found, (requests, self.heads, n * self.size, self.dim))

    def _take(self, name: str, index: Array, rooms: Rooms | None) -> Array:
        """Rows `index` of one field, each all entries of one head in one page."""
        xp, whole = self.xp, self.arrays[name]
        rows, width = index.shape[0], whole.size // (whole.shape[0] * self.heads)
        flat = xp.reshape(whole, (whole.shape[0] * self.heads, width))
        if rooms is None or not is_numpy(xp):
            return xp.take(flat, index, axis=0)
        kind = self._kinds[name]
        room = rooms.get(kind)
        if room is None or room.shape[0] < rows:
            room = rooms[kind] = xp.empty((rows, width), dtype=whole.dtype)
        # mode: NumPy copies straight into `out`; a page is never outside
        return flat.take(index, axis=0, out=room[:rows], mode="clip")

    def gather_into(
        self, pages: Sequence[int], which: list[int], target: Sequence[int], at: int
    ) -> int:
        """Stored tokens number `which` of some pages, to slot `at` and on in others."""
        if not which:
            return 0
        index = self.xp.asarray(which, dtype=self.xp.int64)
        parts = self.gather(pages, len(pages) * self.size)
        return self.put(target, at, {n: self.xp.take(x, index, axis=1) for n, x in parts.items()})

    def nbytes(self, tokens: int) -> int:
        """Bytes of so many tokens (a multiple of the group)."""
        return sum(self.payload_and_metadata(tokens))

    def payload_and_metadata(self, tokens: int) -> tuple[int, int]:
        """Bytes of so many tokens: of the numbers or their codes, and of scales and the like."""
        found = [0, 0]
        for name, field in self.fields.items():
            page = nbytes(self.arrays[name][0, ...])
            entries = -(-tokens // field.per)
            found[not field.payload] += page * entries // (self.size // field.per)
        return found[0], found[1]
