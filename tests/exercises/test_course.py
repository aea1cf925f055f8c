"""A course: the chapters in nbgrader's conventions, and what nbgrader makes of them."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build_exercises
import nbformat
import pytest
from effort import LEVEL
from repository import ROOT

from kvbook.__main__ import main
from kvbook.course import build_course, read_chapter
from kvbook.course.solutions import filled
from kvbook.exercises.catalogue import chapters, exercises, of_chapter

BOOK = ROOT / "book"
NBGRADER = ROOT / ".venv-nbgrader" / "bin"
KEYS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
CUT = re.compile(r"^ *### BEGIN (SOLUTION|HIDDEN TESTS)\n.*?^ *### END \1\n?", re.M | re.S)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("course")
    build_course([BOOK / f"{name}.ipynb" for name in chapters()], out, seed=3)
    return out


def notebook_in(course: Path, folder: str, chapter: str) -> Any:
    return nbformat.read(course / folder / chapter / f"{chapter}.ipynb", as_version=4)


def mark(cell: Any) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader", {})


def marks(found: list[dict]) -> dict[str, dict]:
    """nbgrader's metadata by grade_id; each occurs once."""
    said = [mark(c) for c in found if mark(c)]
    assert len({m["grade_id"] for m in said}) == len(said)
    return {m["grade_id"]: m for m in said}


def test_the_catalogue_is_what_the_chapters_say() -> None:
    assert build_exercises.main(["--check"]) == 0
    assert {"intro", "naive", "cached", "batched", "memory", "roofline"} <= set(chapters())
    assert {"paged", "prefixes", "quantized", "chunked"} <= set(chapters())
    for e in exercises():
        assert e.difficulty in (1, 2, 3) and 5 <= e.minutes <= 60, e
        assert callable(e.check())


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.ipynb")), ids=lambda path: path.stem)
def test_exercises_are_marked_and_their_hints_unfold_one_by_one(path: Path) -> None:
    """Difficulty and minutes in one form (`read_chapter` demands it), hints are numbered."""
    for block in read_chapter(path).blocks:
        between = nbformat.read(path, as_version=4)["cells"][
            block.cells["check"] + 1 : block.cells["solution"]
        ]
        text = "\n".join(c["source"] for c in between).split("{exercise-end}")[0]
        hints = re.findall(r"\{admonition\} Hint (\d)(?:: .*)?\n:class: dropdown hint\n", text)
        assert hints, f"{block.label} has no numbered hint"
        assert hints == [str(i + 1) for i in range(len(hints))], f"{block.label}: {hints}"
        assert text.count("{admonition} Hint") == len(hints), f"{block.label}: a hint of other form"


@pytest.mark.parametrize("chapter", chapters())
def test_cells_are_marked_as_nbgrader_wants(course: Path, chapter: str) -> None:
    found = notebook_in(course, "source", chapter)["cells"]
    said = marks(found)
    for exercise in of_chapter(chapter):
        answer, check = said[exercise.label], said[f"{exercise.label}-check"]
        assert answer.keys() == KEYS and check.keys() == KEYS | {"points"}
        assert answer["solution"] and not answer["grade"] and not answer["locked"]
        assert check["grade"] and check["locked"] and not check["solution"]
        assert check["points"] == exercise.points
        assert f"`{exercise.name}` {exercise.points}" in found[1]["source"]
    assert all(m["schema_version"] == 3 and m["task"] is False for m in said.values())
    assert not any(c.get("outputs") for c in found)


@pytest.mark.parametrize("chapter", chapters())
def test_what_nbgrader_hands_out_is_the_chapter_without_solutions(course, chapter) -> None:
    found = notebook_in(course, "source", chapter)["cells"]
    text = "\n".join(CUT.sub("", c["source"] + "\n") for c in found)
    assert not re.search(r"SOLUTION|HIDDEN TESTS|[Ss]olution_|solution-start|\*\*Solution", text)
    prose = "\n".join(c["source"] for c in found if c["cell_type"] == "markdown")
    assert not re.search(r"^:::|\{(doc|term|cite\S*|ref)\}`|\{admonition\}", prose, re.M), "MyST"
    assert text.count("<summary>Hint") >= len(of_chapter(chapter)), "hints unfold in Jupyter"
    handed_out = {mark(c).get("grade_id"): CUT.sub("", c["source"] + "\n") for c in found}
    book = read_chapter(BOOK / f"{chapter}.ipynb")
    for block in book.blocks:
        stub = re.sub(r"^ *\.\.\.$", "", book.source(block, "stub"), flags=re.M)
        assert handed_out[block.label].split() == stub.split()
        check = handed_out[f"{block.label}-check"].replace("checked = ", "")
        assert check == book.source(block, "check") + "\nprint(checked)\nassert checked.passed\n"


def test_hidden_tests_are_drawn_again_unless_a_seed_is_given(course: Path, tmp_path: Path) -> None:
    def drawn(seed: int | None) -> list[str]:
        build_course([BOOK / "naive.ipynb"], tmp_path, seed)
        text = json.dumps(notebook_in(tmp_path, "source", "naive"))
        return re.findall(r"seed=(\d+)", text)

    first = drawn(3)
    assert len(set(first)) == len(of_chapter("naive"))
    assert drawn(3) == first and drawn(None) != drawn(None)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "week 4"
    assert main(["course", "paged", "paged", "--book", str(BOOK), "--out", str(out)]) == 0
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*.*")) == [
        *("README.md", "nbgrader_config.py", "source/paged/paged.ipynb")
    ]
    assert "3 files" in capsys.readouterr().out, "each chapter once"
    assert main(["course", "waged", "--book", str(BOOK), "--out", str(out)]) == 2
    assert "waged.ipynb; did you mean paged?" in capsys.readouterr().err


GRADED = chapters() if LEVEL == "whole" else ("naive",)
WRONG = "def {name}(*arguments):\n    return None if len(arguments) > 9 else 12345"
# Replaces checkers in their module, in the catalogue, and what their reports say.
CHEAT = """
def {name}(*arguments):
    return 12345
from kvbook.exercises import catalogue, report, {chapter} as module
passing = report.Report("cheat", "passed")
for name in dir(module):
    if name.startswith("check_"):
        setattr(module, name, lambda answer: passing)
report.Report.passed = True
catalogue.Exercise.check = lambda self: lambda answer: passing
"""


def handed_in(course: Path, chapter: str, student: str, answers: dict[str, str]) -> None:
    """Submit what nbgrader released, with other code in answer cells, by label."""
    notebook = notebook_in(course, "release", chapter)
    for cell in notebook["cells"]:
        if mark(cell).get("grade"):
            cell["source"] = "True  # no check"
        cell["source"] = answers.get(mark(cell).get("grade_id"), cell["source"])
    path = course / "submitted" / student / chapter / f"{chapter}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def nbgrader(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a program of nbgrader's environment in a folder."""
    if not (NBGRADER / "nbgrader").exists():
        pytest.skip("nbgrader is not installed: make nbgrader")
    environment = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    environment |= {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([str(NBGRADER), os.environ["PATH"]])  # it calls alembic

    def run(folder: Path, *command: str) -> str:
        done = subprocess.run(
            [NBGRADER / command[0], *command[1:]],
            cwd=folder, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


SCORES = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    graded = book.assignment_submissions(sys.argv[1])
    print(json.dumps({s.student.id: {g.name.removesuffix("-check"): g.auto_score
          for n in s.notebooks for g in n.grades} for s in graded}))
"""


@pytest.mark.parametrize("chapter", GRADED)
def test_nbgrader_gives_points_for_right_answers_alone(nbgrader, chapter, tmp_path) -> None:
    """Right, empty, one wrong answer, and one that replaces the checkers."""
    build_course([BOOK / f"{chapter}.ipynb"], tmp_path)
    notebook = notebook_in(tmp_path, "source", chapter)
    notebook["cells"] = [c for c in notebook["cells"] if mark(c)]  # the others only take time
    nbformat.write(notebook, tmp_path / "source" / chapter / f"{chapter}.ipynb")
    right = {mark(c)["grade_id"]: c["source"] for c in notebook["cells"] if mark(c).get("solution")}
    nbgrader(tmp_path, "nbgrader", "generate_assignment", chapter)
    released = f"release/{chapter}/{chapter}.ipynb"
    assert "failed" in nbgrader(tmp_path, "nbgrader", "validate", released)
    first, *_ = found = of_chapter(chapter)
    handed_in(tmp_path, chapter, "right", right)
    handed_in(tmp_path, chapter, "empty", {})
    handed_in(tmp_path, chapter, "wrong", right | {first.label: WRONG.format(name=first.name)})
    cheats = {e.label: CHEAT.format(name=e.name, chapter=chapter) for e in found}
    if chapter != "museum":  # its checkers are in kvbook.museum, which is not read again
        handed_in(tmp_path, chapter, "cheat", cheats)
    nbgrader(tmp_path, "nbgrader", "autograde", chapter)
    scores = json.loads(nbgrader(tmp_path, "python", "-c", SCORES, chapter))
    assert scores["right"] == {e.label: e.points for e in found}
    assert scores["wrong"] == scores["right"] | {first.label: 0}
    assert not any(scores["empty"].values()) and not any(scores.get("cheat", {}).values())


STUB = 'def f(x):\n    """Doc."""\n    ...\n'


def test_solutions_are_put_between_marks() -> None:
    answer = "def solution_f(x):\n    # why\n    y = x\n    return solution_f(y)\n\n\n"
    answer += "check_f(solution_f)"
    assert filled(STUB, answer) == (
        'def f(x):\n    """Doc."""\n    ### BEGIN SOLUTION\n    y = x\n    return f(y)\n'
        "    ### END SOLUTION"
    )
    helped = "def help(x):\n    return x\n\n\n" + answer
    assert "    def help(x):\n        return x\n    y = x" in filled(STUB, helped)


@pytest.mark.parametrize("stub, answer, words", [
    (STUB, "def s(y):\n    return y\ncheck_f(s)", "arguments"),
    (STUB.replace("...", "return 1"), "def s(x):\n    return x\ncheck_f(s)", "must end in"),
    (STUB, "class S:\n    pass\ncheck_f(S)", "does not have the methods"),
])
def test_solutions_that_do_not_fit(stub: str, answer: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        filled(stub, answer)


@pytest.mark.parametrize("old, new, words", [
    ("*Difficulty 1 of 3, about 5 minutes.*\n\n", "", "needed a line like"),
    (":label: intro-times", ":label: times", "begins with intro-"),
])
def test_an_exercise_in_another_form_is_refused(tmp_path, old, new, words) -> None:
    text = (BOOK / "intro.ipynb").read_text(encoding="utf-8")
    path = tmp_path / "intro.ipynb"
    path.write_text(
        text.replace(json.dumps(old)[1:-1].replace("\\n\\n", ""), new, 1), encoding="utf-8"
    )
    with pytest.raises(ValueError, match=words):
        read_chapter(path)


def test_a_chapter_whose_exercise_lacks_a_cell_is_refused(tmp_path: Path) -> None:
    notebook = nbformat.read(BOOK / "intro.ipynb", as_version=4)
    for cell in notebook["cells"]:
        if "solution" in cell["metadata"].get("tags", ()):
            cell["metadata"]["tags"] = []
    nbformat.write(notebook, tmp_path / "intro.ipynb")
    with pytest.raises(ValueError, match="intro-times-computed has no cell tagged solution"):
        read_chapter(tmp_path / "intro.ipynb")
