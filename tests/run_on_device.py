"""Run a chapter's code cells on an array library that is not NumPy, without Jupyter.

    python tests/run_on_device.py book/intro.ipynb                      # the stand-in for CuPy
    KVLIB_BACKEND=cupy python tests/run_on_device.py book/intro.ipynb   # a GPU
    ... book/intro.ipynb 180                                            # for 180 seconds at most

What a cell prints must be what is committed, but for cells with nbval-ignore-output. Without
matplotlib, the cells that draw are left out. Exits with 1 and the number of a cell that fails.
"""

import ast
import contextlib
import faulthandler
import io
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"

if os.environ.get("KVLIB_BACKEND") != "cupy":
    from device_double import xp

    from kvlib import arrays

    arrays.default_namespace = lambda: xp  # before anything else of kvlib is imported

    from kvlib import machine

    # There are no caches of a device to get past, and what a device does at once takes minutes.
    machine.ON_A_DEVICE, machine.SQUARE_ON_A_DEVICE = 2**24, machine.SQUARE


def run(path: Path) -> int:
    """How many cells went wrong."""
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown: None}
    wrong = left_out = 0
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tags, began = cell["metadata"].get("tags", []), time.perf_counter()
        printed, failed = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                # As a notebook does: each statement sees what the ones before it have done.
                for node in ast.parse("".join(cell["source"])).body:
                    part = compile(ast.Module([node], []), f"<cell {number}>", "exec")
                    try:
                        exec(part, space)
                    except ImportError as error:
                        if "matplotlib" not in missing(error):
                            raise
                        left_out += 1
            except Exception:
                failed = traceback.format_exc()
        outputs = [o for o in cell["outputs"] if o.get("name") == "stdout"]
        needed = "".join(line for o in outputs for line in o["text"])
        if failed and "raises-exception" not in tags:
            wrong += 1
            print(f"cell {number}:\n{failed}")
        elif printed.getvalue() != needed and "nbval-ignore-output" not in tags:
            wrong += 1
            print(f"cell {number} prints\n{printed.getvalue()}and not\n{needed}")
        if (took := time.perf_counter() - began) > 5:
            print(f"cell {number} takes {took:.0f} s")
    if left_out:
        print(f"without matplotlib, {left_out} statements that draw were left out")
    return wrong


def missing(error: BaseException | None) -> list[str]:
    """The packages that an import did not find, from the error and its causes."""
    found = []
    while error is not None:
        found += [str(error.name).split(".")[0]] if isinstance(error, ImportError) else []
        error = error.__cause__
    return found


if __name__ == "__main__":
    if len(sys.argv) > 2:  # says where it was, even inside a call to the device
        faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    chapter = Path(sys.argv[1]).resolve()
    os.chdir(chapter.parent)
    sys.exit(1 if run(chapter) else 0)
