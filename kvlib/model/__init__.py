"""The transformer itself: configuration, weights, layers, decoder and checkpoints.

Chapters swap the cache and leave this alone.
"""

from kvlib.model.config import ModelConfig, RopeConfig
from kvlib.model.decoder import Decoder
from kvlib.model.weights import num_parameters, random_weights, weight_shapes

__all__ = [
    "Decoder",
    "ModelConfig",
    "RopeConfig",
    "load_model",
    "num_parameters",
    "random_weights",
    "weight_shapes",
]


def __getattr__(name: str) -> object:
    if name == "load_model":  # file formats are read only by who loads files
        from kvlib.model.checkpoint import load_model

        return load_model
    raise AttributeError(f"module 'kvlib.model' has no attribute {name!r}")
