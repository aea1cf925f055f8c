"""The CUDA kernels on a processor: the same sources through a C++ compiler, no graphics card.

For tests and for looking. A thread is a fiber, and a kernel far slower than on a device; but every
load is checked against the arrays that were handed over, sectors of memory are counted, and the
order of threads can be turned round to show a race.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.launch import Launch
from kvlib.kernels.processor.folder import kept
from kvlib.kernels.source import Kernel, source, source_of

HEADER = Path(__file__).parent / "processor.h"
FLAGS = ("-std=c++17", "-Og", "-shared", "-fPIC", "-w", "-fno-exceptions", "-fno-rtti")
SECTOR = 32  # bytes that a graphics card moves at the least


class KernelError(RuntimeError):
    """A kernel did on a processor what would be undefined on a device."""


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


class _Array(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
    )


def compiler() -> list[str]:
    """The C++ compiler's command: $CXX, c++, g++, clang++, or the one that ziglang carries.

    Raises ImportError where there is none.
    """
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    raise ImportError(
        "running CUDA kernels on a processor needs a C++ compiler: install g++ or clang, "
        "or: pip install ziglang"
    )


def run(launch: Launch, *, first: int = 0, stride: int = 1) -> Traffic:
    """Run every block of a launch on NumPy arrays, writing into them; gives what was moved.

    Threads of a block take turns in the order (i · stride + first) mod threads. Raises KernelError
    for an access outside of the arrays or off its alignment, for shared memory written beyond its
    end, and for threads that wait for others that never come; ValueError for arrays that do not lie
    in one piece.
    """
    handed = arrays_of(launch)
    table = (_Array * max(1, len(handed)))(*(_Array(x.ctypes.data, x.nbytes, 0, 0) for x in handed))
    cells = [_cell(x) for x in launch.args]
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
    grid = (ctypes.c_uint32 * 3)(*launch.grid)
    counts, text = (ctypes.c_uint64 * 3)(), ctypes.create_string_buffer(512)
    status = _entry(launch.kernel)(
        grid, launch.threads, ctypes.c_uint64(launch.shared), pointers, table, len(handed),
        first % launch.threads, stride, counts, text,
    )  # fmt: skip
    if status:
        raise KernelError(f"{launch.kernel.name}: {text.value.decode()}")
    requests, sectors, asked = (int(n) for n in counts)
    return Traffic(
        requests, sectors, asked, tuple(a.read for a in table), tuple(a.written for a in table)
    )


def arrays_of(launch: Launch) -> list[np.ndarray]:
    """The arrays among a launch's arguments. Raises ValueError for one not in one piece."""
    handed = [x for x in launch.args if isinstance(x, np.ndarray)]
    for i, x in enumerate(handed):
        if not x.flags.c_contiguous:
            raise ValueError(
                f"array {i} of {launch.kernel.name} must lie in one piece; pass a copy"
            )
    return handed


def _cell(x: Any) -> Any:
    """The bytes of one argument, kept alive: a pointer, or a number of its own type."""
    if x is None:
        return ctypes.c_void_p(None)
    if isinstance(x, np.ndarray):
        return ctypes.c_void_p(x.ctypes.data)
    if isinstance(x, np.generic):
        return (ctypes.c_char * x.nbytes).from_buffer_copy(x.tobytes())
    raise TypeError(f"an argument must be an array, a NumPy scalar or None, got {x!r}")


@cache
def _entry(kernel: Kernel) -> Any:
    entry = ctypes.CDLL(str(built(kernel))).kvlib_run
    entry.restype = ctypes.c_int
    return entry


def built(kernel: Kernel) -> Path:
    """The shared library of a kernel, compiled once and kept.

    Raises KernelError, with the compiler's words, for a source that does not compile.
    """
    own = source_of(kernel) if kernel.text else source(kernel.unit)
    text = (
        f"#define KVLIB_ON_PROCESSOR\n{own}\n"
        f"static void body() {{ processor::call(&{kernel.name}); }}\n"
        'extern "C" int kvlib_run(const u32* grid, int threads, u64 shared, void** args,\n'
        "    processor::Array* arrays, int n, int first, int stride, u64* counts, char* text) {\n"
        "    return processor::run(&body, grid, threads, shared, args, arrays, n, first, stride,\n"
        "                          counts, text);\n}\n"
    )
    return _built(text, kernel.name)


def _built(text: str, name: str) -> Path:
    command, header = compiler(), HEADER.read_text(encoding="utf-8")
    key = hashlib.sha256("\0".join((*command, *FLAGS, header, text)).encode())
    folder = kept()
    out = folder / f"{key.hexdigest()[:24]}.so"
    if out.exists():
        return out
    with tempfile.TemporaryDirectory(dir=folder) as work:
        file, made = Path(work) / "kernel.cpp", Path(work) / "kernel.so"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, *FLAGS, f"-I{HEADER.parent}", str(file), "-o", str(made)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise KernelError(f"{name} does not compile: {done.stderr.strip()[:2000]}")
        made.replace(out)  # another process may have been faster; both are right
    return out
