"""Whatever an answer is, returns or does, a checker says in words what came, and does not pass it.

The values and answers have names in hostile_*.py, which are the names of the tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from effort import LEVEL, Effort
from hostile_answers import ANSWERS
from hostile_results import CLOTHES, LIES
from hostile_values import VALUES
from test_hidden_draws import solved

from kvlib.exercises.catalogue import Exercise, exercises
from kvlib.exercises.plain import plain
from kvlib.exercises.report import Finding, Report

METHODS = {"FreeList": ("allocate", "free"), "LayerCache": ("append", "attend")}
CUDA = ("gpu-split-range", "gpu-shared-heads")
COMPILED = ("text", "surrogate")  # the texts that are compiled, because a compiler costs seconds
OF_TEXT = {name for name in VALUES if "text" in name or name in ("surrogate", "escape codes")}
# Answers that change an argument because that is their work.
CHANGING = {"batched-append-rows", "paged-append", "prefixes-append-key"}
ANY_KEY = "prefixes-block-keys"  # one key may be any other, if no block has it
NO_RESULT = ("museum-mask-test", "museum-batch-test")  # what these return counts for nothing
NESTED = "each thing in a list"  # the right tokens, in a shape of (1, n)
TAKEN = {("cached-decode", NESTED), ("cached-reuse", NESTED)}
# Calls of which the result counts for nothing, or not all of it: whatever runs for the first time,
# a cast that is listened to, columns where logits are equal, degrees of freedom alone.
UNSEEN = {
    *(("paged-decode", 7), ("quantized-int8_codes", 2)),
    *(("sampling-merge_rows", 2), ("sampling-merge_rows", 3), ("sampling-chi_square", 2)),
}
BY = {e.label: e for e in exercises()}


# These take a tenth of a second for a right answer, and get one name in six.
COSTLY = (
    *("museum-quiet-bug", "museum-whodunit", "museum-batch-test"),
    *("paged-decode", "prefixes-block-keys", "batched-serve"),
)


def checked(table: Mapping[str, Any], name: str) -> Iterator[Exercise]:
    """The exercises that get the value of this name: all of them in the weekly run."""
    place = list(table).index(name)
    for exercise in exercises():
        label = exercise.label
        if label not in COSTLY or LEVEL == "whole" or place % 6 == COSTLY.index(label):
            yield exercise


def asked(exercise: Exercise, answer: Any) -> Report:
    """The checker's report; whatever it raises fails the test, warnings included."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = exercise.check()(answer)
    assert isinstance(report, Report)
    return report


def refused(exercise: Exercise, answer: Any) -> None:
    report = asked(exercise, answer)
    assert report.status in ("not yet", "not done yet"), f"{exercise.label} passed"
    words(exercise, report)


def words(exercise: Exercise, report: Report) -> None:
    """The finding is a sentence of a sensible length that any file and terminal can take."""
    said = report.finding
    assert 10 <= len(said) <= 2500, f"{exercise.label}: {said[:200]!r}"
    assert "mistake of the checker" not in said, f"{exercise.label}: {said}"
    assert " at 0x" not in said, f"{exercise.label}: {said}"
    said.encode()
    assert all(c.isprintable() or c == "\n" for c in said), f"{exercise.label}: {said!r}"
    assert repr(report).startswith(exercise.checker.removeprefix("check_"))


def returning(exercise: Exercise, make: Callable[[], Any]) -> Any:
    """An answer that returns the value; of an exercise for a class, all of its methods do."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return make()

    return in_its_form(exercise, answer)


def in_its_form(exercise: Exercise, answer: Any) -> Any:
    if exercise.name not in METHODS:
        return answer
    methods = dict.fromkeys(METHODS[exercise.name], lambda self, *args: answer(*args))
    return type(exercise.name, (), {"__init__": lambda self, *args: None, **methods})


def around(exercise: Exercise, change: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """The right answer, with what it returns passed through change(result, arguments)."""
    right = solved(exercise.chapter)[exercise.name]
    if exercise.name not in METHODS:
        return lambda *args, **kwargs: change(right(*args, **kwargs), (*args, *kwargs.values()))

    def method(name: str) -> Any:
        own = getattr(right, name)
        return lambda self, *args: change(own(self, *args), args)

    return type(exercise.name, (right,), {n: method(n) for n in METHODS[exercise.name]})


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    for exercise in checked(VALUES, name):
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
def test_right_results_in_other_clothes_are_taken_or_refused_in_words(name: str) -> None:
    for exercise in checked(CLOTHES, name):
        report = asked(exercise, around(exercise, lambda result, args: CLOTHES[name](result)))
        if not report.passed:
            words(exercise, report)


@pytest.mark.parametrize("name", LIES)
def test_wrong_results_that_claim_to_be_right(name: str) -> None:
    for exercise in checked(LIES, name):
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


def what(x: Any) -> str:
    """x as plain data, to tell whether a lie is one."""
    try:
        return repr(plain(x, "it"))
    except Finding:
        return "no plain data"


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


def calls(exercise: Exercise) -> int:
    count = []

    def note(result: Any, args: Any) -> Any:
        count.append(1)
        return result

    assert asked(exercise, around(exercise, note)).passed
    return len(count)


def late(exercise: Exercise, at: int, value: Callable[[Any], Any], changed: list[bool]) -> Any:
    """The right answer, but the call number `at` returns something else; whether it did."""
    count = iter(range(10**9))

    def change(result: Any, args: Any) -> Any:
        if next(count) != at:
            return result
        came = value(result)
        changed.append(result is not None and what(came) != what(result))
        return came

    return around(exercise, change)


def spread(n: int, most: int) -> Iterator[int]:
    yield from sorted({round(i * (n - 1) / max(1, most - 1)) for i in range(min(n, most))})


@pytest.mark.parametrize("label", [e.label for e in exercises() if e.label not in CUDA])
def test_a_value_that_comes_late(label: str, effort: Effort) -> None:
    """Each call of a checker gets some of the values, when all calls before it were right."""
    exercise = BY[label]
    cases = [
        (name, at) for i, at in enumerate(spread(calls(exercise), 40)) for name in [*VALUES, *LIES]
    ]
    step = 37  # neighbours differ in value and in call
    cases = [cases[i * step % len(cases)] for i in range(len(cases))] if cases else []
    for name, at in effort.share("hostile values that come late", cases, usual=16, quick=4):
        make, changed = made_late(name), list[bool]()
        report = asked(exercise, late(exercise, at, make, changed))
        if not report.passed:
            words(exercise, report)
        elif (
            label not in (*NO_RESULT, ANY_KEY)
            and (label, at) not in UNSEEN
            and (label, name) not in TAKEN
        ):
            assert not any(changed), f"{label} passed {name} at call {at}"


def made_late(name: str) -> Callable[[Any], Any]:
    return LIES[name] if name in LIES else lambda result: VALUES[name]()
