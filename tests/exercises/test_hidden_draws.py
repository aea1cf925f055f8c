"""Hidden tests: other inputs for every answer, and a right answer passes on all of them."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.course import instructor_notebook, read_chapter
from kvbook.course.guide import GUIDE
from kvbook.exercises.catalogue import Exercise, chapters, exercises, of_chapter
from kvbook.grading.draws import UNDRAWN, redrawn
from kvbook.grading.needed import needed, statements

BOOK = Path(__file__).resolve().parents[2] / "book"
# the first gave a text whose first new token is the prompt's last
DRAWS = (324593663, 1, 20260101, 987654321, 2**31 - 1)
Mark = Any


@functools.cache
def solved(chapter: str) -> dict[str, Any]:
    """What the instructor's notebook defines for the exercises."""
    cells = instructor_notebook(read_chapter(BOOK / f"{chapter}.ipynb"))["cells"]
    sources = [c["source"] for c in cells if c["cell_type"] == "code"]
    space: dict[str, Any] = {"__name__": "__main__"}
    for statement in needed(statements(sources)[0], [e.name for e in of_chapter(chapter)]):
        exec(statement.code, space)
    return space


def drawn(exercise: Exercise, answer: Any, draw: int) -> Any:
    with redrawn(draw):
        return exercise.check()(answer)


@pytest.mark.parametrize("chapter", [c for c in chapters() if c != "museum"])
def test_right_answers_pass_on_all_draws(chapter: str) -> None:
    for exercise in of_chapter(chapter):
        for draw in DRAWS:
            report = drawn(exercise, solved(chapter)[exercise.name], draw)
            assert report.passed, f"{exercise.label}, draw {draw}: {report}"


@pytest.mark.parametrize("chapter", chapters())
def test_whoever_knows_the_shown_inputs_alone_fails_on_others(chapter: str) -> None:
    """Of each exercise, but for those that the guide names as having no inputs to draw."""
    for exercise in of_chapter(chapter):
        if exercise.label in UNDRAWN:
            continue
        seen: set[Mark] = set()
        answer = only_seen(solved(chapter)[exercise.name], seen)
        with_all = drawn(exercise, answer, 0)
        assert with_all.passed, f"{exercise.label}: {with_all}"
        seen.add("closed")
        assert drawn(exercise, answer, 0).passed, f"{exercise.label}: other inputs, same draw"
        report = drawn(exercise, answer, 11)
        assert not report.passed, f"{exercise.label}: draw 11 has the inputs of draw 0"


def test_the_guide_names_the_exercises_without_hidden_tests() -> None:
    assert {e.label for e in exercises()} >= UNDRAWN
    for label in UNDRAWN:
        assert label in GUIDE


def only_seen(right: Any, seen: set[Mark]) -> Any:
    """The right answer on inputs that were seen before `seen` held "closed", else an error."""

    def known(what: Mark) -> None:
        if "closed" not in seen:
            seen.add(what)
        elif what not in seen:
            raise KeyError("an input that nobody showed")

    if not isinstance(right, type):

        @functools.wraps(right)
        def answer(*given: Any, **named: Any) -> Any:
            known((mark(given), mark(named)))
            return right(*given, **named)

        return answer

    def method(name: str) -> Any:
        own = getattr(right, name)

        def call(self: Any, *given: Any) -> Any:
            past = (*vars(self).get("past_calls", ()), (name, mark(given)))
            known(past)
            vars(self)["past_calls"] = past
            return own(self, *given)

        return call

    names = [n for n, value in vars(right).items() if callable(value)]
    return type(right.__name__, (right,), {name: method(name) for name in names})


def mark(thing: Any) -> Mark:
    """Plain data by its value; of objects and functions only the kind."""
    if isinstance(thing, np.ndarray):
        data = np.ascontiguousarray(thing)
        return thing.shape, str(thing.dtype), hashlib.sha1(data.view(np.uint8)).hexdigest()
    if isinstance(thing, list | tuple):
        return tuple(map(mark, thing))
    if isinstance(thing, dict):
        return tuple((key, mark(value)) for key, value in thing.items())
    if isinstance(thing, str | int | float | np.generic | None) or hasattr(
        thing, "num_hidden_layers"
    ):
        return repr(thing)
    return type(thing).__name__
