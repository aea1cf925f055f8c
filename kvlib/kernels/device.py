"""Run a launch on a graphics card, through CuPy's RawModule."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.launch import Launch
from kvlib.kernels.source import Kernel, source


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


@cache
def _function(kernel: Kernel, shared: int) -> Any:
    """shared: bytes a block, where they are more than a block has without asking."""
    import cupy

    module = cupy.RawModule(
        code=source(kernel.unit), options=("--std=c++17",), name_expressions=(kernel.name,)
    )
    function = module.get_function(kernel.name)
    if shared:
        function.max_dynamic_shared_size_bytes = shared
    return function
