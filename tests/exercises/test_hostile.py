"""Whatever an answer is, returns or does, a checker says in words what came, and does not pass it.

The values and answers have names in hostile_*.py, which are the names of the tests.
"""

from __future__ import annotations

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
from hostile_results import CLOTHES, LIES
from hostile_values import VALUES

from kvlib.exercises.catalogue import exercises


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
