"""Grade every notebook of a folder: a line for each, its grade as JSON, and a table of all."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvlib.exercises.grading.grader import Grade, grade

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
          error, and the points of each exercise
    say   told a line about each notebook as soon as it is graded
    how   as for `grade`

    ValueError where the folder holds no notebook.
    """
    paths = sorted(Path(folder).glob("*.ipynb"))
    if not paths:
        raise ValueError(f"{folder} holds no notebook: needed files that end in .ipynb")
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
    found: dict[str, Grade | str] = {}
    for path in paths:
        try:
            result: Grade | str = grade(path, **how)
        except (ValueError, OSError) as error:  # this one is no notebook of the chapter
            result = str(error)
        found[path.name] = result
        if isinstance(result, str):
            say(f"{path.name}: not graded: {result}")
            continue
        say(str(result).splitlines()[0])
        if out is not None:
            text = json.dumps(result.asdict(), indent=1, ensure_ascii=False) + "\n"
            (Path(out) / f"{path.stem}.json").write_text(text, encoding="utf-8")
    if out is not None:
        _write_table(found, Path(out) / "grades.csv")
    return found


def _write_table(found: dict[str, Grade | str], path: Path) -> None:
    labels = {v.label: None for g in found.values() if isinstance(g, Grade) for v in g.verdicts}
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*COLUMNS, *labels])
        table.writeheader()
        for name, g in found.items():
            if isinstance(g, str):
                table.writerow({"file": name, "error": g})
                continue
            row = {"chapter": g.chapter, "points": g.points, "of": g.of, "percent": g.percent}
            table.writerow({"file": name, **row, **{v.label: v.points for v in g.verdicts}})
