"""Translate the scenes of the sliders, and their drawing, to assets/explorers/scenes.js.

The arithmetic of the sliders exists once, in Python: kvlib/costs/formulas.py and, in
kvbook/explorers, scenes and svg.py. PScript (BSD-2-Clause) translates it. Not all of Python means
the same in JavaScript, so every module is first checked against a small language (`Subset`), and
the tests compare both sides at thousands of settings. The tables (models, GPUs, codecs) are added
as JSON.

    python tools/build_explorers.py            # after a change to one of these modules
    python tools/build_explorers.py --check    # exit 1 if the committed file is not what they say
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from page_language import Bare, Joined, Outside, Subset
from pscript import py2js

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "assets" / "explorers" / "scenes.js"
ENTRY = "kvbook.explorers.svg"
HEAD = """\
// Made by tools/build_explorers.py from kvlib/costs/formulas.py, kvbook/explorers/scenes and
// kvbook/explorers/svg.py. Do not edit. The helpers whose names begin with _py are PScript's,
// BSD-2-Clause: see PSCRIPT-LICENSE beside this file.
(function () {
"use strict";
var log10 = Math.log10;
"""


def source_of(module: str) -> Path:
    """The file of a module of kvlib."""
    return ROOT / (module.replace(".", "/") + ".py")


def translated(module: str) -> bool:
    """Whether the page carries this module."""
    return module in ("kvlib.costs.formulas", "kvlib.costs.reserves") or module.startswith(
        ("kvbook.explorers.svg", "kvbook.explorers.scenes.")
    )


def in_order(modules: list[str]) -> list[str]:
    """The modules and what they import, each after what it needs."""
    found: list[str] = []

    def add(module: str) -> None:
        if module in found:
            return
        file = source_of(module)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            name = node.module if isinstance(node, ast.ImportFrom) else None
            if name in ("__future__", "typing", "math"):
                continue
            if name is None or not translated(name):
                raise Outside(f"{file.name}:{node.lineno}: the page has no {ast.unparse(node)!r}")
            if any(alias.asname for alias in node.names):  # type: ignore[union-attr]
                raise Outside(f"{file.name}:{node.lineno}: import under its own name")
            add(name)
        found.append(module)

    for module in modules:
        add(module)
    return found


def bare(module: str, known: dict[str, str]) -> ast.Module:
    """The module without what the page does not need, checked; adds its names to `known`."""
    file = source_of(module)
    tree = Bare().visit(ast.parse(file.read_text(encoding="utf-8")))
    where = file.relative_to(ROOT).as_posix()
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.Assign):
            targets = [t for target in node.targets for t in ast.walk(target)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        for name in names:
            if name in known:
                raise Outside(f"{where}:{node.lineno}: {name} is defined in {known[name]}, too")
            known[name] = where
    Subset(where, set(known)).visit(tree)
    return tree


def javascript(modules: list[str]) -> str:
    """The modules in JavaScript."""
    known: dict[str, str] = {}
    body: list[ast.stmt] = []
    for module in in_order(modules):
        body += Joined().visit(bare(module, known)).body
    tree = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
    code = py2js(ast.unparse(tree))
    # a function takes the name of the variable it is assigned to
    return re.sub(r"= function flx_\w+ \(", "= function (", code)


def page_tables() -> tuple[dict[str, str], dict[str, Any]]:
    """Explorer -> its scene function, and what all explorers look up, as one dict of tables."""
    from kvbook.explorers.catalogue import ALL

    scenes: dict[str, str] = {}
    tables: dict[str, Any] = {}
    for name, make in ALL.items():
        explorer = make()
        scenes[name] = explorer._function.__name__
        for key, table in explorer.tables.items():
            if tables.setdefault(key, table) != table:
                raise ValueError(f"explorer {name}: table {key!r} differs from that of another one")
    return scenes, tables


def script() -> str:
    """The whole file."""
    from kvbook.explorers.catalogue import ALL

    scenes, tables = page_tables()
    modules = [make()._function.__module__ for make in ALL.values()]
    listed = ", ".join(f"{name}: {function}" for name, function in sorted(scenes.items()))
    data = json.dumps(tables, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=0)
    made = f"window.kvExplorers = {{scenes: {{{listed}}}, draw: draw, tables: {data}}};\n}})();\n"
    return HEAD + javascript([*modules, ENTRY]) + "\n" + made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if stale")
    check = parser.parse_args().check
    text = script()
    where = OUTPUT.relative_to(ROOT).as_posix()
    if check:
        if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text:
            return 0
        print(f"{where} is stale. Run: make explorers", file=sys.stderr)
        return 1
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    data = text.encode()
    packed = len(gzip.compress(data, mtime=0))
    print(f"{where}: {len(data) / 1024:.1f} KiB, {packed / 1024:.1f} KiB compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
