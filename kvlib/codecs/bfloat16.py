"""bfloat16: the upper half of a float32, 8 bits of exponent and 7 of mantissa, and no scale.

Neither NumPy nor the array API standard has it (CuPy has, beside ml_dtypes, as an experiment), so a
cache keeps the bits in uint16. They are what kernels, safetensors files and other libraries call
bfloat16. Kalamkar et al., arXiv:1905.12322.
"""

from typing import Any

import numpy as np

from kvlib.arrays import Array, bits_as, namespace
from kvlib.codecs.base import Codec, Encoded, Field, TensorCodec, narrowed, working

QUIET_NAN = 0x7FC0


class BFloat16(TensorCodec):
    """codes uint16: the nearest bfloat16, ties to the even one; infinity beyond 3.39e38.

    >>> import numpy as np
    >>> BFloat16().encode(np.ones((1, 1, 2), np.float32))["codes"]
    array([[[16256, 16256]]], dtype=uint16)
    """

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        return {"codes": Field(1, (dim,), xp.uint16)}

    def encode(self, x: Array) -> dict[str, Array]:
        xp = np if type(x) is np.ndarray else namespace(x)
        x = xp.astype(x, xp.float32, copy=False)
        bits = bits_as(xp, x, "uint32")
        # Half a last place less one, and one more where the place before it is odd: a tie goes to
        # the even neighbour. A carry into the exponent is the next power of two.
        codes = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        nan = xp.asarray(QUIET_NAN, dtype=xp.uint32)  # rounding might make infinity of one
        return {"codes": xp.astype(xp.where(x != x, nan, codes), xp.uint16)}

    def decode(self, parts: Encoded, dtype: Any) -> Array:
        codes = parts["codes"]
        xp = np if type(codes) is np.ndarray else namespace(codes)
        x = bits_as(xp, xp.astype(codes, xp.uint32) << 16, "float32")
        return narrowed(xp, xp.astype(x, working(xp, dtype), copy=False), dtype)


def bfloat16() -> Codec:
    """bfloat16: 16 bits per number, the range of float32, 3 decimal digits.

    >>> bfloat16().name
    'bfloat16'
    """
    return Codec("bfloat16", BFloat16(), BFloat16())
