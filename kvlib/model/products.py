"""x Wᵀ in the form that NumPy's BLAS computes fastest: it depends on the number of rows.

A BLAS first copies a matrix into blocks that suit its registers, which for a few rows takes longer
than the product. Measured with OpenBLAS 0.3.31 (benchmarks/linear.py, benchmarks/decode.py); the
result is the same sum in another order.
"""

import itertools
import os
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from kvlib.blas import SMALL_PRODUCT, multiplies_small, threads

Submit = Callable[..., Callable[[], None]]
CACHED_BYTES = 4 << 20  # of weights, read once and multiplied by several rows while still cached
NEAR_BYTES = 1 << 20  # the same with one thread: a block stays in the cache of its core
ALONG_ROWS = 28  # rows of x up to which the numbers of a row are multiplied side by side
ALONG_PRODUCT = 200_000  # multiplications up to which that is the faster way
# Rows of x → a number of rows that takes less time: registers hold four rows, then 32.
FILLED = {n: n + 1 for n in range(3, ALONG_ROWS, 4)} | dict.fromkeys((29, 30, 31), 32)
LARGE_BYTES = 2 << 20  # weights from which splitting a product between threads pays
LEAD_BYTES = 3 << 17  # of weights that the caller reads while a thread that slept wakes up


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x (T, in), weight (out, in) → x Wᵀ (T, out), C-contiguous, for T of at least 2.

    The first of these that applies:

    * A weight of LARGE_BYTES, and T up to 40 if OpenBLAS has kernels for small products
      (`multiplies_small`), or 8 to 32 with several threads: many small products, which aren't
      copied first. Our threads share them. The kernels are slow at some T, so `FILLED` adds zeros.
    * T up to 7, or up to 10 with one thread and a weight of LARGE_BYTES: a matrix-vector product
      for each row, over a few MB of the weight at a time, so that it's read from memory once. A
      row then gets the same bits as alone, if the weight is larger than such a block and ``out`` is
      a multiple of 256.
    * T from 8 to 64: W xᵀ, transposed, because OpenBLAS splits that between threads along W.
    * Otherwise: x Wᵀ in one call.
    """
    t = x.shape[0]
    small = t <= 40 if multiplies_small() else 8 <= t <= 32 and threads() > 1
    if small and weight.nbytes >= LARGE_BYTES:
        return _in_small_products(x, weight)
    if 2 <= t <= 7 or (8 <= t <= 10 and threads() == 1 and weight.nbytes >= LARGE_BYTES):
        return _row_by_row(x, weight)
    if 8 <= t <= 64:
        return np.ascontiguousarray((weight @ x.T).T)
    return x @ weight.T


def _row_by_row(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    # In multiples of 256 rows, so that BLAS cuts the rows at the same indices with and without.
    cached = CACHED_BYTES if threads() > 1 else NEAR_BYTES
    block = max(256, cached // (weight.shape[1] * weight.itemsize) // 256 * 256)
    out = weight.shape[0]
    if block >= out:
        return (x[:, None, :] @ weight.T)[:, 0, :]
    y = np.empty((x.shape[0], out), dtype=x.dtype)
    for a in range(0, out, block):
        y[:, a : a + block] = (x[:, None, :] @ weight[a : a + block, :].T)[:, 0, :]
    return y


@cache
def _helpers() -> Submit:
    """Threads that multiply: ``submit(a, b, out)`` returns a function that waits for the result."""
    jobs: SimpleQueue[Any] = SimpleQueue()

    def work() -> None:
        while True:
            factors, done = jobs.get()
            try:
                np.matmul(*factors)
                done.put(None)
            except BaseException as error:  # the caller raises it
                done.put(error)
            del factors, done  # while this thread waits, it keeps no caller's arrays alive

    def submit(*factors: np.ndarray) -> Callable[[], None]:
        done: SimpleQueue[BaseException | None] = SimpleQueue()
        jobs.put((factors, done))

        def wait() -> None:
            if (error := done.get()) is not None:
                raise error

        return wait

    for _ in range(threads() - 1):
        threading.Thread(target=work, name="kvlib-product", daemon=True).start()
    return submit


if hasattr(os, "register_at_fork"):  # a forked child has the queues and none of the threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def _in_small_products(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """W xᵀ by blocks of rows of W: one call a thread, each of many small products."""
    t, column = x.shape[0], x.T  # (in, T)
    size = ALONG_PRODUCT
    if multiplies_small() and t in FILLED:
        column = np.zeros((FILLED[t], x.shape[1]), x.dtype).T
        column[:, :t] = x.T
    if not multiplies_small() or column.shape[1] > ALONG_ROWS:
        column, size = np.ascontiguousarray(column), SMALL_PRODUCT
    (width, columns), out = column.shape, weight.shape[0]
    # A power of two, because it divides the sizes that models have.
    rows = 1 << max(3, (size // (columns * width)).bit_length() - 1)
    blocks, in_blocks = out // rows, out // rows * rows
    y = np.empty((out, columns), dtype=np.result_type(x, weight))
    parts = weight[:in_blocks].reshape(blocks, rows, width)
    results = y[:in_blocks].reshape(blocks, rows, columns)
    others = threads() - 1
    share = -(-(parts.nbytes + others * LEAD_BYTES) // (others + 1))
    callers = min(blocks, -(-share * blocks // max(1, parts.nbytes)))
    cuts = [callers + (blocks - callers) * i // others for i in range(others + 1)] if others else []
    waiting = [
        _helpers()(parts[a:b], column, results[a:b]) for a, b in itertools.pairwise(cuts) if a < b
    ]
    np.matmul(parts[:callers], column, out=results[:callers])
    if in_blocks < out:
        np.matmul(weight[in_blocks:], column, out=y[in_blocks:])
    for wait in waiting:
        wait()
    return np.ascontiguousarray(y.T[:t])
