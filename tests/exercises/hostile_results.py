"""What becomes of a right result: name → function that takes it and gives what is returned.

CLOTHES  the same numbers as other types
RIGHT    the same numbers in other forms that no task forbids: every checker must pass them
LIES     wrong results, some of which claim to equal the right one
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
from hostile_types import (
    EqualArray,
    EqualBytes,
    EqualFloat,
    EqualInt,
    EqualList,
    EqualText,
    EqualThing,
    EqualTuple,
    LyingInt,
    RaisingArray,
)


def over(change: Callable[[Any], Any], x: Any) -> Any:
    """x with `change` applied to every number, text and array in it."""
    if isinstance(x, list | tuple):
        return type(x)(over(change, y) for y in x)
    if isinstance(x, dict):
        return {key: over(change, y) for key, y in x.items()}
    return change(x)


def _number(kind: type, float_kind: type, by: float = 0) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        if isinstance(x, int | np.integer) and not isinstance(x, bool):
            return kind(int(x) + int(by))
        return float_kind(float(x) + by) if isinstance(x, float | np.floating) else x

    return change


def _array(x: Any, made: Callable[[np.ndarray], Any]) -> Any:
    return made(x) if isinstance(x, np.ndarray) else x


def _read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


Clothes = Callable[[Any], Any]
CLOTHES: dict[str, Clothes] = {
    "int and float subclasses": lambda x: over(_number(LyingInt, EqualFloat), x),
    "numpy scalars": lambda x: over(_number(np.int64, np.float64), x),
    "0-d arrays": lambda x: over(_number(np.array, np.array), x),  # type: ignore[arg-type]
    "array subclass": lambda x: over(lambda y: _array(y, lambda a: a.view(EqualArray)), x),
    "array subclass that raises": lambda x: over(
        lambda y: _array(y, lambda a: a.view(RaisingArray)), x
    ),
    "matrix": lambda x: over(lambda y: _array(y, lambda a: a.view(np.matrix)), x),
    "masked array": lambda x: over(lambda y: _array(y, np.ma.MaskedArray), x),
    "read-only array": lambda x: over(lambda y: _array(y, _read_only), x),
    "Fortran order": lambda x: over(lambda y: _array(y, np.asfortranarray), x),
    "other byte order": lambda x: over(
        lambda y: _array(y, lambda a: a.astype(a.dtype.newbyteorder())), x
    ),
    "array of objects": lambda x: over(lambda y: _array(y, lambda a: a.astype(object)), x),
    "arrays as lists": lambda x: over(lambda y: _array(y, np.ndarray.tolist), x),
    "list subclass": lambda x: EqualList(x) if isinstance(x, list) else x,
    "tuple subclass": lambda x: EqualTuple(x) if isinstance(x, tuple) else x,
    "dict subclass": lambda x: collections.OrderedDict(x) if isinstance(x, dict) else x,
    "lists as tuples": lambda x: tuple(x) if isinstance(x, list) else x,
    "text subclass": lambda x: over(lambda y: EqualText(y) if isinstance(y, str) else y, x),
    "generator": lambda x: (y for y in x) if isinstance(x, list | tuple) else x,
}


def _arrays(made: Callable[[np.ndarray], Any]) -> Clothes:
    return lambda x: over(lambda y: _array(y, made), x)


def _as(dtype: Any) -> Clothes:
    """Arrays of the same kind of number in that dtype, if all of them fit."""
    kind = np.dtype(dtype).kind

    def change(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "f" == kind:
            return x.astype(dtype)
        fits = x.dtype.kind in "iu" and kind in "iu" and (x == x.astype(dtype)).all()
        return x.astype(dtype) if fits else x

    return _arrays(change)


def _strided(x: np.ndarray) -> np.ndarray:
    """Every other number of an array twice as wide."""
    return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x


def _scalar(x: Any) -> Any:
    """A Python number as NumPy's of 32 bits, where it fits."""
    if type(x) is int and abs(x) < 2**31:
        return np.int32(x)
    return np.float32(x) if type(x) is float else x


RIGHT: dict[str, Clothes] = {
    **{name: CLOTHES[name] for name in ("numpy scalars", "0-d arrays", "read-only array")},
    **{name: CLOTHES[name] for name in ("Fortran order", "lists as tuples")},
    "tuples as lists": lambda x: list(x) if isinstance(x, tuple) else x,
    "strided array": _arrays(_strided),
    "backwards array": _arrays(lambda a: a[::-1].copy()[::-1] if a.ndim else a),
    "scalars of 32 bits": lambda x: over(_scalar, x),
    "int32": _as(np.int32),
    "uint8": _as(np.uint8),
    "uint64": _as(np.uint64),
    "float32": _as(np.float32),
    "float64": _as(np.float64),
    "lists for arrays": _arrays(np.ndarray.tolist),
    "a rounding off": _arrays(
        lambda a: a * a.dtype.type(1 + 2e-7) if a.dtype in (np.float32, np.float64) else a
    ),
}


def _lying_array(x: np.ndarray) -> np.ndarray:
    wrong = ~x if x.dtype == bool else x + np.ones((), x.dtype)
    wrong = np.where(np.isfinite(wrong), wrong, 1).astype(x.dtype)
    return wrong.view(EqualArray)


def _lie(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return _lying_array(x)
    if isinstance(x, str):
        return EqualText(x[:-1] + "?" if x else "?")
    if isinstance(x, bytes):
        return EqualBytes(b"the same for all")
    return _number(EqualInt, EqualFloat, by=3)(x)


def _only_equal(x: Any) -> Any:
    return EqualThing()


LIES: dict[str, Clothes] = {
    "numbers off by 3 that claim to be right": lambda x: over(_lie, x),
    "objects that claim to be right": lambda x: over(_only_equal, x),
    "one object that claims to be right": _only_equal,
    "numbers off by 3": lambda x: over(_number(int, float, by=3), x),
    "nan for every number": lambda x: over(
        lambda y: float("nan") if isinstance(y, int | float | np.number) else y, x
    ),
    "nan in every array": lambda x: over(
        lambda y: _array(y, lambda a: np.full(a.shape, np.nan, np.float32)), x
    ),
    "huge ints for every number": lambda x: over(
        lambda y: 10**400 if isinstance(y, int | float | np.number) else y, x
    ),
    "texts for every number": lambda x: over(
        lambda y: str(y) if isinstance(y, int | float | np.number) else y, x
    ),
    "None for every number": lambda x: over(lambda y: None, x),
    "half a number more": lambda x: over(_number(lambda n: n + 0.5, float), x),  # type: ignore
    "negative numbers": lambda x: over(_number(lambda n: -n - 1, lambda n: -n - 1), x),  # type: ignore
    "arrays with a row too many": lambda x: over(
        lambda y: _array(y, lambda a: np.concatenate([a, a[:1]]) if a.ndim else a), x
    ),
    "arrays of float128": lambda x: over(
        lambda y: _array(y, lambda a: a.astype(np.longdouble) + 1), x
    ),
    "one thing too few": lambda x: x[:-1] if isinstance(x, list | tuple | str) and x else None,
    "one thing too many": lambda x: x + x[:1] if isinstance(x, list | tuple | str) and x else None,
    "each thing in a list": lambda x: [x],
}
