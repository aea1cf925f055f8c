"""The notebook normaliser: what it strips, what it keeps, what it refuses; and nbval's tags."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import normalise_notebooks as tool
import pytest
from nbformat import v4
from repository import ROOT


def messy() -> Any:
    """A notebook as editors and kernels leave it."""
    code = v4.new_code_cell("print('a')\nprint('b')\n", execution_count=41)
    code.metadata = {
        "tags": ["nbval-ignore-output"], "collapsed": False,
        "execution": {"iopub.execute_input": "2026-01-01T00:00:00Z"},
        "mystnb": {"image": {"alt": "a picture"}}, "vscode": {"languageId": "python"},
    }
    code.outputs = [
        v4.new_output("stream", name="stdout", text="a\n"),
        v4.new_output("stream", name="stdout", text="b\n"),
        v4.new_output(
            "execute_result", data={"text/plain": "3", tool.WIDGET_VIEW: {"model_id": "0123"}},
            metadata={"isolated": True}, execution_count=41,
        ),
    ]
    empty = v4.new_code_cell("", execution_count=42, metadata={"tags": []})
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title"), code, empty])
    notebook.metadata = {
        "kernelspec": {"name": "my-env", "display_name": "My env", "language": "python"},
        "language_info": {"name": "python", "version": "3.11.4"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}},
    }
    notebook.cells[2]["id"] = notebook.cells[1]["id"]
    return notebook


def test_strips_what_is_volatile_and_keeps_what_means_something() -> None:
    before = messy()
    kept = copy.deepcopy(before)
    after = tool.normalise(before)
    assert before == kept, "the argument was changed"
    assert after.metadata == {"kernelspec": tool.KERNEL, "language_info": tool.LANGUAGE}
    title, code, empty = after.cells
    assert title.source == "# Title"
    assert set(code.metadata) == {"tags", "mystnb"}
    assert (code.execution_count, empty.execution_count) == (1, None)
    assert empty.metadata == {}
    assert [o.output_type for o in code.outputs] == ["stream", "execute_result"]
    assert code.outputs[0].text == "a\nb\n"
    assert code.outputs[1].data == {"text/plain": "3"}
    assert code.outputs[1].execution_count == 1 and code.outputs[1].metadata == {}
    assert len({cell.id for cell in after.cells}) == 3
    nbformat.validate(after)


def test_is_idempotent_and_sorted() -> None:
    once = tool.dumps(tool.normalise(messy()))
    twice = tool.dumps(tool.normalise(nbformat.reads(once, as_version=4)))
    assert once == twice
    assert once.endswith("}\n") and not once.endswith("\n\n")
    assert once.startswith('{\n "cells": [')


@pytest.mark.parametrize(("output", "words"), [
    (v4.new_output("stream", name="stderr", text="Warning: x"), "writes to stderr"),
    (v4.new_output("error", ename="KeyError", evalue="x", traceback=[]), "KeyError"),
    (v4.new_output("stream", name="stdout", text="/home/me/x.npy"), "/home/m"),
    (v4.new_output("stream", name="stdout", text="<f at 0x7f0123456789>"), "0x7f0123456789"),
    (v4.new_output("display_data", data={"image/png": "aGVsbG8="}), "without alt text"),
    (
        v4.new_output("execute_result", data={"text/plain": "VBox(children=(HTML(value=''),))"}),
        "a widget that a page cannot show",
    ),
])
def test_names_outputs_that_should_not_be_committed(output: Any, words: str) -> None:
    cell = v4.new_code_cell("x", outputs=[output])
    (problem,) = tool.problems(v4.new_notebook(cells=[cell]))
    assert problem.startswith("cell 0: ") and words in problem


def test_an_explorer_keeps_its_markup_and_loses_its_widget() -> None:
    """The page's script makes the controls; a widget's view would be dead there."""
    page = '<div class="kv-explorer" id="memory"\n data-explorer=\'{"a":1}\'><svg></svg></div>'
    data = {"text/plain": "<Explorer memory>", "text/html": page}
    view = {tool.WIDGET_VIEW: {"model_id": "7", "version_major": 2, "version_minor": 0}}
    cells = [
        v4.new_code_cell("e", outputs=[v4.new_output(kind, data=data | view)])
        for kind in ("execute_result", "display_data")
    ]
    notebook = v4.new_notebook(cells=cells)
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    after = tool.normalise(notebook)
    assert "widgets" not in after.metadata
    assert [cell.outputs[0].data for cell in after.cells] == [data, data]
    assert tool.problems(after) == ["cell 1: a second explorer 'memory': use with_anchor()"]
    after.cells[1].outputs[0].data["text/html"] = page.replace('id="memory"', 'id="memory-2"')
    assert tool.problems(after) == []


@pytest.mark.filterwarnings("ignore:.*Non-unique cell id")
def test_check_changes_nothing_and_says_what_to_do(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "chapter.ipynb"
    nbformat.write(messy(), path)
    before = path.read_bytes()
    assert tool.main(["--check", str(path)]) == 1
    assert path.read_bytes() == before
    assert "is not normalised" in capsys.readouterr().err
    assert tool.main([str(path)]) == 0
    assert tool.main(["--check", str(path)]) == 0


def test_execute_runs_in_the_notebooks_folder_and_stops_at_an_error(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").write_text("found")
    good = v4.new_notebook(cells=[v4.new_code_cell("print(open('beside.txt').read())")])
    nbformat.write(good, tmp_path / "good.ipynb")
    assert tool.main(["--execute", str(tmp_path / "good.ipynb")]) == 0
    done = nbformat.read(tmp_path / "good.ipynb", as_version=4)
    assert done.cells[0].outputs[0].text == "found\n"
    bad = tmp_path / "bad.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell("1 / 0")]), bad)
    before = bad.read_bytes()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        tool.main(["--execute", str(bad)])
    assert bad.read_bytes() == before, "a failed run must not be written"


def nbval(path: Path) -> str:
    """What nbval reports of a notebook."""
    options = ["--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command = [sys.executable, "-m", "pytest", "-p", "nbval.plugin", *options, str(path)]
    # every plugin that is installed would be imported, which takes longer than the cells do
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=alone).stdout


def test_nbval_compares_text_and_spares_tagged_cells_and_pictures(tmp_path: Path) -> None:
    """The rules that the chapters rely on: an update of nbval cannot change them unseen."""
    png = "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG 2', format='png'))"
    old = v4.new_output("display_data", data={"image/png": "aGVsbG8=", "text/plain": "<I>"})
    picture = v4.new_code_cell(png, outputs=[old])
    picture.outputs[0].data["text/plain"] = "<IPython.core.display.Image object>"
    cells = [
        v4.new_code_cell("print(2)", outputs=[v4.new_output("stream", text="1\n")]),
        v4.new_code_cell(
            "print(2)", metadata={"tags": [tool.IGNORE]},
            outputs=[v4.new_output("stream", text="1\n")],
        ),
        picture,
        v4.new_code_cell("assert False", metadata={"tags": [tool.IGNORE]}),
    ]
    notebook = tool.normalise(v4.new_notebook(cells=cells))  # nbval wants cells to be numbered
    nbformat.write(notebook, tmp_path / "rules.ipynb")
    report = nbval(tmp_path / "rules.ipynb")
    assert "2 failed, 2 passed" in report, report
    assert "Cell 0" in report and "Cell 3" in report
