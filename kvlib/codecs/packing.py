"""Several small codes in a byte.

A vector of D codes of b bits becomes D·b/8 bytes. **Byte j holds the codes of channels j, j + n,
j + 2n, ... with n = D·b/8, the first in its lowest bits.** So unpacking writes whole stretches of
channels, not every second one. (Many formats put neighbours into one byte instead; a reader who
takes one order for the other gets plausible nonsense.)
"""

from __future__ import annotations

import numpy as np

from kvlib.arrays import Array, namespace

WIDTHS = (2, 4, 8)


def pack(codes: Array, bits: int) -> Array:
    """codes (..., D) uint8 below 2^bits → (..., D·bits/8) uint8."""
    if bits == 8:
        return codes
    xp = np if type(codes) is np.ndarray else namespace(codes)
    n = codes.shape[-1] * bits // 8
    packed = codes[..., :n]
    for i in range(1, 8 // bits):
        part = codes[..., i * n : (i + 1) * n]
        packed = packed | xp.bitwise_left_shift(part, xp.asarray(i * bits, dtype=xp.uint8))
    return packed


def unpack(packed: Array, bits: int, dtype: object) -> Array:
    """(..., D·bits/8) uint8 → (..., D) of `dtype`."""
    xp = np if type(packed) is np.ndarray else namespace(packed)
    if bits == 8:
        return xp.astype(packed, dtype)
    n, fold = packed.shape[-1], 8 // bits
    mask = xp.asarray((1 << bits) - 1, dtype=xp.uint8)
    codes = xp.empty((*packed.shape[:-1], n * fold), dtype=dtype)
    for i in range(fold):
        part = packed
        if i:
            part = xp.bitwise_right_shift(packed, xp.asarray(i * bits, dtype=xp.uint8))
        if i < fold - 1:
            part = part & mask
        # NumPy widens while it writes; the standard wants an array of the right dtype first.
        codes[..., i * n : (i + 1) * n] = part if xp is np else xp.astype(part, dtype)
    return codes
