"""The CUDA kernels on a processor: the same sources through a C++ compiler, no graphics card.

A thread is a fiber, and a kernel far slower than on a device; but every load is checked against the
arrays of the launch, sectors of memory are counted, and another order of threads shows a race.
"""

import ctypes
from typing import Any

import numpy as np

from kvlib.kernels.launch import Boxes, Launch, Traffic, arrays_of
from kvlib.kernels.processor.child import call
from kvlib.kernels.processor.compiled import KernelError, compiler, library
from kvlib.kernels.processor.isolated import check_first_run
from kvlib.kernels.source import Kernel

__all__ = ["KernelError", "Traffic", "arrays_of", "compiler", "library", "run"]

_entries: dict[Kernel, Any] = {}


def run(launch: Launch, *, first: int = 0, stride: int = 1) -> Traffic:
    """Run every block of a launch on NumPy arrays, writing into them; gives what was moved.

    Threads of a block take turns in the order (i · stride + first) mod threads. Raises KernelError
    for an access outside of the arrays or off its alignment, for shared memory written beyond its
    end, for threads that wait for others that never come, and if the kernel does not compile or its
    first run, which is tried in another process, ends that process; ValueError for arrays that do
    not contiguous; ImportError without a compiler.
    """
    arrays = [(x.ctypes.data, x.nbytes) for x in arrays_of(launch)]
    size, cells = (launch.grid, launch.threads, launch.shared), [_cell(x) for x in launch.args]
    status, text, counts, read, written = call(
        _entry(launch), size, cells, arrays, first % launch.threads, stride
    )
    if status:
        raise KernelError(f"{launch.kernel.name}: {text}")
    return Traffic(*counts, tuple(read), tuple(written))


def _cell(x: Any) -> Any:
    """The bytes of one argument, kept alive: a pointer, or a number of the argument's type."""
    if x is None:
        return ctypes.c_void_p(None)
    if isinstance(x, np.ndarray):
        return ctypes.c_void_p(x.ctypes.data)
    if isinstance(x, Boxes):
        head, rest = ctypes.c_void_p(x.array.ctypes.data), (ctypes.c_int * 4)(*x.sizes, x.rows)
        return (ctypes.c_char * 24).from_buffer_copy(bytes(head) + bytes(rest))
    return (ctypes.c_char * x.nbytes).from_buffer_copy(x.tobytes())


def _entry(launch: Launch) -> Any:
    """The compiled kernel. A launch that meets it first runs in another process before."""
    kernel = launch.kernel
    if kernel not in _entries:
        with library(kernel) as (path, fresh):
            if fresh:
                check_first_run(launch, path)
            try:
                _entries[kernel] = ctypes.CDLL(str(path)).kvlib_run
            except OSError as error:
                raise KernelError(
                    f"{kernel.name}: its library does not load ({error}); delete {path}"
                ) from None
    return _entries[kernel]
