"""Several small codes in a byte.

A vector of D codes of b bits becomes D·b/8 bytes. **Byte j holds the codes of channels j, j + n,
j + 2n, ... with n = D·b/8, the first in its lowest bits**, so unpacking writes whole stretches of
channels. Codes of 3, 5, 6 and 7 bits are split: their low 2 or 4 bits are packed first.
"""

import numpy as np

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array, namespace

WIDTHS = (2, 4, 8)  # of the codecs here
POWERS = (1, 2, 4)  # bits whose codes do not cross the border of a byte


def pack(codes: Array, bits: int) -> Array:
    """codes (..., D) uint8 below 2^bits → (..., D·bits/8) uint8; ValueError for parts of bytes.

    >>> import numpy as np
    >>> pack(np.asarray([1, 2, 3, 4], np.uint8), 4).tolist()  # 0x31, 0x42
    [49, 66]
    """
    if type(bits) is not int:
        bits = check_integer("bits", bits, least=1)
    if bits == 8:
        return codes
    low = bits
    if bits not in POWERS or codes.shape[-1] * bits % 8:
        low = _low(bits, codes.shape[-1])
    xp = np if type(codes) is np.ndarray else namespace(codes)
    if low != bits:
        rest = xp.bitwise_right_shift(codes, xp.asarray(low, dtype=xp.uint8))
        codes = codes & xp.asarray((1 << low) - 1, dtype=xp.uint8)
        return xp.concat([pack(codes, low), pack(rest, bits - low)], axis=-1)
    n = codes.shape[-1] * bits // 8
    packed = codes[..., :n]
    for i in range(1, 8 // bits):
        part = codes[..., i * n : (i + 1) * n]
        packed = packed | xp.bitwise_left_shift(part, xp.asarray(i * bits, dtype=xp.uint8))
    return packed


def unpack(packed: Array, bits: int, dtype: object) -> Array:
    """(..., D·bits/8) uint8, as `pack` gives them → codes (..., D) of `dtype`.

    >>> import numpy as np
    >>> codes = np.arange(8, dtype=np.uint8)
    >>> unpack(pack(codes, 4), 4, np.uint8)
    array([0, 1, 2, 3, 4, 5, 6, 7], dtype=uint8)
    """
    if type(bits) is not int:
        bits = check_integer("bits", bits, least=1)
    xp = np if type(packed) is np.ndarray else namespace(packed)
    if bits == 8:
        return xp.astype(packed, dtype)
    if bits not in POWERS:
        low = _low(bits, packed.shape[-1] * 8 // (bits or 1))
        n = packed.shape[-1] * low // bits
        rest = unpack(packed[..., n:], bits - low, xp.uint8)
        rest = xp.bitwise_left_shift(rest, xp.asarray(low, dtype=xp.uint8))
        return xp.astype(unpack(packed[..., :n], low, xp.uint8) | rest, dtype)
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


def _low(bits: int, codes: int) -> int:
    """The largest power of two in `bits`; ValueError if the codes do not fill whole bytes."""
    if bits not in range(1, 9) or codes * (bits & -bits) % 8:
        raise ValueError(
            "bits must be 1 ... 8 and fill whole bytes, "
            f"got {describe(bits)} bits for {codes} codes; use vectors of a multiple of 8 numbers"
        )
    return 1 << (bits.bit_length() - 1)
