"""The Python that the rendered page can run: what is allowed, and what is left out on the way.

PScript translates much more than this, but not always into the same meaning. `Subset` refuses, with
file and line, whatever could differ between Python and JavaScript.
"""

from __future__ import annotations

import ast

RESERVED = frozenset(
    """
    arguments await break case catch class const continue debugger default delete do else enum
    eval export extends false finally for function if implements import in instanceof interface
    let new null package private protected public return static super switch this throw true try
    typeof undefined var void while with yield Math Object Array String Number Error NaN
    Infinity
    """.split()  # noqa: SIM905
)
BUILTINS = frozenset({"len", "min", "max", "abs", "int", "range", "log10", "True", "False"})
METHODS = frozenset({"append", "join", "replace"})
ALLOWED = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign),
    *(ast.For, ast.While, ast.If, ast.IfExp, ast.Break, ast.Continue, ast.Expr, ast.BoolOp),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.Slice, ast.Attribute),
    *(ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.JoinedStr, ast.FormattedValue),
    *(ast.ListComp, ast.comprehension, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
)


class Outside(SyntaxError):
    """Python that the page cannot run with the same meaning."""


class Subset(ast.NodeVisitor):
    """Refuses, with file and line, what PScript would translate into something else."""

    def __init__(self, file: str, known: set[str]) -> None:
        self.file = file
        self.known = known

    def refuse(self, node: ast.AST, what: str) -> None:
        raise Outside(f"{self.file}:{getattr(node, 'lineno', 1)}: {what}")

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, ALLOWED):
            self.refuse(node, f"{type(node).__name__} is outside the language of the page")
        super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.name(node, node.name)
        given = node.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            self.refuse(node, f"{node.name}: only plain parameters")
        if node.decorator_list:
            self.refuse(node, f"{node.name}: no decorators")
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stores(n)}
        local = stored | {arg.arg for arg in given.args}
        for inner in ast.walk(node):
            if inner is not node and isinstance(inner, ast.FunctionDef):
                self.refuse(inner, "no function inside a function")
            if isinstance(inner, ast.Name) and inner.id not in local | self.known | BUILTINS:
                self.refuse(inner, f"the name {inner.id!r} is not known to the page")
        super().generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.name(node, node.arg)

    def visit_Name(self, node: ast.Name) -> None:
        if _stores(node):
            self.name(node, node.id)

    def name(self, node: ast.AST, name: str) -> None:
        if name in RESERVED or name in BUILTINS or name.startswith(("_py", "stub")):
            self.refuse(node, f"the name {name!r} means something else in JavaScript")

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) > 1:
            self.refuse(node, "no chained comparison: write it with `and`")
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            self.refuse(node, "no `is`")
        super().generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if node.keywords:
            self.refuse(node, "no keyword arguments")
        if isinstance(node.func, ast.Attribute) and node.func.attr not in METHODS:
            self.refuse(node, f"no method .{node.func.attr}(), only {', '.join(sorted(METHODS))}")
        super().generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr not in METHODS:
            self.refuse(node, f"no attribute .{node.attr}")
        super().generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        if node.format_spec is not None or node.conversion != -1:
            self.refuse(node, "no format in an f-string: ties differ (use scenes/words.py)")
        super().generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        if node.step is not None:
            self.refuse(node, "no step in a slice")
        super().generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key in node.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                self.refuse(node, "the keys of a dict are strings, written out")
        super().generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name):
            self.refuse(node, "a loop has one variable")
        if node.orelse:
            self.refuse(node, "no `else` after a loop")
        super().generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            self.refuse(node, "no `else` after a loop")
        super().generic_visit(node)


class Bare(ast.NodeTransformer):
    """Drops imports, docstrings and annotations; an f-string becomes the join of a list."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None or ast.unparse(node.annotation) == "TypeAlias":
            return None
        made = ast.Assign(targets=[node.target], value=self.visit(node.value))
        return ast.copy_location(made, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for arg in node.args.args:
            arg.annotation = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        return node


class Joined(ast.NodeTransformer):
    """f"{a} of {b}" as "".join([a, " of ", b]): PScript's own way carries a formatter along."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
        pieces = ast.List(elts=[self.visit(part) for part in parts], ctx=ast.Load())
        call = ast.Call(ast.Attribute(ast.Constant(""), "join", ast.Load()), [pieces], [])
        return ast.copy_location(call, node)


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
