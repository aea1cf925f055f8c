"""Stored results: what the compiler said of each kernel (resources.json, written by ``python -m
kvlib.kernels --store``), and what a GPU measured (benchmarks/results, written by ``make gpu``)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "resources.json"
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@cache
def stored() -> dict[str, Any]:
    """What resources.json holds: the compiler, the sources' fingerprints, and each kernel's
    numbers."""
    document: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return document


def resources(capability: str) -> dict[str, dict[str, int]]:
    """Kernel name → registers, spills (bytes a thread) and stack for a compute capability."""
    known = stored()["capabilities"]
    if capability not in known:
        raise ValueError(f"capability must be one of {', '.join(known)}, got {capability!r}")
    names = ("registers", "spills", "stack")
    return {k: dict(zip(names, v, strict=True)) for k, v in known[capability].items()}


def registers_of(kernel: str) -> int | None:
    """Registers a thread on compute capability 9.0, None for a kernel that is not stored."""
    return stored()["capabilities"]["9.0"].get(kernel, [None])[0]  # type: ignore[no-any-return]


def device_results(name: str) -> dict[str, Any] | None:
    """What ``make gpu`` has stored as benchmarks/results/<name>.json, None where it has not."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
