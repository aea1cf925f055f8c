"""Run a launch in another process: a kernel may crash, or never end.

The other process is child.py beside this file: a few lines without NumPy, so that it starts fast.
"""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kvlib.kernels.launch import Boxes, Launch, Traffic, arrays_of
from kvlib.kernels.processor.compiled import TRY, KernelError, compiler, how, library

CHILD = Path(__file__).with_name("child.py")
SECONDS = 10.0


def run_isolated(launch: Launch, *, seconds: float = SECONDS) -> Traffic:
    """What ``processor.run`` does, in another process. KernelError also for a kernel that takes
    longer than `seconds` or ends its process, for example by a stray pointer."""
    arrays, name = arrays_of(launch), launch.kernel.name
    with library(launch.kernel) as (path, _):
        try:
            done = _run(launch, path, seconds)
        except subprocess.TimeoutExpired:
            raise KernelError(
                f"{name} had not ended after {seconds:g} seconds; look for a loop that never ends"
            ) from None
        print(done.stderr.decode(errors="replace"), end="")
        if done.returncode:
            raise KernelError(
                f"{name} ended its process ({how(done.returncode)}): it may have used memory "
                "without load and store, outside of every array, or divided a whole number by 0"
            )
    status, text, counts, read, written, data = pickle.loads(done.stdout)
    if status:
        raise KernelError(f"{name}: {text}")
    for x, new in zip(arrays, data, strict=True):
        if new is not None:
            x[...] = np.frombuffer(new, x.dtype).reshape(x.shape)
    return Traffic(counts[0], counts[1], counts[2], tuple(read), tuple(written))


def check_first_run(launch: Launch, path: Path) -> None:
    """Run a fresh library on copies of the arrays; KernelError if that ends the other process."""
    done = _run(launch, path)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise KernelError(
            f"{launch.kernel.name}, compiled by {' '.join(compiler())}, ended its process "
            f"({how(done.returncode)}) in its first run: {''.join(words)}; {TRY}"
        )


def _packed(x: Any) -> tuple[str, bytes, bytes] | None:
    """What child.py makes an argument of: kind, bytes, and what follows a pointer to them."""
    if isinstance(x, Boxes):
        return "array", x.array.tobytes(), np.array([*x.sizes, x.rows], np.int32).tobytes()
    if x is None:
        return None
    return "number" if isinstance(x, np.generic) else "array", x.tobytes(), b""


def _run(
    launch: Launch, path: Path, seconds: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    job = {
        "library": str(path),
        "launch": (launch.grid, launch.threads, launch.shared),
        "args": [_packed(x) for x in launch.args],
    }
    return subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD)],
        input=pickle.dumps(job), capture_output=True, timeout=seconds,
    )  # fmt: skip
