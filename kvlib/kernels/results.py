"""Stored results: what the compiler said of each kernel (resources.json, written by ``python -m
kvlib.kernels --store``), and what a GPU measured (benchmarks/results, written by ``make gpu``)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "resources.json"
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@cache
def _stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return document


def resources(capability: str) -> dict[str, dict[str, int]]:
    """Kernel name → registers, spills (bytes a thread) and stack for a compute capability."""
    stored = _stored()["capabilities"]
    if capability not in stored:
        known = ", ".join(stored)
        raise ValueError(f"capability must be one of {known}, got {capability!r}")
    names = ("registers", "spills", "stack")
    return {k: dict(zip(names, v, strict=True)) for k, v in stored[capability].items()}


def compiled_by() -> str:
    """The compiler that resources.json quotes, with its version."""
    return str(_stored()["compiler"])


def compiled_sources() -> dict[str, str]:
    """Unit → the fingerprint (`kvlib.kernels.nvrtc`) of the source in resources.json."""
    return dict(_stored().get("sources", {}))


def registers_of(kernel: str) -> int | None:
    """Registers a thread on compute capability 9.0, None for a kernel that is not stored."""
    return _stored()["capabilities"]["9.0"].get(kernel, [None])[0]  # type: ignore[no-any-return]


def device_results(name: str) -> dict[str, Any] | None:
    """What ``make gpu`` has stored as benchmarks/results/<name>.json, None where it has not."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
