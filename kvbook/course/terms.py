"""What a student reads before the first exercise: points, limits, what counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kvbook.course.chapter import Chapter
from kvbook.grading.limits import Limits

_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,\s]+),(?P<body>.*?)^\}", re.M | re.S)
_FIELD = r"^\s*%s\s*=\s*[{\"]+(.*?)[}\"]+,?\s*$"


def terms(chapter: Chapter) -> str:
    """The cell below the title of a student's notebook."""
    found = [chapter.exercise(block) for block in chapter.blocks]
    points = ", ".join(f"`{e.name}` {e.points}" for e in found)
    limits = Limits()
    return (
        f"**How this notebook is graded.** Points: {points}. An exercise gets all of its points "
        "or none.\n\n"
        "Only what the functions and classes that you write do counts, not what a cell prints: "
        "write each answer in the cell that has its stub, under the same name and with the same "
        "arguments. The check below it says what is wrong, as often as you like. The grader asks "
        "the same check again with other inputs, which you do not see. It gives an answer "
        f"{limits.seconds:g} seconds and {limits.memory:,} MB, and runs of this notebook what the "
        "answers need: imports, helpers and values that they use."
    )


def titles(folder: Path) -> dict[str, str]:
    """The title of every page of a book, by the name that links use."""
    found = {}
    for path in sorted([*folder.glob("*.md"), *folder.glob("*.ipynb")]):
        heading = re.search(
            r'^(?:\s*")?# (.+?)(?:\\n)?"?,?$', path.read_text(encoding="utf-8"), re.M
        )
        found[path.stem] = heading[1] if heading else path.stem
    return found


def cited(bibliography: Path) -> Callable[[str], str]:
    """A function from a key to its authors and year, with a link where there is one."""
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    entries = {match["key"]: match["body"] for match in _ENTRY.finditer(text)}

    def field(key: str, name: str) -> str:
        found = re.search(_FIELD % name, entries.get(key, ""), re.M)
        return re.sub(r"[{}]", "", found[1]) if found else ""

    def cite(key: str) -> str:
        people = [p for p in re.split(r"\s+and\s+", field(key, "author")) if p]
        names = [p.split(",")[0] if "," in p else p.split()[-1] for p in people]
        who = " and ".join(names) if len(names) <= 2 else f"{names[0]} et al."
        shown = f"{who or field(key, 'title') or key} {field(key, 'year')}".strip()
        places = (
            ("https://doi.org/", "doi"), ("https://arxiv.org/abs/", "eprint"), ("", "url"),
        )  # fmt: skip
        for start, name in places:
            if where := field(key, name):
                return f"[{shown}]({start}{where})"
        return shown

    return cite
