"""Pages of encoded keys and values, and the newest tokens that are not encoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvlib.arrays import Array, nbytes
from kvlib.caches.fields import Fields
from kvlib.caches.spec import LayerSpec
from kvlib.codecs.base import Codec


class Residual:
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

    def new_residual(self) -> Residual | None:
        """Room for the tokens of a request that wait, if any ever do."""
        if not self.codec.waits:
            return None
        return Residual(self.xp, self.spec, self.codec.residual + self.codec.group, self.dtype)

    def write(
        self,
        pages: Sequence[int],
        residual: Residual | None,
        span: tuple[int, int],
        coded: tuple[int, int],
        k: Array,
        v: Array | None,
    ) -> int:
        """Store k (Hkv, n, Dk) and v (Hkv, n, Dv) as the tokens span[0] ... span[1] of a request.

        coded: how many of its first tokens were codes before, and are to be now. All are counted
        from the first token that is stored. Gives the bytes written.
        """
        (start, end), (before, after) = span, coded
        new = [(self.keys, k)] if v is None else [(self.keys, k), (self.values, v)]
        if residual is None:
            return sum(fields.write(pages, start, x) for fields, x in new)
        olds = [residual.k, residual.v]
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
        residual.previous = (residual.k, residual.v)
        residual.k, residual.v = kept
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
        """Stored tokens number `which` of some pages, to place `at` and on in others.

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
        if as_view:
            k, v = (x.arrays["x"][pages[0], :, :length, :] for x in (self.keys, self.values))
            return k, v[..., : self.spec.v_dim]
        k = self._whole(self.keys, pages, coded, residual and residual.k, length)
        if self.spec.v_from_k:
            return k, k[..., : self.spec.v_dim]
        return k, self._whole(self.values, pages, coded, residual and residual.v, length)

    def _whole(
        self, fields: Fields, pages: Sequence[int], coded: int, kept: Array | None, length: int
    ) -> Array:
        parts = fields.gather(pages[: -(-coded // self.size)], coded)
        x = fields.codec.decode(parts, self.dtype)
        if kept is not None:
            return self.xp.concat([x, kept[:, : length - coded, :]], axis=1)
        return x
