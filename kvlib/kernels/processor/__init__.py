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
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kvlib.kernels.launch import Launch
from kvlib.kernels.processor.folder import kept
from kvlib.kernels.source import Kernel, source, source_of

HEADER = Path(__file__).parent / "processor.h"
# Hidden: macOS merges inline functions of loaded libraries, but each library has its own fibers.
FLAGS = (
    *("-std=c++17", "-Og", "-shared", "-fPIC", "-w", "-fno-exceptions", "-fno-rtti"),
    "-fvisibility=hidden",
)
AS_WRITTEN = "#pragma clang optimize off\n"
# A hang ends one day; ziglang's first run compiles its own libraries, which takes minutes.
COMPILE_SECONDS = 1200.0
TRY = (
    "set the environment variable CXX to another compiler or to other flags, for example "
    'CXX=clang++ or CXX="g++ -U_FORTIFY_SOURCE"'
)
SECTOR = 32  # bytes that a graphics card moves at the least


_entries: dict[Kernel, Any] = {}


class KernelError(RuntimeError):
    """A kernel cannot be compiled or run, or did what would be undefined on a device."""


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

    CXX may be a path, or a command with flags: ``g++ -O3``. Raises ImportError if its program is
    not found, or if CXX is not set and there is no compiler.
    """
    if chosen := os.environ.get("CXX", "").strip():
        try:
            command = [chosen] if shutil.which(chosen) else shlex.split(chosen)
        except ValueError:  # a quotation mark without its pair
            command = []
        if not command or not shutil.which(command[0]):
            raise ImportError(
                f"the environment variable CXX is {chosen!r}, but no such program is found; "
                "set it to a C++ compiler, such as g++ or clang++, or unset it"
            )
        return command
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
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
    end, for threads that wait for others that never come, and if the kernel does not compile or its
    first run, which is tried in another process, ends that process; ValueError for arrays that do
    not lie in one piece; ImportError without a compiler.
    """
    handed = arrays_of(launch)
    table = (_Array * max(1, len(handed)))(*(_Array(x.ctypes.data, x.nbytes, 0, 0) for x in handed))
    cells = [_cell(x) for x in launch.args]
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
    grid = (ctypes.c_uint32 * 3)(*launch.grid)
    counts, text = (ctypes.c_uint64 * 3)(), ctypes.create_string_buffer(512)
    status = _entry(launch)(
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


def _entry(launch: Launch) -> Any:
    """The compiled kernel. A launch that meets it first runs in another process before."""
    kernel = launch.kernel
    if kernel not in _entries:
        with library(kernel) as (path, fresh):
            if fresh:
                from kvlib.kernels.processor.apart import survives

                survives(launch, path)
            try:
                _entries[kernel] = ctypes.CDLL(str(path)).kvlib_run
            except OSError as error:
                raise KernelError(
                    f"{kernel.name}: its library does not load ({error}); delete {path}"
                ) from None
    return _entries[kernel]


@contextmanager
def library(kernel: Kernel) -> Iterator[tuple[Path, bool]]:
    """The shared library of a kernel, and whether it has just been compiled.

    A fresh library is kept if the `with` block raises nothing: run it there in another process,
    because a library from an unknown compiler may end the process that runs it. Raises KernelError,
    with the compiler's words, for a source that does not compile and for a compiler that fails.
    """
    # clang++ would remove an endless loop or a division by 0, which a kernel in the making may have
    own = f"{AS_WRITTEN}{source_of(kernel)}" if kernel.text else source(kernel.unit)
    text = (
        f"#define KVLIB_ON_PROCESSOR\n{own}\n"
        f"static void body() {{ processor::call(&{kernel.name}); }}\n"
        'extern "C" __attribute__((visibility("default")))\n'
        "int kvlib_run(const u32* grid, int threads, u64 shared, void** args,\n"
        "    processor::Array* arrays, int n, int first, int stride, u64* counts, char* text) {\n"
        "    return processor::run(&body, grid, threads, shared, args, arrays, n, first, stride,\n"
        "                          counts, text);\n}\n"
    )
    command, header = compiler(), HEADER.read_text(encoding="utf-8")
    key = hashlib.sha256("\0".join((*command, *FLAGS, header, text)).encode())
    folder = kept()
    out = folder / f"{key.hexdigest()[:24]}.so"
    if out.exists():
        yield out, False
        return
    with tempfile.TemporaryDirectory(dir=folder) as work:
        file, made = Path(work) / "kernel.cpp", Path(work) / "kernel.so"
        file.write_text(text, encoding="utf-8")
        _compile([*command, *FLAGS, f"-I{HEADER.parent}", str(file), "-o", str(made)], kernel.name)
        yield made, True
        made.replace(out)  # another process may have been faster; both are right


def _compile(command: list[str], name: str) -> None:
    """Run the compiler for a kernel of that name, and stop it after COMPILE_SECONDS."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise KernelError(f"the compiler {command[0]} does not start: {error}; {TRY}") from None
    with process:
        try:
            words = process.communicate(timeout=COMPILE_SECONDS)[1].strip()[:2000]
        except BaseException as error:
            with suppress(OSError):  # g++ starts other programs, which would go on
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise KernelError(
                    f"the compiler {command[0]} had not compiled {name} after "
                    f"{COMPILE_SECONDS:g} seconds and was stopped; {TRY}"
                ) from None
            raise
    if process.returncode > 0 and words:
        raise KernelError(f"{name} does not compile: {words}")
    if process.returncode or not Path(command[-1]).exists():
        what = f"ended with {how(process.returncode)}" if process.returncode else "wrote no library"
        words = f": {words}" if words else ""
        raise KernelError(f"the compiler {command[0]} {what} for {name}{words}; {TRY}")


def how(status: int) -> str:
    """How a process ended, by the status that `subprocess` gives: below 0 it is a signal's."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"status {status}"
