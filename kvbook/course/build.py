"""Write a course: for each chapter a student's notebook, an instructor's, and hidden tests."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvbook.course.chapter import START, Block, Chapter, check_calls, read_chapter
from kvbook.course.draws import DRAWS, answers_of, draw_passing
from kvbook.course.guide import GUIDE
from kvbook.course.markdown import plain
from kvbook.course.solutions import filled
from kvbook.course.terms import cited, terms, titles
from kvbook.exercises.catalogue import chapters
from kvbook.grading.draws import read_hidden

_HINT = re.compile(
    r"```\{admonition\} (?P<title>Hint[^\n]*)\n:class: dropdown hint\n(?P<body>.*?)\n```", re.DOTALL
)
_END = ":::{exercise-end}\n:::"
_SOLUTION = re.compile(r":::\{solution-start\} [\w-]+\n:class: dropdown\n:::\n*")
_SOLVED = ":::{solution-end}\n:::"


def student_notebook(chapter: Chapter) -> Any:
    """The chapter without solutions: stubs to fill, visible checks, nothing else that counts."""
    notebook = _copy(chapter)
    gone = {block.cells["solution"] for block in chapter.blocks}
    cells, solving = [], False
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            cell["source"], solving = _without_solutions(cell["source"], solving)
        elif index in gone:
            continue
        cells.append(cell)
    notebook["cells"] = [c for c in cells if c["cell_type"] == "code" or c["source"].strip()]
    return _finished(chapter, notebook)


def instructor_notebook(chapter: Chapter, draws: Sequence[int] = ()) -> Any:
    """The chapter with each solution in its stub's cell, marked for nbgrader, and hidden tests.

    draws: numbers that seed the hidden tests (see `kvbook.grading.passes`).
    """
    notebook = _copy(chapter)
    for block in chapter.blocks:
        cells = notebook["cells"]
        stub, solution = (chapter.source(block, part) for part in ("stub", "solution"))
        cells[block.cells["stub"]]["source"] = filled(stub, solution)
        name = chapter.exercise(block).name
        cells[block.cells["check"]]["source"] += (
            "\n### BEGIN HIDDEN TESTS\nfrom kvbook.grading import passes\n\n"
            f'assert passes("{block.label}", {name}, draws={list(draws)})\n### END HIDDEN TESTS'
        )
    gone = {block.cells["solution"] for block in chapter.blocks}
    cells = []
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            cell["source"] = _SOLUTION.sub("**Solution.** ", cell["source"]).replace(_SOLVED, "")
            cell["source"] = _readable(cell["source"])
        if index not in gone and (cell["cell_type"] == "code" or cell["source"].strip()):
            cells.append(cell)
    notebook["cells"] = cells
    return _finished(chapter, notebook)


def build_course(
    paths: Iterable[Path],
    out: Path,
    seed: int | None = None,
    *,
    force: bool = False,
    tried: bool = True,
) -> list[Path]:
    """Write student/, instructor/ and hidden/ under `out` for each chapter; returns the files.

    seed: the same hidden tests wherever it is given. Else those that lie in hidden/ stay, and
    only what is not there is drawn; force=True draws all anew. tried: keep only draws on which the
    chapter's own solutions pass, for which they are run. Chapters without an exercise are left out.
    """
    import nbformat

    drawn = random.Random(seed) if seed is not None else random.SystemRandom()
    written = []
    for folder in ("student", "instructor", "hidden"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for path in paths:
        chapter = read_chapter(path)
        if not chapter.blocks:
            continue
        hidden = out / "hidden" / f"{chapter.name}.json"
        if seed is None and not force and hidden.exists():
            draws = read_hidden(hidden)[1]
        elif tried:
            draws = draw_passing(chapter, answers_of(chapter, _sources(chapter)), drawn)
        else:
            draws = [drawn.randrange(1, 2**31) for _ in range(DRAWS)]
        for folder, notebook in (
            ("student", student_notebook(chapter)),
            ("instructor", instructor_notebook(chapter, draws)),
        ):
            nbformat.validate(notebook)
            written.append(out / folder / f"{chapter.name}.ipynb")
            written[-1].write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")
        written.append(hidden)
        written[-1].write_text(
            json.dumps({"chapter": chapter.name, "draws": draws}) + "\n", encoding="utf-8"
        )
    written.append(out / "README.md")
    written[-1].write_text(GUIDE, encoding="utf-8")
    return written


def _sources(chapter: Chapter) -> list[str]:
    """Code cells of the instructor's notebook."""
    cells = instructor_notebook(chapter)["cells"]
    return [cell["source"] for cell in cells if cell["cell_type"] == "code"]


def _copy(chapter: Chapter) -> Any:
    """The notebook without outputs, each cell of an exercise marked for nbgrader."""
    notebook = copy.deepcopy(chapter.notebook)
    notebook["metadata"]["kvlib"] = {"chapter": chapter.name}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if "setup" in cell["metadata"].get("tags", ()):
            cell["metadata"]["nbgrader"] = _mark(cell["id"], locked=True)
    for block in chapter.blocks:
        _mark_block(notebook["cells"], block)
    _rename_solutions(chapter, notebook["cells"])
    return notebook


def _rename_solutions(chapter: Chapter, cells: Sequence[Any]) -> None:
    """What uses a solution further down uses the reader's own answer instead."""
    solutions = {block.cells["solution"] for block in chapter.blocks}
    for block in chapter.blocks:
        name = chapter.exercise(block).name
        for _, theirs in check_calls(chapter.source(block, "solution")):
            for index, cell in enumerate(cells):
                if cell["cell_type"] == "code" and index not in solutions:
                    cell["source"] = re.sub(rf"\b{theirs}\b", name, cell["source"])


def _mark_block(cells: Sequence[Any], block: Block) -> None:
    stub, check = (cells[block.cells[part]] for part in ("stub", "check"))
    stub["metadata"]["nbgrader"] = _mark(block.label, solution=True)
    stub["metadata"]["deletable"] = False
    check["metadata"]["nbgrader"] = _mark(
        f"{block.label}-check", grade=True, locked=True, points=block.difficulty
    )
    check["metadata"]["deletable"] = check["metadata"]["editable"] = False


def _mark(grade_id: str, **what: Any) -> dict[str, Any]:
    """Metadata of one cell, in the third version of nbgrader's schema."""
    plain = {"grade": False, "locked": False, "solution": False, "task": False}
    return {**plain, "grade_id": grade_id, "schema_version": 3, **what}


def _without_solutions(source: str, solving: bool) -> tuple[str, bool]:
    """Markdown without what stands in a solution; whether one is still open at its end."""
    kept = []
    for piece in re.split(f"({_SOLUTION.pattern}|{re.escape(_SOLVED)})", source):
        if piece.startswith(":::{solution-start}"):
            solving = True
        elif piece == _SOLVED:
            solving = False
        elif not solving:
            kept.append(piece)
    return _readable("".join(kept)), solving


def _readable(source: str) -> str:
    """The book's directives as what a notebook shows: headings, and hints that unfold."""
    source = START.sub(lambda m: f"### Exercise: {m['title']}\n", source).replace(_END, "")
    hint = r"<details>\n<summary>\g<title></summary>\n\n\g<body>\n\n</details>"
    return re.sub(r"\n{3,}", "\n\n", _HINT.sub(hint, source)).strip("\n")


def _finished(chapter: Chapter, notebook: Any) -> Any:
    """With what a student must know below the title, and plain Markdown for the book's MyST."""
    folder = chapter.folder or Path()
    pages, cite = titles(folder), cited(folder / "references.bib")
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = plain(cell["source"], pages, cite, set(chapters()))
    if chapter.blocks:
        told = {"cell_type": "markdown", "id": "how-graded", "metadata": {}}
        notebook["cells"].insert(1, type(notebook)({**told, "source": terms(chapter)}))
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    return notebook
