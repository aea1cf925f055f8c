"""Compare which mutants the sampled tests kill with which the whole tests kill, by name.

    python tools/mutation_run.py                                    # compare `usual` with `whole`
    python tools/mutation_run.py --level usual --only "window"      # one level, some of the mutants
    python tools/mutation_run.py --level usual tests/test_norms.py  # some of the tests

`make test` draws fewer seeds, examples and pairs of parameters than KVLIB_TESTS=whole does
(tests/effort.py). Here each mutant is put into a separate process, forked after the tests were
collected, and the tests that are sampled run until one fails. A test runs for a mutant if it calls
the changed function, which a run without mutants finds out first. What fails there is left out.
A test that takes longer than --seconds, or ends the process, has killed the mutant.

The comparison runs every mutant at `usual` and those that live there at `whole`; it fails where
only `whole` kills a mutant. The mutants: kvbook.museum, tests/museum.py,
tests/norm_mutants.py, and those that tools/mutants_drawn.py draws from the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests")]

import pytest  # noqa: E402
from mutants_drawn import all_cases  # noqa: E402
from mutation_plugin import Runner  # noqa: E402

OUT = ROOT / "_build" / "mutants"
MARKS = "not gpu and not peers and not browser and not device"
# Sampled too, but of pages, costs and tokens, which no mutant here is of; and the compiler's tests:
# a source that has changed is compiled whole at every level (mutants_drawn.in_cuda checks that).
APART = (
    *("exercises/", "peers/", "test_explorers", "test_costs", "test_tokenizer"),
    *("test_differential_gpu", "kernels/test_kernel_catalogue"),
)


def files() -> list[str]:
    """Test files that hold sampled tests and could see one of the mutants."""
    asks = re.compile(r"effort|hypothesis|pairwise|mark.every")
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [
        p.relative_to(ROOT / "tests").as_posix() for p in paths if asks.search(p.read_text("utf-8"))
    ]
    return [f"tests/{name}" for name in names if not name.startswith(APART)]


def run_level(args: argparse.Namespace) -> None:
    """One level, in this process; writes which test killed which mutant, null where none did."""
    only = re.compile(args.only)
    cases = [c for c in all_cases() if only.search(c.name)]
    if args.names:
        names = set(json.loads(Path(args.names).read_text("utf-8")))
        cases = [c for c in cases if c.name in names]
    # kernels that are compiled stay there for the next run, and the user's own cache as it is
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kvlib" / "kernels"
    kept = OUT / "cache" / "kvlib" / "kernels"
    kept.mkdir(parents=True, exist_ok=True)
    for file in home.glob("*.so"):
        if not (kept / file.name).exists():
            shutil.copy(file, kept)
    os.environ["XDG_CACHE_HOME"] = str(OUT / "cache")
    runner = Runner(cases, args.seconds, args.every, args.out / f"{args.level}.json")
    with tempfile.TemporaryDirectory() as work:
        options = ["-q", "-s", "-m", MARKS, "-p", "no:randomly", f"--basetemp={work}/tests"]
        status = pytest.main([*options, *(args.tests or files())], plugins=[runner])
    if len(runner.killed) + len(runner.outside) != len(cases):
        raise SystemExit(f"pytest ended with {status} before every mutant had its turn")
    dead = [test for test in runner.killed.values() if test is not None]
    print(f"{len(dead)} of {len(cases)} mutants killed at the level {args.level}")


def compare(args: argparse.Namespace) -> int:
    """Every mutant at `usual`, those not killed there at `whole`; 1 where that kills one."""
    found: dict[str, Any] = {}
    names = args.out / "names.json"
    for level in ("usual", "whole"):
        command = [sys.executable, __file__, "--level", level, "--out", str(args.out)]
        command += ["--only", args.only, "--seconds", str(args.seconds)] + ["--every"] * args.every
        command += ["--names", str(names)] if found else []
        subprocess.run([*command, *args.tests], cwd=ROOT, check=True)
        found[level] = json.loads((args.out / f"{level}.json").read_text("utf-8"))
        left = [name for name, test in found[level]["killed"].items() if test is None]
        left += found[level]["outside"]
        names.write_text(json.dumps(left), encoding="utf-8")
        if not left:
            break
    usual, whole = found["usual"], found.get("whole", {"killed": {}, "outside": []})
    lost = {name: test for name, test in whole["killed"].items() if test is not None}
    dead = [test for test in usual["killed"].values() if test is not None]
    of = len(usual["killed"]) + len(usual["outside"])
    print(f"\n{len(dead)} of {of} mutants killed at the level usual; {len(lost)} more at whole")
    for name, test in whole["killed"].items():
        print(f"  only whole kills: {name} ({test})" if test else f"  lives at both: {name}")
    for name in whole["outside"]:
        print(f"  no sampled test calls it: {name}")
    return 1 if lost else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", help="test files (default: those with sampled tests)")
    parser.add_argument(
        "--level", choices=("usual", "whole"), help="run this level only (default: both)"
    )
    parser.add_argument(
        "--only", default="", help="only mutants whose name matches this regular expression"
    )
    parser.add_argument("--names", help="only the mutants of this file, a JSON list of names")
    parser.add_argument("--every", action="store_true", help="also run tests that are not sampled")
    parser.add_argument(
        "--seconds", type=float, default=180.0, help="time limit of one test (default: 180)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where to write <level>.json")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.level is None:
        return compare(args)
    os.environ["KVLIB_TESTS"] = args.level  # read when the tests are imported
    run_level(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
