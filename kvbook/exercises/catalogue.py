"""Every exercise of the book as data: where it is, what checks it, how hard it is.

`catalogue.json` is cut from the chapters by tools/build_exercises.py, so that the package knows
the exercises without the notebooks: `grade` and the record of progress go by it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    label       its name in the book and in grades, such as "paged-free-list"
    name        what the reader defines; `checker` is the function that looks at it
    difficulty  1 to 3, which are also its points; minutes: what a first attempt may take
    """

    label: str
    chapter: str
    title: str
    name: str
    checker: str
    difficulty: int
    minutes: int

    @property
    def points(self) -> int:
        """What it counts in a grade: harder exercises count more."""
        return self.difficulty

    def check(self) -> Callable[[Any], Any]:
        """The checker itself, from the module of the chapter."""
        package = "kvbook" if self.chapter == "museum" else "kvbook.exercises"
        found = getattr(import_module(f"{package}.{self.chapter}"), self.checker)
        return found  # type: ignore[no-any-return]

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises, in the order of the book."""
    text = (files("kvbook.exercises") / "catalogue.json").read_text(encoding="utf-8")
    return tuple(Exercise(**entry) for entry in json.loads(text))


def chapters() -> tuple[str, ...]:
    """Names of the chapters that have exercises, in the order of the book."""
    return tuple(dict.fromkeys(e.chapter for e in exercises()))


def of_chapter(chapter: str) -> tuple[Exercise, ...]:
    """The exercises of one chapter. ValueError where the book has no such chapter."""
    found = tuple(e for e in exercises() if e.chapter == chapter)
    if not found:
        raise ValueError(
            f"no chapter {chapter!r} with exercises; there are {', '.join(chapters())}"
        )
    return found
