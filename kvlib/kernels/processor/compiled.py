"""Kernels as shared libraries: which compiler makes them, where they are kept, what can fail."""

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


class KernelError(RuntimeError):
    """A kernel cannot be compiled or run, or did what would be undefined on a device."""


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


@contextmanager
def library(kernel: Kernel) -> Iterator[tuple[Path, bool]]:
    """The shared library of a kernel, and whether it has just been compiled.

    A fresh library is kept if the `with` block raises nothing: run it there in another process,
    because a library from an unknown compiler may end the process that runs it. Raises KernelError,
    with the compiler's words, for a source that does not compile and for a compiler that fails.
    """
    # clang++ would remove an endless loop or a division by 0, which a kernel in the making may have
    code = f"{AS_WRITTEN}{source_of(kernel)}" if kernel.text else source(kernel.unit)
    text = (
        f"#define KVLIB_ON_PROCESSOR\n{code}\n"
        f"static void body() {{ processor::call(&{kernel.name}); }}\n"
        'extern "C" __attribute__((visibility("default")))\n'
        "int kvlib_run(const u32* grid, int threads, u64 shared, void** args,\n"
        "    processor::Array* arrays, int n, int first, int stride, u64* counts, char* text) {\n"
        "    return processor::run(&body, grid, threads, shared, args, arrays, n, first, stride,\n"
        "                          counts, text);\n}\n"
    )
    command, header = compiler(), HEADER.read_text(encoding="utf-8")
    key = hashlib.sha256("\0".join((*command, *FLAGS, header, text)).encode())
    folder = cache_folder()
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


def cache_folder() -> Path:
    """A folder for compiled kernels: in the user's cache, or else a temporary one of the user."""
    reasons = []
    for made in (_in_cache, _in_temporary):
        try:
            folder = made()
            with tempfile.TemporaryDirectory(dir=folder):  # a folder may be there and be read-only
                return folder
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home at all
            reasons.append(str(error))
    raise OSError(
        f"found no folder to keep compiled kernels in ({'; '.join(reasons)}); "
        "set XDG_CACHE_HOME to one that you can write"
    )


def _in_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "kvlib" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _in_temporary() -> Path:
    """Its files are loaded and run, so a folder that someone else has prepared is refused."""
    user = os.getuid() if hasattr(os, "getuid") else None  # Windows has a folder for each user
    folder = Path(tempfile.gettempdir()) / ("kvlib" if user is None else f"kvlib-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    stat = folder.lstat()
    if user is not None and (stat.st_uid != user or stat.st_mode & 0o077 or folder.is_symlink()):
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder
