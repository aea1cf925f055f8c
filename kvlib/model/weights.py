"""A decoder's weights: their names and shapes, one allocation for all, random numbers for tests."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kvlib.arguments import check_seed
from kvlib.arrays import default_namespace, has_views, namespace, new_array
from kvlib.config.weights import model_weights
from kvlib.model.config import ModelConfig

ALIGNMENT = 64  # bytes: a cache line, and what the widest vector loads want


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each weight, in the order in which a forward pass reads them.

    >>> from kvlib import load_reference_model
    >>> weight_shapes(load_reference_model().config)["embed.weight"]
    (256, 256)
    """
    return {name: weight.shape for name, weight in model_weights(config).items()}


def check_weights(config: ModelConfig, weights: Mapping[str, Any]) -> None:
    """Raise ValueError for a weight that is missing, superfluous or of the wrong shape."""
    shapes = weight_shapes(config)
    for name in shapes.keys() ^ weights.keys():
        state = "missing" if name in shapes else "not part of this model"
        raise ValueError(f"weight {name!r} is {state}")
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise ValueError(f"weight {name!r} must be {shape}, got {tuple(weights[name].shape)}")


def of_layer(weights: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """One layer's weights, by their names without "layers.N."."""
    prefix = f"layers.{layer}."
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


def num_parameters(config: ModelConfig) -> int:
    """How many numbers the weights hold, a tied embedding counted once.

    >>> from kvlib import load_reference_model
    >>> num_parameters(load_reference_model().config) == load_reference_model().num_parameters
    True
    """
    return sum(math.prod(shape) for shape in weight_shapes(config).values())


def allocate(
    shapes: Mapping[str, tuple[int, ...]], dtype: Any = None, xp: Any = None
) -> dict[str, Any]:
    """Room for weights, name -> array; one buffer gets huge pages, which saves 4 % of a step."""
    xp = library(xp)
    dtype = xp.float32 if dtype is None else dtype
    if not has_views(xp):
        return {name: new_array(xp, name, shape, dtype) for name, shape in shapes.items()}
    itemsize = np.dtype(dtype).itemsize
    starts, end = {}, 0
    for name, shape in shapes.items():
        starts[name] = end
        end += -(-math.prod(shape) * itemsize // ALIGNMENT) * ALIGNMENT
    raw = new_array(xp, "weights", (end + ALIGNMENT,), xp.uint8)
    address = raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
    shift = -address % ALIGNMENT
    views = {}
    for name, shape in shapes.items():
        start = shift + starts[name]
        stop = start + math.prod(shape) * itemsize
        views[name] = raw[start:stop].view(dtype).reshape(shape)
    return views


def random_weights(
    config: ModelConfig, seed: int = 0, xp: Any = None, dtype: Any = None
) -> dict[str, Any]:
    """Weights drawn at random, the same for the same seed; logits get a scale of about 1.

    The numbers of a matrix have the variance 1 / (length of an input row); norm weights are around
    1 and biases around 0, with a standard deviation of 0.1. NumPy draws all of them in float32.

    >>> from kvlib import Decoder, load_reference_model
    >>> config = load_reference_model().config
    >>> Decoder(config, random_weights(config, seed=1)).config is config
    True
    """
    xp = library(xp)
    rng = np.random.default_rng(check_seed("seed", seed))
    weights = allocate(weight_shapes(config), dtype, xp)
    for name, weight in model_weights(config).items():
        values = rng.standard_normal(weight.shape, dtype=np.float32)
        if len(weight.shape) == 1:
            values = np.float32(weight.centre) + np.float32(0.1) * values
        else:
            values *= np.float32(1 / math.sqrt(weight.shape[1]))
        weights[name][...] = xp.asarray(values, dtype=weights[name].dtype)
    return weights


def library(xp: Any = None) -> Any:
    """The array library `xp` as the standard has it; the one at hand if None."""
    return default_namespace() if xp is None else namespace(xp.empty((0,)))
