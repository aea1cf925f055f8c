"""Measure what `import kvlib` adds to importing NumPy, in seconds: best of several processes."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys

from tqdm.auto import tqdm

CODE = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
LIMIT = 0.3  # seconds over NumPy


def best(statement: str, repeats: int) -> float:
    """Shortest time of `statement` in a fresh interpreter, over `repeats` of them, in seconds."""
    command = [sys.executable, "-c", CODE.format(statement)]
    times = []
    for _ in tqdm(range(repeats), desc=statement, leave=False):
        times.append(float(subprocess.run(command, check=True, capture_output=True).stdout))
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=7, help="fresh processes per statement (default: 7)"
    )
    repeats = parser.parse_args().repeats
    if repeats < 1:
        parser.error(f"--repeats: got {repeats}, needed at least 1")
    numpy = best("import numpy", repeats)
    alone = best("import numpy, kvlib", repeats) - numpy
    everything = best("import numpy; from kvlib import *", repeats) - numpy
    result = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "numpy_s": round(numpy, 4),
        "kvlib_over_numpy_s": round(alone, 4),
        "everything_over_numpy_s": round(everything, 4),
        "limit_s": LIMIT,
    }
    print(json.dumps(result, indent=1))
    return 0 if max(alone, everything) < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
