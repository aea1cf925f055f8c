"""Run the tests and benchmarks that need a graphics card, with the Python this is started with.

Needs CuPy, NumPy, array-api-compat and pytest in that Python, and nothing else: no .venv, no
network. Where array-api-compat is not installed, the copy that SciPy or scikit-learn carries is
lent to the run. Says what is missing and stops with 0 where there is no device (nothing was to be
run), with 1 where there is a device and something failed. What the tests found goes to
benchmarks/results/gpu_tests.json, with device, driver and versions; benchmarks write their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu_tests.json"
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # kvlib.devices and on_device need no package
NEEDED = ("numpy", "array_api_compat", "pytest")
COPIES = (  # (package, where in it a copy of array_api_compat lies)
    ("scipy", "_external/array_api_compat"),
    ("scipy", "_lib/array_api_compat"),
    ("sklearn", "externals/array_api_compat"),
)
MARK = "pytest.mark.gpu"


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


def gpu_tests() -> list[str]:
    """The test files that ask for a device: only these are read, for others may need more."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = (path for path in files if MARK in path.read_text(encoding="utf-8"))
    return [str(path) for path in marked]


def run_all(folder: Path, tests_only: bool) -> int:
    """Run tests and benchmarks, with `folder` for what has to be lent; 0 if all went well."""
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if "array_api_compat" in missing and (lender := lend_array_api_compat(folder)):
        print(f"array-api-compat is not installed: using the copy inside {lender}")
        missing.remove("array_api_compat")
    if missing:
        packages = " ".join(missing).replace("_", "-")
        print(f"This Python lacks {', '.join(missing)}: pip install {packages}")
        return 1
    report = folder / "tests.xml"
    path = [str(ROOT), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    tests = ["pytest", "-m", "gpu", "-q", f"--junitxml={report}", *gpu_tests()]
    commands = [[sys.executable, "-m", *tests]]
    if not tests_only:
        scripts = sorted((ROOT / "benchmarks").glob("gpu_*.py"))
        commands += [[sys.executable, str(script)] for script in scripts]
        if not scripts:
            print("No benchmark needs a device yet.")
    status = 0
    for command in commands:
        print(f"== {' '.join(Path(part).name for part in command[1:])}", flush=True)
        status |= subprocess.run(command, cwd=ROOT, env=environment).returncode
    if report.exists():
        save(summary(report.read_text(encoding="utf-8")))
    return 1 if status else 0


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


def save(tests: dict[str, Any]) -> None:
    """Write the tests' results beside the device, its driver and the versions."""
    import cupy
    from on_device import describe

    about = {**describe(cupy), "driver": driver(), "tests": tests}
    RESULT.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(f"{tests['passed']} passed, {len(tests['failed'])} failed: {RESULT.relative_to(ROOT)}")


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
    parser.add_argument("--tests-only", action="store_true", help="leave the benchmarks out")
    given = parser.parse_args()
    print(f"Python {sys.version.split()[0]} at {sys.executable}")
    name, reason = device_name()
    if name is None:
        print(f"No graphics card to test on: {reason}.")
        return 0
    print(f"Device: {name}")
    with tempfile.TemporaryDirectory() as folder:
        return run_all(Path(folder), given.tests_only)


if __name__ == "__main__":
    sys.exit(main())
