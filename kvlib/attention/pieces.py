"""What attention reads in place of two arrays: pieces, and the simplest kind, slices of arrays.

Keys may lie in blocks of a pool, or as codes that are decoded as they go. Each piece scores the
queries against its keys and weighs its values, so that no piece but the one at hand is ever
gathered or decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kvlib import blas
from kvlib.arrays import Array, both_nbytes
from kvlib.attention.direct import as_dtype, cap
from kvlib.meter import OPEN, report


class Pieces(Protocol):
    """The keys and values of one request in one layer, at positions 0 ... length − 1.

    spans: the (first, last + 1) positions of each piece, one after the other.
    """

    spans: list[tuple[int, int]]
    num_kv_heads: int
    v_dim: int

    def scores(self, i: int, rows: Array) -> Array:
        """rows (Hkv, R, Dk) · keys of piece i → (Hkv, R, n), an array of the caller's own."""

    def weigh(self, i: int, p: Array) -> Array:
        """p (Hkv, R, n) · values of piece i → (Hkv, R, Dv), an array of the caller's own."""

    def nbytes(self, i: int) -> int:
        """Bytes that piece i takes where it is stored: what reading it costs."""

    def seen(self, low: int, high: int) -> Sequence[int]:
        """Which pieces hold a token of low ... high − 1; asked once for each chunk of queries."""
        return [i for i, (a, b) in enumerate(self.spans) if b > low and a < high]


def score(xp: Any, pieces: Pieces, i: int, rows: Array, softcap: float | None) -> Array:
    """The scores of piece i under the softcap: rows (Hkv, R, Dk) → (Hkv, R, n). Reported."""
    s = cap(xp, pieces.scores(i, rows), softcap)
    if OPEN:
        a, b = pieces.spans[i]
        dims = rows.shape[2] + pieces.v_dim
        flops = 2 * rows.shape[0] * rows.shape[1] * (b - a) * dims
        report("attention", flops=flops, read=pieces.nbytes(i))
    return s


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
