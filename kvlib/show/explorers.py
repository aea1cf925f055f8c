"""The explorers of the book: controls, the tables they look up, and the scene behind each.

Each function takes settings by the names of its controls: `memory_explorer(model="qwen3-8b")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvlib.show.controls import Choice, Slider
from kvlib.show.explorer import Explorer
from kvlib.show.scenes.memory import memory_scene

KV_CODECS = ("bfloat16", "fp8", "int8", "int4", "int2")


def memory_explorer(**settings: Any) -> Explorer:
    """What one GPU holds: weights, keys and values, and the context that still fits.

    Settings: model, gpu, gpus, batch, context, weights, kv, block.
    """
    tables = _tables()
    controls = [
        Choice("model", "Model", _titles(tables["models"]), "llama-3.1-8b"),
        Choice("gpu", "GPU", _titles(tables["gpus"]), "h100-sxm"),
        Slider("gpus", "GPUs (tensor parallel)", [1, 2, 4, 8], 1, "GPUs"),
        Slider.powers("batch", "Requests", 1, 256, value=8, unit="requests", halves=True),
        Slider.powers("context", "Context", 512, 2**20, value=32768, unit="tokens", halves=True),
        Choice("weights", "Weights in", _WEIGHTS),
        Choice("kv", "Keys and values in", _titles(tables["codecs"])),
        Slider("block", "Block", [1, 16, 32, 64, 128, 256], 16, "tokens"),
    ]
    return Explorer("memory", "What fits in memory", controls, memory_scene, tables).set(**settings)


ALL: dict[str, Callable[..., Explorer]] = {"memory": memory_explorer}

_WEIGHTS = {
    "bfloat16": "bfloat16 (16 bits)",
    "int8": "int8 (8 bits)",
    "int4": "4 bits, scale and zero per 128 (4.25 bits)",
}


def _tables() -> dict[str, dict[str, Any]]:
    """The rows of the catalogues as plain data: {"models", "gpus", "codecs"}."""
    from kvlib.costs import CODECS, GPUS, MODELS

    return {
        "models": {key: MODELS[key].facts for key in MODELS},
        "gpus": {key: GPUS[key].facts for key in GPUS},
        "codecs": {key: CODECS[key].facts for key in KV_CODECS},
    }


def _titles(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {key: str(row["title"]) for key, row in rows.items()}
