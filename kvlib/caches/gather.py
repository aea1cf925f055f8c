"""The pieces of a paged request: its blocks one by one, or several gathered into one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.arrays import Array, is_numpy, itemsize
from kvlib.caches.spec import LayerSpec

VIEWED = 64  # tokens from which a block is a piece of its own: as it lies, nothing is copied
GATHERED = 256  # tokens that smaller blocks are gathered into: stays in the processor's cache


class BlockPieces:
    """Blocks of one request in one layer, read from the block that holds `first` to `end`.

    keys (N, Hkv, block_size, Dk), values (N, Hkv, block_size, Dv); dtype: of the queries, which
    narrower keys are widened to, a piece at a time.
    """

    def __init__(
        self,
        xp: Any,
        keys: Array,
        values: Array,
        spec: LayerSpec,
        blocks: Sequence[int],
        first: int,
        end: int,
        dtype: Any,
    ) -> None:
        self.xp, self.keys, self.values, self.spec, self.dtype = xp, keys, values, spec, dtype
        self.num_kv_heads, self.v_dim = spec.num_kv_heads, spec.v_dim
        size = keys.shape[2]
        together = 1 if size >= VIEWED else max(1, GATHERED // size)
        used = range(first // size, -(-end // size), together)
        self.blocks = [blocks[n : n + together] for n in used]
        self.spans = [(n * size, min((n + together) * size, end)) for n in used]
        self._buffer: dict[int, Array] = {}

    def scores(self, i: int, rows: Array) -> Array:
        return self.xp.matmul(rows, self._piece(self.keys, i).mT)

    def weigh(self, i: int, p: Array) -> Array:
        if self.spec.v_from_k:
            return self.xp.matmul(p, self._piece(self.keys, i)[..., : self.v_dim])
        return self.xp.matmul(p, self._piece(self.values, i))

    def nbytes(self, i: int) -> int:
        a, b = self.spans[i]
        dims = self.spec.head_dim + (0 if self.spec.v_from_k else self.v_dim)
        return (b - a) * self.num_kv_heads * dims * itemsize(self.xp, self.keys.dtype)

    def _piece(self, whole: Array, i: int) -> Array:
        """(N, Hkv, block_size, D) → the n tokens of piece i as (Hkv, n, D)."""
        a, b = self.spans[i]
        if len(self.blocks[i]) == 1:
            piece = whole[self.blocks[i][0], :, : b - a, :]
        else:
            piece = self._gather(whole, self.blocks[i])[:, : b - a, :]
        return piece if piece.dtype == self.dtype else self.xp.astype(piece, self.dtype)

    def _gather(self, whole: Array, blocks: Sequence[int]) -> Array:
        xp, (_, heads, size, dim) = self.xp, whole.shape
        # As rows of one head in one block, so that a head's tokens come out one after the other
        index = xp.asarray(blocks, dtype=xp.int64)[None, :] * heads
        index = index + xp.arange(heads, dtype=xp.int64)[:, None]
        flat = xp.reshape(whole, (-1, size * dim))
        if is_numpy(xp):
            shape = (heads, len(blocks), size * dim)
            # mode: NumPy copies into `out` without a buffer of its own; a block is never outside
            piece = flat.take(index, axis=0, out=self._room(shape, whole.dtype), mode="clip")
        else:
            piece = xp.take(flat, xp.reshape(index, (-1,)), axis=0)
        return xp.reshape(piece, (heads, len(blocks) * size, dim))

    def _room(self, shape: tuple[int, ...], dtype: Any) -> Array:
        key = shape[1] * shape[2]
        if key not in self._buffer:
            self._buffer[key] = self.xp.empty(shape, dtype=dtype)
        return self._buffer[key]
