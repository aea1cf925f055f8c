"""Write a course: the chapters as notebooks for nbgrader, with solutions and hidden tests."""

import copy
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvbook.course.chapter import Chapter, check_calls, read_chapter
from kvbook.course.markdown import cited, plain, titles
from kvbook.course.solutions import filled

_SOLUTION = re.compile(r":::\{solution-start\}.*?(?::::\{solution-end\}\n:::|\Z)", re.DOTALL)
_SOLVED = re.compile(r"\A.*?:::\{solution-end\}\n:::", re.DOTALL)
TESTS = """\
checked = {check}
print(checked)
assert checked.passed
### BEGIN HIDDEN TESTS
import sys
# so that the checker is read from its file, whatever the notebook has put in its place
[sys.modules.pop(name) for name in list(sys.modules) if name.startswith("kvbook.exercises")]
from kvbook.exercises.hidden import passes
assert passes("{label}", {name}, seed={seed})
### END HIDDEN TESTS"""
TERMS = """\
**How this notebook is graded.** Points: {points}. An exercise gets all of its points or none.

Write each answer in the cell that has its stub, under the same name and with the same arguments. \
The check below it says what is wrong, as often as you like. When the notebook is graded, the same \
check is asked again with other inputs, which you do not see."""
CONFIG = """\
import os

os.environ["KVLIB_PROGRESS"] = "off"  # a graded notebook is no progress of yours
c = get_config()
c.Execute.timeout = 120  # seconds for one cell: some draw figures, some compile kernels
"""
GUIDE = """\
# A course from The KV Cache Book

This folder is a course for [nbgrader](https://nbgrader.readthedocs.io). `source/` holds one
notebook for each chapter, with solutions and hidden tests. Copy the folder to where your course
lives, and install nbgrader beside the book: `pip install nbgrader ".[book]"` in the repository.

    nbgrader validate source/paged/paged.ipynb     # the solutions pass the hidden tests
    nbgrader generate_assignment paged             # release/paged: hand this out
    nbgrader autograde paged                       # after submitted/<name>/paged/paged.ipynb came
    nbgrader generate_feedback paged

A student's `nbgrader validate paged.ipynb` says which visible checks fail.

Students need Python 3.11 or later and kvlib, which is in no package index. Give them one of two
things:

- the repository (by `git clone`, or as an archive). They run `pip install ".[book]"` in its folder;
- a wheel, which `pip wheel . --no-deps` writes as `kvlib-<version>-py3-none-any.whl`. They run
  `pip install "kvlib[book] @ file:///path/to/kvlib-<version>-py3-none-any.whl"`, which also
  installs what the notebooks import.

`python -m kvbook course paged` writes one chapter; without a name it writes all of them. An
exercise counts as many points as its difficulty (1 to 3), all or none. Its hidden test is the
visible check with other random inputs, so an answer that works only for the visible inputs fails.
Each run draws new inputs; with `--seed 7` they are the same on every machine. An answer that takes
no input, such as lines of CUDA C++, is only checked again.

## What is not promised

nbgrader puts back the cells of the checks before it grades, and a hidden test reads its checker
from the file again. So a notebook that defines its own `check_...`, or assigns to one in
`kvbook.exercises`, gains nothing. But answers and hidden tests run in one process with the rights
of your account. A notebook written for it can change Python itself, find the expected result, or
read your files. Grade notebooks from people whom you do not trust in a container. nbgrader does
not start one; otter-grader does, for each submission.

`python -m kvbook grade FILE` runs one notebook and prints what its checkers say, without hidden
tests. It is meant for your own answers.
"""


def build_course(paths: Iterable[Path], out: Path, seed: int | None = None) -> list[Path]:
    """Write the folder of a course for nbgrader; return the files.

    seed: the same hidden tests wherever it is given; None draws others each time. Chapters without
    an exercise are left out.
    """
    import nbformat

    drawn = random.Random(seed) if seed is not None else random.SystemRandom()
    found = [chapter for chapter in map(read_chapter, paths) if chapter.blocks]
    texts = {Path("README.md"): GUIDE, Path("nbgrader_config.py"): CONFIG}
    for chapter in found:
        notebook = course_notebook(chapter, drawn)
        nbformat.validate(notebook)
        text = nbformat.writes(notebook).rstrip("\n") + "\n"
        texts[Path("source") / chapter.name / f"{chapter.name}.ipynb"] = text
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")
    return [out / path for path in texts]


def course_notebook(chapter: Chapter, drawn: random.Random) -> Any:
    """The chapter in plain Markdown, each stub filled with its solution, each check with a test."""
    notebook = copy.deepcopy(chapter.notebook)
    cells = notebook["cells"]
    for block in chapter.blocks:
        stub, check = (cells[block.cells[part]] for part in ("stub", "check"))
        stub["source"] = filled(*(chapter.source(block, part) for part in ("stub", "solution")))
        stub["metadata"]["nbgrader"] = _mark(block.label, solution=True)
        above, _, call = check["source"].rpartition("\n")
        name, seed = chapter.exercise(block).name, drawn.randrange(1, 2**31)
        tests = TESTS.format(check=call, label=block.label, name=name, seed=seed)
        check["source"] = f"{above}\n{tests}".lstrip("\n")
        check["metadata"]["nbgrader"] = _mark(
            f"{block.label}-check", grade=True, locked=True, points=block.difficulty
        )
    solutions = {block.cells["solution"] for block in chapter.blocks}
    cells = [cell for index, cell in enumerate(cells) if index not in solutions]
    _rename_solutions(chapter, cells)
    _write_plainly(chapter, cells)
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if "setup" in cell["metadata"].get("tags", ()):
            cell["metadata"]["nbgrader"] = _mark(cell["id"], locked=True)
    points = ", ".join(f"`{e.name}` {e.points}" for e in map(chapter.exercise, chapter.blocks))
    told = {"cell_type": "markdown", "id": "how-graded", "metadata": {}}
    told["source"] = TERMS.format(points=points)
    title, *rest = (c for c in cells if c["cell_type"] == "code" or c["source"].strip())
    notebook["cells"] = [title, type(notebook)(told), *rest]
    notebook["metadata"]["kvlib"] = {"chapter": chapter.name}
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    return notebook


def _rename_solutions(chapter: Chapter, cells: Sequence[Any]) -> None:
    """What uses a solution further down uses the reader's own answer instead."""
    for block in chapter.blocks:
        name = chapter.exercise(block).name
        for _, theirs in check_calls(chapter.source(block, "solution")):
            for cell in cells:
                if cell["cell_type"] == "code":
                    cell["source"] = re.sub(rf"\b{theirs}\b", name, cell["source"])


def _write_plainly(chapter: Chapter, cells: Sequence[Any]) -> None:
    """Markdown without the text of solutions, which students would get, and without MyST."""
    folder = chapter.folder or Path()
    pages, cite, solving = titles(folder), cited(folder / "references.bib"), False
    for cell in cells:
        if cell["cell_type"] != "markdown":
            continue
        source = cell["source"]
        if solving:
            solved = _SOLVED.match(source)
            source, solving = source[solved.end() :] if solved else "", solved is None
        solving = solving or source.count("{solution-start}") > source.count("{solution-end}")
        cell["source"] = plain(_SOLUTION.sub("", source), pages, cite, set()).strip("\n")


def _mark(grade_id: str, **what: Any) -> dict[str, Any]:
    """Metadata of one cell, in the third version of nbgrader's schema."""
    unmarked = {"grade": False, "locked": False, "solution": False, "task": False}
    return {**unmarked, "grade_id": grade_id, "schema_version": 3, **what}
