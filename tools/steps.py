"""Run the steps of `make test`, even after one has failed, and say which ones failed.

    python tools/steps.py lint book+types unit

A step that fails does not hide the ones after it: every step runs, each is reported with its time,
and the exit status is that of the first failure. Ctrl-C stops at once. Steps that + joins run at
the same time, because each of them keeps only one processor busy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
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
    "nbgrader": "`make nbgrader` installs it again",
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


def run(steps: list[str], make: list[str]) -> list[Result]:
    """`make` each step, all at the same time: the first's output as it comes, then the others'.

    Raises KeyboardInterrupt when a step was stopped.
    """
    sys.stdout.flush()
    began, running, results, outputs = time.monotonic(), dict[int, str](), list[Result](), []
    with ExitStack() as stack:
        for step in steps:
            output = stack.enter_context(tempfile.TemporaryFile()) if running else None
            process = subprocess.Popen([*make, step], cwd=ROOT, stdout=output, stderr=output)
            stack.callback(process.kill)  # if it still runs, a moment after ctrl-C
            stack.enter_context(process)
            running[process.pid] = step
            outputs.append(output)
        while running:
            pid, code, used = os.wait4(-1, 0)
            wall, status = time.monotonic() - began, os.waitstatus_to_exitcode(code)
            results.append(Result(running.pop(pid), status, wall, used.ru_utime + used.ru_stime))
        for output in filter(None, outputs):
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
    if any(r.status in (INTERRUPTED, -2) for r in results):  # -2: ended by SIGINT itself
        raise KeyboardInterrupt
    return sorted(results, key=lambda r: steps.index(r.step))


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
    parser.add_argument("steps", nargs="+", help="targets of the Makefile, in order; + joins some")
    parser.add_argument(
        "--summary", action="store_true", help="at the end, print the page of tools/summary.py"
    )
    args = parser.parse_args(argv)
    make = ["make", "--no-print-directory"]
    if args.summary:  # an old report must not be taken for one of this run
        shutil.rmtree(REPORTS, ignore_errors=True)
    results: list[Result] = []
    for steps in args.steps:
        try:
            results += run(steps.split("+"), make)
        except KeyboardInterrupt:
            print(f"\nStopped in {steps}; the steps after it did not run.", file=sys.stderr)
            return INTERRUPTED
    failed = [r for r in results if r.status]
    print(f"\n== {len(results) - len(failed)} of {len(results)} steps passed")
    print(report(results), flush=True)
    if args.summary:
        subprocess.run([sys.executable, str(ROOT / "tools" / "summary.py")])
    return failed[0].status if failed else 0


if __name__ == "__main__":
    sys.exit(main())
