"""The minutes that a chapter promises are those that the rule gives (tests/reading.py)."""

from pathlib import Path

import pytest
import reading
from notebook_code import NOTEBOOKS, read

MOST, SLACK = 60, 0.15  # minutes of a chapter's core; how far a promise may be off
TIMED = [path for path in NOTEBOOKS if reading.stated(read(path))]


def test_the_opening_says_how_long_it_takes() -> None:
    assert {"intro", "naive", "cached"} <= {path.stem for path in TIMED}


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
def test_promised_minutes(path: Path) -> None:
    promised, computed = reading.stated(read(path)), reading.minutes(read(path))
    assert promised is not None
    assert computed["core"] <= MOST
    for part, length in computed.items():
        off = abs(promised[part] - length)
        assert off <= max(0.5, SLACK * length), f"{part}: {promised[part]} promised, {length:.1f}"


def test_parts_are_told_apart() -> None:
    def cell(kind: str, source: str, *tags: str) -> dict[str, object]:
        return {"cell_type": kind, "source": source, "metadata": {"tags": list(tags)}}

    text = "word " * 200
    notebook = {
        "cells": [
            cell("markdown", f"# Title\n\n{text}"), cell("code", "x = 1\n" * 8),
            cell("code", "y = 1\n" * 300, "hide-input"),
            cell("markdown", f"## More (optional)\n\n{text}\n\n### Deeper\n\n{text}"),
            cell("code", "z = 1\n\n" * 16),
            cell("markdown", "## Exercises\n\n:::{exercise-start} One\n:label: a\n:::\n"),
            cell("markdown", f"*Difficulty 1 of 3, about 5 minutes.*\n\n{text * 5}"),
            cell("code", "a = 1\n" * 300, "stub"),
            cell("markdown", f":::{{solution-end}}\n:::\n\n## What to remember\n\n{text}"),
        ],
    }
    found = reading.minutes(notebook)
    assert found["core"] == pytest.approx(3, abs=0.1)
    assert found["optional"] == pytest.approx(4, abs=0.1)
    assert found["exercises"] == 5
