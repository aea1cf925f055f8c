"""Grades: a perfect notebook scores 100 %, the stub 0, a wrong answer loses its own points."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from effort import Effort, number
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import temporary_files_in_memory as temporary_files_in_memory
from test_grading_values import served
from wrong_answers import wrong_answers

from kvbook.__main__ import main
from kvbook.course import build_course
from kvbook.exercises.catalogue import Exercise, chapters, of_chapter
from kvbook.grading import Limits, grade, passes, sandbox
from kvbook.grading.check import check_here
from kvbook.grading.guard import Guard
from kvbook.grading.needed import needed, statements

ROOT = Path(__file__).resolve().parents[2]
DRAWS = (11, 12)[: number(quick=1, usual=1, whole=2)]
OUTSIDE = number(quick=1, usual=1, whole=100)  # wrong answers that are also called from outside
pytestmark = pytest.mark.usefixtures("temporary_files_in_memory")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("course")
    build_course([ROOT / "book" / f"{name}.ipynb" for name in chapters()], out, seed=1, tried=False)
    return out


@pytest.fixture(autouse=True)
def wrong_answers_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the grader's process, too, which gets its paths from the environment."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "tests", ROOT / "tools"))))


def handed_in(course: Path, chapter: str, answers: dict[str, str], path: Path) -> Path:
    """The instructor's notebook with other code in some of the answer cells."""
    notebook = nbformat.read(course / "instructor" / f"{chapter}.ipynb", as_version=4)
    for cell in notebook["cells"]:
        label = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if label in answers:
            cell["source"] = answers[label]
    nbformat.write(notebook, path)
    return path


def wrong(exercise: Exercise, number: int) -> str:
    """A known wrong answer; those in CUDA C++ would be compiled once more to be known."""
    if exercise.chapter == "gpu":
        return f"def {exercise.name}(*a):\n    return {number!r}"
    return (
        f"from wrong_answers import answer\n{exercise.name} = answer({exercise.label!r}, {number})"
    )


# Usually one notebook of each chapter is graded from its file: those of every other chapter here,
# the others in test_wrong_answers_in_a_notebook_lose_their_own_points, half of them answered right.
@pytest.mark.every(2, start=1)
@pytest.mark.parametrize("chapter", chapters())
def test_a_perfect_notebook_scores_everything(course: Path, chapter: str) -> None:
    result = grade(course / "instructor" / f"{chapter}.ipynb", draws=DRAWS)
    assert result.percent == 100, str(result)
    assert result.of == sum(e.points for e in of_chapter(chapter))
    assert all(v.status == "passed" and len(v.proved) >= 2 for v in result.verdicts)
    assert result.cells == []


@pytest.mark.every(4)
@pytest.mark.parametrize("chapter", chapters())
def test_the_stub_scores_nothing(course: Path, chapter: str) -> None:
    result = grade(course / "student" / f"{chapter}.ipynb")
    assert result.points == 0 and result.percent == 0
    assert {v.status for v in result.verdicts} == {"not done yet"}, str(result)


def test_the_books_own_notebook_is_a_stub() -> None:
    """Its solutions have names of their own."""
    assert grade(ROOT / "book" / "paged.ipynb").points == 0


@pytest.mark.every(2)
@pytest.mark.parametrize("chapter", chapters())
def test_wrong_answers_in_a_notebook_lose_their_own_points(
    course: Path, chapter: str, tmp_path: Path
) -> None:
    """Every other exercise is wrong, from the file to the grade."""
    wrongs = of_chapter(chapter)[::2]
    answers = {e.label: wrong(e, 0) for e in wrongs}
    result = grade(handed_in(course, chapter, answers, tmp_path / "in.ipynb"))
    assert result.points == result.of - sum(e.points for e in wrongs), str(result)
    lost = [v for v in result.verdicts if not v.points]
    assert [v.label for v in lost] == [e.label for e in wrongs]
    assert all(v.status == "not yet" and v.finding in str(result) for v in lost[:1])


@pytest.mark.untraced
@pytest.mark.every(2)
@pytest.mark.parametrize("chapter", chapters())
def test_every_known_wrong_answer_loses_exactly_its_own_points(course: Path, chapter: str) -> None:
    """All of them, beside right answers to the other exercises.

    Some are called from outside, as the grader does, and the report is the same to the word.
    """
    space, guard = solved(course, chapter), Guard()
    for exercise in of_chapter(chapter):
        known = wrong_answers(chapter)[exercise.label]
        assert len(known) >= 4, f"{exercise.label} has {len(known)} known wrong answers"
        for which, answer in enumerate(known):
            found = check_here(exercise, {**space, exercise.name: answer}, Limits(), guard)
            assert found["status"] != "passed", f"wrong answer {which} to {exercise.label}"
            if which < OUTSIDE and chapter not in ("museum", "gpu"):
                with served({exercise.name: answer}) as remote:
                    report = exercise.check()(remote.answer(exercise.name))
                assert (report.status, report.finding) == (found["status"], found["finding"])
    # and none of them has spoiled the rest: all that is right still passes
    found = {e.label: check_here(e, space, Limits(), guard)["status"] for e in of_chapter(chapter)}
    assert set(found.values()) == {"passed"}, found


def solved(course: Path, chapter: str) -> dict[str, Any]:
    """What the instructor's notebook defines for the exercises."""
    notebook = nbformat.read(course / "instructor" / f"{chapter}.ipynb", as_version=4)
    sources = [c["source"] for c in notebook["cells"] if c["cell_type"] == "code"]
    space: dict[str, Any] = {}
    for statement in needed(statements(sources)[0], [e.name for e in of_chapter(chapter)]):
        exec(statement.code, space)
    return space


@settings(max_examples=number(quick=2, usual=2, whole=8))
@given(st.data())
def test_any_mixture_scores_the_sum_of_its_right_answers(
    course: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    chapter = data.draw(st.sampled_from(chapters()))
    answers, points = {}, 0
    for exercise in of_chapter(chapter):
        how = data.draw(st.sampled_from(["right", "stub", "missing", "wrong"]))
        if how == "right":
            points += exercise.points
        elif how == "wrong":
            count = len(wrong_answers(chapter)[exercise.label])
            answers[exercise.label] = wrong(exercise, data.draw(st.integers(0, count - 1)))
        else:
            stub = f"def {exercise.name}(*a, **k): ..."
            answers[exercise.label] = stub if how == "stub" else "# nothing"
    path = tmp_path_factory.mktemp("mixed") / "in.ipynb"
    result = grade(handed_in(course, chapter, answers, path))
    assert result.points == points, str(result)


def test_an_answer_that_knows_only_the_shown_inputs_fails_hidden_tests(
    course: Path, tmp_path: Path
) -> None:
    """It notes what a right answer returned, in the order of the calls."""
    rng = np.random.default_rng
    learned: list[Any] = []
    right = solved(course, "naive")["window_mask"]

    def listening(*inputs: Any) -> Any:
        learned.append(right(*inputs))
        return learned[-1]

    assert passes("naive-window-mask", listening) and np.random.default_rng is rng
    np.save(tmp_path / "learned.npy", np.array(learned, dtype=object), allow_pickle=True)
    cheat = (
        "import numpy as np\n"
        f"learned = iter(np.load({str(tmp_path / 'learned.npy')!r}, allow_pickle=True))\n"
        "def window_mask(*inputs):\n    return np.asarray(next(learned), dtype=bool)"
    )
    path = handed_in(course, "naive", {"naive-window-mask": cheat}, tmp_path / "in.ipynb")
    assert grade(path, sandbox="off").percent == 100, "the sandbox does not show what it learned"
    result = grade(path, draws=DRAWS, sandbox="off")
    lost = next(e.points for e in of_chapter("naive") if e.label == "naive-window-mask")
    assert result.points == result.of - lost, str(result)
    assert "on other inputs" in str(result)


def test_passes_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert not passes("intro-times-computed", lambda position, steps: steps)
    assert "no token at position 3 yet" in capsys.readouterr().out
    assert passes("intro-times-computed", lambda p, s: max(0, s - p), draws=DRAWS)
    with pytest.raises(ValueError, match="no exercise 'intro-nothing'"):
        passes("intro-nothing", print)


def test_a_wrong_name_is_the_only_thing_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no bubblewrap, and a notebook would therefore run without a sandbox."""
    monkeypatch.setattr(sandbox, "_trouble", lambda: "there is no bwrap on this system")
    assert main(["grade", str(tmp_path / "nothing.ipynb")]) == 2
    assert capsys.readouterr().err.startswith(f"grade: there is no {tmp_path}")


def test_from_the_command_line(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook, out = course / "instructor" / "intro.ipynb", tmp_path / "grade.json"
    hidden = course / "hidden" / "intro.json"
    nowhere = str(tmp_path / "none" / "grade.json")
    assert main(["grade", str(notebook), "--json", nowhere]) == 2
    said = capsys.readouterr()
    assert "there is no folder" in said.err and said.out == "", "before anything is graded"
    assert main(["grade", str(notebook), "--json", str(out), "--hidden", str(hidden)]) == 0
    assert "intro: 1 of 1 points, 100 %" in capsys.readouterr().out
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["percent"] == 100 and result["exercises"][0]["label"] == "intro-times-computed"
    assert result["file"] == "intro.ipynb"
    assert main(["grade", str(notebook), "--hidden", str(course / "hidden" / "naive.json")]) == 2
    assert "hidden tests are of naive, the notebook of intro" in capsys.readouterr().err
    (tmp_path / "h.json").write_text("{}", encoding="utf-8")
    assert main(["grade", str(notebook), "--hidden", str(tmp_path / "h.json")]) == 2
    assert "h.json holds no hidden tests: needed" in capsys.readouterr().err
    assert main(["grade", str(tmp_path / "nothing.ipynb")]) == 2
    assert capsys.readouterr().err.startswith(f"grade: there is no {tmp_path}")
    (tmp_path / "no.ipynb").write_text("{", encoding="utf-8")
    assert main(["grade", str(tmp_path / "no.ipynb")]) == 2
    assert "no.ipynb is no notebook" in capsys.readouterr().err
    (tmp_path / "no.ipynb").write_text("[]", encoding="utf-8")
    assert main(["grade", str(tmp_path / "no.ipynb")]) == 2
    (tmp_path / "no.ipynb").write_text('{"cells": []}', encoding="utf-8")
    assert main(["grade", str(tmp_path / "no.ipynb")]) == 2
    assert "no cell that is marked as an exercise: say which chapter" in capsys.readouterr().err
    assert main(["grade", str(tmp_path / "no.ipynb"), "--chapter", "intro"]) == 0
    assert "times_computed: missing" not in capsys.readouterr().err
    assert main(["grade", str(notebook), "--chapter", "outro"]) == 2
    assert main(["grade", str(notebook), "--timeout", "0"]) == 2


def test_a_folder_is_graded_a_line_for_each_file(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox, out = tmp_path / "inbox", tmp_path / "out"
    inbox.mkdir()
    for kind, name in (("instructor", "ann"), ("student", "bob")):
        (inbox / f"{name}.ipynb").write_bytes((course / kind / "intro.ipynb").read_bytes())
    (inbox / "cyd.ipynb").write_text("{", encoding="utf-8")
    hidden = str(course / "hidden" / "intro.json")
    assert main(["grade", str(inbox), "--hidden", hidden, "--json", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "ann.ipynb, intro: 1 of 1 points, 100 %",
        "bob.ipynb, intro: 0 of 1 points, 0 %",
    ]
    assert lines[2].startswith("cyd.ipynb: not graded: cyd.ipynb is no notebook")
    assert json.loads((out / "ann.json").read_text(encoding="utf-8"))["percent"] == 100
    table = (out / "grades.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "file,chapter,points,of,percent,error,intro-times-computed"
    assert table[1] == "ann.ipynb,intro,1,1,100.0,,1" and len(table) == 4
    assert main(["grade", str(out)]) == 2


def test_checking_in_the_same_process_says_the_same(course: Path, effort: Effort) -> None:
    """Where a platform cannot fork."""
    for chapter in effort.share("chapters graded without forks", ("cached", "paged"), usual=1):
        result = grade(course / "instructor" / f"{chapter}.ipynb", fork=False, draws=DRAWS)
        assert result.percent == 100, str(result)
    guard, (exercise,) = Guard(), of_chapter("intro")
    assert check_here(exercise, {}, Limits(), guard)["status"] == "missing"
    space = {"times_computed": lambda position, steps: steps}
    found = check_here(exercise, space, Limits(), guard)
    assert found["status"] == "not yet" and "no token at position 3" in found["finding"]
    space = {"times_computed": lambda position, steps: exit()}
    assert "SystemExit" in check_here(exercise, space, Limits(), guard)["finding"]


def test_only_what_an_answer_needs_is_run() -> None:
    sources = [
        "import numpy as np, os\nimport math\nmath.erf(1)",
        "%matplotlib inline\nmodel = load()\nx = {}\ny = 1\nx['a'] = math.pi",
        "def helper(a):\n    return a + x['a']\n\ndef answer(model):\n    return helper(model)",
        "def broken(:",
        "while True:\n    y += 1",
        "x.update(b=2)\nz.append(3)\n%time",
        "%%bash\nls",
        "from operator import *",
        "class Other:\n    answer = 1",
        "def late():\n    global answer\n    answer = None",
    ]
    found, broken = statements(sources)
    chosen = [(s.cell, s.line) for s in needed(found, ["answer"])]
    assert list(broken) == [3] and "SyntaxError" in broken[3]
    assert chosen == [(0, 2), (1, 3), (1, 5), (2, 1), (2, 4), (5, 1), (7, 1), (9, 1)]
