"""The process that checks answers. Started by `grade` alone, for one notebook.

It reads one job (JSON) from its standard input and writes events, one JSON line each. It never runs
a line of the notebook: that happens in a process of its own (`hand`), from which plain data comes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from kvbook.exercises.catalogue import Exercise, of_chapter
from kvbook.grading.answer import Found, Missing, Remote, run_cuda_there
from kvbook.grading.channel import Gone, Late
from kvbook.grading.draws import redrawn
from kvbook.grading.hand import Broken, Hand
from kvbook.grading.limits import Limits
from kvbook.grading.walls import adopt, unreadable

# Their answers are tests of kvlib, or changes to it: they are checked where kvlib is changed.
TOGETHER = frozenset({"museum-mask-test", "museum-batch-test", "museum-quiet-bug"})
MEMORY = 2048  # megabytes that the checkers themselves may need
LONGEST = 10_000  # characters of a finding
STATUSES = ("passed", "not yet", "not done yet", "missing", "stopped")
Send = Callable[..., None]


def main() -> None:
    unreadable()
    adopt()
    job = json.load(sys.stdin)

    def send(kind: str, **what: Any) -> None:
        print(json.dumps({"kind": kind, **what}), flush=True)

    limits = Limits(**job["limits"])
    chosen = [e for e in of_chapter(job["chapter"]) if e.label in job["labels"]]
    told = {key: job[key] for key in ("sources", "limits", "all_cells", "fork", "skip")}
    told["names"] = [e.name for e in chosen]
    told["together"] = sorted({e.chapter for e in chosen if e.label in TOGETHER})
    with Hand(told, job["folder"], limits, sandbox=job["sandbox"]) as hand:
        replace(limits, memory=max(limits.memory, MEMORY)).apply()
        for exercise in chosen:
            exercise.check()  # imported while the other process starts
        try:
            if _run_cells(hand, len(job["sources"]), send) and _check_all(
                hand, chosen, job["draws"], send
            ):
                send("end")
        except (Gone, Late):
            send("gone")
        except Broken:
            send("again")


def _run_cells(hand: Hand, cells: int, send: Send) -> bool:
    """Pass on what the notebook's process says of its cells; False where it cannot go on."""
    while True:
        head, _ = hand.channel.receive()
        event = head.get("event")
        if event == "ready":
            return True
        cell, line = head.get("cell"), head.get("line", 0)
        if type(cell) is not int or type(line) is not int or not 0 <= cell < cells:
            raise Gone("an event without a place")
        if event in ("running", "full"):
            send(event, cell=cell, line=line)
        elif event in ("ran", "broken"):
            printed = head.get("printed", 0)
            error = str(head.get("error", ""))[:500]
            send(event, cell=cell, error=error, printed=printed if type(printed) is int else 0)
        if event == "full":
            return False


def _check_all(hand: Hand, chosen: list[Exercise], draws: dict[str, list[int]], send: Send) -> bool:
    """Ask each checker about its answer, with each draw until one fails."""
    for exercise in chosen:
        for draw in draws[exercise.label]:
            send("checking", label=exercise.label, draw=draw)
            lost = False
            try:
                with hand.check() as remote:
                    found = check(exercise, remote, draw)
            except Broken:
                lost, found = (
                    True,
                    _found("stopped", f"{exercise.name} ended the process it ran in"),
                )
            except Late:
                found = _found("stopped", f"it took more than {hand.seconds:g} seconds")
            send("checked", label=exercise.label, draw=draw, **found)
            if lost or (found["status"] == "stopped" and not hand.forks):
                raise Broken
            if found["status"] != "passed":  # one that loops would cost the limit at each draw
                break
    return True


def check(exercise: Exercise, remote: Remote, draw: int) -> Found:
    """What the checker finds on plain data: status, finding, proved."""
    try:
        if exercise.label in TOGETHER:
            said = remote.together(exercise.label)
            status = said["status"] if said["status"] in STATUSES else "not yet"
            return _found(status, said["finding"], said["proved"])
        there = _native_code_there if exercise.chapter == "gpu" else nullcontext
        with redrawn(draw), there(remote):
            report = exercise.check()(remote.answer(exercise.name))
            if remote.lost is not None:
                raise remote.lost
            return _found(report.status, report.finding, report.proved)
    except Missing:
        return _found("missing", f"the notebook does not define {exercise.name}")
    except Gone:
        return _found("stopped", f"{exercise.name} ended the process it ran in")
    except Exception as error:  # data that a checker did not expect
        return _found("not yet", f"{exercise.name} raised {type(error).__name__}: {error}")


def _found(status: str, finding: str, proved: Any = ()) -> Found:
    return {"status": status, "finding": finding[:LONGEST], "proved": [p[:500] for p in proved]}


@contextmanager
def _native_code_there(remote: Remote) -> Iterator[None]:
    """Inside, lines of CUDA C++ are compiled and run in the answer's process."""
    from kvbook.exercises import gpu_lines

    own = gpu_lines.run_cuda
    gpu_lines.run_cuda = run_cuda_there(remote)
    try:
        yield
    finally:
        gpu_lines.run_cuda = own


if __name__ == "__main__":
    main()
    os._exit(0)  # taking the imported modules apart would take 15 ms
