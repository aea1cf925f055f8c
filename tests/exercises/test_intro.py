"""Wrong answers to the warm-up, each with the words it is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from notebook_code import BOOK, namespace, read, smallest_margin

from kvlib.exercises.intro import check_times_computed


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda position, steps: steps, "no token at position 3 yet"),
        (lambda position, steps: steps - position - 1, "is 46, one too few"),
        (lambda position, steps: steps - position + 1, "is 48, one too many"),
        (lambda position, steps: steps - position, "is -5: a key whose token has not come"),
        (lambda position, steps: abs(steps - position), "got 5, needed 0: four steps never reach"),
        (lambda position, steps: 47, "times_computed(0, 50): got 47, needed 50: every step sees"),
        (lambda position, steps: max(1, steps - position), "got 1, needed 0"),
        (lambda position, steps: steps * (steps + 1) // 2, "got 1275, needed 47"),
        (lambda position, steps: "47", "got str, needed int"),
        (lambda position, steps: steps - positions, "raised NameError"),  # noqa: F821
    ],
)
def test_refused_with_fitting_words(wrong: Callable[..., Any], words: str) -> None:
    report = check_times_computed(wrong)
    assert report.status == "not yet"
    assert words in report.finding


def test_right_answer_passes() -> None:
    report = check_times_computed(lambda position, steps: max(0, steps - position))
    assert report.passed and len(report.proved) == 4


def test_printed_continuation_is_the_same_on_every_machine() -> None:
    page = namespace(read(BOOK / "intro.ipynb"))
    assert smallest_margin(page["model"], page["prompt"], page["continuation"]) >= 0.02
