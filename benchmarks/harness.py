"""How everything here is timed: paired, alternating, medians, the machine beside the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def parser(
    doc: str, name: str, *, threads: int | None = None, steps: int | None = None
) -> argparse.ArgumentParser:
    """A parser with the options of most benchmarks; `threads` and `steps` are defaults, if any."""
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    if threads is not None:
        words = f"BLAS threads (default: {threads})"
        options.add_argument("--threads", type=int, default=threads, help=words)
    if steps is not None:
        words = f"calls per figure (default: {steps})"
        options.add_argument("--steps", type=int, default=steps, help=words)
    options.add_argument("--json", help=f"where to write (default: benchmarks/results/{name}.json)")
    return options


def limit_threads(n: int) -> None:
    """Let BLAS and OpenMP use ``n`` threads: call before NumPy or PyTorch is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(n)


def rest() -> None:
    """Wait until the threads of OpenBLAS sleep, if there are several.

    They spin for about 0.1 s after a product, and a product that kvlib shares between threads of
    its own takes up to twice as long beside them.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        time.sleep(0.2)


def alternate(
    runs: dict[str, Callable[[], Any]], *, steps: int = 48, rounds: int = 4, tick: Any = None
) -> dict[str, dict[str, float]]:
    """Milliseconds a call of each function: blocks of calls take turns, ``steps`` calls in all.

    The first quarter of each block is dropped: caches, thread pools and clocks settle in it.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    block = -(-steps // rounds)
    for _ in range(rounds):
        for name, run in runs.items():
            for i in range(block):
                start = time.perf_counter()
                run()
                elapsed = time.perf_counter() - start
                if i >= block // 4:
                    times[name].append(elapsed * 1e3)
            if tick is not None:
                tick()
    return {name: summary(values) for name, values in times.items()}


def summary(milliseconds: list[float]) -> dict[str, float]:
    """Median and quartiles of a list of times."""
    if len(milliseconds) < 2:
        return {"median_ms": milliseconds[0], "n": len(milliseconds)}
    low, mid, high = statistics.quantiles(milliseconds, n=4)
    return {"median_ms": mid, "q1_ms": low, "q3_ms": high, "n": len(milliseconds)}


def machine() -> dict[str, Any]:
    """What the figures depend on: processor, cores, BLAS, thread counts, versions."""
    info: dict[str, Any] = {
        "date": date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE"),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    } | versions()
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return info
    keys = ("internal_api", "version", "architecture", "num_threads")
    info["blas"] = [{k: pool.get(k) for k in keys if pool.get(k)} for pool in threadpool_info()]
    return info


def versions() -> dict[str, str]:
    """The packages that are timed, where they are installed."""
    found = {}
    for package in ("numpy", "torch", "transformers", "cupy-cuda13x"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def save(
    name: str, results: dict[str, Any], path: str | None = None, of: dict[str, Any] | None = None
) -> None:
    """Write results with the machine they were measured on, `of` or this one, in one step."""
    out = Path(path) if path else RESULTS / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    part, document = out.with_suffix(".part"), {"machine": of or machine(), **results}
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    part.replace(out)
    print(f"wrote {os.path.relpath(out)}", file=sys.stderr)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
