"""Kernels to look at: your own CUDA C++, and three ways to read keys."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import check_integer, check_list, describe, number
from kvlib.kernels import checks, engine
from kvlib.kernels.launch import Launch
from kvlib.kernels.processor import Traffic
from kvlib.kernels.source import Kernel

MOST_THREADS, MOST_BLOCKS = 1024, 2**31 - 1


def run_cuda(
    text: str,
    name: str,
    grid: Sequence[int],
    threads: int,
    *args: Any,
    shared: int = 0,
    run_on: str | None = None,
    seconds: float = 10.0,
) -> Traffic | None:
    """Compile CUDA C++ source and run one of its kernels on arrays.

    text: the source. It begins with ``#include "portable.cuh"``, may include other files of
    kvlib/kernels/cuda, and touches arrays through ``load(pointer)`` and ``store(pointer, x)``.
    name: the kernel, with its template arguments if it has any: ``decode<64>``.
    grid: one, two or three numbers of blocks   threads: per block   shared: bytes of shared memory
    args: arrays, NumPy scalars of the exact C type, and None for a null pointer, in order. The
    kernel writes into the arrays.
    run_on: "processor" for NumPy arrays, "device" for CuPy's; the arrays decide by default.

    On the processor, returns the :class:`~kvlib.kernels.processor.Traffic`: bytes, and sectors of
    32 bytes that warps touched. The kernel runs in a separate process, for at most `seconds`, so
    that a mistake in it does not end yours. Raises KernelError if the source does not compile or
    touches memory outside of the arrays, and ValueError or TypeError for arguments that do not fit.

    >>> import numpy as np
    >>> text = '''
    ... #include "portable.cuh"
    ... __global__ void twice(float* x) {
    ...     float* mine = x + blockIdx.x * blockDim.x + threadIdx.x;
    ...     store(mine, 2 * load(mine));
    ... }'''
    >>> x = np.arange(64, dtype=np.float32)
    >>> traffic = run_cuda(text, "twice", (2,), 32, x)
    >>> x[:4], traffic.requests, traffic.sectors  # two warps: a load and a store each
    (array([0., 2., 4., 6.], dtype=float32), 4, 16)
    """
    arrays = [x for x in args if hasattr(x, "shape") and not isinstance(x, np.generic)]
    if not arrays:
        raise ValueError("a kernel needs an array to write its results into, got none")
    blocks = check_list("grid", grid, "one to three numbers of blocks")
    if not 1 <= len(blocks) <= 3:
        raise ValueError(f"grid must be one to three numbers above 0, got {describe(grid)}")
    sizes = (*(check_integer("grid", n, most=MOST_BLOCKS) for n in blocks), 1, 1)
    threads = check_integer("threads", threads, most=MOST_THREADS)
    shared = check_integer("shared", shared, 0, MOST_BLOCKS)
    if not 0 < (limit := number(seconds)) < math.inf:
        raise ValueError(f"seconds must be a finite number above 0, got {describe(seconds)}")
    launch = Launch(
        Kernel("own", name, text), (sizes[0], sizes[1], sizes[2]), threads, shared, args
    )
    on_host = isinstance(arrays[0], np.ndarray)
    if engine.engine_of(run_on or ("processor" if on_host else None), *arrays) == "device":
        engine.start("device", launch)
        return None
    from kvlib.kernels.processor.isolated import run_isolated

    return run_isolated(launch, seconds=limit)


WAYS = ("a_thread_a_key", "a_warp_a_key", "sixteen_bytes_a_lane")
THREADS = 128


def read_keys(way: str, keys: np.ndarray) -> tuple[float, Traffic]:
    """Add up keys (N, D) float32 by a kernel, run on the processor; returns the sum and Traffic.

    way: how its threads read them: "a_thread_a_key", "a_warp_a_key" or "sixteen_bytes_a_lane".
    Raises ValueError for another way, if D is not a multiple of 4, or if the keys are not
    contiguous; TypeError for numbers of another type.

    >>> import numpy as np
    >>> keys = np.ones((32, 64), np.float32)
    >>> for way in ("a_thread_a_key", "sixteen_bytes_a_lane"):  # the same sum, the same bytes
    ...     total, traffic = read_keys(way, keys)
    ...     print(way, total, f"{traffic.efficiency:.0%} of the bytes moved were asked for")
    a_thread_a_key 2048.0 13% of the bytes moved were asked for
    sixteen_bytes_a_lane 2048.0 100% of the bytes moved were asked for
    """
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(WAYS)}, got {way!r}")
    checks.check_array("keys", keys, "N D", {}, "float32")
    n, dim = keys.shape
    if dim % 4:
        raise ValueError(f"keys must have a multiple of 4 numbers, got {dim}")
    blocks = -(-n // THREADS)
    out = np.full(blocks * THREADS, np.nan, dtype=np.float32)
    args = (out, keys, np.int32(n), np.int32(dim))
    launch = Launch(Kernel("loads", way), (blocks, 1, 1), THREADS, 0, args)
    (traffic,) = engine.start("processor", launch)
    return float(out.sum(dtype=np.float64)), traffic


def instantiations() -> list[Kernel]:
    return [Kernel("loads", way) for way in WAYS]
