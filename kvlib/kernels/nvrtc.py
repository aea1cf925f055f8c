"""Compile kernels without a GPU, by NVRTC, NVIDIA's run-time compiler, and read its report.

It makes machine code for any compute capability; the assembler reports registers, shared memory
and spills.
"""

import ctypes
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from kvlib.kernels.processor.compiled import cache_folder
from kvlib.kernels.source import ONLY, Kernel, source, source_of

CAPABILITIES = ("8.0", "8.9", "9.0", "10.0")  # Ampere, Ada, Hopper, Blackwell
# As CuPy compiles them on a device (cupy/cuda/compiler.py), and the assembler's report.
OPTIONS = (
    "--std=c++17",
    "--ftz=true",
    "--device-as-default-execution-space",
    "--ptxas-options=-v",
)
_USED = re.compile(r"Used (\d+) registers")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class CompileError(RuntimeError):
    """A kernel does not compile; the message is the compiler's."""


class Resources(NamedTuple):
    """What one kernel takes on one compute capability: registers, and bytes, of a thread."""

    kernel: Kernel
    capability: str
    registers: int
    spills: int
    stack: int


@cache
def library() -> Any:
    """NVRTC, from the wheel nvidia-cuda-nvrtc or an installed CUDA. Raises ImportError."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:
        raise ImportError(
            f"compiling kernels needs NVRTC ({error}); install it with: "
            "pip install cuda-pathfinder nvidia-cuda-nvrtc"
        ) from error
    return ctypes.CDLL(path)


def fingerprint(unit: str) -> str:
    """A hash of source, options and compiler: while it is the same, resources.json holds."""
    parts = (source(unit), *OPTIONS, version("nvidia-cuda-nvrtc"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def capabilities_of(unit: str) -> tuple[str, ...]:
    """The compute capabilities that cuda/<unit>.cu is compiled for."""
    return (ONLY[unit],) if unit in ONLY else CAPABILITIES


@contextmanager
def _program(kernels: Sequence[Kernel], capability: str) -> Iterator[tuple[Any, Any, str]]:
    """NVRTC, the compiled program of kernels of one unit, and the log."""
    nvrtc, program, unit = library(), ctypes.c_void_p(), kernels[0].unit
    arch = capability.replace(".", "") + "a" * (unit in ONLY)
    options = [f"--gpu-architecture=sm_{arch}", *OPTIONS]
    text, file = source_of(kernels[0]).encode(), f"{unit}.cu".encode()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, file, 0, None, None))
    try:
        for kernel in kernels:
            _check(nvrtc.nvrtcAddNameExpression(program, kernel.name.encode()))
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), array)
        size = ctypes.c_size_t()
        _check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetProgramLog(program, buffer))
        log = buffer.value.decode()
        if status:
            raise CompileError(f"cuda/{unit}.cu for {capability}:\n{log}")
        yield nvrtc, program, log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def compiled(kernels: Iterable[Kernel], capability: str) -> list[Resources]:
    """What kernels of one unit take on a capability; CompileError with the compiler's log."""
    kernels = list(kernels)
    units = {kernel.unit for kernel in kernels}
    if len(units) != 1:
        raise ValueError(f"kernels of one unit needed, got {sorted(units)}")
    with _program(kernels, capability) as (nvrtc, program, log):
        resources, name = [], ctypes.c_char_p()
        for kernel in kernels:
            _check(nvrtc.nvrtcGetLoweredName(program, kernel.name.encode(), ctypes.byref(name)))
            assert name.value is not None
            found = _resources(log, name.value.decode())
            resources.append(Resources(kernel, capability, *found))
        return resources


def machine_code(kernel: Kernel) -> tuple[Path, str]:
    """The file of a kernel's machine code for the capability in `ONLY`, and its name in there.

    CuPy compiles for sm_90; what sm_90a alone has is compiled here, once, and kept on the disk.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    parts = (kernel.name, source_of(kernel), *OPTIONS, f"{major.value}.{minor.value}")
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    path = cache_folder() / f"{key}.cubin"
    if not path.exists():
        with _program([kernel], ONLY[kernel.unit]) as (nvrtc, program, _):
            size = ctypes.c_size_t()
            _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
            code = ctypes.create_string_buffer(size.value)
            _check(nvrtc.nvrtcGetCUBIN(program, code))
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(code.raw)
        part.replace(path)
    name = re.search(rb"\.text\.(\w+)", path.read_bytes())  # the file's only kernel
    assert name is not None
    return path, name[1].decode()


def compile_all(
    kernels: Iterable[Kernel], capabilities: Iterable[str] = CAPABILITIES, batch: int = 6
) -> Iterator[Resources]:
    """Every kernel for every compute capability, `batch` of a unit at a time, on all cores."""
    by_unit: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_unit.setdefault(kernel.unit, []).append(kernel)
    jobs = [
        (names[i : i + batch], capability)
        for capability in capabilities
        for unit, names in by_unit.items()
        if capability in capabilities_of(unit)
        for i in range(0, len(names), batch)
    ]
    library()
    # Processes, not threads: NVRTC compiles one program of a process at a time.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for resources in pool.map(compiled, *zip(*jobs, strict=True)):
            yield from resources


def _resources(log: str, mangled: str) -> tuple[int, int, int]:
    """(registers, spills, stack) of one function, from the assembler's report."""
    start = log.find(f"Compiling entry function '{mangled}'")
    if start < 0:
        raise CompileError(f"the assembler says nothing of {mangled}:\n{log}")
    part = log[start : log.find("Compiling entry function", start + 10)]
    used, spill = _USED.search(part), _SPILL.search(part)
    if used is None or spill is None:
        raise CompileError(f"the assembler's report is not understood:\n{part}")
    stack, stores, loads = (int(x) for x in spill.groups())
    return int(used[1]), stores + loads, stack


def _check(status: int) -> None:
    if status:
        text = library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC: {text(status).decode()}")
