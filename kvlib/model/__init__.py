"""The transformer itself. Chapters swap the cache and leave this alone.

`decoder`        token ids in, logits out: the loop over blocks
`block`          one layer: a token mixer and a feed-forward part
`grouped_query`  the token mixer: its weights, what it asks of a cache, its forward pass
`gated_mlp`, `plain_mlp`      the feed-forward parts, laid out in the same way
`embedding`, `norm`, `rope`   what stands around them; `layers` has the functions below all this
`config`         the sizes and switches of a model; `kvlib.config` reads them from a config.json
`checkpoint`     loads a Hugging Face folder; `safetensors` reads its files
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlib.model.config import ModelConfig, RopeConfig
from kvlib.model.decoder import Decoder
from kvlib.model.weights import num_parameters, random_weights, weight_shapes

if TYPE_CHECKING:
    from kvlib.model.checkpoint import load_model

__all__ = [
    "Decoder",
    "ModelConfig",
    "RopeConfig",
    "load_model",
    "num_parameters",
    "random_weights",
    "weight_shapes",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that is there

    def __getattr__(name: str) -> object:
        if name == "load_model":  # file formats are read only by who loads files
            from kvlib.model.checkpoint import load_model

            return load_model
        raise AttributeError(f"module 'kvlib.model' has no attribute {name!r}")
