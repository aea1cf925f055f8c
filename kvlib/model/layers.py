"""Norms, products, activations, attention of selected rows; all keep the dtype of x."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arrays import Array, namespace, nbytes
from kvlib.caches import Cache, Step
from kvlib.meter import OPEN, report
from kvlib.model.config import ModelConfig
from kvlib.model.products import product
from kvlib.norms import normalised

TILE = 1 << 17  # numbers: an array of so many, and a few temporaries, fit the processor's cache


class Norm:
    """The norm of that name, with the weights that it finds under it: x (..., D) → (..., D).

    ``config.norm`` says which: "rms" (arXiv:1910.07467), "rms_1p" or "layer" (arXiv:1607.06450).
    """

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


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x Wᵀ + b.   x (T, in)   weight (out, in), as in checkpoints   bias (out,)   →   (T, out)

    The form of NumPy's product depends on T (`kvlib.model.products`); the sum is the same.
    """
    if OPEN:
        out, width = weight.shape
        report("linear", flops=2 * x.shape[0] * out * width, read=nbytes(weight) + nbytes(x))
    if not isinstance(x, np.ndarray):
        y = x @ weight.T
    elif x.shape[0] == 1:
        y = np.matmul(weight, x[0, :])[None, :]
    else:
        y = product(x, weight)
    if bias is not None:
        y += bias
    return y


class Selection(NamedTuple):
    """The R `rows` of a step that get logits, in the order in which they were asked for.

    step      the step as the last layer sees it: of each request the rows from its first selected
              one on, because a cache attends from the last rows of a request
    attended  the rows of that step
    places    where the selected ones are among the attended; None where both are the same
    """

    rows: list[int]
    step: Step
    attended: list[int]
    places: list[int] | None


def mix(
    cache: Cache,
    layer: int,
    q: Array,
    k: Array,
    v: Array | None,
    step: Step,
    selected: Selection | None = None,
    attend: Callable[[Cache, int, Array, Step], Any] | None = None,
) -> Array:
    """Store a step's keys and values and attend: q (T, Hq, Dk) → o (R, Hq, Dv) of `selected` rows.

    k (T, Hkv, Dk)   v (T, Hkv, Dv), or None where values are the first numbers of keys.
    attend: called in place of ``cache.run``.
    """
    cache.append(layer, k, v, step)
    places = None if selected is None else selected.places
    if selected is not None and cache.observes_queries:  # a policy wants to see all queries
        places = selected.rows
    elif selected is not None:
        q, step = take_rows(q, selected.attended), selected.step
    o = cache.run(layer, q, step) if attend is None else attend(cache, layer, q, step)
    return o if places is None else take_rows(o, places)


def take_rows(x: Array, rows: Sequence[int]) -> Array:
    """x (T, ...) → its rows (R, ...), copied."""
    xp = namespace(x)
    return xp.take(x, xp.asarray(rows, dtype=xp.int64, device=x.device), axis=0)


def by_rows(function: Callable[..., Array], x: Array, *more: Array) -> Array:
    """function(x, *more) of arrays (T, ...), about TILE numbers of x at a time if x is NumPy's.

    The function must treat each row alone: temporaries then stay in the processor's cache.
    """
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
