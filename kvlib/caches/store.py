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
    """The newest tokens of one request in one layer, as they came, until their group is full.

    both: keys (Hkv, room, Dk), and values (Hkv, room, Dv) unless they are taken from the keys.
    previous: what waited before the last step, if that can be undone in part; else None.
    """

    __slots__ = ("both", "previous")

    def __init__(self, xp: Any, spec: LayerSpec, room: int, dtype: Any) -> None:
        dims = (spec.head_dim,) if spec.v_from_k else (spec.head_dim, spec.v_dim)
        shapes = [(spec.num_kv_heads, room, dim) for dim in dims]
        self.both = [new_array(xp, "residual of a request", shape, dtype) for shape in shapes]
        self.previous: list[Array] | None = None

    def resize(self, tokens: int) -> None:
        """Longer arrays, if they have no room for so many tokens."""
        if self.both[0].shape[1] < tokens:
            self.both = [resized(x, tokens) for x in self.both]

    def roll_back(self, before: int | None, coded: int, length: int, room: int) -> None:
        """Hold tokens `coded` ... `length` again; before: the number of the first of `previous`."""
        if before is not None and self.previous is not None:
            span = slice(coded - before, length - before)
            self.both = [resized(x[:, span, :], room) for x in self.previous]
        elif self.both[0].shape[1] > room:  # of a tree or a gap, of which nothing was encoded
            kept = min(length - coded, room)
            self.both = [resized(x[:, :kept, :], room) for x in self.both]

    def copy(self) -> Residual:
        """The same tokens for a fork, in arrays of their own."""
        new = copy(self)
        new.both = [namespace(x).asarray(x, copy=True) for x in self.both]
        return new

    def arrays(self) -> list[Array]:
        return [*self.both, *(self.previous or ())]


def resized(x: Array, room: int) -> Array:
    """x (Hkv, n, D) at the beginning of a new array (Hkv, room, D), in its own memory."""
    new = namespace(x).empty((x.shape[0], room, x.shape[2]), dtype=x.dtype, device=x.device)
    new[:, : x.shape[1], :] = x
    return new


class Store:
    """Keys and values of one layer: fields of pages, and the newest tokens as they came."""

    def __init__(
        self, xp: Any, codec: Codec, spec: LayerSpec, pages: int, size: int, dtype: Any
    ) -> None:
        self.xp, self.codec, self.spec, self.size, self.dtype = xp, codec, spec, size, dtype
        own = [(codec.keys, spec.head_dim), (codec.values, spec.v_dim)][: 2 - spec.v_from_k]
        heads = spec.num_kv_heads
        self.both = [Fields(xp, part, heads, dim, pages, size, dtype) for part, dim in own]
        self.keys, self.values = self.both[0], self.both[-1]  # one and the same under v_from_k
        self.room = codec.residual + codec.group  # tokens that may wait

    def arrays(self) -> Iterator[Array]:
        """Every array of the pages."""
        for fields in self.both:
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
        return sum(sum(fields.payload_and_metadata(tokens)) for fields in self.both)

    def new_residual(self) -> Residual:
        """Room for the tokens of a request that wait."""
        return Residual(self.xp, self.spec, self.room, self.dtype)

    def write(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        span: tuple[int, int],
        coded: tuple[int, int],
        new: Sequence[Array],
    ) -> int:
        """Store tokens span[0] ... span[1], keys (Hkv, n, Dk) and values; gives bytes written.

        coded: how many first tokens were codes before, and are to be now, from the first stored
        token.
        """
        (start, end), (before, after) = span, coded
        if residual is None:
            both = zip(self.both, new, strict=True)
            return sum(fields.write(pages, start, x) for fields, x in both)
        if after == before:
            residual.resize(end - before)  # for a tree, of which nothing is encoded yet
            for old, x in zip(residual.both, new, strict=True):
                old[:, start - before : end - before, :] = x
            return sum(nbytes(x) for x in new)
        old = residual.both
        pairs = zip(old, new, strict=True)
        all_waiting = [self.xp.concat([x[:, : start - before, :], y], axis=1) for x, y in pairs]
        residual.both, written = self._encode(pages, all_waiting, coded)
        residual.previous = all_waiting if end - start <= GUESSES else old
        return written

    def write_slots(self, slots: Sequence[tuple[int, int]], new: Sequence[Array]) -> int:
        """Write one token to each (page, slot): keys (Hkv, n, Dk) and values; the bytes written."""
        for fields, x in zip(self.both, new, strict=True):
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
        self, pages: Sequence[int], waiting: Sequence[Array], coded: tuple[int, int]
    ) -> tuple[list[Array], int]:
        """Encode the first of the tokens that wait; gives the arrays of the rest, bytes written."""
        (before, after), rest, written = coded, [], 0
        for fields, x in zip(self.both, waiting, strict=True):
            if after > before:
                written += fields.write(pages, before, x[:, : after - before, :])
            rest.append(resized(x[:, after - before :, :], self.room))
            written += nbytes(x[:, after - before :, :])
        return rest, written

    def keep(
        self, pages: Sequence[int], residual: Residual, which: Sequence[int], coded: tuple[int, int]
    ) -> int:
        """Keep the waiting tokens `which`, and encode until coded[1]; returns the bytes written."""
        index = self.xp.asarray(which, dtype=self.xp.int64)
        waiting = [self.xp.take(x, index, axis=1) for x in residual.both]
        residual.both, written = self._encode(pages, waiting, coded)
        residual.previous = None
        return written

    def longer(self, tokens: int) -> Store:
        """A store of one page of so many tokens, for layers of this shape."""
        return Store(self.xp, self.codec, self.spec, 1, tokens, self.dtype)

    def move(self, source: Store, origin: int, target: int, first: int, tokens: int) -> int:
        """Tokens of a page of `source` to the front of a page of this store; the bytes copied."""
        both = zip(self.both, source.both, strict=True)
        return sum(mine.move(other, origin, target, first, tokens) for mine, other in both)

    def decoded(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        coded: int,
        length: int,
        as_view: bool = False,
    ) -> tuple[Array, Array]:
        """All that is held of a request: k (Hkv, S, Dk), v (Hkv, S, Dv).

        coded, length: from the first stored token. as_view: plain numbers of one page, where they
        are.
        """
        found = []
        for n, fields in enumerate(self.both):
            if as_view:
                x = fields.arrays["x"][pages[0], :, :length, :]
            else:
                parts = fields.gather(pages[: -(-coded // self.size)], coded)
                x = fields.codec.decode(parts, self.dtype)
                if residual is not None:
                    waiting = residual.both[n]
                    if waiting.shape[1] < length - coded:  # planned, and not appended yet
                        waiting = resized(waiting, length - coded)
                    x = self.xp.concat([x, waiting[:, : length - coded, :]], axis=1)
            found.append(x)
        return found[0], found[-1][..., : self.spec.v_dim]
