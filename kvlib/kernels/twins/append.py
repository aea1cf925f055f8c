"""append.cu in NumPy: rows, or whole groups of rows, each encoded and put where its slot is."""

from __future__ import annotations

import numpy as np

from kvlib.kernels.codes import Codes
from kvlib.kernels.types import as_float, as_type


def scatter(x: np.ndarray, blocks: np.ndarray | Codes, slots: np.ndarray) -> None:
    """x (T, Hkv, D) into blocks (N, Hkv, P, D), or into their codes, by slots (T,)."""
    kept = np.flatnonzero(slots >= 0)
    if not isinstance(blocks, Codes):
        size = blocks.shape[2]
        rows = x[kept]
        if x.dtype != blocks.dtype:
            rows = as_type(as_float(rows), blocks.dtype)
        blocks[slots[kept] // size, :, slots[kept] % size] = rows
        return
    size = blocks.codes.shape[2]
    group = blocks.codec.group  # rows that are encoded together, which lie in one block
    for first in kept[::group]:
        fields = blocks.codec.encode(as_float(x[first : first + group]).transpose(1, 0, 2))
        block, at = divmod(int(slots[first]), size)
        for name, part in fields.items():
            whole = getattr(blocks, name)
            entry = at * whole.shape[2] // size
            whole[block, :, entry : entry + part.shape[1]] = part
