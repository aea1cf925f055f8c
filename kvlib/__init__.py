"""kvlib: the KV cache of transformer inference, small enough to read and fast enough to use.

Everything below is imported on first use, so ``import kvlib`` costs next to nothing and
``kvlib.costs``, ``kvlib.show`` or the loaders bring in only what they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Meter": "kvlib.meter",
    "attend": "kvlib.attention",
    "attend_causal": "kvlib.attention",
    "attend_tiled": "kvlib.attention",
    "merge_state": "kvlib.attention",
    "merge_states": "kvlib.attention",
    "Cache": "kvlib.caches",
    "DenseCache": "kvlib.caches",
    "LayerSpec": "kvlib.caches",
    "Memory": "kvlib.caches",
    "Step": "kvlib.caches",
    "Decoder": "kvlib.model",
    "ModelConfig": "kvlib.model",
    "load_model": "kvlib.model",
    "load_reference_model": "kvlib.reference",
    "generate": "kvlib.generation",
    "stream": "kvlib.generation",
    "sample": "kvlib.sampling",
    "CacheFull": "kvlib.errors",
    "CheckpointError": "kvlib.errors",
    "OutOfBlocks": "kvlib.errors",
}

__all__ = ["__version__", *_WHERE]  # noqa: PLE0604  (names resolved by __getattr__)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kvlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_WHERE))


if TYPE_CHECKING:
    from kvlib.attention import (
        attend as attend,
        attend_causal as attend_causal,
        attend_tiled as attend_tiled,
        merge_state as merge_state,
        merge_states as merge_states,
    )
    from kvlib.caches import (
        Cache as Cache,
        DenseCache as DenseCache,
        LayerSpec as LayerSpec,
        Memory as Memory,
        Step as Step,
    )
    from kvlib.errors import (
        CacheFull as CacheFull,
        CheckpointError as CheckpointError,
        OutOfBlocks as OutOfBlocks,
    )
    from kvlib.generation import generate as generate, stream as stream
    from kvlib.meter import Meter as Meter
    from kvlib.model import (
        Decoder as Decoder,
        ModelConfig as ModelConfig,
        load_model as load_model,
    )
    from kvlib.reference import load_reference_model as load_reference_model
    from kvlib.sampling import sample as sample
