"""How long a chapter takes: words / 200 + lines of code / 8, and the sum that its exercises state.

A section whose title ends in "(optional)" is apart. Folded code (`hide-input`) is not read.
"""

import re
from collections.abc import Iterator
from typing import Any

from notebook_code import NOTEBOOKS, read, tags, words

WORDS, LINES = 200, 8  # a minute
STATED = re.compile(
    r"[Rr]eading takes about (\d+) minutes(?:, and the optional sections? another (\d+))?;"
    r" the exercises? takes? about (\d+)"
)
CUTS = re.compile(r"(?m)^(?=#+ |:::\{exercise-start\}|:::\{solution-end\})")


def pieces(notebook: Any) -> Iterator[tuple[str, Any]]:
    """(part, cell) for all of a chapter, its Markdown cut where a part may end."""
    level, exercise = 0, False  # level: of the title of the optional section that we are in
    for cell in notebook["cells"]:
        is_code = cell["cell_type"] == "code"
        for piece in [cell["source"]] if is_code else CUTS.split(cell["source"]):
            heading = None if is_code else re.match(r"(#+) (.*)", piece)
            if heading and heading[2].rstrip().endswith("(optional)"):
                level = len(heading[1])
            elif heading and len(heading[1]) <= level:
                level = 0
            elif not is_code and piece.startswith(":::{"):
                exercise = piece.startswith(":::{exercise-start}") or (
                    exercise and not piece.startswith(":::{solution-end}")
                )
            part = "exercises" if exercise else "optional" if level else "core"
            yield part, cell if is_code else {**cell, "source": piece}


def minutes(notebook: Any) -> dict[str, float]:
    """Minutes of the "core", the "optional" sections and the "exercises"."""
    minutes_of = {"core": 0.0, "optional": 0.0, "exercises": 0.0}
    for part, piece in pieces(notebook):
        if part == "exercises":
            minutes_of[part] += sum(
                map(int, re.findall(r"\*Difficulty.*about (\d+) minutes", piece["source"]))
            )
        elif piece["cell_type"] == "markdown":
            minutes_of[part] += words({"cells": [piece]}) / WORDS
        elif "hide-input" not in tags(piece):
            minutes_of[part] += sum(map(bool, map(str.strip, piece["source"].splitlines()))) / LINES
    return minutes_of


def required_words(notebook: Any) -> int:
    """Words of prose without the optional sections."""
    return sum(words({"cells": [piece]}) for part, piece in pieces(notebook) if part != "optional")


def stated(notebook: Any) -> dict[str, int] | None:
    """The minutes that a page promises; None where it does not say them in this form."""
    prose = (cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    match = STATED.search(" ".join(" ".join(prose).split()))
    if match is None:
        return None
    core, optional, exercises = (int(n or 0) for n in match.groups())
    return {"core": core, "optional": optional, "exercises": exercises}


def main() -> None:
    """python tests/reading.py: the minutes of each chapter, computed and promised."""
    for path in NOTEBOOKS:
        notebook = read(path)
        computed = ", ".join(f"{part} {n:.1f}" for part, n in minutes(notebook).items())
        print(f"{path.stem:10} {computed}; promised: {stated(notebook) or 'not in this form'}")


if __name__ == "__main__":
    main()
