"""Run the tests and benchmarks that need a graphics card, with the Python this is started with.

Needs CuPy, NumPy, array-api-compat and pytest in that Python, and nothing else: no .venv, no
network. Says what is missing and stops with 0 where there is no device (nothing was to be run),
with 1 where there is a device and something failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("numpy", "array_api_compat", "pytest")
NO_TESTS_COLLECTED = 5
MARK = "pytest.mark.gpu"


def device_name() -> tuple[str | None, str]:
    """(name of the device, "") or (None, why there is none)."""
    if importlib.util.find_spec("cupy") is None:
        return None, 'this Python has no CuPy: pip install "cupy-cuda13x[ctk]"'
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() == 0:
            return None, "CuPy finds no CUDA device"
        cupy.arange(4, dtype=cupy.float32).sum().item()  # a driver may be there and not work
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        return properties["name"].decode(), ""
    except Exception as error:  # CuPy raises many kinds; all mean that nothing can run here
        text = str(error).strip() or "no message"
        return None, f"CuPy cannot use a device here: {text.splitlines()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests-only", action="store_true", help="leave the benchmarks out")
    given = parser.parse_args()
    print(f"Python {sys.version.split()[0]} at {sys.executable}")
    name, reason = device_name()
    if name is None:
        print(f"No graphics card to test on: {reason}.")
        return 0
    print(f"Device: {name}")
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if missing:
        packages = " ".join(missing).replace("_", "-")
        print(f"This Python lacks {', '.join(missing)}: pip install {packages}")
        return 1
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    # Only files that hold such tests: the others import what this Python need not have.
    files = [str(f) for f in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in f.read_text()]
    tests = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *files]
    status = subprocess.run(tests, cwd=ROOT, env=environment).returncode if files else 0
    if status == NO_TESTS_COLLECTED or not files:
        print("No test needs a device yet.")
        status = 0
    if given.tests_only:
        return status
    benchmarks = sorted((ROOT / "benchmarks").glob("gpu_*.py"))
    if not benchmarks:
        print("No benchmark needs a device yet.")
    for script in benchmarks:
        print(f"== {script.name}", flush=True)
        command = [sys.executable, str(script)]
        status |= subprocess.run(command, cwd=ROOT, env=environment).returncode
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
