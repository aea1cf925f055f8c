"""Every instantiation there is: what CI compiles."""

from __future__ import annotations

from importlib import import_module

from kvlib.kernels.source import Kernel

MODULES = ("decode", "prefill", "prefill_work", "layernorm", "topk", "sample", "loads")


def instantiations() -> list[Kernel]:
    """Kernels of all modules, each once."""
    found: dict[Kernel, None] = {}
    for module in MODULES:
        found |= dict.fromkeys(import_module(f"kvlib.kernels.{module}").instantiations())
    return list(found)
