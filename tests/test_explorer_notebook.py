"""Explorers in a real kernel: what a run writes into a notebook, what a slider answers."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import normalise_notebooks as tool
import pytest
from nbformat import v4
from test_normalise_notebooks import nbval

from kvbook.explorers.catalogue import memory_explorer

pytest.importorskip("ipywidgets")
client = pytest.importorskip("jupyter_client")

SETUP = """from kvbook import figures
from kvbook.explorers import memory_explorer
figures.use_style()"""
SHOWN = "memory_explorer()"
OTHER = "memory_explorer().with_anchor('one-request').set(batch=1)"


def executed(path: Path) -> Any:
    """The committed form of a notebook with two explorers, run from nothing."""
    sources = enumerate((SETUP, SHOWN, OTHER))
    cells = [v4.new_code_cell(source, id=f"cell-{i}") for i, source in sources]
    nbformat.write(tool.normalise(v4.new_notebook(cells=cells)), path)
    assert tool.main(["--execute", str(path)]) == 0
    return nbformat.read(path, as_version=4)


def test_a_run_leaves_the_pages_markup_and_repeats_itself(tmp_path: Path) -> None:
    path = tmp_path / "chapter.ipynb"
    notebook = executed(path)
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
    executed(path)
    assert path.read_bytes() == first, "a second run differs"
    data = notebook.cells[1].outputs[0].data  # nbval, too, sees two alike and one that has changed
    data["text/html"] = data["text/html"].replace("131,072 bytes", "131,073 bytes")
    nbformat.write(notebook, path)
    report = nbval(path)
    assert "1 failed, 2 passed" in report, report


class Kernel:
    """A kernel and the messages that a browser would see."""

    def __init__(self) -> None:
        self.manager, self.client = client.manager.start_new_kernel(kernel_name="python3")

    def run(self, code: str) -> list[Any]:
        return self.answers(self.client.execute(code))

    def send(self, comm: str, state: dict[str, Any]) -> list[Any]:
        """Change a widget's state, as the browser does."""
        content = {"comm_id": comm, "data": {"method": "update", "state": state}}
        message = self.client.session.msg("comm_msg", content)
        self.client.shell_channel.send(message)
        return self.answers(message["header"]["msg_id"])

    def answers(self, request: str) -> list[Any]:
        """All that the kernel publishes for a request, until it is idle again."""
        found, end = [], time.monotonic() + 60
        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=5)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return found
            found.append(message)
        raise TimeoutError(f"the kernel never became idle; it said {found}")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    running = Kernel()
    yield running
    running.client.stop_channels()
    running.manager.shutdown_kernel(now=True)


def states(messages: list[Any]) -> dict[str, dict[str, Any]]:
    """The widgets that a cell opened: comm id → state."""
    opened = [m["content"] for m in messages if m["msg_type"] == "comm_open"]
    return {content["comm_id"]: content["data"]["state"] for content in opened}


def updates(messages: list[Any]) -> dict[str, dict[str, Any]]:
    """What changed: comm id → state, binary parts by their names."""
    found: dict[str, dict[str, Any]] = {}
    for message in messages:
        data = message["content"].get("data", {})
        if message["msg_type"] != "comm_msg" or data.get("method") not in ("update", "echo_update"):
            continue
        state = found.setdefault(message["content"]["comm_id"], {})
        state |= data["state"]
        for path, part in zip(data.get("buffer_paths", []), message["buffers"]):
            state[path[0]] = bytes(part)
    return found


def test_a_slider_moved_in_the_browser_moves_the_figure(kernel: Kernel) -> None:
    kernel.run(SETUP)
    messages = kernel.run(SHOWN)
    (result,) = [m["content"] for m in messages if m["msg_type"] == "execute_result"]
    assert tool.WIDGET_VIEW in result["data"] and "text/html" in result["data"]
    widgets = states(messages)
    assert result["data"][tool.WIDGET_VIEW]["model_id"] in widgets
    slider = next(i for i, state in widgets.items() if state.get("description") == "Context")
    texts = widgets[slider]["_options_labels"]
    pictures = set()
    for index in (0, len(texts) - 1):
        changed = updates(kernel.send(slider, {"index": index}))
        words = [s["value"] for s in changed.values() if isinstance(s.get("value"), str)]
        (picture,) = [text for text in words if "<svg" in text]
        assert any(texts[index] in text for text in words if text != picture), words
        pictures.add(picture)
    assert len(pictures) == 2
