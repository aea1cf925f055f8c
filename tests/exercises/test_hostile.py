"""Whatever an answer is, returns or does, a checker says in words what came, and does not pass it.

The values and answers have names in hostile_*.py, which are the names of the tests.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import Effort
from hostile_answers import ANSWERS
from hostile_asking import (
    BY,
    CHANGING,
    COMPILED,
    CUDA,
    EXCLUDED,
    METHODS,
    NO_RESULT,
    OF_TEXT,
    TAKEN,
    around,
    asked,
    checked,
    in_its_form,
    refused,
    returning,
    what,
    words,
)
from hostile_results import CLOTHES, LIES, RIGHT, over
from hostile_values import VALUES
from test_hidden_draws import solved

from kvbook.exercises.catalogue import exercises


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str, effort: Effort) -> None:
    for exercise in checked(VALUES, name, effort):
        if exercise.label in CUDA and name in OF_TEXT and name not in COMPILED:
            continue
        refused(exercise, returning(exercise, VALUES[name]))


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(name: str, capsys: Any) -> None:
    for exercise in exercises():
        if exercise.label in CUDA and name == "prints a megabyte":
            continue
        answer = ANSWERS[name]()
        refused(exercise, answer)
        if not isinstance(answer, type):
            refused(exercise, in_its_form(exercise, answer))
        capsys.readouterr()


@pytest.mark.parametrize("name", CLOTHES)
def test_right_results_in_other_clothes_are_taken_or_refused_in_words(
    name: str, effort: Effort
) -> None:
    for exercise in checked(CLOTHES, name, effort):
        report = asked(exercise, around(exercise, lambda result, args: CLOTHES[name](result)))
        if not report.passed:
            words(exercise, report)


@pytest.mark.parametrize("name", RIGHT)
def test_right_results_in_other_forms_pass_unless_the_task_excludes_them(name: str) -> None:
    excluded, words_for_it = EXCLUDED.get(name, (set(), ""))
    for exercise in exercises():
        if exercise.label in CUDA:
            continue
        changed = list[bool]()

        def dressed(result: Any, args: Any, changed: list[bool] = changed) -> Any:
            new = RIGHT[name](result)
            changed.append(_form(new) != _form(result))
            return new

        report = asked(exercise, around(exercise, dressed))
        if exercise.label not in excluded:
            assert report.passed, f"{exercise.label}: {report}"
        elif any(changed):
            assert not report.passed, f"{exercise.label} passed"
            assert re.search(words_for_it, report.finding), f"{exercise.label}: {report}"


def _form(x: Any) -> Any:
    """The types in a result, and how its arrays are stored."""
    if isinstance(x, np.ndarray):
        return x.dtype, x.strides, x.flags.writeable, x.tobytes() if x.dtype.kind == "f" else b""
    return (type(x), *map(_form, x[:9])) if isinstance(x, list | tuple) else type(x)


class Object:
    """A function as an object that can be called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def _single(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


FORMS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda f: lambda *args: f(*args),
    "partial": functools.partial,
    "object": Object,
    "method": lambda f: Object(f).__call__,
    "single precision": lambda f: lambda *args: f(*map(_single, args)),
    "another optional argument": lambda f: lambda *args, verbose=False: f(*args),
}
FUNCTIONS_ALONE = ("museum-mask-test", "museum-batch-test")  # their code runs with other globals


@pytest.mark.parametrize("name", FORMS)
def test_right_answers_of_another_form_pass(name: str) -> None:
    for exercise in exercises():
        if exercise.name in METHODS or exercise.label in (*CUDA, *FUNCTIONS_ALONE):
            continue
        if (exercise.label, name) == ("layernorm-spot_check", "single precision"):
            continue  # a difference of step 1e-4 loses its digits there
        report = asked(exercise, FORMS[name](solved(exercise.chapter)[exercise.name]))
        assert report.passed, f"{exercise.label}: {report}"


NUMBER = r"(?<![\w.])(-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)"
SAME_TWICE = re.compile(rf"{NUMBER}\D{{0,6}}needed [^\d;]*{NUMBER}|expected {NUMBER}.*got {NUMBER}")


@pytest.mark.parametrize("by", (1e-3, 3e-5, 2e-6))
def test_numbers_that_differ_are_printed_so_that_they_differ(by: float) -> None:
    def more(x: Any) -> Any:
        floating = isinstance(x, float) or (isinstance(x, np.ndarray) and x.dtype.kind == "f")
        return x * type(x)(1 + by) if isinstance(x, float) else x * (1 + by) if floating else x

    for exercise in exercises():
        if exercise.label in (*CUDA, *NO_RESULT):
            continue

        def off(result: Any, args: Any) -> Any:
            new = over(more, result)
            alike = isinstance(result, np.ndarray) and result.dtype.kind == "f"
            return new.astype(result.dtype) if alike else new

        said = asked(exercise, around(exercise, off)).finding
        for found in SAME_TWICE.finditer(said):
            got, needed = (x for x in found.groups() if x is not None)
            assert got != needed, f"{exercise.label}: {said}"


@pytest.mark.parametrize("name", LIES)
def test_wrong_results_that_claim_to_be_right(name: str, effort: Effort) -> None:
    for exercise in checked(LIES, name, effort):
        if exercise.label in (*CUDA, *NO_RESULT) or (exercise.label, name) in TAKEN:
            continue
        changed = []

        def lie(result: Any, args: Any, changed: list[bool] = changed) -> Any:
            wrong = LIES[name](result)
            changed.append(what(wrong) != what(result))
            return wrong

        report = asked(exercise, around(exercise, lie))
        if any(changed):
            assert not report.passed, f"{exercise.label} passed"
            words(exercise, report)


def changed_in_place(thing: Any) -> bool:
    """Change the first number in arrays, lists and dicts; whether there was one."""
    if isinstance(thing, np.ndarray) and thing.size and thing.flags.writeable:
        thing[(0,) * thing.ndim] += 1
        return True
    if isinstance(thing, list) and thing:
        if not isinstance(thing[0], int):
            return changed_in_place(thing[0])
        thing[0] += 1
        return True
    if isinstance(thing, tuple):
        return any(map(changed_in_place, thing))
    if type(thing) is dict and thing:
        thing.pop(next(iter(thing)))
        return True
    return False


@pytest.mark.parametrize("label", [e.label for e in exercises()])
def test_inputs_that_were_changed_are_noticed(label: str) -> None:
    exercise, done = BY[label], list[bool]()

    def spoil(result: Any, args: Any) -> Any:
        done.append(sum(map(changed_in_place, args)) > 0)
        return result

    report = asked(exercise, around(exercise, spoil))
    if any(done):
        assert not report.passed
        words(exercise, report)
        if label not in CHANGING and exercise.name not in METHODS:
            assert "was changed" in report.finding, report.finding
