"""Whatever an answer returns or raises, its checker says in words what came, and refuses it."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from notebook_code import solved

from kvbook.exercises.catalogue import Exercise, exercises
from kvbook.exercises.report import Report

METHODS = {
    "FreeList": ("allocate", "free"), "LayerCache": ("append", "attend"),
    "States": ("append", "read", "truncate"),
}
CUDA = ("gpu-split-range", "gpu-shared-heads", "gpu-norm-product")  # C++, for a compiler
# Answers that change an argument because that is their work.
CHANGING = {"batched-append-rows", "paged-append", "prefixes-append-key"}
NO_RESULT = {"museum-mask-test", "museum-batch-test"}  # what these return counts for nothing
ONLY_COUNTED = {"batched-append-rows", "paged-slot-mapping", "prefixes-cascade"}  # the last call
WIDE = {"chunked-online-update"}  # where float64 is as good as float32
ANY_KEY = "prefixes-block-keys"  # one key may be any other, if no block has it
BY = {e.label: e for e in exercises() if e.label not in CUDA}
each_exercise = pytest.mark.parametrize("label", BY)

VALUES: dict[str, Any] = {
    "None": None, "True": True, "minus one": -1, "a half": 0.5, "nan": float("nan"),
    "ten to the 400": 10**400, "a text": "four", "a generator": (n for n in range(4)),
    "a function": len, "a class": int, "an object": object(), "an empty list": [],
    "a list of None": [None] * 3, "a list of texts": ["a", "b", "c"],
    "a ragged list": [[1, 2], [3], []], "a pair": (1, 2), "a pair of nan": (float("nan"),) * 2,
    "a triple of texts": ("a", "b", "c"), "a dict": {"a": 1}, "an empty array": np.zeros(0),
    "an array of nan": np.full((3, 3), np.nan),
    "an array of objects": np.array([1, None, "x"], dtype=object),
    "an array of texts": np.array(["a", "b"]),
    "an array in nine dimensions": np.zeros((1,) * 9),
}


class Unprintable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS = (ValueError("no"), SystemExit(3), RecursionError(), Unprintable())


def asked(exercise: Exercise, answer: Any) -> Report:
    """The checker's report; whatever it raises fails the test, warnings included."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return exercise.check()(answer)


def refused(exercise: Exercise, answer: Any, what: str) -> None:
    report = asked(exercise, answer)
    assert not report.passed, f"{exercise.label} passed {what}"
    said = report.finding
    assert 10 <= len(said) <= 4100, f"{what}: {said[:200]!r}"
    assert "mistake of the checker" not in said, f"{what}: {said}"
    assert all(c.isprintable() or c == "\n" for c in said), f"{what}: {said!r}"


def around(exercise: Exercise, change: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """The book's answer, with what it returns passed through change(result, arguments)."""
    right = solved(exercise.chapter)[exercise.name]
    if exercise.name not in METHODS:
        return lambda *args, **kwargs: change(right(*args, **kwargs), (*args, *kwargs.values()))

    def method(name: str) -> Any:
        own = getattr(right, name)
        return lambda self, *args: change(own(self, *args), args)

    return type(exercise.name, (right,), {n: method(n) for n in METHODS[exercise.name]})


@each_exercise
def test_values_of_another_kind(label: str) -> None:
    for name, value in VALUES.items() if label not in NO_RESULT else ():
        refused(BY[label], around(BY[label], lambda result, args, value=value: value), name)


@each_exercise
def test_answers_that_raise(label: str) -> None:
    for error in ERRORS:

        def fails(result: Any, args: Any, error: BaseException = error) -> Any:
            raise error

        refused(BY[label], around(BY[label], fails), repr(type(error)))


@each_exercise
def test_answers_that_cannot_be_called_so(label: str) -> None:
    for name, answer in {"no argument": lambda: 4, "a builtin": len, "a class": int}.items():
        refused(BY[label], answer, name)


def over(change: Callable[[Any], Any], x: Any) -> Any:
    """x with `change` applied to every number, text and array in it."""
    if isinstance(x, list | tuple):
        return type(x)(over(change, y) for y in x)
    return {k: over(change, v) for k, v in x.items()} if isinstance(x, dict) else change(x)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


# What a branch without a return gives, a division by zero, and a loop that ends one too late.
WRONG: dict[str, Callable[[Any], Any]] = {
    "None": lambda x: None,
    "nan": lambda x: over(lambda y: np.full(y.shape, np.nan) if _is_array(y) else np.nan, x),
    "a row too many": lambda x: over(
        lambda y: np.concatenate([y, y[:1]]) if _is_array(y) and y.ndim else [y, y], x
    ),
}


@each_exercise
def test_a_wrong_result_after_right_ones(label: str) -> None:
    exercise, calls = BY[label], list[bool]()
    assert asked(exercise, around(exercise, lambda r, args: calls.append(r is None) or r)).passed
    last = len(calls) - 1 - (label in ONLY_COUNTED)
    for at in {len(calls) // 3, last}:
        if calls[at] or label in NO_RESULT or label == ANY_KEY:
            continue
        for name, wrong in WRONG.items():
            before = iter(range(at))  # right results that are still to come

            def late(result: Any, args: Any, before: Any = before, wrong: Any = wrong) -> Any:
                return result if next(before, None) is not None else wrong(result)

            refused(exercise, around(exercise, late), f"{name} from call {at} on")


@each_exercise
def test_arrays_of_another_dtype(label: str) -> None:
    """Twice the bytes, numbers for booleans, and floats for integers, which index nothing."""
    exercise, changed = BY[label], list[bool]()

    def other(x: Any) -> Any:
        keep = not _is_array(x) or x.dtype == float or (x.dtype == np.float32 and label in WIDE)
        changed.append(not keep)
        return x if keep else x.astype(int if x.dtype == bool else float)

    report = asked(exercise, around(exercise, lambda result, args: over(other, result)))
    assert report.passed != any(changed), report


def _scalar(x: Any) -> Any:
    return {int: np.int64, float: np.float64}.get(type(x), lambda x: x)(x)


def _read_only(x: Any) -> Any:
    if _is_array(x):
        x = np.asfortranarray(x)
        x.flags.writeable = False
    return x


FORMS: dict[str, Callable[[Any], Any]] = {
    "NumPy's numbers": lambda x: over(_scalar, x),
    "read-only arrays in Fortran order": lambda x: over(_read_only, x),
    "lists as tuples": lambda x: tuple(x) if isinstance(x, list) else x,
    "tuples as lists": lambda x: list(x) if isinstance(x, tuple) else x,
}


@each_exercise
def test_right_results_of_another_form_pass(label: str) -> None:
    for name, form in FORMS.items():
        answer = around(BY[label], lambda result, args, form=form: form(result))
        report = asked(BY[label], answer)
        assert report.passed, f"{name}: {report}"
    if BY[label].name not in METHODS and label not in NO_RESULT:  # their code runs elsewhere
        assert asked(BY[label], functools.partial(solved(BY[label].chapter)[BY[label].name])).passed


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


@each_exercise
def test_inputs_that_were_changed_are_noticed(label: str) -> None:
    exercise, done = BY[label], list[bool]()

    def spoil(result: Any, args: Any) -> Any:
        done.append(sum(map(changed_in_place, args)) > 0)
        return result

    report = asked(exercise, around(exercise, spoil))
    if any(done):
        assert not report.passed
        if label not in CHANGING and exercise.name not in METHODS:
            assert "was changed" in report.finding, report.finding
