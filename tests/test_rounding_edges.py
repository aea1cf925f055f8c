"""The tool that sums in another order finds a number on its edge, and leaves others alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rounding_edges as tool
from nbformat import v4

linux = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD reorders sums on Linux")
PRODUCTS = """
import json, numpy as np
def numbers(*shape, of=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(of)
a, b = numbers(7, 900), numbers(5, 900)
wide = numbers(900, 6)
square = np.asfortranarray(numbers(40, 900))
whole = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
print(json.dumps({name: np.asarray(x, float).ravel().tolist() for name, x in {
    "gemm": a @ b.T, "gemm, columns first": np.asfortranarray(a) @ wide, "gemv": a @ b[0],
    "gemv, columns": b[:, :5].T @ b[:, 0], "transposed gemv": wide.T @ a[0], "dot": a[0] @ b[0],
    "syrk": square @ square.T, "batch": numbers(3, 4, 900) @ wide, "whole": whole @ whole.T,
    "double": numbers(9, 900, of=float) @ numbers(900, 2, of=float)}.items()}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tool.build(tmp_path_factory.mktemp("orders"))


def products(variables: dict[str, str]) -> dict[str, np.ndarray]:
    """The products of PRODUCTS in a separate process."""
    command = [sys.executable, "-c", PRODUCTS]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return {name: np.array(x) for name, x in json.loads(done.stdout).items()}


@linux
def test_products_are_off_by_their_rounding_and_by_times_as_much(library: Path) -> None:
    plain = products(dict(os.environ))
    once, eight, again = (
        products(tool.environment(library, n, 2)) for n in (1, tool.TIMES, tool.TIMES)
    )
    for name, right in plain.items():
        assert (eight[name] == again[name]).all(), f"{name}: one seed gives one result"
        unit = np.finfo(float if name == "double" else np.float32).eps
        # 900 summands of about 1: each order is off by at most 900 roundings of the largest sum
        bound = 900 * unit * 900
        off, far = np.abs(once[name] - right).max(), np.abs(eight[name] - right).max()
        if name == "whole":
            assert off == far == 0, "sums without rounding do not depend on the order"
        elif name == "gemv, columns":
            assert off < bound  # five summands may be lucky
        else:
            assert 0 < off < bound and 4 * off < far < 8 * bound, (name, off, far)
    other = products(tool.environment(library, 1, 4))
    assert any((other[name] != once[name]).any() for name in plain), "each seed has its own cuts"


@linux
def test_a_number_on_its_edge_is_found_and_one_far_from_it_is_not(library, tmp_path) -> None:
    start = (
        "import numpy as np\nx = np.random.default_rng(0).random((50, 999), dtype=np.float32)\n"
        "right = x.astype(float) @ x[0].astype(float)"
    )
    cells = [
        start,
        "print(f'{len(x)} sums, {np.abs(x @ x[0] - right).max():.9f} away')",
        "print(f'{(x @ x[0] / right).max():.3f} as large')",
        "x @ x[0]",
    ]
    ignored = v4.new_code_cell(
        "print(x @ x[0]); assert len(right)", metadata={"tags": [tool.IGNORE]}
    )
    notebook = v4.new_notebook(cells=[*map(v4.new_code_cell, cells), ignored])
    committed = tool.executed(notebook, tmp_path, dict(os.environ))
    assert list(tool.changes(committed, committed)) == []
    run = tool.executed(notebook, tmp_path, tool.environment(library, tool.TIMES, 0))
    found = list(tool.changes(committed, run))
    assert {line.split(":")[0] for line in found} == {"cell 1", "cell 3"}
    assert found[0].endswith("after '50 sums ,'"), found[0]


def cell(text: str, **more: Any) -> Any:
    return v4.new_code_cell(outputs=[v4.new_output("stream", name="stdout", text=text)], **more)


def test_differences_name_the_number_and_its_place() -> None:
    page = '<rect x="1.5" y="2"/><text>1,234.5 %</text>'
    assert tool.differences(page, page) == []
    assert tool.differences(page, page.replace("1,234.5", "1,234.6")) == [
        "1,234.5 became 1,234.6, after '> < text >'"
    ]
    many = " ".join(f"{i}.5" for i in range(9))
    assert tool.differences(many, many.replace(".5", ".4"))[-1] == "and 4 more"
    assert tool.differences("a word", "a longer word") == ["'a word' became 'a longer word'"]
    before = v4.new_notebook(cells=[v4.new_markdown_cell("# T"), cell("1.013"), cell("2")])
    after = v4.new_notebook(cells=[v4.new_markdown_cell("# T"), cell("1.012"), cell("2")])
    assert list(tool.changes(before, after)) == ["cell 0: 1.013 became 1.012, after ''"]
    after.cells[1]["outputs"] = []
    assert list(tool.changes(before, after)) == ["cell 0: 0 texts and not 1: []"]
    ignored = v4.new_notebook(cells=[cell(t, metadata={"tags": [tool.IGNORE]}) for t in "ab"])
    assert [tool.compared(c) for c in ignored.cells] == [[], []]


def test_a_build_without_such_a_blas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "NAMES", (("none_", "", "int"),))
    with pytest.raises(OSError, match="calls no BLAS by a known name; use NumPy's wheel"):
        tool.build(Path())
