"""Products in the order in which NumPy's BLAS is quick, and what is known of it.

OpenBLAS copies both factors into blocks for its registers before it multiplies. With few rows the
long factor goes first: the copy is then of whole stretches, and 2 to 3 times as fast.
"""

import os
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from kvlib.arrays import Array

SMALL_PRODUCT = 1_000_000  # multiplications up to which OpenBLAS multiplies without copying first
DECODE_PIECE = 512  # tokens of a long text taken at a time: their keys fit the processor's cache
CHUNK_PIECE = 1024  # the same for a chunk of queries, whose many rows share what a piece costs
DEVICE_PIECE = 8192  # tokens of a narrower cache widened at a time on a device (a launch costs)
FEW = 32  # rows up to which the long factor goes first


@cache
def threads() -> int:
    """Return how many threads products may use: the processor's, or what the environment says."""
    limits = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([cores or 1, *(int(n) for n in limits if n.isdigit() and int(n) > 0)])


@cache
def multiplies_small() -> bool:
    """Whether OpenBLAS multiplies small matrices uncopied: with AVX-512, unless told otherwise."""
    features = import_module("numpy._core._multiarray_umath").__cpu_features__
    wide = bool(features.get("AVX512_SKX"))  # as np.show_runtime() prints them
    chosen = os.environ.get("OPENBLAS_CORETYPE") or "SkylakeX"
    return wide and chosen.lower() in ("skylakex", "cooperlake", "sapphirerapids")


def piece_of_a_chunk(xp: Any, rows: int, dim: int) -> int:
    """Return how many keys, of `dim` numbers, to take at a time if `rows` rows share a kv head.

    Where OpenBLAS is quick at small products, few rows take small pieces: a larger product wakes
    its threads, which spin for 0.1 s and slow the threads of other products by up to half.
    """
    if xp is not np:
        return DEVICE_PIECE
    if rows > FEW or not multiplies_small():
        return CHUNK_PIECE
    # Pieces of much the same size are cut, so a piece has up to half as many keys again.
    return min(CHUNK_PIECE, max(1, SMALL_PRODUCT * 2 // 3 // max(1, rows * dim)))


def column_major(xp: Any, rows: Array) -> Array:
    """Return rows (..., R, D) in column-major order, which `scores` needn't copy for each piece."""
    if xp is not np or not 1 < rows.shape[-2] <= FEW:
        return rows
    columns = xp.empty(rows.mT.shape, dtype=rows.dtype)
    columns[...] = rows.mT
    return columns.mT


def scores(xp: Any, rows: Array, k: Array) -> Array:
    """rows (..., R, D) · k (..., n, D) → (..., R, n).

    The longer factor goes first, and with 2 to FEW rows the keys: OpenBLAS shares a product between
    threads along its longer side only in that order, and is 2.5 times slower in the other.
    """
    count = rows.shape[-2]
    if xp is np and (1 < count <= FEW or FEW < count < k.shape[-2]):
        return xp.matmul(k, rows.mT).mT
    return xp.matmul(rows, k.mT)


def row_major(xp: Any, s: Array) -> Array:
    """Return scores (..., R, n) in row-major order, so that a softmax runs along each row."""
    return xp.asarray(s, order="C") if xp is np and s.shape[-2] <= FEW else s


def weigh(xp: Any, p: Array, v: Array) -> Array:
    """p (..., R, n) · v (..., n, D) → (..., R, D)."""
    if xp is np and 1 < p.shape[-2] <= 4:
        return xp.matmul(v.mT, p.mT).mT
    return xp.matmul(p, v)
