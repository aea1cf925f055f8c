"""Oracles of the norms in float64: two ways to a gradient, neither of which is kvlib's formula.

A LayerNorm does not see an offset, so each row's first number is taken off first, exactly.
"""

from typing import NamedTuple

import numpy as np


class Gradients(NamedTuple):
    dx: np.ndarray
    dweight: np.ndarray
    dbias: np.ndarray


def forward(x, weight, bias, eps, centre):
    """x (..., D), real or complex. Plain NumPy, and analytic, so that a complex step works."""
    if centre:
        x = x - x[..., :1].real
        x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight + bias


def complex_step(x, weight, bias, eps, centre, dy, h=1e-30):
    """∂(dy · y) by complex steps (Squire & Trapp, doi:10.1137/S003614459631241X)."""
    width = x.shape[1]
    steps = 1j * h * np.eye(width)
    y = forward(x[:, None] + steps, weight, bias, eps, centre)  # (T, D, D): row, shifted, out
    dx = np.vecdot(np.broadcast_to(dy[:, None], y.shape), y.imag) / h
    by_weight = forward(x, weight + steps[:, None], bias, eps, centre)  # (D, T, D)
    by_bias = forward(x, weight, bias + steps[:, None], eps, centre)
    return Gradients(dx, *((dy * y.imag).sum(axis=(1, 2)) / h for y in (by_weight, by_bias)))


def chain_rule(x, weight, eps, centre, dy):
    """One operation at a time, last to first, each with the derivative that a table gives it."""
    width = x.shape[1]
    c = x
    if centre:
        c = x - x[:, :1]
        c = c - c.mean(axis=1, keepdims=True)
    s = np.sqrt((c * c).mean(axis=1, keepdims=True) + eps)
    x_hat = c / s  # y = x_hat * weight + bias
    dx_hat = dy * weight
    dc = dx_hat / s  # x_hat = c / s, as a function of c
    ds = -(dx_hat * c).sum(axis=1, keepdims=True) / s**2  # and of s
    dv = ds / (2 * s)  # s = √(v + eps)
    dc = dc + dv * 2 * c / width  # v = mean of c²
    dx = dc - dc.mean(axis=1, keepdims=True) if centre else dc  # c = x − mean x
    return Gradients(dx, (dy * x_hat).sum(axis=0), dy.sum(axis=0))
