"""One launch of a kernel as plain data, and what it asked of memory: both without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.source import Kernel

SECTOR = 32  # bytes that a graphics card moves at the least


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


class Traffic(NamedTuple):
    """What a launch asked of memory. Lanes of a warp that load together make one request.

    requests   loads and stores of whole warps
    sectors    pieces of 32 bytes that these touched, counted once a request
    bytes      that the lanes asked for
    read, written   bytes by argument, in the order of `Launch.args`
    """

    requests: int
    sectors: int
    bytes: int
    read: tuple[int, ...]
    written: tuple[int, ...]

    @property
    def efficiency(self) -> float:
        """Bytes asked for over bytes moved; 1 where every sector is used whole."""
        return self.bytes / (SECTOR * self.sectors) if self.sectors else 1.0


def arrays_of(launch: Launch) -> list[np.ndarray]:
    """The arrays among a launch's arguments. Raises ValueError for one not in one piece."""
    handed = [x for x in launch.args if isinstance(x, np.ndarray)]
    for i, x in enumerate(handed):
        if not x.flags.c_contiguous:
            raise ValueError(
                f"array {i} of {launch.kernel.name} must lie in one piece; pass a copy"
            )
    return handed
