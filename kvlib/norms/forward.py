"""LayerNorm and RMSNorm: what a decoder runs, and the same with what a backward pass needs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kvlib.arguments import check_positive, describe, number
from kvlib.arrays import Array, namespace, nbytes
from kvlib.meter import counting, report
from kvlib.norms.statistics import at_least_float32, centred, mean_product

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
    return _normalised(x, eps)[0] * weight


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x − mean) / √(variance + eps) · weight + bias along the last axis (arXiv:1607.06450).

    >>> import numpy as np
    >>> layer_norm(np.array([[3.0, 4.0]]), np.ones(2), np.zeros(2), 1e-6).round(3)
    array([[-1.,  1.]])
    """
    return _normalised(x, eps, centre=True)[0] * weight + bias


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
    x_hat, root = _normalised(x, eps)
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
    x_hat, root = _normalised(x, eps, centre=True)
    y = x_hat * weight + bias
    return y, _save("layer norm forward", (x, weight, bias), y, x_hat, root, weight)


def _normalised(x: Array, eps: float, centre: bool = False) -> tuple[Array, Array]:
    """x̂ in x's dtype (..., D), and the root that x was divided by (..., 1), float32 at least."""
    xp = namespace(x)
    # A float64 of NumPy would turn all that follows into float64.
    if type(eps) is not float or not 0.0 <= eps < math.inf:
        eps = check_positive("eps", eps)
    wide = at_least_float32(xp, x)
    if centre:
        wide = centred(xp, wide)
    root = xp.sqrt(mean_product(xp, wide, wide) + eps)
    return xp.astype(wide / root, x.dtype, copy=False), root


def _save(
    label: str, inputs: tuple[Array, ...], y: Array, x_hat: Array, root: Array, weight: Array
) -> Saved:
    saved = Saved(x_hat, 1.0 / root, weight)
    if counting():
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
