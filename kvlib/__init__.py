"""kvlib: the KV cache of transformer inference, small enough to read and fast enough to use.

Everything below is imported on first use, so ``import kvlib`` costs next to nothing and
``kvlib.show`` or the loaders bring in only what they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # all that __getattr__ finds
    from kvlib import (
        arrays,
        attention,
        batching,
        caches,
        codecs,
        commands,
        config,
        costs,
        devices,
        engine,
        errors,
        events,
        exercises,
        generation,
        kernels,
        machine,
        meter,
        model,
        norms,
        policies,
        progress,
        prompts,
        quality,
        reference,
        sampling,
        scheduling,
        serving,
        show,
    )
    from kvlib.attention import attend, attend_causal, attend_tiled, merge_state, merge_states
    from kvlib.caches import (
        BlockPool,
        Cache,
        DenseCache,
        LayerSpec,
        Memory,
        PagedCache,
        QuantizedCache,
        Step,
    )
    from kvlib.errors import CacheFull, CheckpointError, OutOfBlocks
    from kvlib.generation import generate, stream
    from kvlib.meter import Meter
    from kvlib.model import Decoder, ModelConfig, load_model
    from kvlib.reference import load_reference_model
    from kvlib.sampling import sample
    from kvlib.scheduling import Scheduler

__version__ = "0.1.0"

__all__ = [
    "BlockPool",
    "Cache",
    "CacheFull",
    "CheckpointError",
    "Decoder",
    "DenseCache",
    "LayerSpec",
    "Memory",
    "Meter",
    "ModelConfig",
    "OutOfBlocks",
    "PagedCache",
    "QuantizedCache",
    "Scheduler",
    "Step",
    "__version__",
    "attend",
    "attend_causal",
    "attend_tiled",
    "generate",
    "load_model",
    "load_reference_model",
    "merge_state",
    "merge_states",
    "sample",
    "stream",
]

_MODULES = {
    "attention": ("attend", "attend_causal", "attend_tiled", "merge_state", "merge_states"),
    "caches": (
        *("BlockPool", "Cache", "DenseCache", "LayerSpec", "Memory"),
        *("PagedCache", "QuantizedCache", "Step"),
    ),
    "errors": ("CacheFull", "CheckpointError", "OutOfBlocks"),
    "generation": ("generate", "stream"),
    "meter": ("Meter",),
    "model": ("Decoder", "ModelConfig", "load_model"),
    "reference": ("load_reference_model",),
    "sampling": ("sample",),
    "scheduling": ("Scheduler",),
}
# The submodules that tab completion shows. The others can be used all the same.
_PARTS = (
    *("arrays", "attention", "caches", "codecs", "costs", "errors", "exercises", "kernels"),
    *("machine", "model", "norms", "quality", "reference", "sampling", "show"),
)
_WHERE = {name: f"kvlib.{module}" for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            value = getattr(import_module(_WHERE[name]), name)
            globals()[name] = value
            return value
        if name in _submodules():  # kvlib.show, kvlib.costs, ... need no import of their own
            return import_module(f"kvlib.{name}")
        raise AttributeError(f"module 'kvlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *_WHERE, *_PARTS})


def _submodules() -> set[str]:
    # Not __main__: to import it is to run it.
    from pkgutil import iter_modules

    return {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
