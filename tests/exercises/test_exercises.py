"""Every exercise that is a record: its right answer passes, and each mistake is told its own."""

from typing import Any

import pytest

from kvbook.exercises.catalogue import exercises
from kvbook.exercises.checker import Checker, Shows
from kvlib.kernels.processor import compiler

RECORDS = {e.label: found for e in exercises() if isinstance(found := e.check(), Checker)}
try:
    compiler()
except ImportError:  # the answers to these are lines of CUDA C++
    cuda = ("gpu-split-range", "gpu-shared-heads", "gpu-norm-product")
    RECORDS = {x: y for x, y in RECORDS.items() if x not in cuda}
WRONG = [
    pytest.param(checker, words, answer, id=f"{label}: {words[:40]}")
    for label, checker in RECORDS.items()
    for mistakes in (checker.mistakes, checker.refused)
    for words, answer in checker.wrong(mistakes)
]


@pytest.mark.parametrize("label", RECORDS)
def test_the_right_answer_passes(label: str) -> None:
    checker = RECORDS[label]
    report = checker(checker.right)
    assert report.passed and len(report.proved) == len(checker.stages), report
    assert checker.__name__ == f"check_{report.name}" and checker.__doc__


@pytest.mark.parametrize("checker, words, answer", WRONG)
def test_a_mistake_is_refused_in_its_own_words(checker: Checker, words: str, answer: Any) -> None:
    """Two mistakes that give the same numbers would share the words of the first."""
    report = checker(answer.answer if isinstance(answer, Shows) else answer)
    assert report.status == "not yet", report
    assert words in report.finding, report
