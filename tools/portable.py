"""Run the tests and the notebooks with the BLAS kernels of other processors.

    make portable                 # every kind of processor below, with one and two BLAS threads
    make portable CORE="Haswell"  # one kind
    .venv/bin/python tools/portable.py --only compilers

OpenBLAS, which NumPy's wheels carry, chooses its kernels by the processor, so the last bits of a
sum differ between machines. OPENBLAS_CORETYPE makes this machine take another one's kernels. Every
test and every cell of every notebook must pass under each; tests that draw examples draw fewer
(KVLIB_TESTS=quick), none is left out. If a build of OpenBLAS has the same kernels for two kinds of
processor (for Zen those of Haswell), they run once. Then the kernels' tests run on the processor
under g++ as Ubuntu sets it up, and under clang++, each with an empty cache; a kernel of each unit
runs under more compilers (test_kernel_compilers.py). At the end tools/rounding_edges.py looks for
printed numbers that are so near an edge of their rounding that some other order of summing would
change them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Core type of OpenBLAS → the flag of /proc/cpuinfo that a processor needs to run its kernels.
CORES = {
    "Prescott": "pni",  # SSE3, in Linux's words
    "Nehalem": "sse4_2",
    "Haswell": "avx2",
    "Zen": "avx2",
    "SkylakeX": "avx512f",
}
THREADS = (1, 2)
UNIT = "not gpu and not peers and not browser and not device"
PYTEST = (sys.executable, "-m", "pytest", "-q", "--no-header")
COMMANDS = {
    "tests": (*PYTEST, "--dist", "worksteal", "-m", UNIT),
    "notebooks": (
        *(*PYTEST, "--dist", "loadscope", "--nbval", "--nbval-current-env"),
        *("--nbval-cell-timeout=120", *sorted(str(p) for p in ROOT.glob("book/*.ipynb"))),
    ),
}
KERNELS = ROOT / "tests" / "kernels"
# what Ubuntu's g++ turns on, and distributions for their packages
HARDENED = (
    "-D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection -Wformat "
    "-Wformat-security -D_GLIBCXX_ASSERTIONS"
) + " -fcf-protection" * (platform.machine() == "x86_64")
COMPILERS = (f"g++ {HARDENED}", "clang++")
EDGES = (sys.executable, str(ROOT / "tools" / "rounding_edges.py"))
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


def workers(threads: int) -> list[str]:
    """How many processes pytest starts: BLAS threads spin, so each needs a separate processor."""
    linux = hasattr(os, "sched_getaffinity")  # a container may have fewer than the machine
    processors = len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1
    return ["-n", str(max(1, min(2, processors // threads)))]


def runs(cores: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """(core, threads, what) of every run; says which cores are left out, and why."""
    have, seen = flags(), dict[str, str]()
    for core in cores:
        if have and CORES[core] not in have:
            print(f"== {core}: left out, this processor has no {CORES[core]}", flush=True)
            continue
        kernels = architecture(core)
        print(f"== {core}: OpenBLAS calls the kernels it takes {kernels}", flush=True)
        if seen.setdefault(kernels, core) != core:
            print(f"== {core}: left out, these are the kernels of {seen[kernels]}", flush=True)
            continue
        for threads in THREADS:
            for what in COMMANDS:
                yield core, threads, what


def compilers() -> Iterator[tuple[bool, str]]:
    """Run the kernels' tests with an empty cache under each compiler; says which is left out."""
    tests = [*PYTEST, "--dist", "worksteal", "-m", UNIT, *workers(1)]
    here = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "KVLIB_BACKEND": "numpy"}
    for command in COMPILERS:
        name = shlex.split(command)[0]
        if shutil.which(name) is None:
            print(f"== {name}: left out, it is not installed", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            env = here | {"CXX": command, "XDG_CACHE_HOME": folder, "KVLIB_TESTS": "quick"}
            yield row(" ".join(command.split()[:2]), "compilers", [*tests, str(KERNELS)], env)
    more = [*tests, str(KERNELS / "test_kernel_compilers.py")]
    yield row("a kernel of each unit", "compilers", more, here | {"KVLIB_TESTS": "whole"})


def row(name: str, what: str, command: Iterable[str], env: dict[str, str]) -> tuple[bool, str]:
    """Run a command; whether it passed, and a line of the table."""
    print(f"\n== {name}: {what}", flush=True)
    began = time.monotonic()
    passed = subprocess.run(command, cwd=ROOT, env=env).returncode == 0
    word, seconds = "passed" if passed else "FAILED", time.monotonic() - began
    return passed, f"  {name:<25} {what:<10} {word} {seconds:6.0f} s"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", nargs="+", choices=CORES, default=list(CORES), help="kinds of "
                        "processor (default: all of them)")  # fmt: skip
    parser.add_argument(
        "--only", choices=[*COMMANDS, "compilers", "edges"], help="run this part only"
    )
    args = parser.parse_args(argv)
    rows = [
        row(
            f"{core}, BLAS threads: {threads}",
            what,
            [*COMMANDS[what], *workers(threads)],
            environment(core, threads),
        )
        for core, threads, what in runs(args.core)
        if args.only in (None, what)
    ]
    if args.only in (None, "compilers"):
        rows.extend(compilers())
    if args.only in (None, "edges"):
        rows.append(row("other orders of summing", "edges", EDGES, dict(os.environ)))
    print("\n".join(["", "== processor, what ran", *(line for _, line in rows)]))
    if all(passed for passed, _ in rows):
        return 0
    print(
        "\nSee it alone: OPENBLAS_CORETYPE=Haswell .venv/bin/python -m pytest TEST. Round what "
        "is printed, and derive tolerances (kvlib/testing/rounding.py)."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
