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
    from kvlib.costs.bill import Fit, fit
    from kvlib.costs.catalogue import (
        CODECS,
        GPUS,
        MODELS,
        Catalogue,
        Codec,
        Gpu,
        UnknownName,
        Value,
    )
    from kvlib.costs.comparison import Comparison, uncached
    from kvlib.costs.context import ContextRange, max_context
    from kvlib.costs.parallel import kv_on_one
    from kvlib.costs.plan import Plan, gpus_needed
    from kvlib.costs.share import ASSUMPTIONS, Assumption
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
    from kvlib.costs.work import Cost, Floor, Work, decode, prefill

_HOME = {
    **dict.fromkeys(("CODECS", "GPUS", "MODELS", "Catalogue", "Codec", "Gpu"), "catalogue"),
    **dict.fromkeys(("UnknownName", "Value"), "catalogue"),
    "ModelSpec": "spec",
    **dict.fromkeys(("Bytes", "Flops", "Seconds", "Tokens", "BytesPerSecond"), "units"),
    **dict.fromkeys(("FlopsPerByte", "FlopsPerSecond", "TokensPerSecond"), "units"),
    **dict.fromkeys(("Cost", "Floor", "Work", "decode", "prefill"), "work"),
    **dict.fromkeys(("Comparison", "uncached"), "comparison"),
    **dict.fromkeys(("ASSUMPTIONS", "Assumption"), "share"),
    **dict.fromkeys(("ContextRange", "max_context"), "context"),
    **dict.fromkeys(("Plan", "gpus_needed"), "plan"),
    "kv_on_one": "parallel",
    **dict.fromkeys(("Fit", "fit"), "bill"),
}

__all__ = [
    "ASSUMPTIONS",
    "CODECS",
    "GPUS",
    "MODELS",
    "Assumption",
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
    "UnknownName",
    "Value",
    "Work",
    "decode",
    "fit",
    "gpus_needed",
    "kv_on_one",
    "max_context",
    "prefill",
    "uncached",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
