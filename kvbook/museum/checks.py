"""Checkers of the museum's exercises: tests scored by bugs, suspects, and a bug that you write."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbook.exercises.expect import Finding
from kvbook.exercises.guard import NotDone, bare
from kvbook.exercises.received import shown
from kvbook.exercises.report import checker
from kvbook.exercises.wording import a
from kvbook.museum import looks
from kvbook.museum.catalogue import exhibit, exhibits
from kvbook.museum.exhibit import Symptom, fresh
from kvbook.museum.mutation import Bug, Change, Mutant, applied
from kvbook.museum.scoring import score_tests, verdict

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

MASKS = ("decode_sees_token_0_only", "triangle_in_the_wrong_corner", "mask_of_ones")
BATCH = ("one_position_for_the_batch", "append_at_the_longest", "one_row_for_all")
CASES = {
    "A": "triangle_in_the_wrong_corner",
    "B": "decode_one_position_late",
    "C": "stale_prefix",
    "D": "last_prompt_token_twice",
    "E": "trim_skipped_on_a_ring",
    "F": "second_shift_replaces_the_first",
}
SUSPECTS = (
    *("append_at_the_longest", "decode_one_position_late", "decode_sees_token_0_only"),
    *("hash_believed", "last_prompt_token_twice", "mask_of_ones", "moved_keys_keep_their_angle"),
    *("second_shift_replaces_the_first", "stale_prefix", "triangle_in_the_wrong_corner"),
    "trim_skipped_on_a_ring",
)
HINTS = {
    "decode_sees_token_0_only": "it shows with one query over several keys (T = 1, S > 1)",
    "triangle_in_the_wrong_corner": "it shows with several queries over more keys (1 < T < S)",
    "mask_of_ones": "it shows where a query has keys after it (T > 1); the last query of a chunk "
    "has none",
    "one_position_for_the_batch": "it shows from the second step on, for the shorter of two rows",
    "append_at_the_longest": "it shows for the shorter of two rows",
    "one_row_for_all": "it shows as soon as two requests are open in one cache",
}


@checker
def check_mask_test(mask_test: Callable[[], Any]) -> Iterator[str]:
    """mask_test() raises an error where attention sees too much or too little."""
    yield from _kills(mask_test, MASKS)


@checker
def check_batch_test(batch_test: Callable[[], Any]) -> Iterator[str]:
    """batch_test() raises an error where a row of a batch differs from the row alone."""
    yield from _kills(batch_test, BATCH)


def _kills(guarded_test: Any, names: Sequence[str]) -> Iterator[str]:
    test, returned = bare(guarded_test), set[bool]()
    _expect_plain_function(test)

    @wraps(test)
    def watched() -> None:
        result = test()
        if type(result) is bool:
            returned.add(result)

    if test.__code__.co_code == _stub.__code__.co_code:
        raise NotDone(f"write the body of {test.__name__}, then run this cell again.")
    try:
        score = score_tests([watched], [exhibit(name) for name in names])
    except TypeError as error:
        raise Finding(str(error)) from None
    if score.finding:
        if "NotImplementedError" in score.finding:
            raise NotDone(f"write the body of {test.__name__}, then run this cell again.")
        raise Finding(score.finding)
    yield "passes on healthy kvlib, before and after"
    for name in score.killed:
        yield f"kills {name}"
    if score.survived and returned:
        raise Finding(
            f"{test.__name__} returned {returned.pop()}, but nothing looks at what a test returns. "
            "A test has to raise an error where something is wrong: use assert."
        )
    if score.survived:
        name = score.survived[0]
        raise Finding(
            f"{len(score.survived)} of {score.total} bugs survive, {name} among them: "
            f"{HINTS[name]}."
        )


def _expect_plain_function(test: Any) -> None:
    if type(test) is not FunctionType:
        raise Finding(f"A test must be a function, got {a(type(test).__name__)}.")
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if test.__code__.co_flags & flags:
        raise Finding(
            f"Calling {test.__name__} does not run its body, because of an async or a yield in it. "
            "Write a plain function."
        )


def _stub() -> None:
    """Nothing."""


# Find the bug from the symptom --------------------------------------------------------------------


@cache
def cases() -> dict[str, Symptom]:
    """Six symptoms by letter, each caused by one of SUSPECTS, whose name is not shown."""
    model, found = _reference(), {}
    for letter, name in CASES.items():
        seen = exhibit(name).symptom(model)
        found[letter] = Symptom(f"case {letter}", seen.look, seen.healthy, seen.broken)
    return found


@cache
def _reference() -> Decoder:
    from kvlib.reference import load_reference_model

    return load_reference_model(xp=np)  # thousands of tiny steps: on a GPU each costs a launch


@checker
def check_whodunit(whodunit: Callable[[], Any]) -> Iterator[str]:
    """whodunit() → {"A": name of an exhibit, ...}, which cause the symptoms of `cases()`."""
    answer = whodunit()
    if not isinstance(answer, dict):
        raise Finding(
            f"whodunit returned {a(type(answer).__name__)}. It has to return a dict from letters "
            "to names."
        )
    missing = [letter for letter in CASES if letter not in answer]
    if missing:
        raise Finding(
            f"There is no answer for case {missing[0]}. The cases are {', '.join(CASES)}."
        )
    for letter, seen in cases().items():
        name = answer[letter]
        if not isinstance(name, str) or name not in SUSPECTS:
            raise Finding(
                f"Case {letter}: {name!r} is not a suspect. The suspects are {', '.join(SUSPECTS)}."
            )
        shown = _shows(letter, name)
        if shown != seen.broken:
            same = "the healthy text" if shown == seen.healthy else shown
            raise Finding(f"Case {letter}: with {name} installed, the same prompt gives {same}.")
        yield f"case {letter}: {name} gives exactly this symptom"


@cache
def _shows(letter: str, name: str) -> str:
    """What the look of a case shows with a suspect in place."""
    look = exhibit(CASES[letter]).look
    assert look is not None
    with exhibit(name).installed():
        return look(fresh(_reference()))


# A bug that you write ---------------------------------------------------------------------------


@checker(returns=object)
def check_quiet_bug(quiet_bug: Callable[[], Any]) -> Iterator[str]:
    """quiet_bug() → a Bug that leaves the text unchanged and that a test of the museum kills."""
    mutant = _exactly(quiet_bug())
    if isinstance(mutant, Bug) and any(_does(e) == _does(mutant) for e in exhibits()):
        raise Finding(f"{mutant.name} is in the museum already. Find a bug of your own.")
    try:
        shown, caught = _tried(mutant)
    except (LookupError, ImportError, SyntaxError, ValueError) as error:
        raise Finding(f"The bug cannot be installed: {error.args[0]}") from None
    yield "kvlib runs with the bug"
    if shown:
        raise Finding(f"The bug is not quiet, because the text changes: {shown}")
    yield "the text of one prompt stays the same"
    if caught is None:
        raise Finding(
            "No test of the museum sees it. It may change nothing that matters (an equivalent "
            "mutant), or it may be a bug that all tests miss."
        )
    yield f"{caught} catches it"


def _exactly(mutant: Any) -> Bug | Mutant:
    """The same bug without what a subclass may have changed."""
    kind = next((kind for kind in (Bug, Mutant) if issubclass(type(mutant), kind)), None)
    if kind is None:
        raise Finding(
            f"quiet_bug returned {a(type(mutant).__name__)}. It has to return a museum.Bug."
        )
    given, found = object.__getattribute__(mutant, "__dict__"), dict[str, Any]()
    for field in fields(kind):
        value = given.get(field.name)
        if field.name == "bug" and type(value) is not FunctionType:
            raise Finding(
                "The bug must be a function that receives the original first, got "
                f"{a(type(value).__name__)}."
            )
        if field.name != "bug" and not issubclass(type(value), str):
            raise Finding(f"The {field.name} of the bug must be a string, got {shown(value)}.")
        found[field.name] = value if field.name == "bug" else str.__str__(value)
    if found["module"].partition(".")[0] != "kvlib":
        raise Finding(f"The bug must change a module of kvlib, got {shown(found['module'])}.")
    return kind(**found)


def _does(bug: Bug) -> tuple[Any, ...]:
    """What a bug replaces and by which instructions, whatever its name and docstring."""
    code = dis.get_instructions(bug.bug)
    return bug.module, bug.function, *((i.opname, i.argrepr) for i in code)


@cache
def _tried(mutant: Change) -> tuple[str, str | None]:
    """What the text test says of a mutant, and the first test of the museum that kills it."""
    with applied(mutant):
        shown = verdict(_says_the_same, 60)
        caught = next((test.__name__ for test in _tests() if verdict(test)), None)
    return shown, caught


def _tests() -> list[Callable[[], None]]:
    return list(dict.fromkeys(e.caught_by for e in exhibits()))


def _says_the_same() -> None:
    """Two looks at the reference model give their usual text."""
    model = fresh(_reference())
    said = looks.one_request(model), looks.a_prompt_twice(model)
    assert said == (
        "'items\\n        self.items = items'",
        '"tfre\'\\n  "',
    ), f"{said}"
