"""A folder of notebooks written against the grader, with honest ones among them."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from effort import Effort
from hostile_notebooks import CASES, HONEST, MARK, SECRET, Case
from in_memory import folder_in_memory

import kvlib
from kvbook.grading.sandbox import chosen, walled

ROOT = Path(kvlib.__file__).resolve().parents[1]
SECONDS, TOTAL = 2.0, 12.0
ODD = {"metadata": None, "cells": []}, {"metadata": [], "cells": []}, {"cells": [None]}


def folder(path: Path, cases: Sequence[Case], known: str) -> dict[str, int]:
    """Write the notebooks, the honest ones among them; the points due to each file."""
    path.mkdir()
    due: dict[str, int] = {}

    def write(name: str, notebook: object) -> None:
        (path / name).write_text(json.dumps(notebook), encoding="utf-8")

    step = max(1, len(cases) // 5)
    for i, case in enumerate(cases):
        cells = [{"cell_type": "code", "metadata": {}, "source": s} for s in (known, case.source)]
        papers = {"kvlib": {"chapter": "intro"}}
        write(f"{2 * i:03}.ipynb", {"cells": cells, "metadata": papers})
        due[f"{2 * i:03}.ipynb"] = case.points
        if i % step == 0:
            cells = [{"cell_type": "code", "metadata": {}, "source": HONEST}]
            write(f"{2 * i + 1:03}-honest.ipynb", {"cells": cells, "metadata": papers})
            due[f"{2 * i + 1:03}-honest.ipynb"] = 1
    for i, notebook in enumerate(ODD):
        write(f"=odd{i}.ipynb", notebook)
        due[f"'=odd{i}.ipynb"] = 0
    return due


def processes(mark: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


def package() -> dict[str, tuple[int, int]]:
    files = (p for p in (ROOT / "kvlib").rglob("*") if p.is_file() and p.suffix != ".pyc")
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes by /proc")
@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_folder_of_hostile_notebooks(sandbox: str, tmp_path: Path, effort: Effort) -> None:
    safe = chosen(sandbox)
    if sandbox == "off" and not chosen("auto"):
        pytest.skip("bubblewrap does not work here, so auto was off")
    cases = [c for c in CASES if safe or not c.walled]
    usual = 9 if sandbox == "auto" else 5
    some = cases[:: max(1, len(cases) // usual)]  # every kind of them
    some += [c for c in cases if c not in some]
    cases = list(effort.share(f"hostile notebooks, sandbox {sandbox}", some, usual=usual, quick=4))
    with socket.create_server(("127.0.0.1", 0)) as server:
        canary, port = tmp_path / "canary", server.getsockname()[1]
        due = folder(tmp_path / "in", cases, f"CANARY, PORT = {str(canary)!r}, {port}")
        hidden, out = tmp_path / f"hidden-{SECRET}.json", tmp_path / "out"
        hidden.write_text(json.dumps({"chapter": "intro", "draws": [SECRET]}))
        temporary = Path(tempfile.mkdtemp(dir=folder_in_memory() or tmp_path))
        before, begun = package(), time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "kvbook.exercises", "grade", "in", "--json", "out",
             "--hidden", hidden.name, "--sandbox", sandbox, "--timeout", str(SECONDS),
             "--total", str(TOTAL), "--memory", "1500"],
            cwd=tmp_path, capture_output=True, timeout=580,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary),
                 "SHELL_SECRET": str(SECRET)},
        )  # fmt: skip
    said = done.stdout.decode("utf-8")
    assert done.returncode == 0, done.stderr.decode()
    assert time.monotonic() - begun < len(due) * TOTAL
    rows = {row["file"]: row for row in csv.DictReader((out / "grades.csv").open(encoding="utf-8"))}
    assert set(rows) == set(due)
    names = {f"{2 * i:03}.ipynb": c.name for i, c in enumerate(cases)}
    got = {name: int(row["points"] or 0) for name, row in rows.items()}
    assert got == due, {names.get(n, n): (got[n], said) for n in due if got[n] != due[n]}
    assert "\x1b" not in said and str(SECRET) not in said
    assert processes(MARK) == [], "a process is left"
    assert not canary.exists() and package() == before
    assert list(temporary.iterdir()) == [], "a folder is left"
    temporary.rmdir()
    assert bool(done.stderr) is (not safe), "without a sandbox the grader says so"


def test_inside_the_sandbox_there_is_no_file_of_the_grader() -> None:
    if not chosen("auto"):
        pytest.skip("bubblewrap does not work here")
    look = "import os; print([os.path.exists(p) for p in %r])"
    home = [str(ROOT / "book"), str(ROOT / "_build"), str(Path(__file__)), "/etc/shadow"]
    command = [*walled("/", []), sys.executable, "-S", "-c", look % home]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[False,", "False,", "False,", "False]"]


def test_inside_the_sandbox_modules_are_found_where_they_were(tmp_path: Path) -> None:
    """Also below /tmp, where everything else is hidden."""
    if not chosen("auto"):
        pytest.skip("bubblewrap does not work here")
    (tmp_path / "shown").mkdir()
    look = f"import os; print(os.listdir({str(tmp_path)!r}))"
    command = [*walled("/", [str(tmp_path / "shown")]), sys.executable, "-S", "-c", look]
    (tmp_path / "hidden").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['shown']\n"


def test_a_sandbox_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbook.grading.sandbox._trouble", lambda: "there is no bwrap")
    assert not chosen("auto") and not chosen("off")
    with pytest.raises(ValueError, match="--sandbox on: there is no bwrap; install bubblewrap"):
        chosen("on")
    with pytest.raises(ValueError, match="sandbox must be one of auto, on, off, got 'yes'"):
        chosen("yes")
