"""Mutants for tools/mutation_run.py: those of the tests, and others drawn from the sources.

`drawn` changes one operator, number, pair of arguments or call of a function, at points that a
seed chooses. The draw depends on the text of the sources, so another commit may have other mutants.
"""

from __future__ import annotations

import ast
import functools
import importlib
import random
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import museum as beside
import norm_mutants
from cuda_mutants import MUTANTS, in_cuda

from kvbook import museum
from kvbook.museum.mutation import _function
from kvlib.kernels import processor

ROOT = Path(__file__).resolve().parent.parent
# Files → how many mutants are drawn from them.
DRAWN = {
    "caches/**/[!_]*.py": 18,
    "attention/[!_]*.py": 14,
    "codecs/[!_]*.py": 14,
    "kernels/twins/[!_]*.py": 12,
    "serve/scheduler.py": 5,
    "serve/generation.py": 2,
    "model/rope.py": 2,
    "model/safetensors.py": 4,
}
# Files whose tests are not sampled: what is refused, and names.
LEFT_OUT = {"checks.py", "names.py", "spec.py"}
SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "and": "or", "or": "and",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in", "+": "-", "-": "+",
    "*": "/", "//": "*", "%": "//", "<<": ">>", ">>": "<<", "&": "|",
}  # fmt: skip
# Calls whose arguments may be exchanged, or for which a type checker would not let them.
ALIKE = {"min", "max", "isinstance", "slice"}
Change = tuple[int, int, str]  # from here to there in the text, and what it says then


@dataclass(frozen=True)
class Case:
    """A mutant: its name, the function it changes, how to put it in, and for CUDA the unit."""

    name: str
    code: CodeType
    applied: Callable[[], AbstractContextManager[None]]
    unit: str | None = None


def all_cases() -> list[Case]:
    """Every mutant that a sampled test could see: bills are checked by tests that always run."""
    found: list[museum.Mutant] = [*museum.exhibits(), *beside.MUTANTS, *norm_mutants.MUTANTS]
    mutants = [m for m in found if not m.module.startswith("kvlib.costs")] + drawn(12)
    code = (
        processor.run.__code__
    )  # what a kernel on the processor calls; the unit is asked for, too
    cuda = [Case(m.name, code, functools.partial(in_cuda, m), m.unit) for m in MUTANTS]
    return [_case(m) for m in mutants] + cuda


def _case(mutant: museum.Mutant) -> Case:
    code = _function(importlib.import_module(mutant.module), mutant.function).__code__
    return Case(mutant.name, code, functools.partial(museum.applied, mutant))


# In Python ----------------------------------------------------------------------------------------


def drawn(seed: int) -> list[museum.Mutant]:
    """So many mutants of each part as DRAWN says, no two of them in one line."""
    rng, found = random.Random(seed), []
    for pattern, count in DRAWN.items():
        paths = sorted((ROOT / "kvlib").glob(pattern))
        if not paths:
            raise LookupError(f"no file of kvlib is called {pattern}")
        places = [p for path in paths if path.name not in LEFT_OUT for p in mutants(path)]
        rng.shuffle(places)
        lines: set[tuple[str, int]] = set()
        taken: list[museum.Mutant] = []
        for line, mutant in places:
            where = (mutant.module, line)
            if len(taken) < count and where not in lines and _is_one(mutant):
                lines.add(where)
                taken.append(mutant)
        found += taken
    return found


def _is_one(mutant: museum.Mutant) -> bool:
    try:
        with museum.applied(mutant):
            return True
    except (LookupError, SyntaxError, ValueError):  # a property, a default, a class's cell
        return False


def mutants(path: Path) -> Iterator[tuple[int, museum.Mutant]]:
    """(line, mutant) for every change that a file allows."""
    text = path.read_text(encoding="utf-8")
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    counted: dict[str, int] = {}
    for function, line, part, (start, end, new) in _changes(text):
        a = text.rfind("\n", 0, start) + 1
        b = text.find("\n", end)
        while text.count(text[a:b]) > 1 and a > 0:  # with the lines before it, it occurs there once
            a = text.rfind("\n", 0, a - 1) + 1
        what = textwrap.shorten(part, 50, placeholder=" ...")
        old = " ".join(text[start:end].split())
        name = f"{module[6:]} {function}: in `{what}` {old!r} → {new!r}"
        counted[name] = counted.get(name, 0) + 1
        name += f" ({counted[name]})" if counted[name] > 1 else ""
        changed = text[a:start] + new + text[end:b]
        yield line, museum.Mutant(name, module, function, text[a:b], changed)


def _changes(text: str) -> Iterator[tuple[str, int, str, Change]]:
    """(function, line, the changed expression's text, change)."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def at(line: int, column: int) -> int:  # columns of an ast are bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node: Any) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def operator(left: Any, right: Any) -> Iterator[Change]:
        a, b = span(left)[1], span(right)[0]
        word = text[a:b].strip()
        if word in SWAPPED:
            start = text.index(word, a)
            yield start, start + len(word), SWAPPED[word]

    def here(node: Any) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from operator(left, right)
            case ast.BinOp(left=left, right=right):
                yield from operator(left, right)
            case ast.BoolOp(values=[left, right, *_]):
                yield from operator(left, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield span(node)[0], span(operand)[0], ""
            case ast.Constant(value=int(n)) if not isinstance(n, bool):
                yield (*span(node), str(n + 1))
            case ast.Expr(value=ast.Call()):
                yield (*span(node), "pass")
            case ast.Call(args=[first, second, *_]) if ast.unparse(node.func) not in ALIKE and (
                not isinstance(second, ast.Starred) and not ast.unparse(first).endswith("xp")
            ):
                (a, b), (c, d) = span(first), span(second)
                yield a, d, text[c:d] + text[b:c] + text[a:b]

    def walk(node: Any, function: str, name: str) -> Iterator[tuple[str, int, str, Change]]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return  # words of errors
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = f"{name}.{node.name}".lstrip(".")
            inside = function or (name if isinstance(node, ast.FunctionDef) else "")
            for statement in node.body:
                yield from walk(statement, inside, name)
            return
        if function:
            for change in here(node):
                a, b = span(node)
                yield function, node.lineno, text[a:b], change
        for child in ast.iter_child_nodes(node):
            if child is not getattr(node, "annotation", None):
                yield from walk(child, function, name)

    yield from walk(ast.parse(text), "", "")
