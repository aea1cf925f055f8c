"""Draw kvlib's packages, low ones at the bottom, from the imports in their files.

    python tools/house.py            # write the drawing into CONTRIBUTING.md
    python tools/house.py --check    # exit with 1 if the drawing there is stale

An arrow means "imports". Arrows that follow from others are left out: if a imports b and b imports
c, the arrow from a to c isn't drawn. ORDER says what is above what, and tests hold the imports
(tests/test_imports.py) and the calls of a decode step (tools/reading_path.py) to it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "```mermaid\n", "```\n"

# Modules and packages of kvlib from low to high. Those in one row may call each other. A part of a
# package can have a separate row ("serve/request"); the longest name that fits a file counts.
Order = tuple[tuple[str, ...], ...]
ORDER: Order = (
    ("lazy", "errors", "arguments", "meter", "arrays", "blas", "devices", "progress", "commands"),
    ("config", "costs"),
    ("codecs",),
    ("attention",),
    ("caches",),
    ("model", "reference"),
    ("norms",),
    ("serve/distribution", "kernels", "serve/sampling"),
    ("serve/prompts", "serve/request", "quality", "machine"),
    ("speculation",),
    ("serve",),
    ("testing",),
)
# Names that share a box of the drawing.
BOXES = {
    "serve/distribution": "serve: distribution",
    "serve/sampling": "serve: sampling",
    "serve/prompts": "serve: prompts, request",
    "serve/request": "serve: prompts, request",
    "serve": "serve: scheduler, generation, policies, editing",
    "quality": "quality, machine",
    "machine": "quality, machine",
    **dict.fromkeys(ORDER[0], "errors, arguments, arrays, meter, …"),
}


def place(file: str, order: Order = ORDER) -> str:
    """Return the name in `order` that a file of kvlib belongs to ("caches/step.py" → "caches").

    Raises LookupError for a file that is in no row.
    """
    names = [n for row in order for n in row if file == f"{n}.py" or file.startswith(f"{n}/")]
    if not names:
        raise LookupError(f"{file} has no place in ORDER; add its package to a row")
    return max(names, key=len)


def height(file: str, order: Order = ORDER) -> int:
    """Return the row of a file of kvlib in `order`; LookupError if it has none."""
    name = place(file, order)
    return next(row for row, names in enumerate(order) if name in names)


def modules() -> dict[str, Path]:
    """Return name → file of every module of kvlib and kvbook; a package is its __init__."""
    found = {}
    for path in sorted(p for name in ("kvlib", "kvbook") for p in (ROOT / name).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: Iterable[str]) -> set[str]:
    """Return the modules that a source imports at the top, in a function, or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found & set(known)


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return module → the modules of kvlib and kvbook that it imports."""
    known = modules()
    return {
        name: imported(path.read_text(encoding="utf-8"), known) - {name}
        for name, path in known.items()
    }


def arrows() -> set[tuple[str, str]]:
    """Return (box, box that it imports), without the arrows that follow from others."""
    known = modules()

    def box(module: str) -> str:
        if module.startswith("kvbook"):
            return "kvbook"
        name = place(known[module].relative_to(ROOT / "kvlib").as_posix())
        return BOXES.get(name, name)

    fronts = {"kvlib", *(name for name in known if name.endswith("__main__"))}  # they see all
    below: dict[str, set[str]] = {}
    for module, others in graph().items():
        if module not in fronts:
            below.setdefault(box(module), set()).update(map(box, others - fronts))

    def reached(start: str) -> set[str]:
        found, ahead = set(), [start]
        while ahead:
            new = below.get(ahead.pop(), set()) - found - {start}
            found |= new
            ahead += new
        return found

    return {
        (upper, lower)
        for upper, lowers in below.items()
        for lower in lowers - {upper}
        if not any(lower in reached(other) for other in lowers - {lower, upper})
    }


def drawing() -> str:
    """Return the boxes and arrows in the language of Mermaid, which code hosts draw."""
    found = sorted(arrows())
    names = {name: f"n{i}" for i, name in enumerate(sorted({n for pair in found for n in pair}))}
    boxes = [f'    {label}["{name}"]' for name, label in names.items()]
    lines = [f"    {names[upper]} --> {names[lower]}" for upper, lower in found]
    return "\n".join(["flowchart TD", *boxes, *lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    if given.check:
        if old != drawing():
            print(f"The drawing in {PAGE.name} is stale. Run: python tools/house.py")
        return int(old != drawing())
    PAGE.write_text(before + BEGIN + drawing() + END + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
