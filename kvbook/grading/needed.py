"""Which statements of a notebook an answer needs: those that make the names it uses, and theirs.

Graded are functions. The figures, clocks and models of the rest of a chapter have no say in what
they return, so they need not run.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_CLASSDEREF"}
WRITES = {"STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"}

AT_ONCE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}  # and the bodies of classes


@dataclass(frozen=True)
class Statement:
    """One statement at the top level of a cell.

    binds     global names that it gives a value; changes: those whose object it may change;
    reads     those it looks up; later: those among them that a function of it looks up when called
    imports   it is an import; of everything there is where `binds` has "*"
    surely    it cannot fail, so what its names meant before does not matter: a plain def
    """

    cell: int
    line: int
    code: CodeType
    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]
    later: frozenset[str]
    imports: bool
    surely: bool


def statements(sources: Sequence[str]) -> tuple[list[Statement], dict[int, str]]:
    """All statements of some code cells, and by cell the error of those that are not Python."""
    found, broken = [], {}
    for cell, source in enumerate(sources):
        name = f"<cell {cell}>"
        try:
            for node in ast.parse(without_magics(source), name).body:
                found.append(_statement(cell, node, name))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f" (line {error.lineno} of the cell)" if isinstance(error, SyntaxError) else ""
            words = error.msg if isinstance(error, SyntaxError) else str(error)
            broken[cell] = f"{type(error).__name__}: {words}{line}"
    return found, broken


def needed(found: Sequence[Statement], names: Iterable[str]) -> list[Statement]:
    """The statements that make these names, and what those read, in the order of the notebook.

    A module is made by its import; who calls one of its functions is not needed for that.
    """
    modules = {name for s in found if s.imports for name in s.binds}
    # A function reads its globals when it is called, which is after everything: as they are then.
    at_the_end = {*names, "*"}
    while True:
        chosen, live = [], set(at_the_end)
        for s in reversed(found):
            if live.isdisjoint(s.binds | (s.changes - modules)):
                continue
            chosen.append(s)
            if s.surely:
                live -= s.binds
            live |= s.reads
        read = {name for s in chosen for name in s.later}
        if read <= at_the_end:
            return chosen[::-1]
        at_the_end |= read


def without_magics(source: str) -> str:
    """The source with IPython's own lines blanked, so that the others keep their numbers."""
    if source.lstrip().startswith("%%"):
        return ""
    lines = source.splitlines()
    starts = ("%", "!", "?")
    return "\n".join("pass" if line.lstrip() == line and line.startswith(starts) else line
                     for line in lines)  # fmt: skip


def _statement(cell: int, node: ast.stmt, name: str) -> Statement:
    code = compile(ast.Module([node], []), name, "exec")
    binds, reads, later = set[str](), set[str](), set[str]()
    for part, called in _codes(code):
        for step in dis.get_instructions(part):
            if step.opname in READS:
                (later if called else reads).add(str(step.argval))
            elif step.opname in WRITES and (part is code or "GLOBAL" in step.opname):
                binds.add(str(step.argval))
    imports = isinstance(node, ast.Import | ast.ImportFrom)
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        binds.add("*")
    surely = isinstance(node, ast.FunctionDef) and binds == {node.name}
    surely = surely and not (node.decorator_list or node.args.defaults)  # type: ignore[attr-defined]
    return Statement(
        cell, node.lineno, code, frozenset(binds), frozenset(_changed(node)),
        frozenset(reads | later), frozenset(later), imports, surely,
    )  # fmt: skip


def _codes(code: CodeType, called: bool = False) -> Iterator[tuple[CodeType, bool]]:
    """A code object and those within; True for what runs only when a function is called."""
    yield code, called
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            at_once = inner.co_name in AT_ONCE or not inner.co_flags & inspect.CO_OPTIMIZED
            yield from _codes(inner, called or not at_once)


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names whose object a statement may change: x[0] = 1, x.a = 1, x.append(1)."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return  # what a body does when it is called is not done here
    for part in ast.walk(node):
        target: ast.AST | None = None
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            target = part
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            target = part.value.func if isinstance(part.value.func, ast.Attribute) else None
        while isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id
