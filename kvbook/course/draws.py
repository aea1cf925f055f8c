"""The numbers that seed a chapter's hidden tests: kept, or drawn such that right answers pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kvbook.course.chapter import Chapter
from kvbook.grading.draws import UNDRAWN, redrawn
from kvbook.grading.needed import needed, statements

DRAWS = 3  # other random inputs that hidden tests use
TRIES = 20  # before something must be wrong with the checker


def draw_passing(chapter: Chapter, answers: dict[str, Any], drawn: random.Random) -> list[int]:
    """DRAWS numbers on which every one of the chapter's own answers passes.

    answers: what the instructor's notebook defines. RuntimeError where TRIES numbers were not
    enough.
    """
    found: list[int] = []
    for _ in range(TRIES):
        draw = drawn.randrange(1, 2**31)
        if all_pass(chapter, answers, draw):
            found.append(draw)
        if len(found) == DRAWS:
            return found
    raise RuntimeError(f"{chapter.name}: of {TRIES} draws the solutions pass {len(found)}")


def all_pass(chapter: Chapter, answers: dict[str, Any], draw: int) -> bool:
    """Whether the chapter's own answers pass their checkers on one draw."""
    for block in chapter.blocks:
        exercise = chapter.exercise(block)
        if exercise.label in UNDRAWN:
            continue
        with redrawn(draw):
            if not exercise.check()(answers[exercise.name]).passed:
                return False
    return True


def answers_of(chapter: Chapter, sources: Sequence[str]) -> dict[str, Any]:
    """What code cells define for the exercises of a chapter: only that is run."""
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *things, **_: None}
    names = [e.name for e in map(chapter.exercise, chapter.blocks) if e.label not in UNDRAWN]
    for statement in needed(statements(sources)[0], names):
        exec(statement.code, space)
    return space
