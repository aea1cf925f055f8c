"""Run a chapter's code cells with the stand-in for CuPy as the library at hand.

    python tests/run_on_device.py book/intro.ipynb

Each cell runs as it stands. What it prints must be what is committed, but for cells whose output
cannot repeat (nbval-ignore-output), which hold the line that names library and device, too. Exits
with 1 and the cell's number where one fails or prints something else.
"""

import ast
import contextlib
import io
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from device_double import xp

from kvlib import arrays

arrays.default_namespace = lambda: xp  # before anything else of kvlib is imported

import nbformat  # noqa: E402

from kvlib import machine  # noqa: E402

machine.ON_A_DEVICE = 2**24  # there are no caches of a device to get past, and 2 GiB take a minute


def run(path: Path) -> int:
    """How many cells went wrong."""
    space: dict[str, Any] = {"__name__": "__main__"}
    wrong = 0
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type != "code":
            continue
        tags, began = cell.metadata.get("tags", []), time.perf_counter()
        printed, failed = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                # As a notebook does: each statement sees what the ones before it have done.
                for node in ast.parse(cell.source).body:
                    part = compile(ast.Module([node], []), f"<cell {number}>", "exec")
                    exec(part, space)
            except Exception:
                failed = traceback.format_exc()
        needed = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
        if failed and "raises-exception" not in tags:
            wrong += 1
            print(f"cell {number}:\n{failed}")
        elif printed.getvalue() != needed and "nbval-ignore-output" not in tags:
            wrong += 1
            print(f"cell {number} prints\n{printed.getvalue()}and not\n{needed}")
        if (took := time.perf_counter() - began) > 5:
            print(f"cell {number} takes {took:.0f} s")
    return wrong


if __name__ == "__main__":
    chapter = Path(sys.argv[1]).resolve()
    os.chdir(chapter.parent)
    sys.exit(1 if run(chapter) else 0)
