"""codecs.cuh in NumPy: single tokens of one head out of blocks of codes, as float32."""

from __future__ import annotations

import numpy as np

from kvlib.codecs.fp8 import table
from kvlib.codecs.packing import unpack
from kvlib.kernels.codes import Written
from kvlib.kernels.types import as_float


def read_keys(kept: Written, blocks: np.ndarray, head: int, at: np.ndarray) -> np.ndarray:
    """blocks, at (n,): where n tokens lie → (n, D) float32."""
    codes, scales, zeros = kept.k
    if kept.family != "Kivi":
        return _read(kept, codes, scales, blocks, head, at)
    assert scales is not None and zeros is not None
    group = at // kept.k_group
    scale, zero = (x[blocks, head, group].astype(np.float32) for x in (scales, zeros))
    return unpack(codes[blocks, head, at], kept.bits, np.float32) * scale + zero


def read_values(kept: Written, blocks: np.ndarray, head: int, at: np.ndarray) -> np.ndarray:
    """As ``read_keys``."""
    codes, scales, zeros = kept.v
    if kept.family != "Kivi":
        return _read(kept, codes, scales, blocks, head, at)
    assert scales is not None and zeros is not None
    scale, zero = (
        np.repeat(x[blocks, head, at].astype(np.float32), kept.v_group, axis=-1)
        for x in (scales, zeros)
    )
    return unpack(codes[blocks, head, at], kept.bits, np.float32) * scale + zero


def _read(
    kept: Written,
    codes: np.ndarray,
    scales: np.ndarray | None,
    blocks: np.ndarray,
    head: int,
    at: np.ndarray,
) -> np.ndarray:
    x = codes[blocks, head, at]
    if kept.plain:
        return as_float(x)
    if scales is None:
        return table(kept.family.lower())[x]
    return x.astype(np.float32) * scales[blocks, head, at][:, None]
