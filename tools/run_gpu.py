"""Run the tests and benchmarks that need a GPU, with the Python that runs this script.

That Python needs CuPy, NumPy, array-api-compat and pytest; the script needs no .venv and no
network. If array-api-compat is not installed, the run uses the copy that SciPy or scikit-learn
carries. If pytest-xdist is installed, tests run in parallel. Without a device, the script says what
is missing and exits with 0, because there was nothing to run. It exits with 1 if something failed.

Parts, the most valuable first: compile (every kernel, on all cores), kernels (their tests), step,
attention, sampling, guesses and generate (benchmarks), arrays (the other tests), bars (what was
measured beside what was to be reached), tune (variants of each kernel; the next run plans with the
fastest), notebooks (every chapter, in a copy made before new results replace those that chapters
print) and sanitizer (some tests again under compute-sanitizer, where there is one). A part is
stopped after its seconds in PARTS, or after LIMIT; all of them, or one alone, after TOTAL. Each
writes what it finds to benchmarks/results/ as soon as it has it, with device, driver and versions.
A run that was cut short continues with what it says remains:

    make gpu PYTHON=python3 ONLY="arrays generate sanitizer" TOTAL=600
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu_tests.json"
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # kvlib.devices and on_device need no package
NEEDED = ("numpy", "array_api_compat", "pytest")
COPIES = (  # (package, where in it a copy of array_api_compat is)
    ("scipy", "_external/array_api_compat"),
    ("scipy", "_lib/array_api_compat"),
    ("sklearn", "externals/array_api_compat"),
)
MARK = "pytest.mark.gpu"
TESTS = ("compile", "kernels", "arrays")
PARTS = {  # the most seconds of each
    "compile": 60, "kernels": 80, "step": 110, "attention": 45, "sampling": 25, "guesses": 20,
    "generate": 30, "arrays": 45, "bars": 10, "tune": 90, "notebooks": 60, "sanitizer": 20,
}  # fmt: skip
TOTAL = 470.0  # seconds of all parts together
COPIED = ("kvlib", "kvbook", "book", "tests", "benchmarks")  # what a chapter needs
SANITIZER = "compute-sanitizer"
WATCHED = "splits or rows_of_a_kv_head or every_codec_and_head_dim_on"


def device_name() -> tuple[str | None, str]:
    """(name of the device, "") or (None, why there is none)."""
    from kvlib.devices import trouble

    if reason := trouble():
        return None, reason
    try:
        import cupy

        cupy.arange(4, dtype=cupy.float32).sum().item()  # a driver may be there and not work
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        return properties["name"].decode(), ""
    except Exception as error:  # CuPy raises many kinds; all mean that nothing can run here
        text = str(error).strip() or "no message"
        return None, f"CuPy cannot use a device here: {text.splitlines()[0]}"


def lend_array_api_compat(folder: Path) -> str | None:
    """Put a copy of array_api_compat that another package carries into `folder`; None if none."""
    for package, inside in COPIES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        source = Path(spec.origin).parent / inside
        if (source / "cupy" / "__init__.py").exists():
            shutil.copytree(source, folder / "array_api_compat")
            return package
    return None


def gpu_tests(part: str | None = None) -> list[str]:
    """The test files that ask for a device: only these are read, for others may need more.

    part: "kernels" those of the kernels, "arrays" the others
    """
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marks = (MARK, "from engines import")
    marked = [path for path in files if any(m in path.read_text(encoding="utf-8") for m in marks)]
    wanted = {None: (True, False), "kernels": (True,), "arrays": (False,)}[part]
    return [str(path) for path in marked if (path.parent.name == "kernels") in wanted]


def command(part: str, report: Path, limit: float = TOTAL) -> list[str]:
    """What runs a part in `limit` seconds; tests write `report`, beside the chapters' copy."""
    if part == "compile":
        return [sys.executable, "-m", "kvlib.kernels", "--device"]
    if part == "sanitizer":
        watched = ["-k", WATCHED, f"--junitxml={report}", *gpu_tests("kernels")]
        tests = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *watched]
        return [SANITIZER, "--error-exitcode", "9", *tests]
    if part not in TESTS:
        more = ["--limit", f"{0.8 * min(limit, 280):.0f}"] if part in ("notebooks", "tune") else []
        more += ["--root", str(report.parent / "chapters")] if part == "notebooks" else []
        more += ["--peers"] if part == "step" else []
        return [sys.executable, str(ROOT / "benchmarks" / f"gpu_{part}.py"), *more]
    tests = ["pytest", "-p", "no:benchmark", "-m", "gpu", "-q", "--durations=5"]
    tests += [f"--junitxml={report}"]
    if importlib.util.find_spec("xdist") is not None:
        tests += ["-n", str(min(8, os.cpu_count() or 1))]  # the compiler is what takes time
    return [sys.executable, "-m", *tests, *gpu_tests(part)]


def run_all(
    folder: Path, parts: Sequence[str], limit: float | None = None, total: float = TOTAL
) -> int:
    """Run parts one after the other, with `folder` for copies and reports; 0 if all went well.

    limit: seconds of a part, instead of those in PARTS   total: seconds of all parts
    """
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if "array_api_compat" in missing and (lender := lend_array_api_compat(folder)):
        print(f"array-api-compat is not installed, so this run uses the copy inside {lender}.")
        missing.remove("array_api_compat")
    if missing:
        packages = " ".join(missing).replace("_", "-")
        print(f"This Python lacks {', '.join(missing)}. Run: pip install {packages}")
        return 1
    path = [str(ROOT), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"KVLIB_TESTS": "whole", **os.environ}  # a card is fast, and rarely there
    environment |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
    failed, begin = [], time.monotonic()
    if "notebooks" in parts:
        for name in COPIED:
            left_out = shutil.ignore_patterns("_build", "__pycache__")
            shutil.copytree(ROOT / name, folder / "chapters" / name, ignore=left_out)
    for i, part in enumerate(parts):
        report = folder / f"{part}.xml"
        remains = total - (time.monotonic() - begin)
        most = min(limit or (PARTS[part] if len(parts) > 1 else total), remains)
        if remains < 5:
            print(f"{total:g} s are over. To continue: make gpu ONLY=\"{' '.join(parts[i:])}\"")
            break
        if part == "sanitizer" and shutil.which(SANITIZER) is None:
            print(f"{SANITIZER} is not installed, so this part is left out.")
            continue
        print(f"== {part}, after {total - remains:.0f} s; remaining: {' '.join(parts[i:])}",
              flush=True)  # fmt: skip
        status = finish(command(part, report, most), environment, most)
        if status is None:
            print(f"{part} is stopped after {most:.0f} s. "
                  f"make gpu ONLY={part} LIMIT={2 * most:.0f} gives it more.")  # fmt: skip
        if status != 0:
            failed.append(part)
        if report.exists():
            save(part, summary(report.read_text(encoding="utf-8")))
    print("\n".join(table()))
    print(f"{time.monotonic() - begin:.0f} s; failed: {' '.join(failed) or 'nothing'}")
    return 1 if failed else 0


def finish(program: list[str], environment: dict[str, str], limit: float) -> int | None:
    """Run a program: its exit status, or None if it has run for `limit` seconds.

    No process that it started outlives it: a worker would take time from the next part.
    """
    process = subprocess.Popen(program, cwd=ROOT, env=environment, process_group=0)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def table() -> list[str]:
    """What is stored, a line a figure, for a reader of the end of the output."""
    found = {name: stored(f"gpu_{name}.json") for name in ("tests", *PARTS)}
    lines = [
        f"tests of {part}: {t['passed']} passed, {len(t['failed'])} failed, "
        f"{len(t['skipped'])} skipped"
        for part, t in found["tests"].get("parts", {}).items()
    ]
    for row in found["attention"].get("decode", []):
        runs = "; ".join(
            f"{name} {t['share']:.0%}, {1 / t['times_dense']:.2f}x"
            for name, t in row["runs"].items()
        )
        lines.append(f"decode {row['batch']} of {row['keys']} (of the copy, against dense): {runs}")
    for row in found["attention"].get("prefill", []):
        runs = "; ".join(f"{name} {t['tflops']:.0f} TFLOP/s" for name, t in row["runs"].items())
        lines.append(f"prefill {row['tokens']}: {runs}")
    for row in found["sampling"].get("candidates", []):
        beside = f"; {row['times_torch']:.1f}x PyTorch" if "times_torch" in row else ""
        us = min(t["median_us"] for n, t in row["times"].items() if n.startswith("kvlib"))
        lines.append(f"top-k {row['rows']} rows {row['dtype']}: {us:.1f} us, "
                     f"{row['share_of_copy_bandwidth']:.0%} of the copy{beside}")  # fmt: skip
    for row in found["generate"].get("decode", []):
        runs = "; ".join(
            f"{name} {row[name]['tokens_per_s']:.0f} tokens/s"
            for name in ("kernels", "arrays", "transformers")
            if name in row
        )
        lines.append(f"generate {row['batch']} after {row['prompt']}: {runs}")
    for row in found["step"].get("steps", []):
        runs = "; ".join(f"{name} {t['median_us']:.0f} us" for name, t in row["runs"].items())
        lines.append(f"step of {row['model']}, batch {row['batch']}, {row['keys']} keys: {runs}")
    if chapters := found["notebooks"].get("chapters", {}):
        failed = [name for name, run in chapters.items() if not run["passed"]]
        lines.append(f"notebooks: {len(chapters) - len(failed)} print what is committed; "
                     f"failed: {', '.join(failed) or 'none'}")  # fmt: skip
    return lines


def stored(name: str) -> dict[str, Any]:
    """A file of benchmarks/results, empty where it is not there."""
    path = RESULT.with_name(name)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def summary(report: str) -> dict[str, Any]:
    """How many tests passed, failed and were skipped, which, and the seconds they took.

    report: what pytest --junitxml writes.
    """
    found: dict[str, Any] = {"passed": 0, "failed": [], "skipped": [], "seconds": 0.0}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        found["seconds"] += float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            found["failed"].append(name)
        elif (skipped := case.find("skipped")) is not None:
            found["skipped"].append(f"{name}: {skipped.get('message')}")
        else:
            found["passed"] += 1
    found["seconds"] = round(found["seconds"], 1)
    return found


def save(part: str, tests: dict[str, Any]) -> None:
    """Write a part's tests beside the device, its driver and the versions, and those before it.

    Results of another device are not kept.
    """
    import cupy
    from on_device import describe

    about = {**describe(cupy), "driver": driver()}
    before = stored(RESULT.name)
    parts = before.get("parts", {}) if before.get("device") == about["device"] else {}
    parts = {**parts, part: tests}
    total = {
        "passed": sum(t["passed"] for t in parts.values()),
        "failed": [name for t in parts.values() for name in t["failed"]],
        "skipped": [name for t in parts.values() for name in t["skipped"]],
        "seconds": round(sum(t["seconds"] for t in parts.values()), 1),
    }
    document = {**about, "tests": total, "parts": parts}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{part}: {tests['passed']} passed, {len(tests['failed'])} failed: {RESULT.name}")


def driver() -> str:
    """The driver's version as nvidia-smi tells it, "" where there is no such program."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests-only", action="store_true", help="leave out the benchmarks")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="run this part only (may be repeated)"
    )
    parser.add_argument("--limit", type=float, help="seconds of a part, instead of its own")
    words = "seconds of all parts (default: %(default)g)"
    parser.add_argument("--total", type=float, default=TOTAL, help=words)
    given = parser.parse_args()
    parts = [p for p in PARTS if p in (given.only or (TESTS if given.tests_only else PARTS))]
    print(f"Python {sys.version.split()[0]} at {sys.executable}")
    name, reason = device_name()
    if name is None:
        print(f"No graphics card to test on: {reason}.")
        return 0
    print(f"Device: {name}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the part ends, too
    with tempfile.TemporaryDirectory() as folder:
        return run_all(Path(folder), parts, given.limit, given.total)


if __name__ == "__main__":
    sys.exit(main())
