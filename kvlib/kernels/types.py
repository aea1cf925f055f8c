"""Number types: their name in CUDA, and the arrays that hold them.

NumPy and CuPy have no bfloat16; an array of uint16 is taken for its bits.
"""

from typing import Any

import numpy as np

from kvlib.model.safetensors import widen_bfloat16

CTYPES = {"float32": "float", "float16": "Half", "uint16": "BFloat16"}
HEAD_DIMS = (64, 96, 128, 256)
LOG2E = 1.4426950408889634


def ctype(x: Any, name: str) -> str:
    """The C type of an array's numbers. Raises TypeError for others than three."""
    name_in_c = CTYPES.get(np.dtype(x.dtype).name)
    if name_in_c is None:
        raise TypeError(
            f"{name} must be float32, float16 or uint16 (the bits of bfloat16), got {x.dtype}"
        )
    return name_in_c


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16 (nearest, ties to even) as uint16 bits; NaN stays NaN."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FFF), rounded).astype(np.uint16)


def as_float(x: np.ndarray) -> np.ndarray:
    """A host array of one of the three types as float32."""
    return widen_bfloat16(x) if x.dtype == np.uint16 else x.astype(np.float32)


def as_type(x: np.ndarray, dtype: Any) -> np.ndarray:
    """float32 numbers in one of the three types."""
    return to_bfloat16(x) if dtype == np.uint16 else x.astype(dtype)
