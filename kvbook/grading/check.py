"""Ask a checker about an answer in one process: where kvlib itself is changed, and in tests."""

from __future__ import annotations

from typing import Any

from kvbook.exercises.catalogue import Exercise, exercises
from kvbook.grading.guard import Guard
from kvbook.grading.limits import Limits
from kvbook.grading.output import Printed

Found = dict[str, Any]


def check_here(what: Exercise | str, space: dict[str, Any], limits: Limits, guard: Guard) -> Found:
    """What the checker finds: status, finding, proved. An answer that ends the process ends it.

    what    an exercise, or its label
    space   what the notebook has defined
    """
    exercise = next(e for e in exercises() if what in (e, e.label))
    if exercise.name not in space:
        return _found("missing", f"the notebook does not define {exercise.name}")
    checker = exercise.check()
    with Printed(limits.output):
        try:
            report = checker(space[exercise.name])
            found = _found(report.status, report.finding, report.proved)
        except BaseException as error:  # SystemExit, or an object that fools the checker
            found = _found("not yet", f"{exercise.name} raised {type(error).__name__}: {error}")
    if changed := guard.changed():
        guard.restore()
        return _found("not yet", f"{changed[0]} was replaced while the answer was being checked")
    return found


def _found(status: str, finding: str, proved: tuple[str, ...] = ()) -> Found:
    return {"status": status, "finding": finding, "proved": list(proved)}
