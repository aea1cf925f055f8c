"""The two products of a decoding query with a piece of keys and values, in the order that is fast.

OpenBLAS copies both factors into blocks for its registers before it multiplies. With few rows the
long factor goes first: the copy is then of whole stretches, and 2 to 3 times as fast. NumPy sees a
transposed factor as an option of the product, so that none is copied twice.
"""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array, is_numpy
from kvlib.blas import SMALL_PRODUCT, multiplies_small

PIECE = 512  # tokens of a long text taken at a time: their keys fit the processor's cache
LONG_PIECE = 1024  # the same for a chunk of queries, whose many rows share what a piece costs
WIDE_PIECE = 8192  # tokens of a narrower cache widened at a time on a device, where a launch costs
FEW = 32  # rows up to which the long factor goes first


def piece_of_a_chunk(xp: Any, rows: int, dim: int) -> int:
    """How many keys to take at a time if `rows` query rows share a kv head.

    dim: numbers of a key or a value, whichever has more. Where OpenBLAS is quick at small products,
    few rows take pieces that give small ones. A larger product wakes OpenBLAS's threads, which spin
    for 0.1 s, and products with weights, which other threads share, then take up to half as long
    again.
    """
    if not is_numpy(xp):
        return WIDE_PIECE
    if rows > FEW or not multiplies_small():
        return LONG_PIECE
    # Pieces of much the same size are cut, so a piece has up to half as many keys again.
    return min(LONG_PIECE, max(1, SMALL_PRODUCT * 2 // 3 // max(1, rows * dim)))


def columns_together(xp: Any, rows: Array) -> Array:
    """The same rows (..., R, D), laid out so that `scores` need not copy them for each piece.

    OpenBLAS's kernels for small products are quicker with this layout, too, and take products of
    twice the size.
    """
    if not is_numpy(xp) or not 1 < rows.shape[-2] <= FEW:
        return rows
    columns = xp.empty(rows.mT.shape, dtype=rows.dtype)
    columns[...] = rows.mT
    return columns.mT


def scores(xp: Any, rows: Array, k: Array) -> Array:
    """rows (..., R, D) · k (..., n, D) → (..., R, n).

    The longer factor goes first: OpenBLAS shares a product between threads along its longer side
    only in that order, and is 2.5 times slower in the other. With few rows it is always the keys.
    """
    count = rows.shape[-2]
    if is_numpy(xp) and (1 < count <= FEW or FEW < count < k.shape[-2]):
        return xp.matmul(k, rows.mT).mT
    return xp.matmul(rows, k.mT)


def rows_together(xp: Any, s: Array) -> Array:
    """The same scores (..., R, n), laid out so that a softmax runs along each row.

    `scores` leaves the numbers of a key together, one for each row. A softmax along rows then loops
    over R numbers at a time. Where R is small, such short loops take longer than the products.
    """
    return xp.asarray(s, order="C") if is_numpy(xp) and s.shape[-2] <= FEW else s


def weigh(xp: Any, p: Array, v: Array) -> Array:
    """p (..., R, n) · v (..., n, D) → (..., R, D)."""
    if is_numpy(xp) and 1 < p.shape[-2] <= 4:
        return xp.matmul(v.mT, p.mT).mT
    return xp.matmul(p, v)
