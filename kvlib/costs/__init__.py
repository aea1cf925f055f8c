"""What a model weighs, reads and computes, and what that allows on a GPU: arithmetic, no arrays.

>>> from kvlib.costs import GPUS, MODELS, decode
>>> step = decode(MODELS["llama-2-7b"], batch=1, context=4096)
>>> step.floor(GPUS["h100-sxm"]).bound
'memory'

The formulas are in `kvlib.costs.formulas`, models and GPUs with their sources in `MODELS` and
`GPUS`. Everything is imported on first use; nothing here needs NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlib.costs.catalogue import CODECS, GPUS, MODELS, Catalogue, Codec, Gpu, Value
    from kvlib.costs.fitting import (
        ASSUMPTIONS,
        ContextRange,
        Fit,
        Plan,
        fit,
        gpus_needed,
        max_context,
    )
    from kvlib.costs.spec import ModelSpec
    from kvlib.costs.units import (
        Bytes,
        BytesPerSecond,
        Flops,
        FlopsPerByte,
        FlopsPerSecond,
        Seconds,
        Tokens,
        TokensPerSecond,
    )
    from kvlib.costs.work import Comparison, Cost, Floor, Work, decode, prefill, uncached

_HOME = {
    **dict.fromkeys(("CODECS", "GPUS", "MODELS", "Catalogue", "Codec", "Gpu"), "catalogue"),
    "Value": "catalogue",
    "ModelSpec": "spec",
    **dict.fromkeys(("Bytes", "Flops", "Seconds", "Tokens", "BytesPerSecond"), "units"),
    **dict.fromkeys(("FlopsPerByte", "FlopsPerSecond", "TokensPerSecond"), "units"),
    **dict.fromkeys(("Comparison", "Cost", "Floor", "Work"), "work"),
    **dict.fromkeys(("decode", "prefill", "uncached"), "work"),
    **dict.fromkeys(("ASSUMPTIONS", "ContextRange", "Fit", "Plan"), "fitting"),
    **dict.fromkeys(("fit", "gpus_needed", "max_context"), "fitting"),
}

__all__ = [
    "ASSUMPTIONS",
    "CODECS",
    "GPUS",
    "MODELS",
    "Bytes",
    "BytesPerSecond",
    "Catalogue",
    "Codec",
    "Comparison",
    "ContextRange",
    "Cost",
    "Fit",
    "Floor",
    "Flops",
    "FlopsPerByte",
    "FlopsPerSecond",
    "Gpu",
    "ModelSpec",
    "Plan",
    "Seconds",
    "Tokens",
    "TokensPerSecond",
    "Value",
    "Work",
    "decode",
    "fit",
    "gpus_needed",
    "max_context",
    "prefill",
    "uncached",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
