"""The way back through LayerNorm and RMSNorm.

Let g = dy · γ, the gradient at x̂, and r = 1/σ. The Jacobian of x̂ is symmetric:

    RMSNorm     ∂x̂/∂x = r (I − x̂ x̂ᵀ / D)
    LayerNorm   ∂x̂/∂x = r (I − 1 1ᵀ / D − x̂ x̂ᵀ / D)

because x̂ cannot change along itself (r takes it back) nor, in LayerNorm, along 1 (the mean does).
Both hold exactly for any eps: r already contains it. So dx is g with those two directions taken
out, times r, and x itself is not needed. Ba, Kiros & Hinton, arXiv:1607.06450; Zhang & Sennrich,
arXiv:1910.07467.
"""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array, namespace, nbytes
from kvlib.meter import counting, report
from kvlib.norms.forward import Saved, at_least_float32, mean_product, sum_rows

BACKWARD_FLOPS = {"rms norm backward": 8, "layer norm backward": 11}  # for each number of dy


def rms_norm_backward(dy: Array, saved: Saved) -> tuple[Array, Array]:
    """∂loss/∂y (..., D) and what `rms_norm_forward` saved   →   dx (..., D), dweight (D,)

    Computed in float32 at least, returned in dy's dtype. In each row, the rounding error is
    relative to inv_std · max |dy · weight|, so a component of dx that is far smaller has fewer
    correct digits. ValueError if dy does not have x's shape, TypeError if it does not have its
    dtype.

    >>> import numpy as np
    >>> from kvlib.norms import rms_norm_forward
    >>> x, weight, dy = np.array([[3.0, 4.0]]), np.ones(2), np.array([[1.0, 0.0]])
    >>> dx, dweight = rms_norm_backward(dy, rms_norm_forward(x, weight)[1])
    >>> dx.round(3), bool(abs((dx * x).sum()) < 1e-6)  # nothing along x itself
    (array([[ 0.181, -0.136]]), True)
    """
    xp = _checked(dy, saved)
    wide, x_hat, g = _gradients(xp, dy, saved)
    dx = (g - x_hat * mean_product(xp, g, x_hat)) * saved.inv_std
    dx, dweight = _finish("rms norm backward", xp, dy, saved, (dx, sum_rows(xp, wide * x_hat)))
    return dx, dweight


def layer_norm_backward(dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """∂loss/∂y (..., D) and what `layer_norm_forward` saved   →   dx (..., D), dweight, dbias (D,)

    Rounding and errors as those of `rms_norm_backward`.

    >>> import numpy as np
    >>> from kvlib.norms import layer_norm_forward
    >>> x, one, dy = np.array([[1.0, 2.0, 6.0]]), np.ones(3), np.array([[1.0, 0.0, 0.0]])
    >>> dx, dweight, dbias = layer_norm_backward(dy, layer_norm_forward(x, one, one)[1])
    >>> bool(abs(dx.sum()) < 1e-9), dbias
    (True, array([1., 0., 0.]))
    """
    xp = _checked(dy, saved)
    wide, x_hat, g = _gradients(xp, dy, saved)
    mean = xp.mean(g, axis=-1, keepdims=True)
    dx = ((g - mean) - x_hat * mean_product(xp, g, x_hat)) * saved.inv_std
    found = (dx, sum_rows(xp, wide * x_hat), sum_rows(xp, wide))
    dx, dweight, dbias = _finish("layer norm backward", xp, dy, saved, found)
    return dx, dweight, dbias


def _gradients(xp: Any, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
    """dy, x̂ and g = dy · γ, each in float32 at least."""
    wide, x_hat = at_least_float32(xp, dy), at_least_float32(xp, saved.x_hat)
    return wide, x_hat, wide * at_least_float32(xp, saved.weight)


def _finish(
    label: str, xp: Any, dy: Array, saved: Saved, found: tuple[Array, ...]
) -> tuple[Array, ...]:
    narrow = tuple(xp.astype(a, dy.dtype, copy=False) for a in found)
    if counting():
        read = nbytes(dy) + saved.nbytes + nbytes(saved.weight)
        flops = BACKWARD_FLOPS[label] * int(dy.size)
        report(label, flops=flops, read=read, written=sum(nbytes(a) for a in narrow))
    return narrow


def _checked(dy: Array, saved: Saved) -> Any:
    xp = namespace(dy, saved.x_hat)
    if dy.shape != saved.x_hat.shape:
        raise ValueError(f"dy: got shape {dy.shape}, needed {saved.x_hat.shape}, the shape of x")
    if dy.dtype != saved.x_hat.dtype:
        raise TypeError(f"dy: got {dy.dtype}, needed {saved.x_hat.dtype}, the dtype of x")
    return xp
