"""x Wᵀ in the form that NumPy's BLAS computes fastest: it depends on the number of rows.

Decoding is bound by reading weights, and a BLAS is made for many rows: it first copies a matrix
into blocks that suit its registers, which for a few rows takes longer than the product. Measured
with OpenBLAS 0.3.31 (benchmarks/linear.py, benchmarks/decode.py); the result is the same sum in
another order.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

CACHED_BYTES = 4 << 20  # of weights, read once and multiplied by several rows while still cached
NEAR_BYTES = 1 << 20  # the same with one thread: a block stays in the cache of its core
SMALL_PRODUCT = 1_000_000  # multiplications up to which OpenBLAS multiplies without copying first
ALONG_ROWS = 28  # rows of x up to which the numbers of a row are multiplied side by side
ALONG_PRODUCT = 200_000  # multiplications up to which that is the faster way
# Rows of x → a number of rows that takes less time: registers hold four rows, then 32.
FILLED = {n: n + 1 for n in range(7, ALONG_ROWS, 4)} | dict.fromkeys((29, 30, 31), 32)
LARGE_BYTES = 2 << 20  # weights from which splitting a product between threads pays


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x (T, in), weight (out, in) → x Wᵀ (T, out), C-contiguous.

    * 1 row: a matrix-vector product.
    * 2 to 40 rows of a large matrix, where OpenBLAS has kernels for small products
      (`multiplies_small`): products too small for it to copy or to share between threads, shared
      between threads here. With several threads, 8 to 32 rows elsewhere, too. Kernels for small
      products are slow at some numbers of rows (`FILLED`), so rows of zeros are added to those.
    * 2 to 7 rows otherwise, and up to 10 of a large matrix with one thread: as many matrix-vector
      products, over a few MB of weights at a time, so that they are read from memory once. Each
      row gets the very bits it would get alone (for weights larger than such a block, where
      ``out`` is a multiple of 256).
    * 8 to 64 rows otherwise: W xᵀ, which OpenBLAS splits between threads along W, transposed.
    * More: one product.
    """
    t = x.shape[0]
    if t == 1:
        return np.matmul(weight, x[0, :])[None, :]
    small = t <= 40 if multiplies_small() else 8 <= t <= 32 and threads() > 1
    if small and t > 1 and weight.nbytes >= LARGE_BYTES:
        return _in_small_products(x, weight)
    if 2 <= t <= 7 or (8 <= t <= 10 and threads() == 1 and weight.nbytes >= LARGE_BYTES):
        return _row_by_row(x, weight)
    if 8 <= t <= 64:
        return np.ascontiguousarray((weight @ x.T).T)
    return x @ weight.T


@cache
def threads() -> int:
    """Threads that products may use: the processor's, or fewer if the environment says so."""
    limits = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([here or 1, *(int(n) for n in limits if n.isdigit() and int(n) > 0)])


@cache
def multiplies_small() -> bool:
    """Whether OpenBLAS has kernels that multiply small matrices without copying them first.

    It has them for processors with AVX-512, unless the environment chooses kernels of others.
    """
    features = import_module("numpy._core._multiarray_umath").__cpu_features__
    wide = bool(features.get("AVX512_SKX"))  # as np.show_runtime() prints them
    chosen = os.environ.get("OPENBLAS_CORETYPE") or "SkylakeX"
    return wide and chosen.lower() in ("skylakex", "cooperlake", "sapphirerapids")


def _row_by_row(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    # In multiples of 256 rows, so that BLAS cuts the rows in the same places with and without.
    cached = CACHED_BYTES if threads() > 1 else min(NEAR_BYTES, CACHED_BYTES)
    block = max(256, cached // (weight.shape[1] * weight.itemsize) // 256 * 256)
    out = weight.shape[0]
    if block >= out:
        return (x[:, None, :] @ weight.T)[:, 0, :]
    y = np.empty((x.shape[0], out), dtype=x.dtype)
    for a in range(0, out, block):
        y[:, a : a + block] = (x[:, None, :] @ weight[a : a + block, :].T)[:, 0, :]
    return y


@cache
def _helpers() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # 3 ms that importing kvlib need not take

    return ThreadPoolExecutor(threads() - 1, thread_name_prefix="kvlib-product")


if hasattr(os, "register_at_fork"):  # a forked child has the pool and none of its threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def _in_small_products(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """W xᵀ by blocks of rows of W: one call a thread, each of many small products.

    OpenBLAS's kernels for small products fill their registers with numbers of one row where x is
    given as it lies, and with numbers of several rows where it is laid out as columns.
    """
    given, column = x.shape[0], x.T  # (in, T)
    size = ALONG_PRODUCT
    if multiplies_small() and given in FILLED:
        column = np.zeros((FILLED[given], x.shape[1]), x.dtype).T
        column[:, :given] = x.T
    if not multiplies_small() or column.shape[1] > ALONG_ROWS:
        column, size = np.ascontiguousarray(column), SMALL_PRODUCT
    (width, t), out = column.shape, weight.shape[0]
    # A power of two, because it divides the sizes that models have.
    rows = 1 << max(3, (size // (t * width)).bit_length() - 1)
    blocks, whole = out // rows, out // rows * rows
    y = np.empty((out, t), dtype=np.result_type(x, weight))
    parts = weight[:whole].reshape(blocks, rows, width)
    results = y[:whole].reshape(blocks, rows, t)
    cuts = [blocks * i // threads() for i in range(threads() + 1)]
    waiting = [
        _helpers().submit(np.matmul, parts[a:b], column, results[a:b])
        for a, b in zip(cuts[1:-1], cuts[2:], strict=True)
    ]
    np.matmul(parts[: cuts[1]], column, out=results[: cuts[1]])
    if whole < out:
        np.matmul(weight[whole:], column, out=y[whole:])
    for done in waiting:
        done.result()
    return np.ascontiguousarray(y.T[:given])
