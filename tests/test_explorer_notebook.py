"""Explorers in a real kernel: what a run shows, and what of it a notebook keeps."""

from pathlib import Path
from typing import Any

import nbformat
import normalise_notebooks as tool
import pytest
from nbformat import v4
from test_normalise_notebooks import nbval

from kvbook.explorers.catalogue import memory_explorer

pytest.importorskip("ipywidgets")

SETUP = """from kvbook import figures
from kvbook.explorers import memory_explorer
figures.use_style()"""
SHOWN = "memory_explorer()"
OTHER = "memory_explorer().with_anchor('one-request').set(batch=1)"


def unrun() -> Any:
    """Return a notebook with two explorers."""
    sources = enumerate((SETUP, SHOWN, OTHER))
    cells = [v4.new_code_cell(source, id=f"cell-{i}") for i, source in sources]
    return tool.normalise(v4.new_notebook(cells=cells))


def test_a_run_leaves_the_pages_markup_and_repeats_itself(tmp_path: Path) -> None:
    path = tmp_path / "chapter.ipynb"
    run = tool.execute(unrun(), tmp_path, 120)
    assert tool.WIDGET_VIEW in run.cells[1].outputs[0].data, "sliders where a kernel runs"
    notebook = tool.normalise(run)
    path.write_text(tool.dumps(notebook), encoding="utf-8")
    _, shown, other = notebook.cells
    (output,) = shown.outputs
    assert set(output.data) == {"text/plain", "text/html"}
    assert output.data["text/html"] == memory_explorer().to_html()
    assert output.data["text/plain"] == repr(memory_explorer())
    wanted = memory_explorer(batch=1).with_anchor("one-request")
    assert other.outputs[0].data["text/html"] == wanted.to_html()
    assert "widgets" not in notebook.metadata and tool.problems(notebook) == []
    first = path.read_bytes()
    assert tool.main(["--check", str(path)]) == 0
    assert tool.main(["--execute", str(path)]) == 0
    assert path.read_bytes() == first, "a second run differs"
    data = notebook.cells[1].outputs[0].data  # nbval, too, sees two alike and one that has changed
    data["text/html"] = data["text/html"].replace("131,072 bytes", "131,073 bytes")
    nbformat.write(notebook, path)
    report = nbval(path)
    assert "1 failed, 2 passed" in report, report
