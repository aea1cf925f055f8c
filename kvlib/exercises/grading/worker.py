"""The process in which a notebook's answers run and are checked. Started by `grade` alone.

It reads one job (JSON) from its standard input and writes events, one JSON line each, to what was
its standard output; the notebook's own output goes nowhere. An event carries the job's token, so a
stray line is no event. Whatever hangs or dies here is noticed by the parent, which starts another
worker that leaves the culprit out.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from kvlib.exercises.catalogue import Exercise, of_chapter
from kvlib.exercises.grading.check import Bench, check_apart, check_here
from kvlib.exercises.grading.guard import Guard
from kvlib.exercises.grading.limits import Limits
from kvlib.exercises.grading.needed import Statement, needed, statements
from kvlib.exercises.grading.output import Printed

Send = Callable[..., None]


def main() -> None:
    job = json.load(sys.stdin)
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def send(kind: str, **what: Any) -> None:
        events.write(json.dumps({"token": job["token"], "kind": kind, **what}) + "\n")
        events.flush()

    limits = Limits(**job["limits"])
    chosen = [e for e in of_chapter(job["chapter"]) if e.label in job["labels"]]
    for exercise in chosen:
        exercise.check()  # the checkers are imported before anything of the notebook runs
    bench = Bench(Guard(), limits, events.fileno())
    limits.apply()
    space = run_cells(job, chosen, limits, send)
    bench.guard.restore()
    for exercise in chosen:
        for draw in job["draws"][exercise.label]:
            send("checking", label=exercise.label, draw=draw)
            found = (check_apart if job["fork"] else check_here)(exercise, space, draw, bench)
            send("checked", label=exercise.label, draw=draw, **found)
            if found["status"] != "passed":  # one that loops would cost the limit at each draw
                break
    send("end")
    events.flush()
    os._exit(0)  # threads of the notebook do not keep us here


def run_cells(
    job: dict[str, Any], chosen: list[Exercise], limits: Limits, send: Send
) -> dict[str, Any]:
    """Run what the exercises need, statement by statement; what it defined."""
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *things, **_: None}
    found, broken = statements(job["sources"])
    for cell, source in enumerate(job["sources"]):
        lines = source.splitlines(keepends=True)
        linecache.cache[f"<cell {cell}>"] = (len(source), None, lines, f"<cell {cell}>")
    for cell, error in broken.items():
        send("broken", cell=cell, error=error)
    wanted = found if job["all_cells"] else needed(found, [e.name for e in chosen])
    skipped = {tuple(place) for place in job["skip"]}
    for statement in wanted:
        if (statement.cell, statement.line) not in skipped:
            run_statement(statement, space, limits, send)
    return space


def run_statement(statement: Statement, space: dict[str, Any], limits: Limits, send: Send) -> None:
    """Run one statement. A MemoryError ends the worker: what filled the memory still holds it."""
    place = {"cell": statement.cell, "line": statement.line}
    send("running", **place)
    printed, begun, error, full = Printed(limits.output), time.monotonic(), "", False
    with printed:
        try:
            exec(statement.code, space)
        except MemoryError:
            full = True
        except BaseException as problem:  # SystemExit and KeyboardInterrupt, too
            error = f"{type(problem).__name__}: {problem}"[:500]
    if full:
        send("full", **place)
        os._exit(1)
    send("ran", **place, error=error, printed=printed.count, text=printed.text,
         seconds=round(time.monotonic() - begun, 3))  # fmt: skip


if __name__ == "__main__":
    main()
