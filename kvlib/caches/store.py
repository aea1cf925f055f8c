"""Pages of encoded keys and values, and the newest tokens that are not encoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvlib.arrays import Array, is_numpy, nbytes
from kvlib.caches.spec import LayerSpec
from kvlib.codecs.base import Codec, Field, Parts, TensorCodec

Rooms = dict[str, Array]  # a kind of row → so many of them to copy into


class Fields:
    """The fields of keys, or of values, of one layer: pages of `size` tokens each.

    arrays: name → (pages, Hkv, size / per, ...)
    """

    def __init__(
        self, xp: Any, codec: TensorCodec, heads: int, dim: int, pages: int, size: int, dtype: Any
    ) -> None:
        codec.check(dim)
        self.xp, self.codec, self.heads, self.dim, self.size = xp, codec, heads, dim, size
        self.fields: dict[str, Field] = codec.fields(dim, xp, dtype)
        self.arrays = {
            name: xp.empty((pages, heads, size // field.per, *field.shape), dtype=field.dtype)
            for name, field in self.fields.items()
        }
        # Keys and values of one shape take turns in one room.
        self._kinds = {name: f"{name} {x.shape[1:]} {x.dtype}" for name, x in self.arrays.items()}

    def write(self, pages: Sequence[int], at: int, x: Array) -> int:
        """Encode x (Hkv, n, D) as the tokens from `at` on of a request; gives the bytes written."""
        encoded, written = self.codec.encode(x), 0
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

    def view(self, page: int, a: int, b: int) -> Parts:
        """Tokens a ... b of one page, as they lie."""
        return {
            name: self.arrays[name][page, :, a // field.per : b // field.per, ...]
            for name, field in self.fields.items()
        }

    def gather(
        self, pages: Sequence[int] | Array, tokens: int, rooms: Rooms | None = None
    ) -> Parts:
        """The first `tokens` tokens of some pages, copied behind one another.

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

    def copy(self, source: int, target: int, tokens: int) -> int:
        """The first `tokens` tokens of one page into another; gives the bytes copied."""
        for name, field in self.fields.items():
            whole, entries = self.arrays[name], -(-tokens // field.per)
            whole[target, :, :entries, ...] = whole[source, :, :entries, ...]
        return self.nbytes(tokens)

    def nbytes(self, tokens: int) -> int:
        """Bytes of so many tokens (a multiple of the group)."""
        return sum(self.of(tokens).values())

    def of(self, tokens: int) -> dict[str, int]:
        """Bytes of so many tokens by field."""
        found = {}
        for name, field in self.fields.items():
            page = nbytes(self.arrays[name][0, ...])
            found[name] = page * -(-tokens // field.per) // (self.size // field.per)
        return found


class Tail:
    """The newest tokens of one request in one layer, as they came, until their group is full.

    k (Hkv, room, Dk), v (Hkv, room, Dv) or None. What a step has pushed out stays in `previous`
    until the next plan, so that the step can be taken back.
    """

    __slots__ = ("k", "previous", "v")

    def __init__(self, xp: Any, spec: LayerSpec, room: int, dtype: Any) -> None:
        self.k = xp.empty((spec.num_kv_heads, room, spec.head_dim), dtype=dtype)
        self.v = None
        if not spec.v_from_k:
            self.v = xp.empty((spec.num_kv_heads, room, spec.v_dim), dtype=dtype)
        self.previous: tuple[Array, Array | None] | None = None

    def arrays(self) -> Iterator[Array]:
        for pair in ((self.k, self.v), self.previous or (None, None)):
            yield from (x for x in pair if x is not None)


class Store:
    """Keys and values of one layer: fields of pages, and the newest tokens as they came."""

    def __init__(
        self, xp: Any, codec: Codec, spec: LayerSpec, pages: int, size: int, dtype: Any
    ) -> None:
        self.xp, self.codec, self.spec, self.size, self.dtype = xp, codec, spec, size, dtype
        heads = spec.num_kv_heads
        self.keys = Fields(xp, codec.keys, heads, spec.head_dim, pages, size, dtype)
        self.values = self.keys
        if not spec.v_from_k:
            self.values = Fields(xp, codec.values, heads, spec.v_dim, pages, size, dtype)

    @property
    def both(self) -> tuple[Fields, ...]:
        return (self.keys,) if self.spec.v_from_k else (self.keys, self.values)

    def arrays(self) -> Iterator[Array]:
        """Every array of the pages."""
        for fields in self.both:
            yield from fields.arrays.values()

    def tail(self) -> Tail | None:
        """Room for the tokens of a request that wait, if any ever do."""
        if not self.codec.waits:
            return None
        return Tail(self.xp, self.spec, self.codec.residual + self.codec.group, self.dtype)

    def write(
        self,
        pages: Sequence[int],
        tail: Tail | None,
        span: tuple[int, int],
        coded: tuple[int, int],
        k: Array,
        v: Array | None,
    ) -> int:
        """Store k (Hkv, n, Dk) and v (Hkv, n, Dv) as the tokens span[0] ... span[1] of a request.

        coded: how many of its first tokens were codes before, and are to be now. Bytes written.
        """
        (start, end), (before, after) = span, coded
        new = [(self.keys, k)] if v is None else [(self.keys, k), (self.values, v)]
        if tail is None:
            return sum(fields.write(pages, start, x) for fields, x in new)
        olds = [tail.k, tail.v]
        if after == before:
            for (_, x), old in zip(new, olds, strict=False):
                old[:, start - before : end - before, :] = x
            return sum(nbytes(x) for _, x in new)
        kept: list[Array | None] = [None, None]
        written = 0
        for i, (fields, x) in enumerate(new):
            x = self.xp.concat([olds[i][:, : start - before, :], x], axis=1)
            written += fields.write(pages, before, x[:, : after - before, :])
            room = self.xp.empty(olds[i].shape, dtype=self.dtype)
            room[:, : end - after, :] = x[:, after - before :, :]
            kept[i] = room
            written += nbytes(x[:, after - before :, :])
        tail.previous = (tail.k, tail.v)
        tail.k, tail.v = kept
        return written

    def decoded(
        self, pages: Sequence[int], tail: Tail | None, coded: int, length: int
    ) -> tuple[Array, Array]:
        """All that is held of a request: k (Hkv, S, Dk), v (Hkv, S, Dv)."""
        k = self._whole(self.keys, pages, coded, tail and tail.k, length)
        if self.spec.v_from_k:
            return k, k[..., : self.spec.v_dim]
        return k, self._whole(self.values, pages, coded, tail and tail.v, length)

    def _whole(
        self, fields: Fields, pages: Sequence[int], coded: int, kept: Array | None, length: int
    ) -> Array:
        parts = fields.gather(pages[: -(-coded // self.size)], coded)
        x = fields.codec.decode(parts, self.dtype)
        if kept is not None:
            return self.xp.concat([x, kept[:, : length - coded, :]], axis=1)
        return x
