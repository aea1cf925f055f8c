"""The layers of a decoder as pure functions: x (T, hidden) in, (T, ...) out, dtype kept."""

from __future__ import annotations

import math
from collections.abc import Callable

from kvlib.arrays import Array, is_numpy, namespace, nbytes
from kvlib.meter import counting, report
from kvlib.model.products import product
from kvlib.norms import layer_norm, rms_norm

__all__ = [
    "ACTIVATIONS",
    "erf",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "linear",
    "rms_norm",
    "sigmoid",
    "silu",
]


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x Wᵀ + b.   x (T, in)   weight (out, in), as in checkpoints   bias (out,)   →   (T, out)

    Decoding is bound by reading ``weight``, and a BLAS is made for many rows. So the form of the
    product depends on T where NumPy computes it (:mod:`kvlib.model.products`); the sum is the same.
    """
    if counting():
        out, width = weight.shape
        report("linear", flops=2 * x.shape[0] * out * width, read=nbytes(weight) + nbytes(x))
    xp = namespace(x)
    y = product(x, weight) if is_numpy(xp) else x @ weight.T
    if bias is not None:
        y += bias
    return y


def silu(x: Array) -> Array:
    """x · σ(x) (arXiv:1702.03118)."""
    return x * sigmoid(x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x)."""
    # By tanh, which cannot overflow: e^−x does, and warns, for x below −88 in float32.
    return 0.5 * (namespace(x).tanh(x * 0.5) + 1.0)


def gelu_tanh(x: Array) -> Array:
    """x · Φ(x) with Φ by tanh, as GPT-2 has it (arXiv:1606.08415)."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + namespace(x).tanh(inner))


def gelu(x: Array) -> Array:
    """x · Φ(x) with Φ by the error function (arXiv:1606.08415)."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def erf(x: Array) -> Array:
    """The error function to 1.5e-7, which neither NumPy nor the array API standard has.

    Abramowitz & Stegun, Handbook of Mathematical Functions, formula 7.1.26.
    """
    xp = namespace(x)
    size = xp.abs(x)
    t = 1.0 / (1.0 + 0.3275911 * size)
    poly = xp.zeros_like(x)
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = (poly + c) * t
    return xp.sign(x) * (1.0 - poly * xp.exp(-size * size))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
}
