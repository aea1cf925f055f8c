"""Put a solution into its stub, between the marks that nbgrader cuts out again."""

import ast
import re
from textwrap import dedent, indent

from kvbook.course.chapter import check_calls

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
_Definition = ast.FunctionDef | ast.ClassDef


def filled(stub: str, solution: str) -> str:
    """The stub's source with the solution's bodies instead of its dots.

    Signatures and docstrings stay the stub's, for what nbgrader leaves to a student is this
    cell without what is between the marks. ValueError where the two do not fit together.
    """
    (target,) = [n for n in ast.parse(stub).body if isinstance(n, _Definition)]
    solved = {name for _, name in check_calls(solution)}
    body = ast.parse(solution).body
    (source,) = [n for n in body if isinstance(n, _Definition) and n.name in solved]
    rest = [n for n in body if n is not source and not _is_call(n)]
    lines = stub.splitlines()
    for blank, answer in reversed(_pairs(target, source)):
        if ast.dump(blank.args) != ast.dump(answer.args):
            raise ValueError(f"{blank.name}: the solution's arguments are not the stub's")
        dots = blank.body[-1]
        if not (isinstance(dots, ast.Expr) and ast.unparse(dots) == "..."):
            raise ValueError(f"{blank.name}: the stub's body must end in ...")
        space = " " * dots.col_offset
        text = _lines(solution, answer.body[bool(ast.get_docstring(answer)) :])
        if rest and isinstance(target, ast.FunctionDef):
            text = "\n".join([_lines(solution, rest), text])
        marked = indent(f"{BEGIN}\n{text}\n{END}", space)
        lines[dots.lineno - 1 : dots.end_lineno] = marked.splitlines()
    if rest and isinstance(target, ast.ClassDef):
        lines = [BEGIN, *_lines(solution, rest).splitlines(), END, "", "", *lines]
    return re.sub(rf"\b{source.name}\b", target.name, "\n".join(lines))


def _pairs(
    target: _Definition, source: _Definition
) -> list[tuple[ast.FunctionDef, ast.FunctionDef]]:
    """Functions of the stub, each with the solution's function of the same name."""
    if isinstance(target, ast.FunctionDef) and isinstance(source, ast.FunctionDef):
        return [(target, source)]
    stubs, answers = (
        {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        for node in (target, source)
    )
    if type(target) is not type(source) or stubs.keys() != answers.keys():
        raise ValueError(f"{source.name} does not have the methods of {target.name}")
    return [(node, answers[name]) for name, node in stubs.items()]


def _lines(source: str, nodes: list[ast.stmt]) -> str:
    """The lines from the first to the last of some neighbouring statements, comments included."""
    first = min([nodes[0].lineno, *(d.lineno for d in getattr(nodes[0], "decorator_list", ()))])
    return dedent("\n".join(source.splitlines()[first - 1 : nodes[-1].end_lineno]))


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
