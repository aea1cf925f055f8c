"""Files that are no notebooks, and names and words that would harm whoever reads the grades."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from in_memory import temporary_files_in_memory as temporary_files_in_memory

from kvbook.grading import Limits, grade, grade_folder
from kvbook.grading.notebook import cell_name, chapter_of, defines, read_notebook
from kvbook.grading.text import cell, line, plain

pytestmark = pytest.mark.usefixtures("temporary_files_in_memory")
LIMITS = Limits(seconds=5, memory=1500)
RIGHT = "def times_computed(position, steps):\n    return max(0, steps - position)"
PAPERS = {"kvlib": {"chapter": "intro"}}


def written(path: Path, *sources: str, **parts: Any) -> Path:
    cells = [{"cell_type": "code", "metadata": {}, "source": s} for s in sources]
    path.write_text(json.dumps({"cells": cells, "metadata": PAPERS, **parts}), encoding="utf-8")
    return path


ODD: dict[str, dict[str, Any]] = {
    "metadata that is null": {"metadata": None},
    "metadata that is a list": {"metadata": []},
    "kvlib's metadata is a text": {"metadata": {"kvlib": "intro"}},
    "a chapter that is a list": {"metadata": {"kvlib": {"chapter": []}}},
    "null in place of cells": {"cells": None},
    "a cell that is null": {"cells": [None]},
    "null as the metadata of a cell": {"metadata": {}, "cells": [{"metadata": None}]},
    "null as nbgrader's": {"metadata": {}, "cells": [{"metadata": {"nbgrader": None}}]},
    "a list as a grade_id": {
        "metadata": {},
        "cells": [{"metadata": {"nbgrader": {"grade_id": []}}}],
    },
    "a source that is a number": {"cells": [{"cell_type": "code", "source": 5}]},
    "a source of nested lists": {"cells": [{"cell_type": "code", "source": [[["x"]], None]}]},
    "half a character": {"cells": [{"cell_type": "code", "source": "x = '\ud800'\n\ud800"}]},
}


def test_no_file_costs_another_its_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The odd files come first; the last one is graded, and the table has a row for each."""
    inbox, out = tmp_path / "inbox", tmp_path / "out"
    inbox.mkdir()
    for i, parts in enumerate(ODD.values()):
        written(inbox / f"{i:02}.ipynb", **parts)
    (inbox / "deep.ipynb").write_text("[" * 100_000)
    (inbox / "folder.ipynb").mkdir()
    os.mkfifo(inbox / "pipe.ipynb")
    (inbox / "=HYPERLINK(1).ipynb").write_text("{")
    (inbox / "\x1b[31mred.ipynb").write_text("{")
    written(inbox / "words.ipynb", "raise ValueError('\\ud800\\x1b[2J')")
    written(inbox / "zoe.ipynb", RIGHT)
    said: list[str] = []
    graded = grade_folder(inbox, out, say=said.append, limits=LIMITS, all_cells=True)
    assert len(said) == len(graded) == len(list(inbox.iterdir()))
    assert said[-1] == "zoe.ipynb, intro: 1 of 1 points, 100 %"
    assert not any("\x1b" in words for words in said)
    text = (out / "grades.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(said) and rows[-1]["points"] == "1"
    assert "'=HYPERLINK(1).ipynb" in {row["file"] for row in rows} and "\x1b" not in text
    words = (out / "words.json").read_text(encoding="utf-8")
    assert "\\\\ud800\\\\x1b[2J" in words


def test_an_error_of_the_grader_itself_is_one_files_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "bob"):
        written(tmp_path / f"{name}.ipynb", RIGHT)

    def broken(path: Path, **how: Any) -> Any:
        raise KeyError(path.name)

    monkeypatch.setattr("kvbook.grading.folder.grade", broken)
    assert grade_folder(tmp_path, tmp_path / "out", limits=LIMITS) == {
        "ann.ipynb": "KeyError: 'ann.ipynb'",
        "bob.ipynb": "KeyError: 'bob.ipynb'",
    }
    assert len((tmp_path / "out" / "grades.csv").read_text().splitlines()) == 3


def test_what_reads_a_students_text_takes_linear_time(tmp_path: Path) -> None:
    """A search that went back at every line break took 22 seconds for the first of these."""
    begun = time.monotonic()
    for text in ("\n" * 200_000, " " * 200_000, "def " * 50_000, "def\n" * 50_000, "=" * 10**6):
        assert not defines(text, "answer")
        path = written(tmp_path / "in.ipynb", text + "\n:label: intro-times-computed", metadata={})
        notebook = read_notebook(path)
        assert len(cell_name(0, text)) < 100
        if text[-1] != "\n":
            assert chapter_of(notebook) == "intro"
    assert time.monotonic() - begun < 5
    assert defines("\n  def answer (a): ...", "answer") and defines("class A(B):", "A")


def test_a_missing_answer_is_explained_by_its_cell(tmp_path: Path) -> None:
    result = grade(written(tmp_path / "in.ipynb", RIGHT.replace("):", ")")), limits=LIMITS)
    assert "def times_computed" in result.verdicts[0].finding and result.points == 0


def test_nothing_invisible_is_printed() -> None:
    assert plain("a\tb\r\n\x9b2J\u202e\u2028\udc80") == "a\\tb\\r\n\\x9b2J\\u202e\\u2028\\udc80"
    assert plain("ü − ∞ 漢") == "ü − ∞ 漢" and plain("x" * 10, 4) == "xxxx..."
    assert line("a\nb") == "a\\nb"
    for formula in ("=1", "+1", "-1", "@x", "\tx", "\rx"):
        assert str(cell(formula)).startswith("'"), formula
    assert cell("ann.ipynb") == "ann.ipynb" and cell(-1.5) == -1.5
