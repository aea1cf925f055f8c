"""One launch of a kernel as plain data: what is chosen can be tested without a graphics card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlib.kernels.source import Kernel


@dataclass(frozen=True)
class Launch:
    """A kernel, how many blocks of how many threads run it, and what it is handed.

    grid (x, y, z) blocks   threads a block   shared: bytes of shared memory a block
    args: arrays, NumPy scalars of the exact C type, and None for a null pointer, in order
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    shared: int
    args: tuple[Any, ...]
