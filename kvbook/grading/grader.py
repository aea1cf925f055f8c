"""Grade a notebook: start workers, end those that hang, add up the points."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvbook.exercises.catalogue import Exercise, of_chapter
from kvbook.grading.limits import Limits
from kvbook.grading.notebook import (
    cell_name,
    chapter_of,
    code_of,
    defines,
    read_notebook,
)
from kvbook.grading.result import Grade, Verdict
from kvbook.grading.sandbox import PACKAGE
from kvbook.grading.sandbox import chosen as sandboxed
from kvbook.grading.text import line
from kvbook.grading.walls import stamps
from kvbook.grading.workers import Events, Worker

WORKERS = 25  # that one notebook may use up
# Seconds that the parent waits longer than the limit: for imports, and for a worker that is about
# to end a child itself.
GRACE = {"starting": 60.0, "running": 0.5, "checking": 5.0}


class Tampered(OSError):
    """A notebook has changed the grader's own files: the run has to stop."""


def grade(
    path: Path | str,
    *,
    chapter: str | None = None,
    draws: Sequence[int] = (),
    hidden: tuple[str, Sequence[int]] | None = None,
    limits: Limits | None = None,
    all_cells: bool = False,
    fork: bool | None = None,
    sandbox: str = "auto",
) -> Grade:
    """Grade the exercises of one notebook.

    chapter    which chapter's exercises; found from the notebook unless given
    draws      seeds of hidden tests: each checker is asked once more for each
    hidden     the same with the name of their chapter, which must be the notebook's
    all_cells  run every cell, not only what the answers need
    fork       check each exercise in a forked child (unless given: where the platform can)
    sandbox    "on": run the notebook's code behind bubblewrap; "auto": where that works; or "off"

    ValueError where the file is no notebook, or of no chapter; Tampered where it has changed kvlib
    itself, which only one without a sandbox can. What the notebook does wrong is no
    error: it is in the grade.
    """
    begun, limits = time.monotonic(), limits or Limits()
    notebook = read_notebook(Path(path))
    chapter = chapter_of(notebook) if chapter is None else chapter
    chosen = of_chapter(chapter)
    if hidden is not None and hidden[0] != chapter:
        raise ValueError(f"the hidden tests are of {hidden[0]}, the notebook of {chapter}")
    if hidden is not None:
        draws = (*draws, *hidden[1])
    sources = code_of(notebook)
    run = _Run(chosen, limits, (0, *draws))
    job = {
        "chapter": chapter,
        "sources": sources,
        "limits": asdict(limits),
        "all_cells": all_cells,
        "sandbox": sandboxed(sandbox),
        "fork": hasattr(os, "fork") if fork is None else fork,
    }
    before = {} if job["sandbox"] else stamps(PACKAGE)
    for _ in range(WORKERS):
        left = begun + limits.total - time.monotonic()
        if left <= 0 or run.attempt(job, left):
            break
    if not job["sandbox"] and stamps(PACKAGE) != before:
        raise Tampered(
            f"kvlib itself was changed while {line(Path(path).name)} was graded, so no grade from "
            "here on can be trusted. Install kvlib again, and grade with --sandbox on"
        )
    run.explain_missing(sources, {e.label: e.name for e in chosen})
    seconds = time.monotonic() - begun
    return Grade(
        chapter, list(run.verdicts.values()), run.remarks(sources), seconds, Path(path).name
    )


class _Run:
    """What is known so far of one notebook, over as many workers as it takes."""

    def __init__(self, chosen: Sequence[Exercise], limits: Limits, draws: Sequence[int]) -> None:
        self.limits = limits
        self.verdicts = {e.label: Verdict(e.label, e.title, e.points) for e in chosen}
        self.waiting = {e.label: list(draws) for e in chosen}  # draws still to be asked
        self.skip: list[tuple[int, int]] = []
        self.cells: dict[int, str] = {}

    def attempt(self, job: Mapping[str, Any], left: float) -> bool:
        """One worker; True where nothing is left to do."""
        until = time.monotonic() + left
        labels = [label for label, draws in self.waiting.items() if draws]
        job = {**job, "labels": labels, "draws": self.waiting, "skip": self.skip}
        with Worker(job) as worker:
            events, last = Events(worker), None
            while True:
                patience = self.limits.seconds + GRACE[last["kind"] if last else "starting"]
                event = events.next(min(until, time.monotonic() + patience))
                if event is not None and event["kind"] in ("end", "again"):
                    worker.ending = True
                    return bool(event["kind"] == "end")
                if event is None or event["kind"] in ("full", "gone"):
                    self._blame(last, events.late, event)
                    return False
                if event["kind"] in GRACE:
                    last = event
                else:
                    self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "checked":
            verdict, draws = self.verdicts[event["label"]], self.waiting[event["label"]]
            if event["draw"] not in draws:  # it has failed another draw already
                return
            verdict.status, verdict.finding = event["status"], event["finding"]
            verdict.proved = event["proved"]
            draws.remove(event["draw"])
            if verdict.status != "passed":
                if event["draw"]:
                    verdict.finding += "\n(on other inputs than those of the notebook's check)"
                draws.clear()
        elif event["error"]:
            self.cells[event["cell"]] = event["error"]
        elif event.get("printed", 0) > self.limits.output:
            self.cells[event["cell"]] = f"printed {event['printed']:,} characters"

    def _blame(self, last: Mapping[str, Any] | None, late: bool, event: Any) -> None:
        """The worker is gone: leave out what it was doing."""
        if event is not None and event["kind"] == "full":
            words = f"needed more than {self.limits.memory:,} MB of memory"
        elif late:
            words = f"took more than {self.limits.seconds:g} seconds"
        else:
            words = "ended the process it ran in"
        if last is None:  # it did not even start: nothing can be graded
            for draws in self.waiting.values():
                draws.clear()
        elif last["kind"] == "running":
            self.skip.append((last["cell"], last["line"]))
            self.cells[last["cell"]] = words
        else:
            verdict = self.verdicts[last["label"]]
            verdict.status, verdict.finding = "stopped", f"it {words}"
            self.waiting[last["label"]].clear()

    def explain_missing(self, sources: Sequence[str], names: Mapping[str, str]) -> None:
        """Where a cell that should define an answer went wrong, its verdict says so."""
        for label, verdict in self.verdicts.items():
            if verdict.status != "missing":
                continue
            for cell, error in sorted(self.cells.items()):
                if defines(sources[cell], names[label]):
                    verdict.finding += f": {cell_name(cell, sources[cell])}, has {error}"

    def remarks(self, sources: Sequence[str]) -> list[dict[str, Any]]:
        """cell counts code cells from 0; name is for people."""
        return [
            {"cell": cell, "name": cell_name(cell, sources[cell]), "remark": text}
            for cell, text in sorted(self.cells.items())
        ]
