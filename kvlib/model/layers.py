"""Norms, products and activations; all keep the dtype of x."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kvlib.arrays import Array, clipped, namespace, nbytes
from kvlib.codecs import BFloat16
from kvlib.meter import OPEN, report
from kvlib.model.config import ModelConfig
from kvlib.model.products import product

# A library's product of two vectors adds in a fixed number of lanes, so the rounding of float32
# grows with the length: 6e-5 at 16 million numbers. Longer rows are added up in parts.
PART = 1 << 16
TILE = 1 << 17  # numbers: an array of so many, and a few temporaries, fit the processor's cache


class Norm:
    """The norm of ``config.norm``: "rms" (arXiv:1910.07467), "rms_1p", "layer" (1607.06450)."""

    def __init__(self, config: ModelConfig, w: dict[str, Array], name: str) -> None:
        self.weight, self.bias = w[f"{name}.weight"], w.get(f"{name}.bias")
        self.xp = namespace(self.weight)
        self.eps = float(config.norm_eps)  # a NumPy float64 would widen every array it meets
        if config.norm == "rms_1p":
            self.weight = 1.0 + self.weight  # once: a norm of a decode step takes microseconds

    def __call__(self, x: Array) -> Array:
        if self.bias is None:
            return normalised(self.xp, x, self.eps)[0] * self.weight
        return normalised(self.xp, x, self.eps, centre=True)[0] * self.weight + self.bias


def normalised(xp: Any, x: Array, eps: float, centre: bool = False) -> tuple[Array, Array]:
    """x̂ in x's dtype (..., D), and the root that x was divided by (..., 1), float32 at least."""
    wide = x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, xp.float32)
    if centre:
        wide = centred(xp, wide)
    root = xp.sqrt(mean_product(xp, wide, wide) + eps)
    return xp.astype(wide / root, x.dtype, copy=False), root


def centred(xp: Any, x: Array) -> Array:
    """x (..., D), float32 or float64 → x − mean, less the mean of that, which rounding missed."""
    c = x - xp.mean(x, axis=-1, keepdims=True)
    return c - xp.mean(c, axis=-1, keepdims=True)


def mean_product(xp: Any, x: Array, y: Array) -> Array:
    """Mean of x · y along the last axis, which is kept.   x, y (..., D)   →   (..., 1)"""
    width = x.shape[-1]
    if width <= PART:
        return xp.vecdot(x, y)[..., None] / width
    ends = [*range(PART, width, PART), width]
    parts = [xp.vecdot(x[..., a:b], y[..., a:b]) for a, b in zip([0, *ends], ends)]
    return xp.sum(xp.stack(parts, axis=-1), axis=-1, dtype=x.dtype)[..., None] / width


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x Wᵀ + b:  x (T, in), weight (out, in) in x's dtype or bfloat16, bias (out,)  →  (T, out)"""
    if OPEN:
        out, width = weight.shape
        report("linear", flops=2 * x.shape[0] * out * width, read=nbytes(weight) + nbytes(x))
    if weight.dtype != x.dtype:
        weight = widened(weight)
    if not isinstance(x, np.ndarray):
        y = x @ weight.T
    elif x.shape[0] == 1:
        y = np.matmul(weight, x[0, :])[None, :]
    else:
        y = product(x, weight)
    if bias is not None:
        y += bias
    return y


def widened(weight: Array) -> Array:
    """Numbers to compute with: bfloat16's bits (uint16) as float32, others as they are."""
    xp = namespace(weight)
    return weight if weight.dtype != xp.uint16 else BFloat16().decode({"codes": weight}, xp.float32)


def by_rows(function: Callable[..., Array], x: Array, *more: Array) -> Array:
    """function(x, *more) of rows (T, ...), each apart: a tile at a time, which the cache holds."""
    t = x.shape[0]
    if t < 2 or x.size <= TILE or not isinstance(x, np.ndarray):
        return function(x, *more)
    rows = max(1, TILE * t // x.size)
    first = function(*(part[:rows] for part in (x, *more)))
    out = np.empty((t, *first.shape[1:]), first.dtype)
    out[:rows] = first
    for a in range(rows, t, rows):
        out[a : a + rows] = function(*(part[a : a + rows] for part in (x, *more)))
    return out


def silu(x: Array) -> Array:
    """x · σ(x) (arXiv:1702.03118)."""
    y = sigmoid(x)
    y *= x
    return y


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x)."""
    # By tanh, which cannot overflow: e^−x does, and warns, for x below −88 in float32.
    y = namespace(x).tanh(x * 0.5)
    y += 1.0
    y *= 0.5
    return y


def gelu_tanh(x: Array) -> Array:
    """x · Φ(x) with Φ by tanh, as GPT-2 has it (arXiv:1606.08415)."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + namespace(x).tanh(inner))


def gelu(x: Array) -> Array:
    """x · Φ(x) with Φ by the error function (arXiv:1606.08415)."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def erf(x: Array) -> Array:
    """The error function to 1.5e-7 (Abramowitz & Stegun, formula 7.1.26); the standard has none."""
    xp = namespace(x)
    size = xp.abs(x)
    t = 1.0 / (1.0 + 0.3275911 * size)
    poly = xp.zeros_like(x)
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = (poly + c) * t
    return xp.sign(x) * (1.0 - poly * xp.exp(-size * size))


def relu(x: Array) -> Array:
    """x where it is above 0, else 0."""
    return clipped(namespace(x), x, 0.0, None)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": gelu,
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), gelu_tanh),
    "relu": relu,
}
