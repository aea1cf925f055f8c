"""Run a launch on a graphics card, through CuPy's RawModule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.launch import Launch
from kvlib.kernels.source import Kernel, source_of


class Device(NamedTuple):
    """What launch choices ask of a device.

    sms  streaming multiprocessors   shared  bytes of shared memory that a block may ask for
    """

    name: str
    sms: int
    shared: int


# What plans assume where there is no device (NVIDIA's data sheet; an H100 is alike here).
H200 = Device("NVIDIA H200", 132, 227 * 1024)


SHARED = 48 * 1024  # bytes of shared memory that a block has without asking


def here() -> Device:
    """The current CUDA device. Raises what CuPy raises where there is none."""
    import cupy

    return _device(int(cupy.cuda.Device().id))


@cache
def _device(index: int) -> Device:
    import cupy

    found = cupy.cuda.runtime.getDeviceProperties(index)
    name, sms = found["name"].decode(), int(found["multiProcessorCount"])
    return Device(name, sms, int(found["sharedMemPerBlockOptin"]))


def run(launch: Launch) -> None:
    """Start a launch on CuPy's current stream; arrays are CuPy's. Does not wait for it."""
    function = _function(launch.kernel, launch.shared if launch.shared > SHARED else 0)
    args = tuple(np.uintp(0) if x is None else x for x in launch.args)
    function(launch.grid, (launch.threads, 1, 1), args, shared_mem=launch.shared)


def prepare(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Compile kernels for this device side by side; CuPy keeps them on the disk for whoever asks.

    Gives each kernel as it is done. A first call compiles its own kernel, which takes a second.
    """
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
