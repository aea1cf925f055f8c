"""product.cu in NumPy: the parts of x and the order in which warps' sums are added."""

from typing import Any

import numpy as np

from kvlib.kernels.types import as_float, as_type

UNIT = 64  # columns that a warp multiplies at a time


def product(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, *, norm: np.ndarray | None,
    eps: float, residual: np.ndarray | None, plan: Any,
) -> np.ndarray:  # fmt: skip
    """x (R, K), weight (N, K), or (2N, K) if the plan is gated   →   (R, N) float32"""
    warp_of = np.arange(x.shape[1]) // UNIT % plan.warps
    columns = [np.flatnonzero(warp_of == w) for w in range(plan.warps)]
    if norm is not None:
        squares = _in_order([(x[:, c] * x[:, c]).sum(axis=1) for c in columns])
        scale = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(eps))
        x = x * as_float(norm) * scale[:, None]
    parts = [x]
    if weight.dtype != np.float32:  # two 16-bit numbers, as tensor cores take them
        first = as_float(as_type(x, weight.dtype))
        parts = [first, as_float(as_type(x - first, weight.dtype))]
    w = as_float(weight).T
    out = _in_order([_in_order([p[:, c] @ w[c] for p in parts]) for c in columns])
    if plan.gated:
        gate, up = np.split(out, 2, axis=1)
        out = gate / (np.float32(1) + np.exp2(gate * np.float32(-1.44269504))) * up
    for more in (bias, residual):
        if more is not None:
            out = out + as_float(more)
    return out


def _in_order(sums: list[np.ndarray]) -> np.ndarray:
    return np.add.accumulate(sums, axis=0, dtype=np.float32)[-1]
