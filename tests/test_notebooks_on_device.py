"""The chapters run unchanged on the stand-in for CuPy; the long ones by `make device`."""

import os
import subprocess
import sys

import effort
import pytest
from notebook_code import NOTEBOOKS, ROOT

SECONDS = ("intro", "batched", "memory")
QUICK = set(SECONDS[: effort.number(quick=1, usual=1, whole=3)])


def marks(stem: str) -> list[pytest.MarkDecorator]:
    return [] if stem in QUICK else [pytest.mark.device]


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=marks(p.stem)) for p in NOTEBOOKS]
)
def test_the_chapter_runs_on_a_device(path, effort):
    effort.ran("quick chapters on the stand-in for a device", len(QUICK), len(SECONDS))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, str(ROOT / "tests" / "run_on_device.py"), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "DeprecationWarning" not in done.stderr
