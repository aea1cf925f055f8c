"""The array of the stand-in for CuPy: see device_double.py."""

from __future__ import annotations

import ctypes
import operator
import tracemalloc
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


@dataclass
class Copies:
    """Copies over the border since the last `reset`."""

    to_host: int = 0
    to_device: int = 0

    def reset(self) -> None:
        self.to_host = self.to_device = 0


__version__ = f"{np.__version__} in a device's clothes"  # CuPy's own; array_api_compat has none
copies = Copies()
_untrack = ctypes.pythonapi.PyTraceMalloc_Untrack
_untrack.argtypes = (ctypes.c_uint, ctypes.c_void_p)
library: Any = ModuleType("device_double.xp")  # filled by device_double.py
DEVICE = SimpleNamespace(id=0, synchronize=lambda: None)
Index = int | np.integer | slice | type(None) | type(Ellipsis)


class ndarray:
    """An array "on the device": a NumPy array that nobody outside this file gets to see."""

    __slots__ = ("_x",)
    __array_priority__ = 100

    def __init__(self, x: np.ndarray) -> None:
        self._x = x
        if tracemalloc.is_tracing():  # it knows nothing of a device's memory
            _untrack(np.lib.tracemalloc_domain, x.ctypes.data)
            tracemalloc.reset_peak()  # it kept x, and what x was computed from

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        return library

    # What it is ---------------------------------------------------------------------------------

    shape = property(lambda self: self._x.shape)
    strides = property(lambda self: self._x.strides)
    dtype = property(lambda self: self._x.dtype)
    ndim = property(lambda self: self._x.ndim)
    size = property(lambda self: self._x.size)
    itemsize = property(lambda self: self._x.itemsize)
    nbytes = property(lambda self: self._x.nbytes)
    flags = property(lambda self: self._x.flags)
    device = property(lambda self: DEVICE)
    data = property(lambda self: SimpleNamespace(ptr=self._x.ctypes.data))
    T = property(lambda self: ndarray(self._x.T))
    mT = property(lambda self: ndarray(self._x.mT))

    def __len__(self) -> int:
        return len(self._x)

    def __iter__(self) -> Any:
        """Rows, which stay on the device; a list of numbers this is not."""
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # To the host --------------------------------------------------------------------------------

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def get(self) -> np.ndarray:
        copies.to_host += self.size > 0
        return self._x.copy()

    def item(self, *args: int) -> Any:
        return self.get().item(*args)

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self) -> bytes:
        return self.get().tobytes()

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    # Parts --------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> ndarray:
        return ndarray(self._x[_host_index(index)[0]])

    def __setitem__(self, index: Any, value: Any) -> None:
        place, basic = _host_index(index)
        if isinstance(value, np.ndarray | list) and not basic:
            copies.to_device += 1  # CuPy sends them along with an integer index
        else:
            value = _operand(value)
        self._x[place] = value._x if isinstance(value, ndarray) else value

    def take(self, indices: Any, axis: int | None = None, out: Any = None) -> ndarray:
        return library.take(self, indices, axis=axis, out=out)

    # Forms --------------------------------------------------------------------------------------

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        return ndarray(self._x.astype(dtype, copy=copy))

    def view(self, dtype: Any = None) -> ndarray:
        return ndarray(self._x.view(self.dtype if dtype is None else dtype))

    def reshape(self, *shape: Any) -> ndarray:
        return ndarray(self._x.reshape(*shape))

    def transpose(self, *axes: Any) -> ndarray:
        return ndarray(self._x.transpose(*axes))

    def squeeze(self, axis: Any = None) -> ndarray:
        return ndarray(self._x.squeeze(axis))

    def ravel(self) -> ndarray:
        return ndarray(self._x.ravel())

    def copy(self) -> ndarray:
        return ndarray(self._x.copy())

    def fill(self, value: Any) -> None:
        self._x.fill(_operand(value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """np.exp(x) stays on the device, as it does with CuPy."""
        if method != "__call__" or not hasattr(library, ufunc.__name__):
            return NotImplemented
        if isinstance(settings.get("out"), tuple):
            settings["out"] = settings["out"][0]
        return getattr(library, ufunc.__name__)(*inputs, **settings)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """np.sum(x), np.concatenate([x, y]): the same."""
        known = getattr(library, func.__name__, None)
        return NotImplemented if known is None else known(*args, **kwargs)


def _operand(value: Any) -> Any:
    """What may meet an array in a kernel: an array of the device, or one number."""
    if isinstance(value, ndarray | bool | int | float | complex | np.generic):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    raise TypeError(f"Unsupported type {type(value)}")


def _host_index(index: Any) -> tuple[Any, bool]:
    """An index as NumPy takes it, and whether it is a basic one, whose result is a view."""
    parts, basic = index if isinstance(index, tuple) else (index,), True
    found = []
    for part in parts:
        if isinstance(part, ndarray | np.ndarray | list):
            basic = False
            if not isinstance(part, ndarray):
                copies.to_device += 1
            part = part._x if isinstance(part, ndarray) else np.asarray(part)
            copies.to_host += part.dtype == bool  # the number of hits
        elif isinstance(part, bool) or not isinstance(part, Index):
            raise IndexError(f"only integers, slices, None, ... and arrays index, got {part!r}")
        found.append(part)
    if basic and Ellipsis not in found:
        found.append(Ellipsis)  # x[0] of a vector is an array of no dimensions, not a number
    return tuple(found), basic


def _binary(name: str) -> None:
    function, into = getattr(operator, name), getattr(operator, f"i{name.strip('_')}", None)

    def forward(self: ndarray, other: Any) -> Any:
        if not isinstance(other, ndarray | np.ndarray) and not np.isscalar(other):
            return NotImplemented
        other = _operand(other)
        return wrapped(function(self._x, other._x if isinstance(other, ndarray) else other))

    def backward(self: ndarray, other: Any) -> Any:
        if not isinstance(other, np.ndarray) and not np.isscalar(other):
            return NotImplemented
        return wrapped(function(_operand(other), self._x))

    def inplace(self: ndarray, other: Any) -> Any:
        other = _operand(other)
        into(self._x, other._x if isinstance(other, ndarray) else other)
        return self

    short = name.strip("_")
    setattr(ndarray, f"__{short}__", forward)
    if into is not None:
        setattr(ndarray, f"__r{short}__", backward)
    if into is not None and name != "matmul":
        setattr(ndarray, f"__i{short}__", inplace)


def _unary(name: str) -> None:
    function = getattr(operator, name)
    setattr(ndarray, f"__{name}__", lambda self: wrapped(function(self._x)))


def _reduction(name: str) -> None:
    setattr(ndarray, name, lambda self, *a, **k: getattr(library, name)(self, *a, **k))


ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
for _name in (*ARITHMETIC, "and_", "or_", "xor", "lshift", "rshift"):
    _binary(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _binary(_name)
for _name in ("neg", "pos", "abs", "invert"):
    _unary(_name)
for _name in ("sum", "mean", "max", "min", "argmax", "argmin", "any", "all", "round"):
    _reduction(_name)


def wrapped(x: Any) -> Any:
    """Results of NumPy as arrays of the device."""
    if isinstance(x, np.ndarray | np.generic):
        return ndarray(np.asarray(x))
    return type(x)(wrapped(one) for one in x) if isinstance(x, tuple | list) else x


def unwrapped(x: Any) -> Any:
    """Arguments as NumPy takes them; its own arrays are not welcome."""
    if isinstance(x, ndarray):
        return x._x
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError(f"Unsupported type {type(x)}")
    return type(x)(unwrapped(one) for one in x) if type(x) in (tuple, list) else x
