"""product.cu in NumPy: the parts of x and the order in which warps' sums are added."""

from functools import reduce
from typing import Any

import numpy as np

from kvlib.kernels.types import as_float, as_type

UNIT = 64  # columns that a warp multiplies at a time


def product(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, *, norm: np.ndarray | None,
    eps: float, residual: np.ndarray | None, plan: Any,
) -> np.ndarray:  # fmt: skip
    """x (R, K), weight (N, K), or (2N, K) if the plan is gated   →   (R, N) float32"""
    if norm is not None:
        squares = reduce(np.add, (_by_warp(x, plan.warps) ** 2).sum(axis=2))
        scale = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(eps))
        x = x * as_float(norm) * scale[:, None]
    parts = [x]
    if weight.dtype != np.float32:  # two 16-bit numbers, as tensor cores take them
        first = as_float(as_type(x, weight.dtype))
        parts = [first, as_float(as_type(x - first, weight.dtype))]
    w = _by_warp(as_float(weight), plan.warps)
    out = reduce(np.add, sum(w @ _by_warp(p, plan.warps).swapaxes(1, 2) for p in parts))
    out = np.ascontiguousarray(out.T)
    if plan.gated:
        gate, up = np.split(out, 2, axis=1)
        out = gate / (np.float32(1) + np.exp2(gate * np.float32(-1.44269504))) * up
    for more in (bias, residual):
        if more is not None:
            out = out + as_float(more)
    return out


def _by_warp(x: np.ndarray, warps: int) -> np.ndarray:
    """(R, K) → (warps, R, columns): the columns that each warp multiplies, then zeros."""
    rows, width = x.shape
    padded = np.zeros((rows, -(-width // (UNIT * warps)), warps, UNIT), np.float32)
    padded.reshape(rows, -1)[:, :width] = x
    return padded.transpose(2, 0, 1, 3).reshape(warps, rows, -1)
