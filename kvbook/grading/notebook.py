"""Read a notebook file that a stranger wrote. Everything here takes time linear in its size."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvbook.exercises.catalogue import chapters, exercises
from kvbook.grading.limits import MB
from kvbook.grading.text import line

LARGEST = 64 * MB  # of a notebook file
LABEL = ":label: "


def read_notebook(path: Path) -> dict[str, Any]:
    """The notebook as JSON gives it, with a list of cells. ValueError for any other file."""
    name = line(path.name)
    text = _bytes(path, name)
    try:
        notebook = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no notebook: {line(error)}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(f"{name} is no notebook of format 4: it has no list of cells")
    return notebook


def _bytes(path: Path, name: str) -> bytes:
    """At most LARGEST bytes of a regular file; a pipe or a device is refused before it is read."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{name} is no notebook: it is not a regular file")
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"{name} has {found.st_size:,} bytes, needed at most {LARGEST:,}")
    return text


def code_of(notebook: Mapping[str, Any]) -> list[str]:
    """The sources of the code cells."""
    return [_source(c) for c in notebook["cells"] if c.get("cell_type") == "code"]


def chapter_of(notebook: Mapping[str, Any]) -> str:
    """The chapter a notebook was made from: it says so, or has the chapter's labels."""
    said = _dict(_dict(notebook.get("metadata")).get("kvlib")).get("chapter")
    if isinstance(said, str) and said in chapters():
        return said
    marks = set[str]()
    for cell in notebook["cells"]:
        marks.add(str(_dict(_dict(cell.get("metadata")).get("nbgrader")).get("grade_id")))
        for text in _source(cell).splitlines():
            if text.startswith(LABEL):
                marks.add(text.removeprefix(LABEL))
    found = {e.chapter for e in exercises() if e.label in marks}
    if len(found) != 1:
        said = f"exercises of {len(found)} chapters ({', '.join(sorted(found))})"
        said = said if found else "no cell that is marked as an exercise"
        raise ValueError(f"the notebook has {said}: say which chapter with --chapter")
    return found.pop()


def cell_name(index: int, source: str) -> str:
    """A code cell as one finds it in JupyterLab, which numbers none: its place and beginning."""
    first = next((text.strip() for text in source.splitlines() if text.strip()), "")
    begins = f", which begins `{line(first, 40)}`" if first else ""
    return f"code cell {index + 1} from the top{begins}"


def defines(source: str, name: str) -> bool:
    """Whether a line of the source begins a function or a class of this name.

    >>> defines("x = 1\\ndef answer(a):", "answer"), defines("def answers(): ...", "answer")
    (True, False)
    """
    for text in source.splitlines():
        words = text.split(None, 2)
        if len(words) > 1 and words[0] in ("def", "class") and words[1].startswith(name):
            rest = words[1][len(name) :]
            if not (rest[:1].isalnum() or rest.startswith("_")):
                return True
    return False


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    parts = source if isinstance(source, list) else [source]
    return "".join(part for part in parts if isinstance(part, str))


def _dict(x: Any) -> dict[str, Any]:
    """x where it is a dict; a notebook may hold anything in its place."""
    return x if isinstance(x, dict) else {}
