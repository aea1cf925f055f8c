"""LayerNorm and RMSNorm: what a decoder runs, and the same with what a backward pass needs.

Mean and variance survive an offset, because x is centred before it is squared. E[x²] − E[x]² loses
all digits where the mean is large beside the deviation: two numbers of the size of mean² are
subtracted, and what remains is their rounding (Chan, Golub & LeVeque,
doi:10.1080/00031305.1983.10483115).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kvlib.arguments import check_positive, describe, number
from kvlib.arrays import Array, namespace, nbytes
from kvlib.meter import OPEN, report

# A library's product of two vectors adds in a fixed number of lanes, so the rounding of float32
# grows with the length: 6e-5 at 16 million numbers. Longer rows are added up in parts.
PART = 1 << 16

# Operations for each number of x, each sum and product counted once: what a single pass would do.
FORWARD_FLOPS = {"rms norm forward": 4, "layer norm forward": 7}


class Saved(NamedTuple):
    """All that a backward pass needs, which includes neither x nor its mean.

    x_hat    (..., D)   the normalised x, in x's dtype
    inv_std  (..., 1)   1 / √(variance + eps), or 1 / √(mean x² + eps), float32 at least
    weight   (D,)       γ, the forward's own array and not a copy

    >>> import numpy as np
    >>> _, saved = rms_norm_forward(np.ones((3, 8), np.float32), np.ones(8, np.float32))
    >>> saved.nbytes  # x_hat, and one number a row
    108
    """

    x_hat: Array
    inv_std: Array
    weight: Array

    @property
    def nbytes(self) -> int:
        """Bytes kept for the backward pass, without the weight, which is there anyway."""
        return nbytes(self.x_hat) + nbytes(self.inv_std)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / √(mean x² + eps) · weight along the last axis (arXiv:1910.07467).   x (..., D)

    >>> import numpy as np
    >>> rms_norm(np.array([[3.0, 4.0]]), np.ones(2), 1e-6).round(3)
    array([[0.849, 1.131]])
    """
    return normalised(namespace(x), x, _positive(eps))[0] * weight


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x − mean) / √(variance + eps) · weight + bias along the last axis (arXiv:1607.06450).

    >>> import numpy as np
    >>> layer_norm(np.array([[3.0, 4.0]]), np.ones(2), np.zeros(2), 1e-6).round(3)
    array([[-1.,  1.]])
    """
    return normalised(namespace(x), x, _positive(eps), centre=True)[0] * weight + bias


def rms_norm_forward(x: Array, weight: Array, eps: float = 1e-6) -> tuple[Array, Saved]:
    """`rms_norm`, and what `rms_norm_backward` needs.

    x (..., D)   weight (D,)   →   y (..., D) and Saved

    Raises ValueError naming a shape that does not fit, an empty row, or an eps whose root is no
    number; TypeError for arrays of different dtypes.

    >>> import numpy as np
    >>> y, saved = rms_norm_forward(np.array([[3.0, 4.0]]), np.ones(2))
    >>> saved.inv_std.round(3)  # 1 / √12.5
    array([[0.283]])
    """
    eps = _check(x, weight, "weight", eps)
    x_hat, root = normalised(namespace(x), x, eps)
    y = x_hat * weight
    return y, _save("rms norm forward", (x, weight), y, x_hat, root, weight)


def layer_norm_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5
) -> tuple[Array, Saved]:
    """`layer_norm`, and what `layer_norm_backward` needs.

    x (..., D)   weight, bias (D,)   →   y (..., D) and Saved

    Errors as those of `rms_norm_forward`.

    >>> import numpy as np
    >>> y, saved = layer_norm_forward(np.array([[1e8, 1e8 + 2]]), np.ones(2), np.zeros(2))
    >>> y.round(3)
    array([[-1.,  1.]])
    """
    eps = _check(x, weight, "weight", eps)
    _check(x, bias, "bias", eps)
    x_hat, root = normalised(namespace(x), x, eps, centre=True)
    y = x_hat * weight + bias
    return y, _save("layer norm forward", (x, weight, bias), y, x_hat, root, weight)


def normalised(xp: Any, x: Array, eps: float, centre: bool = False) -> tuple[Array, Array]:
    """x̂ in x's dtype (..., D), and the root that x was divided by (..., 1), float32 at least.

    eps is a Python float, because a float64 of NumPy would turn all that follows into float64.
    """
    wide = x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, xp.float32)
    if centre:
        wide = centred(xp, wide)
    root = xp.sqrt(mean_product(xp, wide, wide) + eps)
    return xp.astype(wide / root, x.dtype, copy=False), root


def _positive(eps: float) -> float:
    return eps if type(eps) is float and 0.0 <= eps < math.inf else check_positive("eps", eps)


def _save(
    label: str, inputs: tuple[Array, ...], y: Array, x_hat: Array, root: Array, weight: Array
) -> Saved:
    saved = Saved(x_hat, 1.0 / root, weight)
    if OPEN:
        flops = FORWARD_FLOPS[label] * int(y.size)
        read = sum(nbytes(a) for a in inputs)
        report(label, flops=flops, read=read, written=nbytes(y) + saved.nbytes)
    return saved


def _check(x: Array, weight: Array, name: str, eps: float) -> float:
    """eps as a Python float, after refusing arrays that do not fit."""
    xp = namespace(x, weight)
    if x.ndim < 1 or x.shape[-1] < 1:
        raise ValueError(f"x: got shape {x.shape}, needed (..., D) with at least one number a row")
    if weight.shape != (x.shape[-1],):
        raise ValueError(f"{name}: got shape {weight.shape}, needed ({x.shape[-1]},) to fit x")
    if not xp.isdtype(x.dtype, "real floating") or weight.dtype != x.dtype:
        raise TypeError(
            f"x and {name}: got {x.dtype} and {weight.dtype}, needed floating numbers of one dtype"
        )
    return _check_eps(xp, x, eps)


def _check_eps(xp: Any, x: Array, eps: float) -> float:
    """A row of equal numbers has variance 0, and only eps keeps it from being divided by 0."""
    dtype = xp.float64 if x.dtype == xp.float64 else xp.float32
    least = float(xp.finfo(dtype).smallest_normal)
    found = number(eps)
    if not least <= found < float("inf"):
        raise ValueError(
            f"eps: got {describe(eps)}, needed a number of at least {least:.3g} for {x.dtype}"
        )
    return found


def at_least_float32(xp: Any, x: Array) -> Array:
    """float16 holds nothing above 65504: the square of an activation of 256 is too large."""
    return x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, xp.float32)


def centred(xp: Any, x: Array) -> Array:
    """x − mean along the last axis.   x (..., D), float32 or float64   →   (..., D)

    The mean of numbers near 1e8 is itself rounded, in float32 to a multiple of 8. What it missed is
    the mean of the differences, and those are small: so it is taken off in a second go.
    """
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


def sum_rows(xp: Any, x: Array) -> Array:
    """Sum over all axes but the last, in two stages.   x (..., D)   →   (D,)

    One running sum over N rows makes up to N roundings in a column; √N sums of √N rows, and then
    their sum, make 2 √N. A kernel does the same, because its blocks cannot share a running sum.
    """
    x = xp.reshape(x, (-1, x.shape[-1]))
    rows, width = x.shape
    size = max(1, round(rows**0.5))
    count = rows // size
    stage = xp.reshape(x[: count * size, :], (count, size, width))
    first = xp.sum(xp.sum(stage, axis=1, dtype=x.dtype), axis=0, dtype=x.dtype)
    return first + xp.sum(x[count * size :, :], axis=0, dtype=x.dtype)
