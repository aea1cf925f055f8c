"""Write each notebook's first cells to _build/check/book, for `make check` to run.

These cells import kvlib, load the model and set the style, so a change of kvlib breaks them first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
TO = ROOT / "_build" / "check" / "book"
CELLS = 3  # code cells of each notebook


def shortened(path: Path, cells: int = CELLS) -> nbformat.NotebookNode:
    """The notebook cut off after its first `cells` code cells."""
    notebook = nbformat.read(path, as_version=4)
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    notebook.cells = notebook.cells[: code[min(cells, len(code)) - 1] + 1]
    return notebook


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    TO.mkdir(parents=True, exist_ok=True)
    for old in TO.glob("*.ipynb"):
        old.unlink()
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        nbformat.write(shortened(path), TO / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
