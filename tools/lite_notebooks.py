"""The chapters as the JupyterLite site holds them: a cell that installs what they import, MyST
turned into plain Markdown, solutions folded. The code is the book's own."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import yaml

from kvbook.course.markdown import cited, plain, titles

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
COSTS = ROOT / "lite" / "costs.ipynb"
# What a chapter imports beyond kvlib. NumPy and matplotlib come compiled from Pyodide's own
# distribution; ipywidgets has to be the version that the site's own half of it was made for.
# Without tqdm there is no bar, and no warning that its thread cannot start.
CHAPTER_NEEDS = ("kvlib", "array-api-compat", "ipywidgets", "matplotlib", "threadpoolctl")
COSTS_NEEDS = ("kvlib", "ipywidgets")
PINNED = ("array-api-compat", "ipywidgets")


@functools.cache
def pages() -> list[Path]:
    """The pages of the book, in the order of _toc.yml."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [toc["root"]]
    for part in toc["parts"]:
        files += [chapter["file"] for chapter in part["chapters"]]
    found = [ROOT / f"{name}{ending}" for name in files for ending in (".ipynb", ".md")]
    return [path for path in found if path.exists()]


def chapters() -> list[Path]:
    """Those pages that are notebooks."""
    return [path for path in pages() if path.suffix == ".ipynb"]


def requirement(name: str) -> str:
    """`name`, at the version of requirements.txt where it has to be that one."""
    if name not in PINNED:
        return name
    found = re.search(
        rf"^{name}==[\w.]+", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M
    )
    if found is None:
        raise ValueError(f"requirements.txt pins no {name}")
    return found[0]


def prepared(notebook: dict[str, Any], needs: tuple[str, ...], deps: bool) -> dict[str, Any]:
    """The notebook with a cell after its title that installs `needs` into the browser's Python."""
    options = "-q" if deps else "-q --no-deps"
    names = " ".join(requirement(name) for name in needs)
    install: dict[str, Any] = {
        "cell_type": "code",
        "id": "lite-install",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": "# Only in the browser: run this cell first. It fetches what this page needs.\n"
        f"%pip install {options} {names}",
    }
    first, *rest = [_shown(cell) for cell in notebook["cells"]]
    return notebook | {"cells": [first, install, *rest]}


def _shown(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["cell_type"] == "markdown":
        notebooks = {path.stem for path in chapters()}
        cite = cited(BOOK / "references.bib")
        return cell | {"source": plain(cell["source"], titles(BOOK), cite, notebooks)}
    if "solution" in cell["metadata"].get("tags", []):
        folded = {"source_hidden": True, "outputs_hidden": True}
        return cell | {"metadata": cell["metadata"] | {"jupyter": folded}}
    return cell


def write_contents(folder: Path) -> None:
    """Put the chapters and the page of costs into `folder`, ready for the browser."""
    folder.mkdir()
    jobs = [(path, CHAPTER_NEEDS, True) for path in chapters()] + [(COSTS, COSTS_NEEDS, False)]
    for path, needs, deps in jobs:
        # nbformat joins the lines of every text, which here no Jupyter server does for the page
        notebook = prepared(nbformat.read(path, as_version=4), needs, deps)
        (folder / path.name).write_text(json.dumps(notebook), encoding="utf-8")
