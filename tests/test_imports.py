"""Who imports whom: no circles among files, and parts that only look down (tools/house.py)."""

import ast
import importlib.util
from graphlib import CycleError, TopologicalSorter

import house
import pytest


def test_there_are_no_circles() -> None:
    """Functions' own imports count: a circle that is hidden in a function is one all the same."""
    try:
        TopologicalSorter(house.graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_every_part_looks_down() -> None:
    known = house.modules()

    def row(module: str) -> int:
        return house.height(known[module].relative_to(house.ROOT / "kvlib").as_posix())

    for name, others in house.graph().items():
        if name in ("kvlib", "kvlib.__main__") or name.startswith("kvbook"):
            continue  # the public packages see all
        for other in others:
            assert other.startswith("kvlib"), f"{name} imports {other}, which exists for the book"
            assert other != "kvlib", f"{name} imports kvlib itself, which imports everything"
            assert row(other) <= row(name), f"{name} imports {other}, which is above it"


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "tests/peers"])
def test_what_is_imported_where_no_test_runs_is_there(folder: str) -> None:
    """Most of these scripts take minutes, or need PyTorch, so no test runs all of them."""
    for path in sorted((house.ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            if name.startswith(("kvlib", "kvbook")):
                module = importlib.import_module(name)
                for alias in node.names:
                    part = f"{name}.{alias.name}"
                    known = hasattr(module, alias.name) or importlib.util.find_spec(part)
                    assert known, f"{path.name}:{node.lineno} imports {part}"


def test_the_drawing_is_that_of_the_code() -> None:
    assert house.drawing() in house.PAGE.read_text(encoding="utf-8"), "run python tools/house.py"


def test_imports_are_found_wherever_they_stand() -> None:
    known = dict.fromkeys(["kvlib.a", "kvlib.a.b", "kvlib.c"])
    source = "import kvlib.c\ndef f():\n    from kvlib.a import b, d\n"
    assert house.imported(source, known) == {"kvlib.c", "kvlib.a.b", "kvlib.a"}
