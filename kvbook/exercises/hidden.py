"""Hidden tests: the checkers themselves, on other random inputs.

Every checker seeds its inputs, so that an answer gets the same words each time. With a number
mixed into those seeds the inputs are new ones, and all that a checker demands stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvbook.exercises.catalogue import exercises


@contextmanager
def redrawn(seed: int) -> Iterator[None]:
    """Inside, `np.random.default_rng(n)` of an integer gives other numbers."""
    given = np.random.default_rng

    def mixed(n: Any = None) -> np.random.Generator:
        return given([n, seed] if isinstance(n, int) else n)

    np.random.default_rng = mixed  # type: ignore[assignment]
    try:
        yield
    finally:
        np.random.default_rng = given


def passes(label: str, answer: Any, seed: int) -> bool:
    """Whether an answer passes its check as shown and with other inputs; print what is wrong."""
    check = next(e for e in exercises() if e.label == label).check()
    report, other = check(answer), ""
    if report.passed:
        with redrawn(seed):
            report, other = check(answer), "with other inputs than are shown:\n"
    if not report.passed:
        print(f"{other}{report}")
    return bool(report.passed)
