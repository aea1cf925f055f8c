"""Types that no checker expects: they claim to equal everything, lie, or raise when asked."""

from __future__ import annotations

import collections
import enum
from typing import Any

import numpy as np


def _true(self: Any, other: Any) -> bool:
    return True


def _false(self: Any, other: Any) -> bool:
    return False


_CLAIMS = {"__eq__": _true, "__ne__": _false, "__hash__": lambda self: 0}
_ORDER = {"__lt__": _false, "__gt__": _false, "__le__": _true, "__ge__": _true}

EqualInt = type("EqualInt", (int,), {**_CLAIMS, **_ORDER})
EqualFloat = type("EqualFloat", (float,), {**_CLAIMS, **_ORDER})
EqualFloat64 = type("EqualFloat64", (np.float64,), {**_CLAIMS, **_ORDER})
EqualInt64 = type("EqualInt64", (np.int64,), {**_CLAIMS, **_ORDER})
EqualText = type("EqualText", (str,), _CLAIMS)
EqualBytes = type("EqualBytes", (bytes,), _CLAIMS)
EqualList = type("EqualList", (list,), _CLAIMS)
EqualTuple = type("EqualTuple", (tuple,), _CLAIMS)
EqualDict = type("EqualDict", (dict,), {**_CLAIMS, "get": _true, "items": lambda self: []})
EqualThing = type("EqualThing", (), {**_CLAIMS, **_ORDER})


class EqualArray(np.ndarray):
    """An array subclass for which every comparison and every function of NumPy says True."""

    def __eq__(self, other: Any) -> Any:
        return np.ones(self.shape, bool)

    def __ne__(self, other: Any) -> Any:
        return np.zeros(self.shape, bool)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        return np.ones(self.shape, bool)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return True


class RaisingArray(np.ndarray):
    """An array subclass in which every operation raises."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        raise RuntimeError("no arithmetic here")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise RuntimeError("no functions here")


class LyingInt(int):
    """An int whose conversions give other numbers."""

    def __int__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 8

    def __float__(self) -> float:
        return 9.0


class Colour(enum.IntEnum):
    RED = 4


class WithArray:
    """Not an array, but NumPy can make one of it."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.zeros((3, 3))


class FromTheDevice:
    """It looks like an array of CuPy, and what it gives is an array that lies."""

    dtype, shape, ndim = np.dtype(np.float32), (3, 3), 2

    def get(self) -> Any:
        return np.zeros((3, 3)).view(EqualArray)


class PretendsInt:
    """isinstance(x, int) is True, and nothing else of an int is there."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return int


class Raises:
    """Whatever is asked of it raises, its repr included."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __eq__(self, other: Any) -> bool:
        raise RuntimeError("not comparable")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


Pair = collections.namedtuple("Pair", "first second")


def holds_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def dict_that_holds_itself() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["A"] = made
    return made


def doubled() -> list[Any]:
    """31 lists that unfold to a billion items."""
    made: list[Any] = [1]
    for _ in range(30):
        made = [made, made]
    return made


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(5000):
        made = [made]
    return made


async def later() -> int:
    return 4


def objects(*things: Any) -> np.ndarray:
    made = np.empty(len(things), dtype=object)
    made[:] = things
    return made
