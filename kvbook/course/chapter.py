"""A chapter's notebook, read as data: which cells make up which exercise."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvbook.exercises.catalogue import Exercise

START = re.compile(r":::\{exercise-start\} *(?P<title>.*)\n:label: (?P<label>[\w-]+)\n:::\n")
MARK = re.compile(r"\*Difficulty (?P<difficulty>[123]) of 3, about (?P<minutes>\d+) minutes\.\*\n")
NEEDED = ("stub", "check", "solution")


@dataclass
class Block:
    """One exercise: its heading, and the indices of its three code cells in the notebook."""

    label: str
    title: str
    difficulty: int
    minutes: int
    cells: dict[str, int] = field(default_factory=dict)  # stub, check, solution → index


@dataclass
class Chapter:
    """A notebook and its exercises."""

    name: str
    notebook: Any
    blocks: list[Block]
    folder: Path | None = None

    def source(self, block: Block, part: str) -> str:
        """The code of an exercise's stub, check or solution."""
        return str(self.notebook["cells"][block.cells[part]]["source"])

    def exercise(self, block: Block) -> Exercise:
        """The exercise as the catalogue lists it."""
        names = definitions(self.source(block, "stub"))
        if len(names) != 1:
            raise ValueError(f"{block.label}: the stub defines {names}, needed one thing")
        calls = check_calls(self.source(block, "check"))
        checkers = [checker for checker, name in calls if name == names[0]]
        if len(checkers) != 1:
            raise ValueError(f"{block.label}: needed one check_...({names[0]}), got {calls}")
        return Exercise(
            block.label, self.name, block.title, names[0], checkers[0], block.difficulty,
            block.minutes,
        )  # fmt: skip


def read_chapter(path: Path) -> Chapter:
    """A chapter of the book. ValueError where an exercise is not in the form of CONTRIBUTING.md."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    blocks: list[Block] = []
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            blocks += [_block(path.stem, match) for match in START.finditer(cell["source"])]
            continue
        for tag in set(cell["metadata"].get("tags", ())) & set(NEEDED):
            if not blocks or tag in blocks[-1].cells:
                raise ValueError(f"{path.stem}: cell {index}, tagged {tag}, is of no exercise")
            blocks[-1].cells[tag] = index
    for block in blocks:
        if missing := [part for part in NEEDED if part not in block.cells]:
            raise ValueError(f"{block.label} has no cell tagged {', '.join(missing)}")
    return Chapter(path.stem, notebook, blocks, path.parent)


def _block(chapter: str, match: re.Match[str]) -> Block:
    label = match["label"]
    mark = MARK.match(match.string, match.end() + 1)
    if mark is None:
        raise ValueError(
            f"{label}: under the title needed a line like "
            "'*Difficulty 2 of 3, about 15 minutes.*' and an empty line"
        )
    if not label.startswith(f"{chapter}-"):
        raise ValueError(f"{label}: needed a label that begins with {chapter}-")
    return Block(label, match["title"].strip(), int(mark["difficulty"]), int(mark["minutes"]))


def definitions(source: str) -> list[str]:
    """Names of the functions and classes that a cell defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(source).body if isinstance(node, kinds)]


def check_calls(source: str) -> list[tuple[str, str]]:
    """Calls of the form check_something(name), as (checker, name)."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=checker), args=[ast.Name(id=name)]):
                if checker.startswith("check_"):
                    found.append((checker, name))
    return found
