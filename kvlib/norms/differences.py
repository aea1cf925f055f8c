"""Gradients by differences: slow, and right for any function. To check those by formula.

One call of the function sees every shifted row, so a check of a thousand entries is one array
operation and not a loop. Rows are independent in a norm: a spot check of a large tensor takes the
rows it asks about and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
    """∂(dy · function(x)) / ∂x at n entries of x, by differences.

    function   (m, D) → (m, E), each row from its own row alone
    x (T, D)   dy (T, E), float64   rows, columns (n,) integers   →   (n,) float64

    Rounding contributes an error of about 1e-16 / step, and the five-point rule one of about step⁴.
    The step is a power of two, so that x + step is exact where x is large. Raises ValueError or
    TypeError, saying what came and what was needed.

    >>> x = np.array([[1.0, 2.0]])
    >>> row_differences(lambda z: z**3, x, np.ones((1, 2)), [0, 0], [0, 1]).round(9)
    array([ 3., 12.])
    """
    x, dy = np.asarray(x), np.asarray(dy)
    rows, columns = np.asarray(rows), np.asarray(columns)
    _check(x, dy, rows, columns, step)
    n = rows.size
    shifted = np.repeat(x[rows][None], 4, axis=0)  # (4, n, D)
    shifted[:, np.arange(n), columns] += step * _SHIFTS[:, None]
    out = np.asarray(function(shifted.reshape(4 * n, x.shape[1])))
    if out.shape != (4 * n, dy.shape[1]):
        raise ValueError(f"function: got shape {out.shape}, needed {(4 * n, dy.shape[1])}")
    # The differences first, for y itself may be large beside them; then the weights dy.
    slope = np.tensordot(_FACTORS / step, out.reshape(4, n, -1), axes=1)  # (n, E)
    return np.vecdot(slope, dy[rows])


def _check(x: Any, dy: Any, rows: Any, columns: Any, step: float) -> None:
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
