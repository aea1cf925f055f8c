"""LayerNorm and RMSNorm, forward and backward, along the last axis of x (..., D).

A decoder runs :func:`rms_norm` and :func:`layer_norm`. Training also needs gradients: the
``_forward`` functions return y and exactly the arrays that the gradients need (:class:`Saved`), and
the ``_backward`` functions turn ∂loss/∂y into ∂loss/∂x and the gradients of the weights.

x is centred before it is squared: E[x²] − E[x]² loses all digits where the mean is large beside the
deviation (Chan, Golub & LeVeque, doi:10.1080/00031305.1983.10483115).

Backward, let g = dy · γ, the gradient at x̂, and r = 1/σ. The Jacobian of x̂ is symmetric:

    RMSNorm     ∂x̂/∂x = r (I − x̂ x̂ᵀ / D)
    LayerNorm   ∂x̂/∂x = r (I − 1 1ᵀ / D − x̂ x̂ᵀ / D)

because x̂ cannot change along itself nor, in LayerNorm, along 1. Both hold exactly for any eps,
which r contains. So dx is g with those directions taken out, times r, and x itself is not needed.
Ba, Kiros & Hinton, arXiv:1607.06450; Zhang & Sennrich, arXiv:1910.07467.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_positive, describe, number
from kvlib.arrays import Array, at_least_float32, namespace, nbytes
from kvlib.meter import OPEN, report
from kvlib.model.layers import mean_product, normalised

__all__ = [
    *("Saved", "layer_norm", "layer_norm_backward", "layer_norm_forward", "rms_norm"),
    *("rms_norm_backward", "rms_norm_forward", "row_differences"),
]

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
    """`rms_norm` of x (..., D) and weight (D,), and what `rms_norm_backward` needs: y and Saved.

    Raises ValueError naming a shape that does not fit, an empty row, or an eps whose root is no
    number; TypeError for arrays of different dtypes.

    >>> import numpy as np
    >>> rms_norm_forward(np.array([[3.0, 4.0]]), np.ones(2))[1].inv_std.round(3)  # 1 / √12.5
    array([[0.283]])
    """
    return _forward("rms norm forward", x, weight, None, eps)


def layer_norm_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5
) -> tuple[Array, Saved]:
    """`layer_norm`, and what `layer_norm_backward` needs: y (..., D) and Saved.

    weight, bias (D,); errors as those of `rms_norm_forward`.

    >>> import numpy as np
    >>> y, saved = layer_norm_forward(np.array([[1e8, 1e8 + 2]]), np.ones(2), np.zeros(2))
    >>> y.round(3)
    array([[-1.,  1.]])
    """
    return _forward("layer norm forward", x, weight, bias, eps)


def _positive(eps: float) -> float:
    return eps if type(eps) is float and 0.0 <= eps < math.inf else check_positive("eps", eps)


def _forward(
    label: str, x: Array, weight: Array, bias: Array | None, eps: float
) -> tuple[Array, Saved]:
    eps = _check(x, weight, "weight", eps)
    if bias is not None:
        _check(x, bias, "bias", eps)
    x_hat, root = normalised(namespace(x), x, eps, centre=bias is not None)
    y = x_hat * weight if bias is None else x_hat * weight + bias
    saved = Saved(x_hat, 1.0 / root, weight)
    if OPEN:
        read = sum(nbytes(a) for a in (x, weight, bias) if a is not None)
        flops = FORWARD_FLOPS[label] * int(y.size)
        report(label, flops=flops, read=read, written=nbytes(y) + saved.nbytes)
    return y, saved


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
    # A row of equal numbers has variance 0, and only eps keeps it from being divided by 0.
    least = float(xp.finfo(xp.float64 if x.dtype == xp.float64 else xp.float32).smallest_normal)
    value = number(eps)
    if not least <= value < math.inf:
        raise ValueError(
            f"eps: got {describe(eps)}, needed a number of at least {least:.3g} for {x.dtype}"
        )
    return value


def sum_rows(xp: Any, x: Array) -> Array:
    """x (..., D) → (D,), in two stages, whose roundings are 2 √N where one running sum has N."""
    x = xp.reshape(x, (-1, x.shape[-1]))
    rows, width = x.shape
    size = max(1, round(rows**0.5))
    count = rows // size
    stage = xp.reshape(x[: count * size, :], (count, size, width))
    first = xp.sum(xp.sum(stage, axis=1, dtype=x.dtype), axis=0, dtype=x.dtype)
    return first + xp.sum(x[count * size :, :], axis=0, dtype=x.dtype)


BACKWARD_FLOPS = {"rms norm backward": 8, "layer norm backward": 11}  # for each number of dy


def rms_norm_backward(dy: Array, saved: Saved) -> tuple[Array, Array]:
    """∂loss/∂y (..., D) and what `rms_norm_forward` saved   →   dx (..., D), dweight (D,)

    In float32 at least, returned in dy's dtype. A row's rounding error is relative to its
    inv_std · max |dy · weight|. ValueError if dy lacks x's shape, TypeError if its dtype.

    >>> import numpy as np
    >>> x, weight, dy = np.array([[3.0, 4.0]]), np.ones(2), np.array([[1.0, 0.0]])
    >>> rms_norm_backward(dy, rms_norm_forward(x, weight)[1])[0].round(3)  # nothing along x itself
    array([[ 0.181, -0.136]])
    """
    dx, dweight = _backward("rms norm backward", dy, saved, centre=False)
    return dx, dweight


def layer_norm_backward(dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """∂loss/∂y (..., D) and what `layer_norm_forward` saved   →   dx (..., D), dweight, dbias (D,)

    Rounding and errors as those of `rms_norm_backward`.

    >>> import numpy as np
    >>> x, one, dy = np.array([[1.0, 2.0, 6.0]]), np.ones(3), np.array([[1.0, 0.0, 0.0]])
    >>> dx, dweight, dbias = layer_norm_backward(dy, layer_norm_forward(x, one, one)[1])
    >>> bool(abs(dx.sum()) < 1e-9), dbias
    (True, array([1., 0., 0.]))
    """
    dx, dweight, dbias = _backward("layer norm backward", dy, saved, centre=True)
    return dx, dweight, dbias


def _backward(label: str, dy: Array, saved: Saved, centre: bool) -> tuple[Array, ...]:
    xp = namespace(dy, saved.x_hat)
    if dy.shape != saved.x_hat.shape:
        raise ValueError(f"dy: got shape {dy.shape}, needed {saved.x_hat.shape}, the shape of x")
    if dy.dtype != saved.x_hat.dtype:
        raise TypeError(f"dy: got {dy.dtype}, needed {saved.x_hat.dtype}, the dtype of x")
    wide, x_hat = at_least_float32(xp, dy), at_least_float32(xp, saved.x_hat)
    g = wide * at_least_float32(xp, saved.weight)
    along = x_hat * mean_product(xp, g, x_hat)
    centred = g - xp.mean(g, axis=-1, keepdims=True) if centre else g
    dx, dweight = (centred - along) * saved.inv_std, sum_rows(xp, wide * x_hat)
    gradients = (dx, dweight, sum_rows(xp, wide)) if centre else (dx, dweight)
    narrow = tuple(xp.astype(a, dy.dtype, copy=False) for a in gradients)
    if OPEN:
        read = nbytes(dy) + saved.nbytes + nbytes(saved.weight)
        flops = BACKWARD_FLOPS[label] * int(dy.size)
        report(label, flops=flops, read=read, written=sum(nbytes(a) for a in narrow))
    return narrow


# The five-point rule: exact for polynomials up to degree 4. Abramowitz & Stegun, formula 25.3.6.
_SHIFTS = np.asarray([-2.0, -1.0, 1.0, 2.0])
_FACTORS = np.asarray([1.0, -8.0, 8.0, -1.0]) / 12.0


def row_differences(
    function: Callable[[Any], Any],
    x: np.ndarray,
    dy: np.ndarray,
    rows: Any,
    columns: Any,
    step: float = 2.0**-10,
) -> np.ndarray:
    """∂(dy · function(x)) / ∂x at n entries of x, by differences: slow, and right for any function.

    function   (m, D) → (m, E), each row from its own row alone; called once, with all shifted rows
    x (T, D)   dy (T, E), float64   rows, columns (n,) integers   →   (n,) float64

    The error is about 1e-16 / step of rounding, and step⁴ of the rule. The step is a power of
    two, so that x + step is exact where x is large. Raises ValueError or TypeError.

    >>> x = np.array([[1.0, 2.0]])
    >>> row_differences(lambda z: z**3, x, np.ones((1, 2)), [0, 0], [0, 1]).round(9)
    array([ 3., 12.])
    """
    x, dy = np.asarray(x), np.asarray(dy)
    rows, columns = np.asarray(rows), np.asarray(columns)
    if x.dtype != np.float64 or dy.dtype != np.float64:
        raise TypeError(f"x and dy: got {x.dtype} and {dy.dtype}, needed float64")
    if x.ndim != 2 or dy.ndim != 2 or len(x) != len(dy):
        raise ValueError(f"x and dy: got shapes {x.shape} and {dy.shape}, needed (T, D) and (T, E)")
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise ValueError(
            f"rows and columns: got shapes {rows.shape} and {columns.shape}, needed one (n,) each"
        )
    if not (np.frexp(step)[0] == 0.5 and step < 1.0):
        raise ValueError(f"step: got {step}, needed a power of two below 1")
    n = rows.size
    shifted = np.repeat(x[rows][None], 4, axis=0)  # (4, n, D)
    shifted[:, np.arange(n), columns] += step * _SHIFTS[:, None]
    out = np.asarray(function(shifted.reshape(4 * n, x.shape[1])))
    if out.shape != (4 * n, dy.shape[1]):
        raise ValueError(f"function: got shape {out.shape}, needed {(4 * n, dy.shape[1])}")
    # The differences first, for y itself may be large beside them; then the weights dy.
    slope = np.tensordot(_FACTORS / step, out.reshape(4, n, -1), axes=1)  # (n, E)
    return np.vecdot(slope, dy[rows])
