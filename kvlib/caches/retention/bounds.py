"""The largest and smallest numbers of the keys in each page of a layer, for Quest."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace, nbytes, new_array
from kvlib.attention.partials import as_dtype


class Bounds:
    """The largest keys of each page, then the smallest, elementwise: array (pages, Hkv, 2 · Dk).

    fresh: (pages,) bool, False where a page's keys may have changed.
    """

    def __init__(self, xp: Any, pages: int, heads: int, dim: int, dtype: Any) -> None:
        what = "the bounds of the blocks of one layer"
        self.array = new_array(xp, what, (pages, heads, 2 * dim), dtype)
        self.fresh = np.zeros(pages, dtype=bool)

    def nbytes(self, pages: int) -> int:
        """Return the bytes of so many pages' bounds."""
        return nbytes(self.array) // len(self.fresh) * pages

    def compute(self, pages: np.ndarray, keys: Array) -> None:
        """Compute the bounds of n pages from all of their keys (Hkv, n, size, Dk)."""
        bounds = bounds_of(keys)
        for n, page in enumerate(pages.tolist()):
            self.array[page, :, :] = bounds[:, n, :]
        self.fresh[pages] = True


def bounds_of(keys: Array) -> Array:
    """Return the bounds (Hkv, n, 2 · Dk) of the keys (Hkv, n, size, Dk) of n pages."""
    xp = namespace(keys)
    return xp.concat([xp.max(keys, axis=2), xp.min(keys, axis=2)], axis=-1)


def page_scores(rows: Array, bounds: Array) -> Array:
    """Return scores (Hkv, n) that no key exceeds: rows (Hkv, G, Dk), bounds (n, Hkv, 2 · Dk).

    Σ_d max(q_d max_d, q_d min_d) is at least q·k for each key k; the mean over G query heads.
    """
    xp = namespace(rows)
    zero = xp.zeros((), dtype=rows.dtype, device=rows.device)
    signs = [xp.where(rows > 0, rows, zero), xp.where(rows > 0, zero, rows)]
    wide = xp.mean(xp.concat(signs, axis=-1), axis=1)  # (Hkv, 2 · Dk)
    heads_first = xp.permute_dims(as_dtype(xp, bounds, rows.dtype), (1, 0, 2))
    return xp.matmul(heads_first, wide[:, :, None])[:, :, 0]
