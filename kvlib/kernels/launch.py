"""One launch of a kernel as plain data, and how a GPU runs it, through CuPy's RawModule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.source import Kernel, source_of

SECTOR = 32  # bytes that a graphics card moves at the least
SHARED = 48 * 1024  # bytes of shared memory that a block has without asking


@dataclass(frozen=True)
class Launch:
    """A kernel, its blocks and threads, and its arguments.

    grid (x, y, z) blocks   threads a block   shared: bytes of shared memory a block
    args: arrays, NumPy scalars of the exact C type, and None for a null pointer, in order
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    shared: int
    args: tuple[Any, ...]


class Traffic(NamedTuple):
    """Memory accesses of a launch. Lanes of a warp that load together make one request.

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
    """The arrays of a launch. Raises ValueError unless contiguous, TypeError for other things."""
    arrays: list[np.ndarray] = []
    for x in launch.args:
        if isinstance(x, np.ndarray):
            if not x.flags.c_contiguous:
                words = f"array {len(arrays)} of {launch.kernel.name} must be contiguous"
                raise ValueError(f"{words}; pass a copy")
            arrays.append(x)
        elif x is not None and not isinstance(x, np.generic):
            raise TypeError(f"an argument must be an array, a NumPy scalar or None, got {x!r}")
    return arrays


class Device(NamedTuple):
    """sms: streaming multiprocessors   shared: bytes of it that a block may ask for"""

    name: str
    sms: int
    shared: int


# What plans assume where there is no device (NVIDIA's data sheet; an H100 is alike here).
H200 = Device("NVIDIA H200", 132, 227 * 1024)


def device_of(run_on: str) -> Device:
    """The device that launches are planned for: the current one, or an H200 if none runs them."""
    return here() if run_on == "device" else H200


def here() -> Device:
    """The current CUDA device. Raises what CuPy raises where there is none."""
    import cupy

    return _device(int(cupy.cuda.Device().id))


@cache
def _device(index: int) -> Device:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(index)
    name, sms = properties["name"].decode(), int(properties["multiProcessorCount"])
    return Device(name, sms, int(properties["sharedMemPerBlockOptin"]))


def run(launch: Launch) -> None:
    """Start a launch on CuPy's current stream; arrays are CuPy's. Does not wait for it."""
    function = _function(launch.kernel, launch.shared if launch.shared > SHARED else 0)
    args = tuple(np.uintp(0) if x is None else x for x in launch.args)
    function(launch.grid, (launch.threads, 1, 1), args, shared_mem=launch.shared)


def prepare(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Compile kernels for this device in parallel, yielding each; CuPy caches them on disk."""
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_compiled, kernels)


def _compiled(kernel: Kernel) -> Kernel:
    _function(kernel, 0)
    return kernel


@cache
def _function(kernel: Kernel, shared: int) -> Any:
    """shared: bytes a block, where they are more than a block has without asking."""
    import cupy

    module = cupy.RawModule(
        code=source_of(kernel), options=("--std=c++17",), name_expressions=(kernel.name,)
    )
    function = module.get_function(kernel.name)
    if shared:
        function.max_dynamic_shared_size_bytes = shared
    return function
