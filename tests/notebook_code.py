"""Read the chapters as data: their prose, their cells, and the code of their exercises."""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))
FENCE = re.compile(r"^(?P<mark>```+|~~~+|:::+)(?P<rest>.*)$")


@dataclass(frozen=True)
class Exercise:
    """One exercise: what its stub defines, the name of its checker, what its solution defines."""

    name: str
    checker: str
    solution: str


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def tags(cell: Any) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def prose_lines(notebook: Any) -> list[str]:
    """The lines of markdown that are read: no code blocks, no directive fences, no options."""
    lines, in_code = [], False
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for line in cell["source"].splitlines():
            fence = FENCE.match(line.strip())
            if fence:
                rest = fence["rest"].strip()
                is_code = fence["mark"][0] != ":" and not re.match(r"\{(?!code)", rest)
                in_code = is_code and (not in_code or bool(rest))
                continue
            if in_code or re.match(r"\s*:[a-z-]+:( |$)", line):
                continue
            lines.append(line)
    return lines


def words(notebook: Any) -> int:
    text = "\n".join(prose_lines(notebook))
    text = re.sub(r"\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"[^\W\d_][\w'’-]*", text))


def headings(notebook: Any) -> list[tuple[int, str]]:
    matches = (re.match(r"(#{1,6}) +(.+)", line) for line in prose_lines(notebook))
    return [(len(match[1]), match[2]) for match in matches if match]


def defined(source: str) -> list[str]:
    """Names of the functions and classes a cell defines."""
    kinds = ast.FunctionDef | ast.ClassDef
    return [node.name for node in ast.parse(source).body if isinstance(node, kinds)]


def checks(source: str) -> list[tuple[str, str]]:
    """Calls of the form check_something(name), as (checker, name)."""
    calls = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            argument = node.args[0]
            if node.func.id.startswith("check_") and isinstance(argument, ast.Name):
                calls.append((node.func.id, argument.id))
    return calls


def exercises(notebook: Any) -> list[Exercise]:
    """The exercises of a notebook. AssertionError where a stub lacks its check or solution."""
    entries = []
    by_tag = {
        tag: [cell["source"] for cell in code_cells(notebook) if tag in tags(cell)]
        for tag in ("stub", "check", "solution")
    }
    called = [call for source in by_tag["check"] for call in checks(source)]
    solved = [
        (checker, name)
        for source in by_tag["solution"]
        for checker, name in checks(source)
        if name in defined(source)
    ]
    for source in by_tag["stub"]:
        names = defined(source)
        assert len(names) == 1, f"a stub cell defines one thing, this one defines {names}"
        checkers = [checker for checker, name in called if name == names[0]]
        assert checkers, f"no cell tagged 'check' calls a checker on {names[0]}"
        solutions = [name for checker, name in solved if checker == checkers[0]]
        assert solutions, f"no cell tagged 'solution' calls {checkers[0]} on what it defines"
        entries.append(Exercise(names[0], checkers[0], solutions[0]))
    return entries


def namespace(notebook: Any) -> dict[str, Any]:
    """Run the cells tagged setup, stub, check and solution, in order; return what they define."""
    space: dict[str, Any] = {"__name__": "chapter"}
    for cell in code_cells(notebook):
        if {"setup", "stub", "check", "solution"} & set(tags(cell)):
            exec(compile(cell["source"], f"<cell {cell['id']}>", "exec"), space)
    return space


@functools.cache
def solved(chapter: str) -> dict[str, Any]:
    """The book's answers to a chapter's exercises, by the name that the stub defines."""
    notebook = read(BOOK / f"{chapter}.ipynb")
    space: dict[str, Any] = {"__name__": "chapter"}
    for cell in code_cells(notebook):
        if {"setup", "solution"} & set(tags(cell)):
            code = ast.parse(cell["source"])
            if "solution" in tags(cell):  # its last line asks the checker
                code.body = [node for node in code.body if not isinstance(node, ast.Expr)]
            exec(compile(code, f"<cell {cell['id']}>", "exec"), space)
    return {e.name: space[e.solution] for e in exercises(notebook)}


def smallest_margin(model: Any, prompt: str, continuation: str) -> float:
    """The least lead, in logits, of a token over its best rival; AssertionError for any other."""
    ids, new = model.tokenizer.encode(prompt), model.tokenizer.encode(continuation)
    cache = model.new_cache(1, len(ids) + len(new))
    cache.add("text")
    step = cache.plan(["text"], [len(ids) + len(new)])
    logits = np.asarray(model.forward(ids + new, cache, step, rows="all"))
    rows = logits[len(ids) - 1 : -1]
    chosen = rows[np.arange(len(new)), new]
    assert (rows.argmax(axis=1) == new).all(), "the continuation is not the greedy one"
    rivals = rows.copy()
    rivals[np.arange(len(new)), new] = -np.inf
    return float((chosen - rivals.max(axis=1)).min())
