"""Kernels forked from a process that has imported their libraries are kernels like any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import normalise_notebooks as tool
import pytest
from nbformat import v4
from repository import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")

LOOK = """
import json, os, sys
found = {
    "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "folder": os.getcwd(),
    "names": sorted(n for n in globals() if not n.startswith("_")), "path": sys.path,
    "warm": sorted({"matplotlib.pyplot", "kvlib", "pytest"} & sys.modules.keys()),
    "set": os.environ["KVLIB_TESTS_LOOK"],
}
with open(os.environ["KVLIB_TESTS_LOOK"], "a") as file:
    print(json.dumps(found), file=file)
"""
DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"


def run(folder: Path, *more: str) -> tuple[str, list[dict]]:
    """nbval's report of the notebooks in a folder, and what their kernels wrote of themselves."""
    wrote = folder / "wrote"
    options = ["-p", "nbval.plugin", *more, "--nbval", "--nbval-current-env", "-q"]
    options += ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "KVLIB_TESTS_LOOK": str(wrote)}
    env.pop("COVERAGE_PROCESS_START", None)
    command = [sys.executable, "-m", "pytest", *options, *map(str, sorted(folder.glob("*.ipynb")))]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, timeout=60)
    report = found.stdout + found.stderr
    return report, [json.loads(line) for line in wrote.read_text().splitlines()]


def test_a_forked_kernel_is_a_kernel_of_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture = v4.new_output("display_data", data={"image/png": "aGk=", "text/plain": "<I>"})
        picture.data["text/plain"] = "<Figure size 640x480 with 1 Axes>"
        cells = [v4.new_code_cell(LOOK), v4.new_code_cell(DRAW, outputs=[picture])]
        cells.append(v4.new_code_cell("1 + 1", outputs=[]))  # wrong: an output is missing
        nbformat.write(tool.normalise(v4.new_notebook(cells=cells)), tmp_path / f"{name}.ipynb")
    usual, cold = run(tmp_path)
    (tmp_path / "wrote").unlink()
    forked, warm = run(tmp_path, "-p", "tools.warm_kernels")
    last = [report.splitlines()[-1].split(" in ")[0] for report in (usual, forked)]
    assert last[0] == last[1] and "failed" in last[0], (usual, forked)
    assert warm[0]["parent"] == warm[1]["parent"] and warm[0]["pid"] != warm[1]["pid"]
    for mine, theirs in zip(warm, cold, strict=True):
        assert mine["group"] == mine["pid"] and theirs["group"] == theirs["pid"]
        assert mine["warm"] == ["matplotlib.pyplot"] and theirs["warm"] == []
        for same in ("folder", "names", "path", "set"):
            assert mine[same] == theirs[same], same
    assert not Path(f"/proc/{warm[0]['parent']}").exists(), "the server outlived pytest"
