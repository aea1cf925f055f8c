"""layernorm.cu in NumPy: who holds which number, and the order in which the sums are made."""

from typing import Any

import numpy as np

from kvlib.kernels.types import as_float, as_type
from kvlib.norms import Saved

SLICES = 8  # of a block of `gather`


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, eps: float, plan: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (T, D), weight and bias (D,)   →   y, x_hat (T, D) in x's type, inv_std (T, 1) float32."""
    rows, width = x.shape
    count = 16 // x.dtype.itemsize
    in_threads, there = _held(as_float(x), plan, count), _held(np.ones((1, width)), plan, count)
    if bias is not None:
        for _ in range(2):  # the mean, then what its rounding left
            mean = _over_block(_in_order(in_threads)) / np.float32(width)
            in_threads = np.where(there, in_threads - mean[:, None, None], in_threads)
    square = _over_block(_in_order(in_threads * in_threads)) / np.float32(width)
    scale = np.float32(1) / np.sqrt(square + np.float32(eps))
    x_hat = _rows(in_threads * scale[:, None, None], plan, count, width)
    y = x_hat * as_float(weight)
    if bias is not None:
        y = y + as_float(bias)
    return as_type(y, x.dtype), as_type(x_hat, x.dtype), scale[:, None]


def backward(
    dy: np.ndarray, saved: Saved, centre: bool, plan: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dy (T, D)   →   dx (T, D), dweight, dbias (D,) in dy's type."""
    rows, width = dy.shape
    count = 16 // dy.dtype.itemsize
    wide, x_hat = as_float(dy), as_float(saved.x_hat)
    g = wide * as_float(saved.weight)
    along = _over_block(_in_order(_held(g * x_hat, plan, count))) / np.float32(width)
    centred = g
    if centre:
        centred = g - (_over_block(_in_order(_held(g, plan, count))) / np.float32(width))[:, None]
    dx = (centred - x_hat * along[:, None]) * saved.inv_std
    sums = [_two_stages(z, plan.groups) for z in (wide * x_hat, wide)]
    return (as_type(dx, dy.dtype), *(as_type(s, dy.dtype) for s in sums))  # type: ignore[return-value]


def _held(x: np.ndarray, plan: Any, count: int) -> np.ndarray:
    """(T, D) as the threads hold it: (T, threads, PER), 0 where there is no number."""
    rows, width = x.shape
    padded = np.zeros((rows, plan.per * plan.threads), np.float32)
    padded[:, :width] = x
    vectors = padded.reshape(rows, plan.per // count, plan.threads, count)
    return vectors.transpose(0, 2, 1, 3).reshape(rows, plan.threads, plan.per)


def _rows(in_threads: np.ndarray, plan: Any, count: int, width: int) -> np.ndarray:
    """The inverse of `_held`."""
    rows = len(in_threads)
    vectors = in_threads.reshape(rows, plan.threads, plan.per // count, count).transpose(0, 2, 1, 3)
    return vectors.reshape(rows, -1)[:, :width]


def _in_order(x: np.ndarray) -> np.ndarray:
    """One thread's sum: its numbers one after the other.   (T, threads, PER)   →   (T, threads)"""
    return np.add.accumulate(x, axis=-1, dtype=np.float32)[..., -1]


def _over_block(x: np.ndarray) -> np.ndarray:
    """Lanes by shuffles, 16 apart first, then warps in their order.   (T, threads)   →   (T,)"""
    warps = x.reshape(len(x), -1, 32)
    while warps.shape[-1] > 1:
        half = warps.shape[-1] // 2
        warps = warps[..., :half] + warps[..., half:]
    return _in_order(warps[..., 0])


def _two_stages(x: np.ndarray, groups: int) -> np.ndarray:
    """Sum over rows: row r is of group r mod groups; the groups meet in SLICES slices."""
    first = [np.add.accumulate(x[g::groups], axis=0)[-1] for g in range(groups)]
    slices = [np.add.accumulate(first[s::SLICES], axis=0)[-1] for s in range(min(SLICES, groups))]
    return np.add.accumulate(slices, axis=0)[-1]
