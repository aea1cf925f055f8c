"""The command that runs a notebook's code behind bubblewrap, where the system can.

Inside there is no network, no other process, and no file but the system's own, Python's, kvlib's,
the compiler that CXX names (all read-only) and one folder that is thrown away.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import kvlib
from kvlib.kernels.processor.compiled import compiler

CHOICES = ("auto", "on", "off")
PACKAGE = Path(kvlib.__file__).resolve().parent
INSIDE = "/grading"  # where kvlib lies inside
# The system's programs and libraries: what is not there is left out.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives",
          "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
          "/nix/store", "/opt")  # fmt: skip
UNWALLED = (
    "The notebooks run without a sandbox: their code can read and change your files. "
    "SECURITY.md says what that means; --sandbox on says what is missing."
)
HELP = (
    "install bubblewrap (the command bwrap) and allow user namespaces, or choose --sandbox off and "
    "grade only notebooks of people you trust"
)


def chosen(sandbox: str) -> bool:
    """Whether to use it. ValueError for "on" where it does not work, and for an unknown word."""
    if sandbox not in CHOICES:
        raise ValueError(f"sandbox must be one of {', '.join(CHOICES)}, got {sandbox!r}")
    if sandbox == "off":
        return False
    trouble = _trouble()
    if sandbox == "on" and trouble:
        raise ValueError(f"--sandbox on: {trouble}; {HELP}")
    return not trouble


@functools.cache
def _trouble() -> str:
    """Why bubblewrap cannot be used here, found by using it once; nothing if it can."""
    if shutil.which("bwrap") is None:
        return "there is no bwrap on this system"
    command = [*walled("/", []), sys.executable, "-S", "-c", "import socket"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not work here ({error})"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"bwrap does not work here ({said[-1] if said else done.returncode})" if (
        done.returncode) else ""  # fmt: skip


def walled(folder: str, paths: Sequence[str]) -> list[str]:
    """The beginning of a command: what follows runs inside and sees `folder` at its own place.

    paths   further folders and files to show, read-only
    """
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent)}
    python |= {os.path.realpath(path) for path in python} | set(sysconfig.get_paths().values())
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    command += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]  # what is in /tmp comes later
    shown = list(dict.fromkeys((*SYSTEM, *sorted(python), *paths, *_compiler())))
    for path in _outermost([p for p in shown if os.path.exists(p)]):
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    command += ["--ro-bind", str(PACKAGE), f"{INSIDE}/kvlib"]
    if folder != "/":
        command += ["--bind", folder, folder, "--chdir", folder]
    return command


def _compiler() -> list[str]:
    """The program that CXX names, which may lie anywhere; exercises in CUDA C++ need it."""
    with suppress(ImportError):
        program = shutil.which(compiler()[0])
        return [os.path.abspath(program)] if program else []
    return []


def _outermost(paths: list[str]) -> list[str]:
    """Without those that lie within another: one mount shows both."""
    real = [p for p in paths if not os.path.islink(p)]
    return [p for p in paths if not any(q != p and _within(p, q) for q in real)]


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
