"""One launch of a kernel as plain data, and how a GPU runs it, through CuPy's RawModule."""

import ctypes
import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.source import ONLY, Kernel, source_of

SECTOR = 32  # bytes that a graphics card moves at the least
SHARED = 48 * 1024  # bytes of shared memory that a block has without asking


@dataclass(frozen=True)
class Launch:
    """A kernel, its blocks and threads, and its arguments.

    grid (x, y, z) blocks   threads a block   shared: bytes of shared memory a block
    args: arrays, NumPy scalars of the exact C type, Boxes, and None for a null pointer, in order
    early: whether it may start before the launch before it has ended, because its kernel calls
    `wait_for_previous` (portable.cuh) before it reads what that one writes
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    shared: int
    args: tuple[Any, ...]
    early: bool = False


@dataclass(frozen=True)
class Boxes:
    """16-bit numbers (..., rows, columns) that Hopper's copy engine reads `rows` by 64 at a
    time."""

    array: Any
    rows: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Columns, rows, and blocks of so many."""
        *blocks, rows, columns = self.array.shape
        return columns, rows, math.prod(blocks)


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
        x = x.array if isinstance(x, Boxes) else x
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
    capability: str = ""


# What plans assume where there is no device (NVIDIA's data sheet; an H100 is alike here).
H200 = Device("NVIDIA H200", 132, 227 * 1024, "9.0")


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
    capability = f"{properties['major']}.{properties['minor']}"
    return Device(name, sms, int(properties["sharedMemPerBlockOptin"]), capability)


def run(launch: Launch) -> None:
    """Start a launch on CuPy's current stream; arrays are CuPy's. Does not wait for it."""
    function = _function(launch.kernel, launch.shared if launch.shared > SHARED else 0)
    if launch.early or any(isinstance(x, Boxes) for x in launch.args):
        return _start(function, launch)
    args = tuple(np.uintp(0) if x is None else x for x in launch.args)
    function(launch.grid, (launch.threads, 1, 1), args, shared_mem=launch.shared)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute (cuda.h): which one, padding, and a value of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig: blocks x, y, z, threads x, y, z, shared bytes, stream, attributes."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def _start(function: Any, launch: Launch) -> None:
    """cuLaunchKernelEx, which CuPy has no function for, on CuPy's current stream."""
    import cupy

    values = [_value(x) for x in launch.args]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    early = _Attribute(EARLY)
    early.value[0] = 1
    config = _Config((*launch.grid, launch.threads, 1, 1, launch.shared))
    config.stream = cupy.cuda.get_current_stream().ptr
    config.attributes, config.count = ctypes.pointer(early), int(launch.early)
    status = _driver().cuLaunchKernelEx(
        ctypes.byref(config), ctypes.c_void_p(function.kernel.ptr), pointers, None
    )
    if status:
        raise RuntimeError(f"starting {launch.kernel.name} failed with CUDA error {status}")


def _value(x: Any) -> Any:
    """The bytes of one argument, kept alive."""
    if isinstance(x, Boxes):
        return _encoded(x.array.data.ptr, x.sizes, x.rows)
    if isinstance(x, np.generic):
        return ctypes.create_string_buffer(x.tobytes(), x.nbytes)
    return ctypes.c_void_p(None if x is None else x.data.ptr)


@lru_cache(maxsize=1024)
def _encoded(address: int, sizes: tuple[int, int, int], rows: int) -> Any:
    """A CUtensorMap (cuda.h): 128 bytes, from a multiple of 64 on."""
    room = ctypes.create_string_buffer(192)
    made = (ctypes.c_char * 128).from_buffer(room, -ctypes.addressof(room) % 64)
    row = 2 * sizes[0]
    status = _driver().cuTensorMapEncodeTiled(
        made, 1, 3, ctypes.c_void_p(address),  # numbers of 16 bits, three axes
        (ctypes.c_uint64 * 3)(*sizes), (ctypes.c_uint64 * 2)(row, row * sizes[1]),
        (ctypes.c_uint32 * 3)(64, rows, 1), (ctypes.c_uint32 * 3)(1, 1, 1),
        0, 3, 3, 0,  # no interleaving, swizzle of 128 bytes, 256 bytes into the L2, zeros outside
    )  # fmt: skip
    if status:
        raise RuntimeError(f"describing an array of {sizes} failed with CUDA error {status}")
    return made


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def prepare(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Compile kernels for this device in parallel, yielding each; CuPy caches them on disk."""
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_compiled, kernels)


def _compiled(kernel: Kernel) -> Kernel:
    _function(kernel, 0)
    return kernel


def _function(kernel: Kernel, shared: int) -> Any:
    """Return the compiled kernel, allowed at least `shared` bytes of shared memory per block."""
    function = _loaded(kernel)
    if shared > _allowed.get(kernel, 0):
        function.max_dynamic_shared_size_bytes = _allowed[kernel] = shared
    return function


_allowed: dict[Kernel, int] = {}  # bytes per block; a smaller limit would refuse other launches


@cache
def _loaded(kernel: Kernel) -> Any:
    import cupy

    if kernel.unit in ONLY:
        from kvlib.kernels.nvrtc import machine_code

        path, name = machine_code(kernel)
        return cupy.RawModule(path=str(path)).get_function(name)
    module = cupy.RawModule(
        code=source_of(kernel), options=("--std=c++17",), name_expressions=(kernel.name,)
    )
    return module.get_function(kernel.name)
