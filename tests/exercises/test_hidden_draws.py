"""Hidden tests: other inputs for every answer, and a right answer passes on all of them."""

import functools
import hashlib
from typing import Any

import numpy as np
import pytest
from notebook_code import solved

from kvbook.exercises.catalogue import Exercise, chapters, exercises, of_chapter
from kvbook.exercises.hidden import passes, redrawn

# the first gave a text whose first new token is the prompt's last
DRAWS = (324593663, 1, 20260101, 987654321, 2**31 - 1)
# Nothing can be drawn: their answers take no input, or are lines of CUDA C++.
UNDRAWN = {
    *("museum-mask-test", "museum-batch-test", "museum-whodunit", "museum-quiet-bug"),
    *("gpu-split-range", "gpu-shared-heads", "gpu-norm-product"),
}
Mark = Any


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
    for exercise in of_chapter(chapter):
        if exercise.label in UNDRAWN:
            continue
        seen: set[Mark] = set()
        answer = only_seen(solved(chapter)[exercise.name], seen)
        shown = exercise.check()(answer)
        assert shown.passed, f"{exercise.label}: {shown}"
        seen.add("closed")
        assert exercise.check()(answer).passed, f"{exercise.label}: the inputs differ each time"
        report = drawn(exercise, answer, 11)
        assert not report.passed, f"{exercise.label}: draw 11 has the inputs that are shown"


def test_a_hidden_test_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng
    assert passes("intro-times-computed", lambda position, steps: max(0, steps - position), seed=5)
    assert capsys.readouterr().out == "" and np.random.default_rng is rng
    assert not passes("intro-times-computed", lambda position, steps: steps, seed=5)
    assert "no token at position 3 yet" in capsys.readouterr().out
    answer = only_seen(lambda position, steps: max(0, steps - position), seen := set[Mark]())
    assert exercises()[0].check()(answer).passed
    seen.add("closed")
    assert not passes("intro-times-computed", answer, seed=5)
    assert capsys.readouterr().out.startswith("with other inputs than are shown:\n")


def only_seen(right: Any, seen: set[Mark]) -> Any:
    """The right answer on inputs that were seen before `seen` had "closed", else an error."""

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
