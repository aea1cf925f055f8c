"""Ways to read keys, for looking at: what each asks of memory, counted on the processor."""

from __future__ import annotations

import numpy as np

from kvlib.kernels import checks, engine
from kvlib.kernels.launch import Launch
from kvlib.kernels.processor import Traffic
from kvlib.kernels.source import Kernel

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
    sizes: checks.SIZES = {}
    checks.check_shape("keys", keys, "N D", sizes)
    checks.check_dtype("keys", keys, "float32")
    if sizes["D"] % 4:
        raise ValueError(f"keys must have a multiple of 4 numbers, got {sizes['D']}")
    blocks = -(-sizes["N"] // THREADS)
    out = np.full(blocks * THREADS, np.nan, dtype=np.float32)
    args = (out, keys, np.int32(sizes["N"]), np.int32(sizes["D"]))
    launch = Launch(Kernel("loads", way), (blocks, 1, 1), THREADS, 0, args)
    (traffic,) = engine.start("processor", launch)
    return float(out.sum(dtype=np.float64)), traffic


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    return [Kernel("loads", way) for way in WAYS]
