"""Hidden tests: the same checkers on other random inputs.

Every checker seeds its inputs, so that an answer gets the same words each time. With a number
mixed into those seeds the inputs are new ones and all that a checker demands stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kvbook.exercises.catalogue import exercises

# Exercises of which nothing can be drawn: their answers take no input.
UNDRAWN = frozenset(
    ("museum-mask-test", "museum-batch-test", "museum-whodunit", "museum-quiet-bug")
    + ("gpu-split-range", "gpu-shared-heads")  # lines of CUDA C++
)


def read_hidden(path: Path) -> tuple[str, list[int]]:
    """Chapter and numbers of a file of hidden tests; ValueError for another kind of file."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} holds no hidden tests: {error}") from None
    draws = said.get("draws") if isinstance(said, dict) else None
    numbers = draws if isinstance(draws, list) else [0]
    whole = all(isinstance(n, int) and n > 0 for n in numbers)
    if not whole or not isinstance(said.get("chapter"), str):
        raise ValueError(
            f"{path.name} holds no hidden tests: needed "
            '{"chapter": "paged", "draws": [whole numbers above 0]}, as `course` writes them'
        )
    return said["chapter"], numbers


@contextmanager
def redrawn(draw: int) -> Iterator[None]:
    """Inside, `np.random.default_rng(seed)` gives other numbers; 0 leaves all as it is."""
    given = np.random.default_rng

    def mixed(seed: Any = None) -> np.random.Generator:
        return given([seed, draw] if isinstance(seed, int) else seed)

    if draw:
        np.random.default_rng = mixed  # type: ignore[assignment]
    try:
        yield
    finally:
        np.random.default_rng = given


def passes(label: str, answer: Any, draws: Sequence[int] = ()) -> bool:
    """Whether an answer to the exercise `label` passes, as shown and with each other draw.

    For nbgrader's hidden tests; prints what was wrong. ValueError for an unknown label.
    """
    found = [e for e in exercises() if e.label == label]
    if not found:
        raise ValueError(f"no exercise {label!r} in the book")
    for draw in (0, *draws):
        with redrawn(draw):
            report = found[0].check()(answer)
        if not report.passed:
            print(report)
            return False
    return True
