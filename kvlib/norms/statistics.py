"""Mean and variance that survive an offset: centre first, square afterwards.

E[x²] − E[x]² loses all digits where the mean is large beside the deviation: two numbers of the
size of mean² are subtracted, and what is left is their rounding. Subtracting the mean first costs
a second pass over the row and loses nothing. Chan, Golub & LeVeque,
doi:10.1080/00031305.1983.10483115. The functions are handed x's namespace, as a decoder calls them
for every layer of every step.
"""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array

# A library's product of two vectors adds in a fixed number of lanes, so the rounding of float32
# grows with the length: 6e-5 at 16 million numbers. Longer rows are added up in parts.
PART = 1 << 16


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
