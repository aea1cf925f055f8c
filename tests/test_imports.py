"""Who imports whom: no circles among kvlib's files, and parts that only look down."""

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Each part may import those before it, and kvbook may import all of kvlib. A module that has a
# place of its own here is not counted with the rest of its package.
ORDER = (
    *("lazy", "errors", "arguments", "config", "devices", "progress", "commands"),
    *("arrays", "blas", "meter", "norms", "costs"),
    *("codecs", "attention", "caches"),
    *("serve.distribution", "kernels", "serve.sampling", "model", "reference"),
    *("serve.prompts", "serve.request", "quality", "machine"),
    *("speculation", "serve", "testing"),
)


def modules() -> dict[str, Path]:
    """Name → file of every module of kvlib and kvbook; a package is its __init__."""
    found = {}
    for path in sorted(p for name in ("kvlib", "kvbook") for p in (ROOT / name).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: dict[str, Path]) -> set[str]:
    """Modules that a source imports anywhere: at the top, in a function, for types alone."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return {name for name in found if name in known}


@functools.cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {
        name: imported(path.read_text(encoding="utf-8"), known) - {name}
        for name, path in known.items()
    }


def test_there_are_no_circles() -> None:
    """Functions' own imports count: a circle that is hidden in a function is one all the same."""
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_every_part_looks_down() -> None:
    level = {part: n for n, part in enumerate(ORDER)}

    def height(rest: str) -> int:
        part = rest if rest in level else rest.split(".")[0]
        assert part in level, f"{part} has no place in ORDER"
        return level[part]

    for name, others in graph().items():
        package, _, own = name.partition(".")
        if package == "kvbook" or own in ("", "__main__"):
            continue  # the front doors see all
        for other in others:
            package, _, rest = other.partition(".")
            assert package == "kvlib", f"{name} imports {other}, which exists for the book"
            assert rest, f"{name} imports kvlib itself, which imports everything"
            assert height(rest) <= height(own), f"{name} imports {other}, which is above it"


def test_imports_are_found_wherever_they_stand() -> None:
    known = dict.fromkeys(["kvlib.a", "kvlib.a.b", "kvlib.c"], Path())
    source = "import kvlib.c\ndef f():\n    from kvlib.a import b, d\n"
    assert imported(source, known) == {"kvlib.c", "kvlib.a.b", "kvlib.a"}
