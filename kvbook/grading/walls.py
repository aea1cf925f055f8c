"""What one process can do so that another of the same account does not reach it. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_DIE_WITH_PARENT, _SET_DUMPABLE, _DROP_CAPABILITY, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 4, 24, 36, 38
_CAPABILITIES = 64
_SET_CAPABILITIES = {"x86_64": 126, "aarch64": 91}  # the number of the system call capset


def _prctl(what: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def unreadable() -> None:
    """Hide this process's memory, environment and files from others of the account."""
    _prctl(_SET_DUMPABLE, 0)


def adopt() -> None:
    """Become the parent of every descendant whose own parent ends, so that `end_all` finds it.

    And end with the process that started this one.
    """
    _prctl(_SUBREAPER, 1)
    _prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def harden() -> None:
    """Give up what root may do beyond an account's own files, for this process and its children."""
    _prctl(_NO_NEW_PRIVILEGES, 1)
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return
    for capability in range(_CAPABILITIES):
        _prctl(_DROP_CAPABILITY, capability)
    number = _SET_CAPABILITIES.get(os.uname().machine)
    if number is not None:
        version, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, version, none)


def hide_arguments() -> None:
    """Overwrite the command line that others see of this process: it names the hidden tests."""
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, ValueError, IndexError):
        fields = _stat(os.getpid())
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end < start + (1 << 20):
            ctypes.memset(start, 0, end - start)


def stamps(folder: Path) -> dict[str, tuple[int, ...]]:
    """Size and times of every file of a package, by its path; any change to a file changes them."""
    found: dict[str, tuple[int, ...]] = {}
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts:
            s = path.stat()
            found[str(path)] = (s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    return found


def end_all(root: int, seconds: float = 5.0) -> None:
    """Kill every descendant of a process, whatever group or session it has gone to."""
    until = time.monotonic() + seconds
    while (found := descendants(root)) and time.monotonic() < until:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            _reap(found)
        time.sleep(0.001)


def descendants(root: int) -> list[int]:
    """Processes below this one that still run."""
    parents: dict[int, int] = {}
    with suppress(FileNotFoundError):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError, IndexError, ValueError):
                    fields = _stat(int(entry))
                    if fields[0] not in ("Z", "X"):
                        parents[int(entry)] = int(fields[1])
    found = {root}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return sorted(found - {root})


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on; the second, a name, may hold anything."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _reap(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError, OSError):
            os.waitpid(pid, os.WNOHANG)
