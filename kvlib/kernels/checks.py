"""What is refused before a launch: a kernel that reads past an array does not say so."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace

SIZES = dict[str, int]


def check_shape(name: str, x: Array, wanted: str, sizes: SIZES) -> None:
    """x has the shape `wanted` ("B Hq D"); letters already in `sizes` must agree, others are noted.

    Raises ValueError naming the array, its shape and the letter that does not fit, and for an array
    that does not lie in one piece.
    """
    letters = wanted.split()
    fits = x.ndim == len(letters)
    if fits:
        for letter, n in zip(letters, x.shape, strict=True):
            fits = fits and sizes.setdefault(letter, int(n)) == n
    if not fits:
        known = ", ".join(f"{k}={sizes[k]}" for k in letters if k in sizes)
        raise ValueError(f"{name} must be ({', '.join(letters)}) with {known}, got shape {x.shape}")
    if not x.flags.c_contiguous:
        raise ValueError(
            f"{name} must lie in one piece (C order), got strides {x.strides}; pass a copy"
        )


def check_dtype(name: str, x: Array, *wanted: str) -> None:
    """Raises TypeError naming the array and its dtype."""
    if np.dtype(x.dtype).name not in wanted:
        raise TypeError(f"{name} must be {' or '.join(wanted)}, got {x.dtype}")


def check_together(**arrays: Array) -> Any:
    """All arrays are of one library; gives it. Raises TypeError otherwise."""
    return namespace(*arrays.values())


def looks(x: Array) -> bool:
    """Whether the numbers of an index array are looked at: on the host always, on a device only
    where KVLIB_CHECK is set, for they have to be copied back."""
    return isinstance(x, np.ndarray) or bool(os.environ.get("KVLIB_CHECK"))


def check_range(name: str, x: Array, low: int, high: int) -> None:
    """Numbers of an index array lie in low ... high.

    A host array is looked at; an array on a device only where KVLIB_CHECK is set, for the answer
    has to be copied back. Raises ValueError with the worst number and where it stands.
    """
    if not looks(x) or x.size == 0:
        return
    smallest, largest = int(x.min()), int(x.max())
    if smallest < low or largest > high:
        worst = smallest if smallest < low else largest
        raise ValueError(f"{name} must lie in {low} ... {high}, got {worst}")


def power_of_two(name: str, n: int) -> int:
    """log2 of n. Raises ValueError where n is not a power of two."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"{name} must be a power of two (positions are split by shifts), got {n}")
    return n.bit_length() - 1
