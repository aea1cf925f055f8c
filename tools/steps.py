"""Run the steps of `make test`, even after one has failed, and say which ones failed.

    python tools/steps.py lint types unit

A step that fails does not hide the ones after it: every step runs, each is reported with its time,
and the exit status is that of the first failure. Ctrl-C stops at once.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "_build" / "summary"
INTERRUPTED = 130  # what a shell says of a program that ctrl-C has ended
# step → what to do when it fails
REMEDIES = {
    "lint": "`.venv/bin/ruff check --fix .` corrects most faults",
    "types": "`make types` runs mypy alone",
    "unit": "to run one test again: .venv/bin/python -m pytest tests/test_x.py::test_y",
    "notebooks": "run the chapters again with `make run-notebooks`, then look at `git diff book`",
    "book": "look for WARNING above; `make book` builds the book again",
    "browser": "_build/screenshots holds what the browser saw; `make browser` runs this step again",
    "reading-path": "LIMITS of tools/reading_path.py may fall, and should not rise",
    "check": "`make test` runs everything",
}


class Result(NamedTuple):
    """One step: its exit status, and the seconds by the clock and of the processors."""

    step: str
    status: int
    wall: float
    cpu: float


def run(step: str, make: list[str]) -> Result:
    """`make step`, its output as it comes. Raises KeyboardInterrupt when the step was stopped."""
    sys.stdout.flush()
    before, began = used(), time.monotonic()
    status = subprocess.run([*make, step], cwd=ROOT).returncode
    if status in (INTERRUPTED, -2):  # -2: ended by SIGINT itself
        raise KeyboardInterrupt
    return Result(step, status, time.monotonic() - began, used() - before)


def used() -> float:
    """Processor seconds, user and system, of every child that has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def report(results: list[Result]) -> str:
    """A line per step, and what to do about those that failed."""
    width = max(len(r.step) for r in results)
    lines = [
        f"  {r.step:<{width}}  {'passed' if r.status == 0 else 'FAILED'}  {clock(r.wall):>6}"
        f"  ({r.cpu:,.0f} processor seconds)"
        for r in results
    ]
    for r in results:
        if r.status:
            remedy = REMEDIES.get(r.step, f"`make {r.step}` runs this step alone")
            lines.append(f"\n{r.step} failed: {remedy}")
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """Minutes and seconds: 3:07."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", help="targets of the Makefile, in order")
    parser.add_argument(
        "--summary", action="store_true", help="at the end, print the page of tools/summary.py"
    )
    args = parser.parse_args(argv)
    make = ["make", "--no-print-directory"]
    if args.summary:  # an old report must not be taken for one of this run
        shutil.rmtree(REPORTS, ignore_errors=True)
    results: list[Result] = []
    for step in args.steps:
        try:
            results.append(run(step, make))
        except KeyboardInterrupt:
            print(f"\nStopped in {step}; the steps after it did not run.", file=sys.stderr)
            return INTERRUPTED
    failed = [r for r in results if r.status]
    print(f"\n== {len(results) - len(failed)} of {len(results)} steps passed")
    print(report(results), flush=True)
    if args.summary:
        subprocess.run([sys.executable, str(ROOT / "tools" / "summary.py")])
    return failed[0].status if failed else 0


if __name__ == "__main__":
    sys.exit(main())
