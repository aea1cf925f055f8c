"""An answer that is right for some calls and then returns anything: in words, and not passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from effort import Effort
from hostile_asking import ANY_KEY, BY, CUDA, NO_RESULT, TAKEN, around, asked, what, words
from hostile_results import LIES
from hostile_values import VALUES

from kvbook.exercises.catalogue import Exercise, exercises

# Calls of which the result counts for nothing, or not all of it: whatever runs for the first time,
# a cast that is listened to, columns where logits are equal, degrees of freedom alone.
UNSEEN = {
    *(("paged-decode", 7), ("quantized-int8_codes", 2)),
    *(("sampling-merge_rows", 2), ("sampling-merge_rows", 3), ("sampling-chi_square", 2)),
}


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
        (name, at) for i, at in enumerate(spread(calls(exercise), 12)) for name in [*VALUES, *LIES]
    ]
    step = 37  # neighbours differ in value and in call
    cases = [cases[i * step % len(cases)] for i in range(len(cases))] if cases else []
    for name, at in effort.share("hostile values that come late", cases, usual=10, quick=3):
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
