"""Every wrong answer that the tests of the checkers hold, by the exercise that it is an answer to.

The chapter tests hand wrong answers to checkers. Here those tests run once more with the checkers
listening: what was handed over, and refused, is a known wrong answer. A graded notebook fetches
one by `answer(label, number)`.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from kvbook.exercises.catalogue import Exercise, exercises, of_chapter
from kvbook.exercises.checker import Checker, Shows

FOLDER = Path(__file__).resolve().parent / "exercises"


def answer(label: str, number: int) -> Any:
    """One wrong answer to an exercise, found without the tests of the other exercises."""
    found: dict[str, list[Any]] = {label: _recorded(label)}
    if found[label]:
        return found[label][number]
    for name in _files(label.split("-")[0]):
        _listen(label.split("-")[0], name, found, enough=number + 1)
        if len(found[label]) > number:
            break
    return found[label][number]


@cache
def wrong_answers(chapter: str) -> dict[str, list[Any]]:
    """The wrong answers to each exercise of a chapter, in the order of its tests."""
    found = {e.label: _recorded(e.label) for e in of_chapter(chapter)}
    for name in _files(chapter):
        if not all(found.values()):  # the tests of some exercises have a file of their own
            _listen(chapter, name, found)
    return found


def _recorded(label: str) -> list[Any]:
    """The mistakes of an exercise that is a record."""
    checker = next(e for e in exercises() if e.label == label).check()
    if not isinstance(checker, Checker):
        return []
    wrong = [*checker.wrong(checker.mistakes), *checker.wrong(checker.refused)]
    return [x.answer if isinstance(x, Shows) else x for _, x in wrong]


def _files(chapter: str) -> tuple[str, str]:
    """The modules that hold a chapter's tests; the second may not be there."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    # tests/test_sampling.py has that name already: test files have names of their own
    own = FOLDER / f"test_{chapter}_exercises.py"
    return own.stem if own.exists() else f"test_{chapter}", f"test_{chapter}_refused"


def _listen(chapter: str, name: str, found: dict[str, list[Any]], enough: float = math.inf) -> None:
    """Run the tests of wrong answers in one file, and note what the checkers refuse.

    Stops where each exercise in `found` has enough of them.
    """
    module, listening = importlib.import_module(name), {}
    for exercise in of_chapter(chapter):
        if exercise.label in found:
            real = exercise.check()
            listening[id(real)] = _listener(exercise, real, found[exercise.label])
    before = dict(vars(module))
    for name, value in before.items():
        if id(value) in listening:
            setattr(module, name, listening[id(value)])
    try:
        for call in _calls(module, listening):
            if all(len(refused) >= enough for refused in found.values()):
                break
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
    """The module's tests that ask a listening checker, with each of their parameters."""
    listeners = set(map(id, listening.values()))
    for test in list(vars(module).values()):
        if not inspect.isfunction(test) or not test.__name__.startswith("test_"):
            continue
        marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
        if not marks:
            continue
        names, values = marks[0].args
        several = isinstance(names, list | tuple) or "," in names
        asks = not listeners.isdisjoint(map(id, _named(test)))
        for value in values:
            given = value if several else (value,)
            given = [listening.get(id(thing), thing) for thing in given]
            if asks or not listeners.isdisjoint(map(id, given)):
                yield lambda test=test, given=given: test(*given)


def _named(function: Any) -> Iterator[Any]:
    """What a function names of its module, and what the functions among that name in turn."""
    waiting, seen = [function], set[int]()
    while waiting:
        function = waiting.pop()
        for name in _names(function.__code__):
            thing = function.__globals__.get(name)
            if id(thing) not in seen:
                seen.add(id(thing))
                yield thing
                if inspect.isfunction(thing) and thing.__module__ == function.__module__:
                    waiting.append(thing)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
