"""Run the tests and the notebooks as other processors would.

    make portable                 # every kind of processor below, with one and two BLAS threads
    make portable CORE="Haswell"  # one kind

OpenBLAS, which NumPy's wheels carry, chooses its kernels by the processor, so the last bits of a
sum differ between machines. OPENBLAS_CORETYPE makes this machine take another one's kernels. Every
test and every cell of every notebook must pass under each; tests that draw examples draw fewer
(KVLIB_TESTS=quick), none is left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Core type of OpenBLAS → the flag of /proc/cpuinfo that a processor needs to run its kernels.
CORES = {
    "Prescott": "sse3",
    "Nehalem": "sse4_2",
    "Haswell": "avx2",
    "Zen": "avx2",
    "SkylakeX": "avx512f",
}
THREADS = (1, 2)
UNIT = "not gpu and not peers and not browser and not device"
PYTEST = (sys.executable, "-m", "pytest", "-q", "--no-header", "-n", "2")
COMMANDS = {
    "tests": (*PYTEST, "--dist", "worksteal", "-m", UNIT),
    "notebooks": (
        *(*PYTEST, "--dist", "loadscope", "--nbval", "--nbval-current-env"),
        *("--nbval-cell-timeout=120", *sorted(str(p) for p in ROOT.glob("book/*.ipynb"))),
    ),
}
ARCHITECTURE = (
    "import numpy; from threadpoolctl import threadpool_info as info; "
    "print(*(x['architecture'] for x in info() if x['internal_api'] == 'openblas'))"
)


def flags() -> set[str]:
    """What this processor can do, in Linux's words; empty where that is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def environment(core: str, threads: int) -> dict[str, str]:
    """That of a run on such a processor."""
    here = {**os.environ, "OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": str(threads)}
    return here | {"KVLIB_TESTS": "quick", "KVLIB_BACKEND": "numpy"}


def architecture(core: str) -> str:
    """What OpenBLAS calls the kernels that it takes for `core`.

    Some kinds share kernels: a release may have those of Haswell for Zen, too, and it calls those
    of Prescott by the name of an older kind, Katmai.
    """
    command = [sys.executable, "-c", ARCHITECTURE]
    done = subprocess.run(command, env=environment(core, 1), capture_output=True, text=True)
    return done.stdout.strip() or "no OpenBLAS"


def runs(cores: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """(core, threads, what) of every run; says which cores this processor cannot be."""
    have = flags()
    for core in cores:
        if have and CORES[core] not in have:
            print(f"== {core}: left out, this processor has no {CORES[core]}", flush=True)
            continue
        print(f"== {core}: OpenBLAS calls the kernels it takes {architecture(core)}", flush=True)
        for threads in THREADS:
            for what in COMMANDS:
                yield core, threads, what


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", nargs="+", choices=CORES, default=list(CORES))
    parser.add_argument("--only", choices=COMMANDS, help="tests or notebooks alone")
    args = parser.parse_args(argv)
    rows, failed = [], 0
    for core, threads, what in runs(args.core):
        if args.only and what != args.only:
            continue
        print(f"\n== {core}, BLAS threads: {threads}: {what}", flush=True)
        began = time.monotonic()
        status = subprocess.run(COMMANDS[what], cwd=ROOT, env=environment(core, threads)).returncode
        failed += status != 0
        word = "passed" if status == 0 else "FAILED"
        rows.append(f"  {core:<9} {threads}  {what:<10} {word}  {time.monotonic() - began:5.0f} s")
    print("\n== core, BLAS threads, what ran\n" + "\n".join(rows))
    if failed:
        print(
            "\nSee it alone: OPENBLAS_CORETYPE=<core> .venv/bin/python -m pytest <the test>. Round "
            "what is printed, and derive tolerances (kvlib/exercises/kit/rounding.py)."
        )
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
