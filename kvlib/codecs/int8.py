"""int8 with one scale a vector: a quarter of float32, and nearly free to read.

The scale folds into what is multiplied anyway: q · (codes · scale) = (q · codes) · scale, and
p · (codes · scale) = (p · scale) · codes, so attention widens the codes, and decodes no vector.
"""

from typing import Any

import numpy as np

from kvlib import blas
from kvlib.arrays import Array, namespace
from kvlib.codecs.base import Codec, Encoded, Field, TensorCodec, narrowed, working

SMALLEST = float(np.finfo(np.float32).smallest_normal)


class Int8(TensorCodec):
    """codes int8 = round(x / scale), scale = max |x| / 127 of each token and head (float32).

    Rounding moves a finite number by at most half a scale.

    >>> import numpy as np
    >>> Int8().encode(np.ones((1, 2, 8), np.float32))["scales"].shape
    (1, 2)
    """

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        scales = Field(1, (), xp.float32, payload=False)
        return {"codes": Field(1, (dim,), xp.int8), "scales": scales}

    def encode(self, x: Array) -> dict[str, Array]:
        xp = np if type(x) is np.ndarray else namespace(x)
        x = xp.astype(x, xp.float32, copy=False)
        top = xp.max(xp.abs(x), axis=-1)
        # Never below the smallest normal number: zero would divide zero by zero, and a subnormal
        # scale has too few bits left to be one 127th of anything.
        scales = xp.maximum(top / 127, SMALLEST)
        # A finite x is at most 127 scales, but for the last bit, so no code leaves int8.
        return {"codes": xp.astype(xp.round(x / scales[..., None]), xp.int8), "scales": scales}

    def decode(self, parts: Encoded, dtype: Any) -> Array:
        xp = np if type(parts["codes"]) is np.ndarray else namespace(parts["codes"])
        wide = working(xp, dtype)
        x = xp.astype(parts["codes"], wide)
        x *= xp.astype(parts["scales"], wide, copy=False)[..., None]
        return narrowed(xp, x, dtype)

    def scores(self, rows: Array, parts: Encoded) -> Array:
        xp = np if type(rows) is np.ndarray else namespace(rows)
        s = blas.scores(xp, rows, xp.astype(parts["codes"], rows.dtype))
        scales = parts["scales"]
        if scales.dtype != rows.dtype:
            scales = xp.astype(scales, rows.dtype)
        s *= scales[:, None, :]
        return s

    def weigh(self, p: Array, parts: Encoded, dim: int) -> Array:
        xp = np if type(p) is np.ndarray else namespace(p)
        scales = parts["scales"]
        if scales.dtype != p.dtype:
            scales = xp.astype(scales, p.dtype)
        p = p * scales[:, None, :]
        return blas.weigh(xp, p, xp.astype(parts["codes"][..., :dim], p.dtype))


def int8(residual: int = 0) -> Codec:
    """int8 codes with one float32 scale for each token and head: 8 + 32/D bits per number.

    >>> int8().name
    'int8'
    """
    return Codec("int8", Int8(), Int8(), residual)
