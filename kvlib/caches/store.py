"""The arrays of one layer: pages of encoded keys and values, and tokens not encoded yet."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace, nbytes, new_array
from kvlib.attention.pieces import PagedTensor
from kvlib.caches.spec import LayerSpec
from kvlib.codecs.base import Codec
from kvlib.meter import OPEN

GUESSES = 64  # a step of so many tokens may hold guesses, so a part of it can be undone


class Bounds:
    """The largest keys of each page, then the smallest, elementwise: array (pages, Hkv, 2 · Dk).
    fresh: (pages,) bool, False where a page's keys may have changed."""

    def __init__(self, xp: Any, pages: int, heads: int, dim: int, dtype: Any) -> None:
        what = "the bounds of the blocks of one layer"
        self.array = new_array(xp, what, (pages, heads, 2 * dim), dtype)
        self.fresh = np.zeros(pages, dtype=bool)

    def nbytes(self, pages: int) -> int:
        """Return the bytes of so many pages' bounds."""
        return nbytes(self.array) // len(self.fresh) * pages


def bounds_of(keys: Array) -> Array:
    """Return the bounds (Hkv, n, 2 · Dk) of the keys (Hkv, n, size, Dk) of n pages."""
    xp = namespace(keys)
    return xp.concat([xp.max(keys, axis=2), xp.min(keys, axis=2)], axis=-1)


class Residual:
    """The newest tokens of one request in one layer, which wait until the codec encodes them.

    waiting: keys (Hkv, room, Dk), and values (Hkv, room, Dv) unless they are taken from the keys.
    previous: to undo the last step, what waited before it; None if it encoded nothing.
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

    def roll_back(self, first: int | None, num_paged: int, length: int, room: int) -> None:
        """Let tokens `num_paged` ... `length` wait again; first: that of `previous`, or None."""
        if first is not None and self.previous is not None:
            span = slice(num_paged - first, length - first)
            self.waiting = [resized(x[:, span, :], room) for x in self.previous]
        elif self.waiting[0].shape[1] > room:  # of a tree or a gap, of which nothing was encoded
            kept = min(length - num_paged, room)
            self.waiting = [resized(x[:, :kept, :], room) for x in self.waiting]

    def copy(self) -> "Residual":
        """Return the same tokens in other arrays, for a fork."""
        new = copy(self)
        new.waiting = [namespace(x).asarray(x, copy=True) for x in self.waiting]
        if self.previous is not None:
            new.previous = [namespace(x).asarray(x, copy=True) for x in self.previous]
        return new

    def arrays(self) -> list[Array]:
        return [*self.waiting, *(self.previous or ())]


def resized(x: Array, room: int) -> Array:
    """Return a new array (Hkv, room, D) that begins with x (Hkv, n, D)."""
    new = namespace(x).empty((x.shape[0], room, x.shape[2]), dtype=x.dtype, device=x.device)
    new[:, : x.shape[1], :] = x
    return new


class Store:
    """Keys and values of one layer, written in pages; `tensors`: of keys, and of values if kept."""

    def __init__(
        self, xp: Any, codec: Codec, spec: LayerSpec, pages: int, size: int, dtype: Any
    ) -> None:
        self.xp, self.codec, self.spec, self.size, self.dtype = xp, codec, spec, size, dtype
        codecs = [(codec.keys, spec.head_dim), (codec.values, spec.v_dim)][: 2 - spec.v_from_k]
        heads = spec.num_kv_heads
        self.tensors = [
            PagedTensor(xp, part, heads, dim, pages, size, dtype) for part, dim in codecs
        ]
        # One and the same if values are taken from the keys.
        self.keys, self.values = self.tensors[0], self.tensors[-1]
        self.room = codec.residual + codec.group  # tokens that may wait

    def arrays(self) -> Iterator[Array]:
        """Every array of the pages."""
        for tensor in self.tensors:
            yield from tensor.arrays.values()
            if tensor.bounds is not None:
                yield tensor.bounds.array

    def keep_bounds(self) -> None:
        """Keep the bounds of the keys in each page from now on."""
        keys, pages = self.keys, self.keys.pages
        if keys.bounds is None:
            keys.bounds = Bounds(self.xp, pages, keys.heads, keys.dim, self.dtype)

    def nbytes(self, tokens: int) -> int:
        """Bytes of so many tokens (whole groups) in the pages."""
        return sum(sum(tensor.payload_and_metadata(tokens)) for tensor in self.tensors)

    def write(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        span: tuple[int, int],
        paged: tuple[int, int],
        new: Sequence[Array],
    ) -> int:
        """Store tokens span[0] ... span[1], keys (Hkv, n, Dk) and values; return bytes written.
        paged: how many of the stored tokens were in pages before, and are to be after it."""
        (start, end), (before, after) = span, paged
        if residual is None:
            return sum(f.write(pages, start, x) for f, x in zip(self.tensors, new, strict=True))
        if after == before:
            residual.resize(end - before)  # for a tree, of which nothing is encoded yet
            for old, x in zip(residual.waiting, new, strict=True):
                old[:, start - before : end - before, :] = x
            return sum(nbytes(x) for x in new)
        old = residual.waiting
        pairs = zip(old, new, strict=True)
        waiting = [self.xp.concat([x[:, : start - before, :], y], axis=1) for x, y in pairs]
        residual.waiting, written = self._encode(pages, waiting, paged)
        residual.previous = waiting if end - start <= GUESSES else old
        return written

    def write_slots(self, slots: Sequence[tuple[int, int]], new: Sequence[Array]) -> int:
        """Write one token of each request to its (page, slot); bytes, if a `Meter` counts."""
        for tensor, x in zip(self.tensors, new, strict=True):
            encoded = {"x": x} if tensor.plain else tensor.encoded(x)
            for name, array in tensor.arrays.items():
                entries = encoded[name]
                for i, (page, slot) in enumerate(slots):
                    array[page, :, slot, ...] = entries[:, i, ...]
            if tensor.bounds is not None:
                for page, _ in slots:
                    tensor.bounds.fresh[page] = False
        return self.nbytes(len(slots)) if OPEN else 0

    def _encode(
        self, pages: Sequence[int], waiting: Sequence[Array], paged: tuple[int, int]
    ) -> tuple[list[Array], int]:
        """Encode the first of the tokens that wait; return the rest, and the bytes written."""
        (before, after), rest, written = paged, [], 0
        for tensor, x in zip(self.tensors, waiting, strict=True):
            if after > before:
                written += tensor.write(pages, before, x[:, : after - before, :])
            rest.append(resized(x[:, after - before :, :], self.room))
            written += nbytes(x[:, after - before :, :])
        return rest, written

    def keep(
        self,
        pages: Sequence[int],
        residual: Residual,
        path: Sequence[int],
        paged: tuple[int, int],
    ) -> int:
        """Let only the tokens `path` wait, and encode until paged[1]; return bytes written."""
        index = self.xp.asarray(path, dtype=self.xp.int64)
        waiting = [self.xp.take(x, index, axis=1) for x in residual.waiting]
        residual.waiting, written = self._encode(pages, waiting, paged)
        residual.previous = None
        return written

    def longer(self, tokens: int) -> "Store":
        """Return a store with one page of so many tokens, for a private row."""
        return Store(self.xp, self.codec, self.spec, 1, tokens, self.dtype)

    def move(self, source: "Store", origin: int, target: int, first: int, tokens: int) -> int:
        """Copy tokens of a page of `source` to the front of page `target`; return the bytes."""
        pairs = zip(self.tensors, source.tensors, strict=True)
        return sum(to.move(tensor, origin, target, first, tokens) for to, tensor in pairs)

    def decoded(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        num_paged: int,
        length: int,
        as_view: bool = False,
    ) -> tuple[Array, Array]:
        """Return all stored tokens: k (Hkv, S, Dk), v (Hkv, S, Dv), as views where asked."""
        keys_and_values = []
        for n, tensor in enumerate(self.tensors):
            if as_view:
                x = tensor.arrays["x"][pages[0], :, :length, :]
            else:
                codes = tensor.gather(pages[: -(-num_paged // self.size)], num_paged)
                x = tensor.codec.decode(codes, self.dtype)
                if residual is not None:
                    waiting = residual.waiting[n]
                    if waiting.shape[1] < length - num_paged:  # planned, and not appended yet
                        waiting = resized(waiting, length - num_paged)
                    x = self.xp.concat([x, waiting[:, : length - num_paged, :]], axis=1)
            keys_and_values.append(x)
        return keys_and_values[0], keys_and_values[-1][..., : self.spec.v_dim]
