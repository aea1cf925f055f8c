"""Pages of encoded keys and values, and the newest tokens that are not encoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from kvlib.arrays import Array, namespace, nbytes
from kvlib.caches.fields import Fields
from kvlib.caches.spec import LayerSpec
from kvlib.codecs.base import Codec


class Residual:
    """The newest tokens of one request in one layer, as they came, until their group is full.

    both: keys (Hkv, room, Dk), and values (Hkv, room, Dv) unless they are taken from the keys.
    previous: the same before the last step moved tokens from them into the pages, kept until the
    next plan, so that the step can be taken back; else None.
    """

    __slots__ = ("both", "previous")

    def __init__(self, xp: Any, spec: LayerSpec, room: int, dtype: Any) -> None:
        dims = (spec.head_dim,) if spec.v_from_k else (spec.head_dim, spec.v_dim)
        self.both = [xp.empty((spec.num_kv_heads, room, dim), dtype=dtype) for dim in dims]
        self.previous: list[Array] | None = None

    def copy(self) -> Residual:
        """The same tokens for a fork, in arrays of their own."""
        new = copy(self)
        new.both, new.previous = [namespace(x).asarray(x, copy=True) for x in self.both], None
        return new

    def arrays(self) -> list[Array]:
        return [*self.both, *(self.previous or ())]


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

    def nbytes(self, tokens: int) -> int:
        """Bytes of so many tokens (a multiple of the group) in the pages."""
        return sum(fields.nbytes(tokens) for fields in self.both)

    def new_residual(self) -> Residual:
        """Room for the tokens of a request that wait."""
        return Residual(self.xp, self.spec, self.codec.residual + self.codec.group, self.dtype)

    def write(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        span: tuple[int, int],
        coded: tuple[int, int],
        new: Sequence[Array],
    ) -> int:
        """Store tokens span[0] ... span[1] of a request: keys (Hkv, n, Dk), values (Hkv, n, Dv).

        coded: how many of its first tokens were codes before, and are to be now. All are counted
        from the first token that is stored. Gives the bytes written.
        """
        (start, end), (before, after) = span, coded
        if residual is None:
            both = zip(self.both, new, strict=True)
            return sum(fields.write(pages, start, x) for fields, x in both)
        if after == before:
            for old, x in zip(residual.both, new, strict=True):
                old[:, start - before : end - before, :] = x
            return sum(nbytes(x) for x in new)
        written, kept = 0, []
        for fields, old, x in zip(self.both, residual.both, new, strict=True):
            x = self.xp.concat([old[:, : start - before, :], x], axis=1)
            waiting = x[:, after - before :, :]
            written += fields.write(pages, before, x[:, : after - before, :]) + nbytes(waiting)
            room = self.xp.empty(old.shape, dtype=self.dtype)
            room[:, : end - after, :] = waiting
            kept.append(room)
        residual.both, residual.previous = kept, residual.both
        return written

    def longer(self, tokens: int) -> Store:
        """A store of one page of so many tokens, for layers of this shape."""
        return Store(self.xp, self.codec, self.spec, 1, tokens, self.dtype)

    def move(self, source: Store, origin: int, target: int, first: int, tokens: int) -> int:
        """Tokens of a page of `source` to the front of a page of this store; the bytes copied."""
        both = zip(self.both, source.both, strict=True)
        return sum(mine.move(other, origin, target, first, tokens) for mine, other in both)

    def gather_into(
        self, pages: Sequence[int], which: list[int], target: Sequence[int], at: int
    ) -> int:
        """Stored tokens number `which` of some pages, to slot `at` and on in others.

        For codecs that write each token alone. The pages may be the same. Gives the bytes copied.
        """
        return sum(fields.gather_into(pages, which, target, at) for fields in self.both)

    def decoded(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        coded: int,
        length: int,
        as_view: bool = False,
    ) -> tuple[Array, Array]:
        """All that is held of a request: k (Hkv, S, Dk), v (Hkv, S, Dv).

        coded, length: counted from the first token that is stored. as_view: plain numbers of one
        page, as they lie.
        """
        found = []
        for n, fields in enumerate(self.both):
            if as_view:
                x = fields.arrays["x"][pages[0], :, :length, :]
            else:
                parts = fields.gather(pages[: -(-coded // self.size)], coded)
                x = fields.codec.decode(parts, self.dtype)
                if residual is not None:
                    x = self.xp.concat([x, residual.both[n][:, : length - coded, :]], axis=1)
            found.append(x)
        return found[0], found[-1][..., : self.spec.v_dim]
