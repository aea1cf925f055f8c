"""A course: notebooks without solutions, notebooks with them, in nbgrader's conventions."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path

import build_exercises
import nbformat
import pytest

from kvbook.__main__ import main
from kvbook.course import build_course, read_chapter
from kvbook.course.draws import draw_passing
from kvbook.course.solutions import filled
from kvbook.exercises.catalogue import chapters, exercises, of_chapter

BOOK = Path(__file__).resolve().parents[2] / "book"
KEYS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("course")
    build_course([BOOK / f"{name}.ipynb" for name in chapters()], out, seed=3, tried=False)
    return out


def cells(course: Path, kind: str, chapter: str) -> list[dict]:
    return nbformat.read(course / kind / f"{chapter}.ipynb", as_version=4)["cells"]


def marks(found: list[dict]) -> dict[str, dict]:
    """nbgrader's metadata by grade_id; each occurs once."""
    said = [c["metadata"]["nbgrader"] for c in found if "nbgrader" in c["metadata"]]
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
def test_student_notebooks_have_stubs_and_no_solutions(course: Path, chapter: str) -> None:
    found = cells(course, "student", chapter)
    text = "\n".join(c["source"] for c in found)
    assert not re.search(r"SOLUTION|HIDDEN TESTS|[Ss]olution_|solution-start", text)
    prose = "\n".join(c["source"] for c in found if c["cell_type"] == "markdown")
    assert not re.search(r"^:::|\{(doc|term|cite\S*|ref)\}`|\{admonition\}", prose, re.M), (
        "raw MyST"
    )
    assert "How this notebook is graded" in found[1]["source"]
    for e in of_chapter(chapter):
        assert f"`{e.name}` {e.points}" in found[1]["source"]
    names = {e.name for e in of_chapter(chapter)}
    code = [c["source"] for c in found if c["cell_type"] == "code"]
    defined = [
        node
        for source in code
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names
    ]
    assert {node.name for node in defined} == names and len(defined) == len(names)
    assert text.count("<summary>Hint") >= len(names), "hints unfold in Jupyter"
    assert not any(c.get("outputs") for c in found)


@pytest.mark.parametrize("kind", ["student", "instructor"])
@pytest.mark.parametrize("chapter", chapters())
def test_cells_are_marked_as_nbgrader_wants(course: Path, chapter: str, kind: str) -> None:
    said = marks(cells(course, kind, chapter))
    for exercise in of_chapter(chapter):
        answer, check = said[exercise.label], said[f"{exercise.label}-check"]
        assert answer.keys() == KEYS and check.keys() == KEYS | {"points"}
        assert answer["solution"] and not answer["grade"] and not answer["locked"]
        assert check["grade"] and check["locked"] and not check["solution"]
        assert check["points"] == exercise.points
    assert all(m["schema_version"] == 3 and m["task"] is False for m in said.values())


@pytest.mark.parametrize("chapter", chapters())
def test_what_nbgrader_would_cut_is_what_students_get(course: Path, chapter: str) -> None:
    """Cutting between the marks, as nbgrader does, leaves the student's code."""
    cut = r"^ *### BEGIN (SOLUTION|HIDDEN TESTS)\n.*?^ *### END \1\n?"
    for own, theirs in zip(
        *([c for c in cells(course, kind, chapter) if c["cell_type"] == "code"]
          for kind in ("instructor", "student"))
    ):  # fmt: skip
        left = re.sub(cut, "", own["source"] + "\n", flags=re.MULTILINE | re.DOTALL).rstrip()
        stub = re.sub(r"^ *\.\.\.\n?", "", theirs["source"] + "\n", flags=re.MULTILINE).rstrip()
        answered = own["metadata"].get("nbgrader", {}).get("solution")
        assert left == (stub if answered else theirs["source"])


def test_hidden_tests_are_apart_and_drawn_again_from_a_seed(course: Path, tmp_path: Path) -> None:
    hidden = (course / "hidden" / "paged.json").read_text(encoding="utf-8")
    draws = json.loads(hidden)["draws"]
    assert len(set(draws)) == 3
    assert str(draws[0]) in (course / "instructor" / "paged.ipynb").read_text(encoding="utf-8")
    assert str(draws[0]) not in (course / "student" / "paged.ipynb").read_text(encoding="utf-8")
    intro = tmp_path / "hidden" / "intro.json"
    build_course([BOOK / "intro.ipynb"], tmp_path)
    first = intro.read_text(encoding="utf-8")
    assert json.loads(first)["draws"] != draws
    build_course([BOOK / "intro.ipynb"], tmp_path)
    assert intro.read_text(encoding="utf-8") == first, "what was handed out already stays"
    build_course([BOOK / "intro.ipynb"], tmp_path, force=True)
    assert intro.read_text(encoding="utf-8") != first


def test_draws_on_which_a_solution_fails_are_left_out() -> None:
    chapter = read_chapter(BOOK / "intro.ipynb")
    right: dict = {"times_computed": lambda position, steps: max(0, steps - position)}
    assert len(draw_passing(chapter, right, random.Random(1))) == 3
    right["times_computed"] = lambda position, steps: steps
    with pytest.raises(RuntimeError, match="of 20 draws the solutions pass 0"):
        draw_passing(chapter, right, random.Random(1))


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "week 4"
    assert main(["course", "paged", "--book", str(BOOK), "--out", str(out)]) == 0
    assert sorted(p.name for p in out.rglob("*.*")) == [
        *("README.md", "paged.ipynb", "paged.ipynb", "paged.json")
    ]
    assert "4 files" in capsys.readouterr().out
    assert main(["course", "paged", "paged", "--book", str(BOOK), "--out", str(out)]) == 0
    assert "4 files" in capsys.readouterr().out, "each chapter once"
    assert main(["course", "waged", "--book", str(BOOK), "--out", str(out)]) == 2
    assert "waged.ipynb; did you mean paged?" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    "stub, answer, words",
    [
        (STUB, "def s(y):\n    return y\ncheck_f(s)", "arguments"),
        (STUB.replace("...", "return 1"), "def s(x):\n    return x\ncheck_f(s)", "must end in"),
        (STUB, "class S:\n    pass\ncheck_f(S)", "does not have the methods"),
    ],
)
def test_solutions_that_do_not_fit(stub: str, answer: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        filled(stub, answer)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("*Difficulty 1 of 3, about 5 minutes.*\n\n", "", "needed a line like"),
        (":label: intro-times", ":label: times", "begins with intro-"),
    ],
)
def test_an_exercise_in_another_form_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
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
