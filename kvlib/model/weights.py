"""A decoder's weights: names and shapes, one allocation for all, random ones for tests.

Every matrix is stored (out, in), as checkpoints store it. q, k and v are the rows of one matrix,
and so are gate and up: one product reads each of them once, and a decode step is bound by that
reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kvlib.arrays import default_namespace, has_views, namespace
from kvlib.model.config import ModelConfig

ALIGNMENT = 64  # bytes: a cache line, and what the widest vector loads want


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each weight, in the order in which a forward pass reads them.

    hidden = Hq * D only by custom: head_dim is its own field. V vocabulary, I intermediate size.

    >>> from kvlib import load_reference_model
    >>> weight_shapes(load_reference_model().config)["embed.weight"]
    (256, 256)
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads * config.head_dim
    kv_heads = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, hidden)}
    if config.positions == "learned":
        shapes["pos_embed.weight"] = (config.max_position_embeddings, hidden)
    for i in range(config.num_hidden_layers):
        layer = f"layers.{i}"
        _norm(shapes, f"{layer}.attn_norm", config)
        _linear(shapes, f"{layer}.qkv", heads + 2 * kv_heads, hidden, config.qkv_bias)
        if config.qk_norm:
            shapes[f"{layer}.q_norm.weight"] = (config.head_dim,)
            shapes[f"{layer}.k_norm.weight"] = (config.head_dim,)
        _linear(shapes, f"{layer}.o", hidden, heads, config.o_bias)
        _norm(shapes, f"{layer}.mlp_norm", config)
        first, rows = ("gate_up", 2 * inner) if config.gated_mlp else ("up", inner)
        _linear(shapes, f"{layer}.{first}", rows, hidden, config.mlp_bias)
        _linear(shapes, f"{layer}.down", hidden, inner, config.mlp_bias)
    _norm(shapes, "norm", config)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


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
    """Room for weights of these shapes, not yet filled: name -> array of `dtype` (float32).

    With NumPy and CuPy all are views of one buffer, each starting at a multiple of 64 bytes: one
    large allocation gets huge pages from the system, which saves 4 to 5 % of a decode step. Other
    array libraries get one array a weight.
    """
    xp = library(xp)
    dtype = xp.float32 if dtype is None else dtype
    if not has_views(xp):
        return {name: xp.empty(shape, dtype=dtype) for name, shape in shapes.items()}
    itemsize = np.dtype(dtype).itemsize
    starts, end = {}, 0
    for name, shape in shapes.items():
        starts[name] = end
        end += -(-math.prod(shape) * itemsize // ALIGNMENT) * ALIGNMENT
    raw = xp.empty((end + ALIGNMENT,), dtype=xp.uint8)
    shift = -_address(raw) % ALIGNMENT
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

    A matrix's numbers have variance 1 / in, so that rows of scale 1 stay at scale 1; norm weights
    lie around 1, biases around 0 with a tenth of that; the tied embedding serves as the last
    matrix, too. Drawn in float32 by NumPy and copied over.

    >>> from kvlib import Decoder, load_reference_model
    >>> config = load_reference_model().config
    >>> Decoder(config, random_weights(config, seed=1)).config is config
    True
    """
    xp = library(xp)
    rng = np.random.default_rng(seed)
    shapes = weight_shapes(config)
    weights = allocate(shapes, dtype, xp)
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if name.endswith(".bias"):
            values *= np.float32(0.1)
        elif len(shape) == 1:
            values = np.float32(1) + np.float32(0.1) * values
        else:
            values *= np.float32(1 / math.sqrt(shape[1]))
        weights[name][...] = xp.asarray(values, dtype=weights[name].dtype)
    return weights


def _norm(shapes: dict[str, tuple[int, ...]], name: str, config: ModelConfig) -> None:
    shapes[f"{name}.weight"] = (config.hidden_size,)
    if config.norm == "layer":
        shapes[f"{name}.bias"] = (config.hidden_size,)


def _linear(
    shapes: dict[str, tuple[int, ...]], name: str, rows: int, columns: int, bias: bool
) -> None:
    shapes[f"{name}.weight"] = (rows, columns)
    if bias:
        shapes[f"{name}.bias"] = (rows,)


def library(xp: Any = None) -> Any:
    """The array library `xp` as the standard has it; the one at hand if None."""
    return default_namespace() if xp is None else namespace(xp.empty((0,)))


def _address(raw: Any) -> int:
    """Where a byte array starts in (host or device) memory."""
    return raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
