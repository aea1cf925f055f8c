"""A stand-in for CuPy that computes with NumPy, for machines without a graphics card.

* NumPy arrays are refused where CuPy refuses them (arithmetic, assignment to slices, `np.asarray`).
  What CuPy copies without a word is counted: `copies.to_host` for `get`, `item`, `tolist`, `int`,
  `float`, `bool`, printing, boolean masks and `nonzero`, `copies.to_device` for arrays and lists
  given to `asarray` or used as an index.
* A number taken out of an array is an array of no dimensions, and stays on the device.
* A call must fit the signature of the function of the same name in array_api_compat.cupy, where
  CuPy is installed; what array-api-compat wraps in a way that copies (clip) is the same wrapper.
* Its memory is not the host's: tracemalloc does not count it, and peaks are those of the host since
  the last array was made.

It does not show speed, the order of a device's sums, streams or out-of-range indices.
"""

import importlib
import inspect
import sys
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from array_api_compat.common import _aliases
from device_array import DEVICE, copies, library, ndarray, unwrapped, wrapped

from kvlib import arrays

try:
    _cupy: Any = importlib.import_module("array_api_compat.cupy")
except (ImportError, OSError):  # it keeps kernels at home, and there may be no home to write to;
    # signatures are then not checked
    _cupy = None

# The size of the result depends on the numbers, and CuPy waits for it.
SIZED = ("nonzero", "flatnonzero", "argwhere", "unique", "extract", "compress", "trim_zeros")


@cache
def _fits(name: str, positional: int, names: tuple[str, ...]) -> None:
    """TypeError where CuPy's function of that name does not take so many arguments, so named."""
    function = getattr(_cupy, name, None)
    if function is None or isinstance(function, type):
        return
    if type(function).__name__ == "ufunc":
        unknown = set(names) - {"out", "dtype", "casting"}
        if positional > function.nargs or unknown:
            raise TypeError(f"cupy.{name} does not take {sorted(unknown) or positional}")
        return
    try:
        inspect.signature(function).bind(*[None] * positional, **dict.fromkeys(names))
    except TypeError as error:
        raise TypeError(f"cupy.{name}: {error}") from None


def _lifted(name: str, function: Any) -> Any:
    """A function of NumPy over arrays of the device, called as CuPy's may be."""

    def call(*args: Any, **settings: Any) -> Any:
        _fits(name, len(args), tuple(settings))
        copies.to_host += name.startswith(SIZED) or (name == "where" and len(args) == 1)
        settings.pop("device", None)
        out = settings.get("out")
        settings = {key: unwrapped(value) for key, value in settings.items()}
        result = function(*(unwrapped(one) for one in args), **settings)
        return wrapped(result) if out is None else out

    call.__name__ = name
    return call


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> ndarray:
    """From the host: counted, unless it is one number, which a kernel writes."""
    if isinstance(obj, ndarray):
        return ndarray(np.array(obj._x, dtype=dtype, copy=copy))
    if isinstance(obj, list | tuple) and any(isinstance(one, ndarray) for one in obj):
        return library.stack([asarray(one, dtype=dtype) for one in obj])  # nothing leaves
    x = np.array(obj, dtype=dtype)
    if x.dtype.char not in "?bhilqBHILQefdFD":
        raise ValueError(f"Unsupported dtype {x.dtype}")
    copies.to_device += x.ndim > 0 and x.size > 0
    return ndarray(x)


def astype(x: ndarray, dtype: Any, /, *, copy: bool = True, device: Any = None) -> ndarray:
    return x.astype(dtype, copy=copy)


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None) -> ndarray:
    if isinstance(indices, list | np.ndarray):
        copies.to_device += 1
    host = indices._x if isinstance(indices, ndarray) else indices
    found = np.take(unwrapped(a), host, axis=axis)
    if out is None:
        return wrapped(found)
    out[...] = wrapped(found)
    return out


def _namespace(module: Any) -> Any:
    """Every function that NumPy and CuPy have under one name; CuPy's signature decides."""
    for name in dir(np if _cupy is None else _cupy):
        function = getattr(np, name, None)
        if callable(function) and not name.startswith("_"):
            plain = isinstance(function, type)
            setattr(module, name, function if plain else _lifted(name, function))
    for name in ("float16", "isdtype", "finfo", "iinfo", "broadcast_shapes"):
        setattr(module, name, getattr(np, name))
    for name in ("pi", "e", "inf", "nan", "newaxis"):
        setattr(module, name, getattr(np, name))
    module.bool, module.ndarray, module.cuda = np.bool_, ndarray, _cuda()
    for function in (asarray, astype, take):
        setattr(module, function.__name__, function)
    module.array = asarray
    # As array_api_compat.cupy has them: the first copies to the host for each bound.
    module.clip = partial(_aliases.clip, xp=module)
    module.vecdot = partial(_aliases.vecdot, xp=module)
    return module


def _cuda() -> Any:
    """The few names of cupy.cuda that kvlib asks for."""
    properties = {"name": b"a stand-in for a device"}
    return SimpleNamespace(
        Device=lambda *_: DEVICE,
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 1, getDeviceProperties=lambda number: properties
        ),
    )


xp = _namespace(library)


def install(monkeypatch: Any) -> None:
    """Make it the library at hand: whatever kvlib makes from nothing is made here."""
    original = arrays.default_namespace
    for module in list(sys.modules.values()):
        if getattr(module, "default_namespace", None) is original:
            monkeypatch.setattr(module, "default_namespace", lambda: xp)
