"""The arrays of one layer: pages of encoded keys and values, and tokens not encoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from kvlib.arrays import Array, namespace, nbytes, new_array
from kvlib.attention.pieces import Fields
from kvlib.caches.retention.bounds import Bounds
from kvlib.caches.spec import LayerSpec
from kvlib.codecs.base import Codec
from kvlib.meter import OPEN

GUESSES = 64  # a step of so many tokens may hold guesses, so a part of it can be undone


class Residual:
    """The newest tokens of one request in one layer, which wait until the codec encodes them.

    waiting: keys (Hkv, room, Dk), and values (Hkv, room, Dv) unless they are taken from the keys.
    previous: a copy of `waiting` from before the last step encoded some of it, to undo that step:
    with the tokens of the step if it had at most GUESSES; None if nothing was encoded.
    """

    __slots__ = ("waiting", "previous")

    def __init__(self, xp: Any, spec: LayerSpec, room: int, dtype: Any) -> None:
        dims = (spec.head_dim,) if spec.v_from_k else (spec.head_dim, spec.v_dim)
        shapes = [(spec.num_kv_heads, room, dim) for dim in dims]
        self.waiting = [new_array(xp, "residual of a request", shape, dtype) for shape in shapes]
        self.previous: list[Array] | None = None

    def resize(self, tokens: int) -> None:
        """Make room for so many tokens."""
        if self.waiting[0].shape[1] < tokens:
            self.waiting = [resized(x, tokens) for x in self.waiting]

    def roll_back(self, first: int | None, encoded: int, length: int, room: int) -> None:
        """Let tokens `encoded` ... `length` wait again; first: the number of the first previous."""
        if first is not None and self.previous is not None:
            span = slice(encoded - first, length - first)
            self.waiting = [resized(x[:, span, :], room) for x in self.previous]
        elif self.waiting[0].shape[1] > room:  # of a tree or a gap, of which nothing was encoded
            kept = min(length - encoded, room)
            self.waiting = [resized(x[:, :kept, :], room) for x in self.waiting]

    def copy(self) -> Residual:
        """Return the residual of a fork, whose tokens are copied."""
        new = copy(self)
        new.waiting = [namespace(x).asarray(x, copy=True) for x in self.waiting]
        return new

    def arrays(self) -> list[Array]:
        return [*self.waiting, *(self.previous or ())]


def resized(x: Array, room: int) -> Array:
    """Return a new array (Hkv, room, D) that begins with x (Hkv, n, D)."""
    new = namespace(x).empty((x.shape[0], room, x.shape[2]), dtype=x.dtype, device=x.device)
    new[:, : x.shape[1], :] = x
    return new


class Store:
    """Keys and values of one layer, written in pages; `fields`: of keys, and of values if kept."""

    def __init__(
        self, xp: Any, codec: Codec, spec: LayerSpec, pages: int, size: int, dtype: Any
    ) -> None:
        self.xp, self.codec, self.spec, self.size, self.dtype = xp, codec, spec, size, dtype
        codecs = [(codec.keys, spec.head_dim), (codec.values, spec.v_dim)][: 2 - spec.v_from_k]
        heads = spec.num_kv_heads
        self.fields = [Fields(xp, part, heads, dim, pages, size, dtype) for part, dim in codecs]
        self.keys, self.values = self.fields[0], self.fields[-1]  # one and the same under v_from_k
        self.room = codec.residual + codec.group  # tokens that may wait

    def arrays(self) -> Iterator[Array]:
        """Every array of the pages."""
        for fields in self.fields:
            yield from fields.arrays.values()
            if fields.bounds is not None:
                yield fields.bounds.array

    def keep_bounds(self) -> None:
        """Keep the bounds of the keys in each page from now on."""
        keys, pages = self.keys, self.keys.pages
        if keys.bounds is None:
            keys.bounds = Bounds(self.xp, pages, keys.heads, keys.dim, self.dtype)

    def nbytes(self, tokens: int) -> int:
        """Bytes of so many tokens (whole groups) in the pages."""
        return sum(sum(fields.payload_and_metadata(tokens)) for fields in self.fields)

    def new_residual(self) -> Residual:
        """Return room for the tokens of a request that wait."""
        return Residual(self.xp, self.spec, self.room, self.dtype)

    def write(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        span: tuple[int, int],
        encoded: tuple[int, int],
        new: Sequence[Array],
    ) -> int:
        """Store tokens span[0] ... span[1], keys (Hkv, n, Dk) and values; return bytes written.

        encoded: how many of the stored tokens were codes before, and are to be after it.
        """
        (start, end), (before, after) = span, encoded
        if residual is None:
            return sum(f.write(pages, start, x) for f, x in zip(self.fields, new, strict=True))
        if after == before:
            residual.resize(end - before)  # for a tree, of which nothing is encoded yet
            for old, x in zip(residual.waiting, new, strict=True):
                old[:, start - before : end - before, :] = x
            return sum(nbytes(x) for x in new)
        old = residual.waiting
        pairs = zip(old, new, strict=True)
        waiting = [self.xp.concat([x[:, : start - before, :], y], axis=1) for x, y in pairs]
        residual.waiting, written = self._encode(pages, waiting, encoded)
        residual.previous = waiting if end - start <= GUESSES else old
        return written

    def write_slots(self, slots: Sequence[tuple[int, int]], new: Sequence[Array]) -> int:
        """Write one token of each request, keys (Hkv, n, Dk) and values, to its (page, slot).

        Return the bytes written, if a `Meter` counts them.
        """
        for fields, x in zip(self.fields, new, strict=True):
            encoded = {"x": x} if fields.plain else fields.encoded(x)
            for name, array in fields.arrays.items():
                entries = encoded[name]
                for i, (page, slot) in enumerate(slots):
                    array[page, :, slot, ...] = entries[:, i, ...]
            if fields.bounds is not None:
                for page, _ in slots:
                    fields.bounds.fresh[page] = False
        return self.nbytes(len(slots)) if OPEN else 0

    def _encode(
        self, pages: Sequence[int], waiting: Sequence[Array], encoded: tuple[int, int]
    ) -> tuple[list[Array], int]:
        """Encode the first of the tokens that wait; return the rest, and the bytes written."""
        (before, after), rest, written = encoded, [], 0
        for fields, x in zip(self.fields, waiting, strict=True):
            if after > before:
                written += fields.write(pages, before, x[:, : after - before, :])
            rest.append(resized(x[:, after - before :, :], self.room))
            written += nbytes(x[:, after - before :, :])
        return rest, written

    def keep(
        self,
        pages: Sequence[int],
        residual: Residual,
        path: Sequence[int],
        encoded: tuple[int, int],
    ) -> int:
        """Let only the tokens `path` wait, and encode until encoded[1]; return bytes written."""
        index = self.xp.asarray(path, dtype=self.xp.int64)
        waiting = [self.xp.take(x, index, axis=1) for x in residual.waiting]
        residual.waiting, written = self._encode(pages, waiting, encoded)
        residual.previous = None
        return written

    def longer(self, tokens: int) -> Store:
        """Return a store with one page of so many tokens, for a private row."""
        return Store(self.xp, self.codec, self.spec, 1, tokens, self.dtype)

    def move(self, source: Store, origin: int, target: int, first: int, tokens: int) -> int:
        """Copy tokens of a page of `source` to the front of page `target`; return the bytes."""
        pairs = zip(self.fields, source.fields, strict=True)
        return sum(to.move(fields, origin, target, first, tokens) for to, fields in pairs)

    def decoded(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        encoded: int,
        length: int,
        as_view: bool = False,
    ) -> tuple[Array, Array]:
        """Return all `length` stored tokens of a request: k (Hkv, S, Dk), v (Hkv, S, Dv).

        encoded: how many of them are codes. as_view: return views of plain numbers in one page.
        """
        keys_and_values = []
        for n, fields in enumerate(self.fields):
            if as_view:
                x = fields.arrays["x"][pages[0], :, :length, :]
            else:
                codes = fields.gather(pages[: -(-encoded // self.size)], encoded)
                x = fields.codec.decode(codes, self.dtype)
                if residual is not None:
                    waiting = residual.waiting[n]
                    if waiting.shape[1] < length - encoded:  # planned, and not appended yet
                        waiting = resized(waiting, length - encoded)
                    x = self.xp.concat([x, waiting[:, : length - encoded, :]], axis=1)
            keys_and_values.append(x)
        return keys_and_values[0], keys_and_values[-1][..., : self.spec.v_dim]
