"""The array library in use, and a few helpers that the array API standard lacks.

Functions ask their arrays for the library (`namespace`); only code that creates arrays without any
asks `default_namespace`.
"""

import importlib.util
import math
import os
import sys
import warnings
from functools import cache
from typing import Any

import array_api_compat
import numpy as np

from kvlib import devices
from kvlib.arguments import type_of

Array = Any  # numpy.ndarray, cupy.ndarray or array_api_strict.Array; the standard has no base class

_NAMESPACES: dict[type, Any] = {np.ndarray: np}


def namespace(*arrays: Array) -> Any:
    """Return the array library of all ``arrays``; TypeError for several libraries or no arrays."""
    if len(arrays) == 1 and type(arrays[0]) in _NAMESPACES:
        return _NAMESPACES[type(arrays[0])]
    kinds = {type(x) for x in arrays}
    if len(kinds) == 1:
        xp = _NAMESPACES.get(next(iter(kinds)))
        if xp is not None:
            return xp
    for x in arrays:
        refuse_mask("an array", x)
    if kinds and all(issubclass(kind, np.ndarray) for kind in kinds):
        return np  # memory-mapped files beside arrays
    if len(kinds) != 1:
        names = sorted(k.__module__.split(".")[0] + "." + k.__name__ for k in kinds)
        raise TypeError(f"arrays of one library needed, got {', '.join(names) or 'none'}")
    try:
        xp = array_api_compat.array_namespace(arrays[0])
    except TypeError:
        raise TypeError(f"arrays needed, got {type_of(arrays[0])}: use np.asarray") from None
    _NAMESPACES[kinds.pop()] = xp
    return xp


def refuse_mask(name: str, x: Any) -> None:
    """Raise TypeError for NumPy's arrays with a mask: products would read what the mask hides."""
    ma = sys.modules.get("numpy.ma")  # None if nobody has imported it
    if isinstance(x, np.matrix) or (ma is not None and isinstance(x, ma.MaskedArray)):
        raise TypeError(f"{name} must be a plain array, got a {type(x).__name__}: use np.asarray")


def default_namespace() -> Any:
    """Return the library for new arrays: NumPy, or CuPy where it can compute on a device.

    The environment variable KVLIB_BACKEND (``numpy`` or ``cupy``) decides if it is set: ValueError
    for another value, ImportError for a CuPy that cannot compute, and a warning of a card unused.
    """
    backend = os.environ.get("KVLIB_BACKEND", "")
    if backend not in ("", "numpy", "cupy"):
        raise ValueError(f"KVLIB_BACKEND must be 'numpy' or 'cupy', got {backend!r}")
    if backend == "numpy" or (not backend and not devices.node_exists()):
        return np
    if backend == "" and importlib.util.find_spec("cupy") is None:
        return np  # a card that nobody has asked for
    reason = _trouble()
    if reason and backend == "cupy":
        raise ImportError(f"KVLIB_BACKEND=cupy, but {reason}")
    if reason:
        warnings.warn(f"kvlib computes with NumPy: {reason}", RuntimeWarning, stacklevel=2)
        return np
    import array_api_compat.cupy as cp

    return cp


@cache
def _trouble() -> str:
    return devices.trouble()


def is_numpy(xp: Any) -> bool:
    """Whether ``xp`` is NumPy, for which some fast paths are made."""
    return xp is np


def to_numpy(x: Array) -> np.ndarray:
    """``x`` as a NumPy array on the host (a copy from a device, else a view)."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "get"):  # CuPy
        return x.get()
    return np.asarray(x)


def new_array(xp: Any, what: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """An unwritten array; MemoryError that names the bytes if there is no room for it."""
    try:
        return xp.empty(shape, dtype=dtype)
    except (MemoryError, ValueError, OverflowError):
        each = itemsize(xp, xp.empty((0,), dtype=dtype).dtype)
        sizes = " x ".join(f"{n:,}" for n in shape)
        raise MemoryError(
            f"{what}: {math.prod(shape) * each:,} bytes are needed ({sizes} numbers of {each} "
            f"byte{'s' * (each > 1)}), and so much memory cannot be allocated"
        ) from None


def nbytes(x: Array) -> int:
    """Bytes of the elements of ``x``: shape times item size."""
    if isinstance(x, np.ndarray):
        return x.nbytes
    return int(x.size) * itemsize(namespace(x), x.dtype)


def kv_nbytes(k: Array, v: Array) -> int:
    """Bytes of keys and values; values that are the first numbers of the keys add none."""
    part = v.shape[-1] < k.shape[-1] and _start(k) == _start(v)
    return nbytes(k) if part else nbytes(k) + nbytes(v)


def _start(x: Any) -> int:
    """The address of an array, or its id if its library does not say."""
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    pointer = getattr(getattr(x, "data", None), "ptr", None)
    return id(x) if pointer is None else int(pointer)


def itemsize(xp: Any, dtype: Any) -> int:
    """Bytes of one element of ``dtype``; float32 is 4, a boolean 1."""
    size = getattr(dtype, "itemsize", None)
    if isinstance(size, int):  # of the class np.float32 it is a descriptor
        return size
    if xp.isdtype(dtype, "bool"):
        return 1
    info = xp.iinfo if xp.isdtype(dtype, "integral") else xp.finfo
    return int(info(dtype).bits) // 8


def has_views(xp: Any) -> bool:
    """Whether slices of this library's arrays are views that can be read as another dtype."""
    return hasattr(xp.empty((0,)), "view")


def bits_as(xp: Any, x: Array, dtype: str) -> Array:
    """The same bytes as numbers of another dtype of the same size; float32 as "uint32"."""
    if has_views(xp):
        return x.view(getattr(xp, dtype))
    return xp.asarray(to_numpy(x).view(dtype))


def at_least_float32(xp: Any, x: Array) -> Array:
    """``x``, or ``x`` in float32 where its dtype is narrower: what to compute in."""
    return x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, xp.float32)


def clipped(xp: Any, x: Array, low: float | None, high: float | None = None) -> Array:
    """``x`` bounded by two numbers; NaN stays NaN. CuPy's ``clip`` waits for the device."""
    if xp is np:
        return xp.clip(x, low, high)
    x = x if low is None else xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)
