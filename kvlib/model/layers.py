"""What layers are made of: weights, and pure functions of x (T, hidden) that keep its dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvlib.arrays import Array, is_numpy, namespace, nbytes
from kvlib.meter import counting, report
from kvlib.model.products import product
from kvlib.norms import layer_norm as layer_norm
from kvlib.norms import rms_norm as rms_norm


class Weight(NamedTuple):
    """One weight: an array of kvlib's, and the tensors of a checkpoint that it is made of.

    name     kvlib's name within its part of the model, such as "qkv.weight"
    shape    (out, in), as checkpoints store it, or (n,)
    tensors  Hugging Face's name for it, without ".weight" → its rows; several are stacked. A
             family whose checkpoints use another name says so in its file (`Names.renamed`)
    centre   the number that a vector of weights lies around: 1 for most norms, 0 for a bias
    """

    name: str
    shape: tuple[int, ...]
    tensors: Mapping[str, int]
    centre: float = 1.0


def linear_weights(name: str, tensors: Mapping[str, int], width: int, bias: bool) -> list[Weight]:
    """A matrix (sum of the tensors' rows, width), and its bias (sum of rows,) if it has one."""
    rows = sum(tensors.values())
    found = [Weight(f"{name}.weight", (rows, width), tensors)]
    return [*found, Weight(f"{name}.bias", (rows,), tensors, centre=0.0)] if bias else found


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
