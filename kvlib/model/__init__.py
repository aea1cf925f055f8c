"""The transformer itself. The book's chapters swap the cache and leave this package as it is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.model.checkpoint import load_model as load_model
    from kvlib.model.config import ModelConfig as ModelConfig
    from kvlib.model.config import RopeConfig as RopeConfig
    from kvlib.model.decoder import Decoder as Decoder
    from kvlib.model.weights import num_parameters as num_parameters
    from kvlib.model.weights import random_weights as random_weights
    from kvlib.model.weights import weight_shapes as weight_shapes
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
