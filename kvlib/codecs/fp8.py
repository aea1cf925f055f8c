"""Eight bits, each number with an exponent, and no scale: fp8 (OCP 8-bit Floating Point, 2023).

e4m3fn reaches 448 in steps of 1/8 of a power of two and has no infinity; e5m2 reaches 57,344 in
steps of 1/4. What is beyond the largest number becomes the largest number, as in inference
engines, and not infinity or NaN.
"""

from functools import cache
from typing import Any

import numpy as np

from kvlib.arrays import Array, clipped, namespace
from kvlib.codecs.base import Codec, Encoded, Field, TensorCodec

FORMATS = {"e4m3": (3, -6, 0x7E, 0x7F), "e5m2": (2, -14, 0x7B, 0x7F)}  # mantissa, emin, max, NaN


@cache
def table(kind: str) -> np.ndarray:
    """The 256 numbers of a format by their code, float32."""
    mantissa, emin, _, _ = FORMATS[kind]
    codes = np.arange(128)
    exponent, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), exponent + emin - 1)
    small = np.ldexp(fraction / (1 << mantissa), emin)
    values = np.where(exponent == 0, small, normal)
    if kind == "e4m3":
        values[0x7F] = np.nan
    else:
        values[0x7C], values[0x7D:] = np.inf, np.nan
    return np.concatenate([values, -values]).astype(np.float32)


@cache
def _values(kind: str, xp: Any, dtype: Any, device: int | None) -> Array:
    """The table where the codes are: sent there once, not for every piece that is read."""
    return xp.asarray(table(kind), dtype=dtype)


class Fp8(TensorCodec):
    """codes uint8: sign, exponent, mantissa; ties go to the even code.

    >>> import numpy as np
    >>> Fp8("e4m3").encode(np.ones((1, 1, 2), np.float32))["codes"]
    array([[[56, 56]]], dtype=uint8)
    """

    def __init__(self, kind: str) -> None:
        if not isinstance(kind, str) or kind not in FORMATS:
            raise ValueError(f"fp8 kind must be one of {', '.join(FORMATS)}, got {kind!r}")
        self.kind = kind

    def __repr__(self) -> str:
        return f"Fp8({self.kind!r})"

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        return {"codes": Field(1, (dim,), xp.uint8)}

    def encode(self, x: Array) -> dict[str, Array]:
        xp = np if type(x) is np.ndarray else namespace(x)
        mantissa, emin, largest, nan = FORMATS[self.kind]
        x = xp.astype(x, xp.float32, copy=False)
        top = float(table(self.kind)[largest])
        size = clipped(xp, xp.abs(x), None, top)
        size = xp.where(x != x, xp.zeros_like(size), size)
        floor = xp.asarray(2.0**emin, dtype=xp.float32)
        exponent = clipped(xp, xp.floor(xp.log2(xp.maximum(size, floor))), float(emin), 16.0)
        # In steps of the last mantissa bit. A size rounded up to the next power of two carries
        # into the exponent by itself, and one below 2^emin counts from code 0.
        steps = xp.round(size * xp.pow(xp.asarray(2.0, dtype=xp.float32), mantissa - exponent))
        codes = xp.astype((exponent - emin) * (1 << mantissa) + steps, xp.uint8)
        codes = xp.where(x != x, xp.asarray(nan, dtype=xp.uint8), codes)
        sign = xp.asarray(0x80, dtype=xp.uint8)
        return {"codes": xp.where(xp.signbit(x), codes | sign, codes)}

    def decode(self, parts: Encoded, dtype: Any) -> Array:
        codes = parts["codes"]
        xp = np if type(codes) is np.ndarray else namespace(codes)
        values = _values(self.kind, xp, dtype, getattr(codes.device, "id", None))
        flat = xp.take(values, xp.astype(xp.reshape(codes, (-1,)), xp.int64), axis=0)
        return xp.reshape(flat, codes.shape)


def fp8(kind: str = "e4m3") -> Codec:
    """fp8 without scales: 8 bits per number; kind "e4m3" or "e5m2".

    >>> import numpy as np
    >>> keys, x = fp8("e4m3").keys, np.array([[[0.1, 1.0, 1000.0]]], np.float32)
    >>> keys.decode(keys.encode(x), np.float32)[0, 0].tolist()  # 448 is the largest
    [0.1015625, 1.0, 448.0]
    """
    return Codec(f"fp8 {kind}", Fp8(kind), Fp8(kind))
