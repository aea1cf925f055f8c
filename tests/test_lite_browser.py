"""The book's JupyterLite site in a headless Chromium, with every request to the outside blocked.

The site beside the book opens a chapter and asks Pyodide's server alone; another has Python inside
(tools/fetch_pyodide.py), where kvlib is installed, computes, and a slider moves its figure.
"""

import http.server
import json
import os
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import build_lite
import fetch_pyodide
import lite_notebooks
import pytest
from jupyterlite_pyodide_kernel.constants import PYODIDE_CDN_URL
from rendered import HTML, WHOLE, take_picture
from visits import PATIENCE, served, visit, watched

from kvbook.explorers import svg
from kvbook.explorers.catalogue import memory_explorer
from kvlib.costs import GPUS, MODELS, decode

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = [path.stem for path in lite_notebooks.chapters()]
SIZE = {"width": 1280, "height": 900}
SPACE = "{http://www.w3.org/2000/svg}"
BROWSERS_OWN = ("content-autofill.",)  # Chromium's own service for forms, whatever the page
FIGURES = ".kv-live svg"


class _Refusing(http.server.BaseHTTPRequestHandler):
    """A proxy that notes what it is asked for and lets nothing through."""

    def refuse(self) -> None:
        if not self.path.startswith(BROWSERS_OWN):
            self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_error(403)

    do_CONNECT = do_GET = do_POST = refuse

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def outside(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    """A context of the browser, and all that it (and its workers) ask a proxy for, in vain."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    proxy = {"server": f"http://127.0.0.1:{server.server_port}", "bypass": "127.0.0.1"}
    context = browser.engine.new_context(viewport=SIZE, proxy=proxy)
    context.set_default_timeout(PATIENCE)
    yield context, server.asked  # type: ignore[attr-defined]
    context.close()
    server.shutdown()
    server.server_close()


@pytest.fixture
def local_site(tmp_path: Path) -> Iterator[str]:
    """The site that needs nothing but itself; gives its address."""
    if not fetch_pyodide.fetched():
        reason = "Pyodide is not there (make lite-kernel fetches it, with npm)"
        in_ci = os.environ.get("CI", "").lower() == "true"
        pytest.fail(reason) if in_ci else pytest.skip(reason)
    build_lite.build(tmp_path / "lite", fetch_pyodide.CACHE)
    with served(tmp_path / "lite") as address:
        yield address


def open_notebook(page: Any, address: str, name: str) -> None:
    page.goto(f"{address}/notebooks/index.html?path={name}")
    page.wait_for_selector(".jp-Notebook .jp-Cell")


def run_all(page: Any) -> None:
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def run_until_its_figures_stand(page: Any, address: str, name: str, figures: int) -> None:
    """Run a notebook; open it anew where Python has not started in 100 s, of the usual 20."""
    from playwright.sync_api import TimeoutError as Late

    wanted = f"document.querySelectorAll('{FIGURES}').length === {figures}"
    for attempt in (1, 2, 3):
        open_notebook(page, address, name)
        run_all(page)
        try:
            page.wait_for_function(wanted, timeout=100_000)  # milliseconds
            return
        except Late:
            take_picture(page, f"lite-stalled-{attempt}")
    raise AssertionError(f"{name}: no {figures} figures after three attempts")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_one_button_into_the_site(name: str) -> None:
    page = (HTML / "book" / f"{name}.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"]*)"[^>]*\bbtn-run-in-browser\b', page)
    assert len(links) == 1
    address = urlsplit(links[0])
    assert (HTML / "book" / address.path).samefile(HTML / "lite" / "notebooks" / "index.html")
    assert parse_qs(address.query) == {"path": [f"{name}.ipynb"]}
    held = json.loads((HTML / "lite" / "files" / f"{name}.ipynb").read_text())
    assert "%pip install" in held["cells"][1]["source"]


def test_the_readers_site_asks_for_python_and_nothing_else(outside) -> None:
    context, asked = outside
    with served(HTML / "lite") as address, watched(context.new_page(), address, "lite") as seen:
        open_notebook(seen.page, address, "memory.ipynb")
        seen.page.locator(".jp-Notebook h1").first.wait_for()
        for _ in range(60):  # the kernel starts by itself, and here it cannot
            seen.page.wait_for_timeout(1000)
            if asked:
                break
        pyodide = urlsplit(PYODIDE_CDN_URL).netloc
        assert set(asked) == {f"{pyodide}:443"}
        assert {urlsplit(url).netloc for url in seen.outside} <= {pyodide}


def test_a_file_leads_to_the_page_that_tells_why(browser: Any, book: dict[str, str]) -> None:
    with visit(browser, book["file"], "lite/notebooks/index.html", "?path=naive.ipynb") as seen:
        seen.page.wait_for_url("**/book/anywhere.html#from-a-server")
        assert seen.page.locator("#from-a-server h3").is_visible()
        assert seen.outside == []


def test_kvlib_computes_and_a_slider_moves_in_the_browser(outside, local_site) -> None:
    context, asked = outside
    with watched(context.new_page(), local_site, "lite") as seen:
        computes_and_moves(seen.page, local_site)
        assert asked == seen.outside == []
        assert seen.errors == []
        if WHOLE:
            seen.page.locator(FIGURES).first.scroll_into_view_if_needed()
            take_picture(seen.page, "lite")


def computes_and_moves(page: Any, address: str) -> None:
    run_until_its_figures_stand(page, address, "costs.ipynb", 2)
    said = "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())
    step = decode(MODELS["llama-3.1-8b"], batch=8, context=32_768)
    assert f"{MODELS['llama-3.1-8b'].kv_bytes_per_token()}" in said
    assert f"{step.floor(GPUS['h100-sxm'])}" in said, "as Python says it here"

    explorer = memory_explorer()
    (batch,) = (control for control in explorer.controls if control.name == "batch")
    later = batch.values[batch.values.index(batch.value) + 1]
    figure = page.locator(FIGURES).first
    handle = page.locator(".widget-slider", has_text=batch.label).first.locator(".noUi-handle")

    def shows(settings: dict[str, Any]) -> None:
        wanted = explorer.scene(**settings)["summary"]
        page.locator(".kv-live [role=status]", has_text=wanted).first.wait_for()
        drawing = ET.fromstring(svg.draw(explorer.scene(**settings)))
        words = ["".join(text.itertext()) for text in drawing.iter(f"{SPACE}text")]
        drawn = figure.locator("text").all_text_contents()
        assert drawn == words

    shows({})
    handle.focus()
    handle.press("ArrowRight")
    shows({"batch": later})
