"""`grade` on notebooks: right, empty and wrong answers, and programs that go too far."""

import json
import time
from pathlib import Path

import nbformat
import pytest
from effort import LEVEL
from nbformat.v4 import new_code_cell, new_notebook
from repository import ROOT

from kvbook.__main__ import main
from kvbook.course import build_course
from kvbook.exercises.catalogue import chapters, of_chapter
from kvbook.grade import Grade, grade

RIGHT = "def times_computed(position, steps):\n    return max(0, steps - position)"
GRADED = chapters() if LEVEL == "whole" else ("sampling",)


def written(path: Path, *sources: str, chapter: str | None = "intro") -> Path:
    """A notebook of these code cells."""
    notebook = new_notebook(cells=list(map(new_code_cell, sources)))
    if chapter is not None:
        notebook["metadata"]["kvlib"] = {"chapter": chapter}
    nbformat.write(notebook, path)
    return path


def verdict(result: Grade) -> tuple[str, str]:
    (found,) = result.verdicts
    return found.status, found.finding


@pytest.mark.parametrize("chapter", GRADED)
def test_the_books_solutions_get_all_points(chapter: str, tmp_path: Path) -> None:
    build_course([ROOT / "book" / f"{chapter}.ipynb"], tmp_path)
    result = grade(tmp_path / "source" / chapter / f"{chapter}.ipynb", seconds=120)
    assert result.points == result.of == sum(e.points for e in of_chapter(chapter)), str(result)


def test_the_books_own_notebook_has_only_stubs() -> None:
    """Its solutions have other names, and its file name is the chapter's."""
    result = grade(ROOT / "book" / "intro.ipynb")
    assert verdict(result)[0] == "not answered" and result.points == 0
    assert "write its body" in str(result)


def test_each_exercise_gets_the_words_of_its_checker(tmp_path: Path) -> None:
    answers = (
        "%matplotlib inline\nraise ValueError('a cell that fails')",
        "def token_passes(prompt, new):\n    return 3 * new, new",
        "def causal_attention(q, k, v): ...", "window_mask = 4",
    )
    result = grade(written(tmp_path / "in.ipynb", *answers, chapter="naive"))
    assert [v.status for v in result.verdicts] == ["failed", "not answered", "failed"] + [
        "not answered"
    ]
    for v, words in zip(
        result.verdicts,
        ("got 3, needed 7", "write its body", "got int", "does not define"),
        strict=True,
    ):
        assert words in v.finding and f"  {v.finding.splitlines()[0]}" in str(result)


TOO_FAR = {
    "a loop": "def times_computed(position, steps):\n    while True: pass",
    "a loop that catches what stops it": (
        "def times_computed(position, steps):\n"
        "    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass"
    ),
    "prints": "def times_computed(position, steps):\n    while True: print('x' * 10**6)",
    "ends its process": "def times_computed(position, steps):\n    import os\n    os._exit(0)",
}


@pytest.mark.parametrize("name", TOO_FAR)
def test_an_answer_that_does_not_end_is_stopped(name: str, tmp_path: Path) -> None:
    started = time.monotonic()
    status, finding = verdict(grade(written(tmp_path / "in.ipynb", TOO_FAR[name]), seconds=2))
    assert status == "failed" and ("more than 2 seconds" in finding) != ("its kernel" in finding)
    assert time.monotonic() - started < 60


def test_a_cell_that_loops_costs_only_its_time(tmp_path: Path) -> None:
    path = written(tmp_path / "in.ipynb", "while True: pass", RIGHT)
    assert verdict(grade(path, seconds=2))[0] == "passed"


def test_the_whole_notebook_has_a_limit(tmp_path: Path) -> None:
    cells = ["import time\ntime.sleep(0.9)"] * 20
    status, finding = verdict(grade(written(tmp_path / "in.ipynb", RIGHT, *cells), seconds=1))
    assert status == "failed" and finding == "the notebook took more than 10 seconds"


def test_memory_has_a_limit(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    fills = "import numpy as np\ndef times_computed(position, steps):\n    np.ones(10**9)"
    status, finding = verdict(grade(written(tmp_path / "in.ipynb", fills), memory=2048))
    assert status == "failed" and "MemoryError" in finding


def test_what_a_notebook_prints_is_no_verdict(tmp_path: Path) -> None:
    shows = (
        "from IPython.display import display\n"
        "display({'application/vnd.kvbook.verdict+json': {'status': 'passed'}}, raw=True)"
    )
    path = written(tmp_path / "in.ipynb", shows, "print('\\x1b[2J' * 10**6)")
    assert verdict(grade(path))[0] == "not answered"


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook, out = written(tmp_path / "in.ipynb", RIGHT), tmp_path / "grade.json"
    assert main(["grade", str(notebook), "--json", str(out)]) == 0
    assert capsys.readouterr().out.startswith("in.ipynb, intro: 1 of 1 points\n")
    result = json.loads(out.read_text(encoding="utf-8"))
    assert (result["points"], result["of"], result["chapter"]) == (1, 1, "intro")
    (found,) = result["exercises"]
    assert found["label"] == "intro-times-computed" and found["status"] == "passed"


REFUSED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "no file": ("nothing.ipynb", (), "grade: there is no "),
    "a folder": ("", (), "is a folder, needed one notebook"),
    "no JSON": ("text.ipynb", (), "text.ipynb is not a notebook: "),
    "another JSON": ("list.ipynb", (), "list.ipynb is not a notebook: "),
    "half a notebook": ("half.ipynb", (), "half.ipynb is not a notebook: "),
    "no chapter": ("own.ipynb", (), "no exercises of a chapter 'own'; name the notebook's"),
    "an unknown chapter": ("intro.ipynb", ("--chapter", "outro"), "a chapter 'outro'"),
    "no time": ("intro.ipynb", ("--timeout", "0"), "at least 1 second, got 0"),
    "no number for time": ("intro.ipynb", ("--timeout", "nan"), "at least 1 second, got nan"),
    "no memory": ("intro.ipynb", ("--memory", "4"), "at least 512 MB, got 4"),
    "no folder for JSON": ("intro.ipynb", ("--json", "none/x.json"), "there is no folder none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_graded(case, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "own.ipynb", RIGHT, chapter=None)
    written(tmp_path / "intro.ipynb", RIGHT)
    (tmp_path / "text.ipynb").write_text("def f(): ...", encoding="utf-8")
    (tmp_path / "list.ipynb").write_text("[]", encoding="utf-8")
    (tmp_path / "half.ipynb").write_text('{"cells": [{}], "nbformat": 4}', encoding="utf-8")
    name, options, words = REFUSED[case]
    assert main(["grade", str(tmp_path / name), *options]) == 2
    said = capsys.readouterr()
    assert words in said.err and said.out == "" and said.err.count("\n") == 1
