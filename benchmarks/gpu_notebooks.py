"""Run every chapter on a GPU, and compare what it prints with what is committed.

Each chapter runs in a separate process, by tests/run_on_device.py, so Jupyter is not needed.
Without matplotlib nothing is drawn, and the rest runs; some chapters need threadpoolctl. After
--limit seconds, chapters that still run are stopped and say where they were. Some print the other
results of this folder, so `make gpu` runs them in a copy made before new ones are measured. Writes
results/gpu_notebooks.json after each chapter. Without a device it says so and ends.

    python benchmarks/gpu_notebooks.py [chapter ...] [--limit 150]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import on_device

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = {path.stem: path for path in sorted((ROOT / "book").glob("*.ipynb"))}
BACKEND = "cupy"
AT_ONCE = 4  # most of a chapter is Python that starts small kernels
SAID = 4000  # characters to keep from the end of a chapter's output


def chapter(path: Path, end: float, root: Path = ROOT) -> dict[str, Any]:
    """Run one chapter: whether it prints what is committed, its seconds, and what went wrong.

    end: when it is stopped, by `time.perf_counter`   root: a copy of this repository
    """
    path = root / path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    folders = [str(root), str(root / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"KVLIB_BACKEND": BACKEND, "PYTHONPATH": os.pathsep.join(folders)}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")  # several chapters share the processor
    environment["PYTHONUNBUFFERED"] = "1"  # so that a stopped process has printed all it had
    begin = time.perf_counter()
    limit = str(max(1.0, end - begin))
    program = [sys.executable, str(root / "tests" / "run_on_device.py"), str(path), limit]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    seconds = round(time.perf_counter() - begin, 1)
    said = (done.stdout + done.stderr).replace(str(root), ".")
    return {"passed": done.returncode == 0, "seconds": seconds, "said": said[-SAID:].splitlines()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chapters; 0 if each prints what is committed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", metavar="chapter", help="its file name, no suffix")
    parser.add_argument("--limit", type=float, default=150, help="seconds for all (default: 150)")
    words = "a copy of this repository, with the results that chapters print"
    parser.add_argument("--root", type=Path, default=ROOT, help=words)
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.chapters if name not in CHAPTERS]:
        parser.error(f"no such chapter: {', '.join(unknown)}; known: {', '.join(CHAPTERS)}")
    cp = on_device.device_or_exit()
    for package, without in (
        ("matplotlib", "figures are not drawn"),
        ("threadpoolctl", "chapters that import it fail"),
    ):
        if importlib.util.find_spec(package) is None:
            print(f"This Python lacks {package}, so {without}. Run: pip install {package}")
    found: dict[str, dict[str, Any]] = {}
    end = time.perf_counter() + given.limit
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = given.chapters or list(CHAPTERS)
        jobs = {pool.submit(chapter, CHAPTERS[name], end, given.root): name for name in names}
        for job in as_completed(jobs):
            one = found[jobs[job]] = job.result()
            on_device.save("gpu_notebooks", {"limit_s": given.limit, "chapters": found}, cp)
            print(f"{jobs[job]}: {'passed' if one['passed'] else 'failed'}, {one['seconds']} s")
            print("\n".join(f"    {line}" for line in one["said"]), flush=True)
    return 0 if all(one["passed"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
