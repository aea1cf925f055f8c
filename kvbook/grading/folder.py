"""Grade every notebook of a folder: a line for each, its grade as JSON, and a table of all."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from kvbook.exercises.catalogue import of_chapter
from kvbook.grading.grader import Tampered, grade
from kvbook.grading.notebook import chapter_of, read_notebook
from kvbook.grading.result import Grade
from kvbook.grading.text import cell, line

COLUMNS = ("file", "chapter", "points", "of", "percent", "error")


def grade_folder(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    say: Callable[[str], object] = lambda line: None,
    **how: Any,
) -> dict[str, Grade | str]:
    """The grade of each notebook in a folder by its file name, or why there is none.

    out   a folder for <name>.json of each and grades.csv: file, chapter, points, of, percent,
          error, and the points of each exercise. A row is written as soon as its file is graded
    say   told a line about each notebook as soon as it is graded
    how   as for `grade`

    Whatever goes wrong with one file is the error of that file, and the others are still graded,
    unless it has changed kvlib itself (Tampered). ValueError where the folder holds no notebook.
    """
    paths = sorted(Path(folder).glob("*.ipynb"))
    if not paths:
        raise ValueError(f"{line(folder)} holds no notebook: needed files that end in .ipynb")
    table = None
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        table = _Table(Path(out) / "grades.csv", _labels(paths, how.get("chapter")))
    found: dict[str, Grade | str] = {}
    try:
        for path in paths:
            result = _graded(path, None if out is None else Path(out), how)
            found[path.name] = result
            name = line(path.name)
            if isinstance(result, str):
                say(f"{name}: not graded: {result}")
            else:
                say(str(result).splitlines()[0])
            if table is not None:
                table.add(name, result)
    finally:
        if table is not None:
            table.close()
    return found


def _graded(path: Path, out: Path | None, how: dict[str, Any]) -> Grade | str:
    """The grade, written where it belongs; words where anything at all went wrong."""
    try:
        result = grade(path, **how)
        if out is not None:
            write_json(result, out / f"{path.stem}.json")
    except Tampered:
        raise
    except Exception as error:  # a stranger wrote this file, and others wait behind it
        known = isinstance(error, ValueError | OSError)
        return line(error if known else f"{type(error).__name__}: {error}")
    return result


def write_json(result: Grade, path: Path) -> None:
    """The grade as JSON, in UTF-8."""
    text = json.dumps(result.asdict(), indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def _labels(paths: list[Path], chapter: str | None) -> list[str]:
    """The exercises of all chapters that the files are of, for the head of the table."""
    found = dict[str, None]()
    for path in paths:
        try:
            name = chapter_of(read_notebook(path)) if chapter is None else chapter
            found |= {e.label: None for e in of_chapter(name)}
        except Exception:  # its own row will say what is wrong with it
            continue
    return list(found)


class _Table:
    """grades.csv, a row at a time: what was graded stays, whatever happens to the next file."""

    def __init__(self, path: Path, labels: list[str]) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, [*COLUMNS, *labels], extrasaction="ignore")
        self._rows.writeheader()
        self._file.flush()

    def add(self, name: str, result: Grade | str) -> None:
        row: dict[str, Any] = {"file": name}
        if isinstance(result, str):
            row["error"] = result
        else:
            row |= {key: getattr(result, key) for key in ("chapter", "points", "of", "percent")}
            row |= {v.label: v.points for v in result.verdicts}
        self._rows.writerow({key: cell(value) for key, value in row.items()})
        self._file.flush()

    def close(self) -> None:
        self._file.close()
