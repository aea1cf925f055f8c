"""What is known of NumPy's BLAS: how many threads it may use, and which products it is quick at."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

SMALL_PRODUCT = 1_000_000  # multiplications up to which OpenBLAS multiplies without copying first


@cache
def threads() -> int:
    """Threads that products may use: the processor's, or fewer if the environment says so."""
    limits = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([here or 1, *(int(n) for n in limits if n.isdigit() and int(n) > 0)])


@cache
def multiplies_small() -> bool:
    """Whether OpenBLAS has kernels that multiply small matrices without copying them first.

    It has them for processors with AVX-512, unless the environment chooses kernels of others. They
    use one thread, and wake no other.
    """
    features = import_module("numpy._core._multiarray_umath").__cpu_features__
    wide = bool(features.get("AVX512_SKX"))  # as np.show_runtime() prints them
    chosen = os.environ.get("OPENBLAS_CORETYPE") or "SkylakeX"
    return wide and chosen.lower() in ("skylakex", "cooperlake", "sapphirerapids")
