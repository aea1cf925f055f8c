"""Write the list of all exercises, from the chapters: kvlib's catalogue and the book's page.

Modes: write both files (default), --check (change nothing, exit 1 if one would change).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from kvbook.course.chapter import read_chapter
from kvbook.exercises.catalogue import Exercise

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "kvbook" / "exercises" / "catalogue.json"
BOOK_PAGE = ROOT / "book" / "exercises.md"
TABLE = "| chapter | exercise | difficulty | minutes | done |\n|---|---|--:|--:|:-:|"


def chapters() -> list[Path]:
    """The notebooks of the table of contents, in its order."""
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    names = re.findall(r"^ *(?:root|- file): *(book/\w+)", text, re.MULTILINE)
    found = (ROOT / f"{name}.ipynb" for name in names)
    return [path for path in found if path.exists()]


def collected() -> list[Exercise]:
    """Every exercise of the book. ValueError where two have one label."""
    found = [c.exercise(b) for c in map(read_chapter, chapters()) for b in c.blocks]
    labels = [e.label for e in found]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise ValueError(f"two exercises with one label: {', '.join(sorted(twice))}")
    return found


def page(found: list[Exercise]) -> str:
    """The page of all exercises: its prose as it is, and its table anew."""
    prose = BOOK_PAGE.read_text(encoding="utf-8").split(TABLE.splitlines()[0])[0]
    rows = []
    for e in found:
        link = f"{{ref}}`{e.title} <{e.label}>`"
        rows.append(f"| {{doc}}`{e.chapter}` | {link} | {e.difficulty} | {e.minutes} | ☐ |")
    return "\n".join([prose + TABLE, *rows, ""])


def files() -> dict[Path, str]:
    """What each file should say."""
    found = collected()
    entries = ",\n".join(json.dumps(e.asdict(), ensure_ascii=False) for e in found)
    return {CATALOGUE: f"[\n{entries}\n]\n", BOOK_PAGE: page(found)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if stale")
    check = parser.parse_args(arguments).check
    stale = [
        path
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is stale. Run: make exercises")
        else:
            path.write_text(files()[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
