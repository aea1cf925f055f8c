"""Every wrong answer that the tests of the checkers hold, by the exercise that it is an answer to.

The chapter tests hand wrong answers to checkers. Here those tests run once more with the checkers
listening: what was handed over, and refused, is a known wrong answer. A graded notebook fetches
one by `answer(label, number)`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kvlib.exercises.catalogue import Exercise, of_chapter

FOLDER = Path(__file__).resolve().parent / "exercises"


def answer(label: str, number: int) -> Any:
    """One wrong answer to an exercise."""
    return wrong_answers(label.split("-")[0])[label][number]


@cache
def wrong_answers(chapter: str) -> dict[str, list[Any]]:
    """The wrong answers to each exercise of a chapter, in the order of its tests."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    # tests/test_sampling.py has that name already: test files have names of their own
    own = FOLDER / f"test_{chapter}_exercises.py"
    found: dict[str, list[Any]] = {e.label: [] for e in of_chapter(chapter)}
    _listen(chapter, own.stem if own.exists() else f"test_{chapter}", found)
    if not all(found.values()):  # the tests of some exercises have a file of their own
        _listen(chapter, f"test_{chapter}_refused", found)
    return found


def _listen(chapter: str, name: str, found: dict[str, list[Any]]) -> None:
    """Run the tests of wrong answers in one file, and note what the checkers refuse."""
    module, listening = importlib.import_module(name), {}
    for exercise in of_chapter(chapter):
        real = exercise.check()
        listening[id(real)] = _listener(exercise, real, found[exercise.label])
    before = dict(vars(module))
    for name, value in before.items():
        if id(value) in listening:
            setattr(module, name, listening[id(value)])
    try:
        for call in _calls(module, listening):
            call()
    finally:
        vars(module).update(before)


def _listener(exercise: Exercise, real: Any, refused: list[Any]) -> Callable[[Any], Any]:
    def check(solution: Any) -> Any:
        report = real(solution)
        if report.status == "not yet" and all(solution is not other for other in refused):
            refused.append(solution)
        return report

    return check


def _calls(module: Any, listening: dict[int, Any]) -> Iterator[Callable[[], Any]]:
    """The module's tests of wrong answers, with each of their parameters."""
    for test in list(vars(module).values()):
        if not inspect.isfunction(test) or not test.__name__.startswith("test_"):
            continue
        marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
        if not marks:
            continue
        names, values = marks[0].args
        several = isinstance(names, list | tuple) or "," in names
        for value in values:
            given = value if several else (value,)
            given = [listening.get(id(thing), thing) for thing in given]
            yield lambda test=test, given=given: test(*given)
