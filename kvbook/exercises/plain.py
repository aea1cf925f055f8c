"""Everything that an answer returns becomes plain data here, before a checker compares it.

Plain are numbers, texts, bytes, lists, tuples, dicts, sets and NumPy arrays, each of exactly that
type. A subclass could bring its own `==` and so equal everything, and NumPy's integers wrap round:
both are converted. An iterator could go on for ever, and an array of objects may hold anything, so
a Finding refuses them.
"""

from __future__ import annotations

import operator
from types import AsyncGeneratorType, CoroutineType
from typing import Any

import numpy as np

from kvbook.exercises.expect import Finding
from kvbook.exercises.wording import a

NEEDED = "needed plain data: numbers, strings, lists, tuples, dicts or NumPy arrays"
MOST_ITEMS = 100_000  # in lists, tuples and dicts; the longest right answer has 4,800
MOST_NUMBERS = 2**22  # in all arrays together
MOST_BITS = 1023  # of an integer: a float cannot hold a larger one
DEEPEST = 100  # lists in lists

_SCALARS = {kind for kind in np.sctypeDict.values() if np.dtype(kind).kind in "biuf"}


def plain(x: Any, name: str, keep: type | tuple[type, ...] = ()) -> Any:
    """x as plain data; the very same object where it is plain already.

    name  the function that returned it, for the message
    keep  types whose objects are let through as they are, at the top level

    Raises Finding for what is no plain data.

    >>> class Always(int):
    ...     def __eq__(self, other):
    ...         return True
    >>> plain(Always(3), "kv_bytes") == 4
    False
    >>> plain((n for n in range(3)), "kv_bytes")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: kv_bytes returned a generator, needed plain data: ...
    """
    if keep and issubclass(type(x), keep) and type(x) is not CoroutineType:
        return x
    try:
        return _Door(name).plain(x)
    except Finding:
        raise
    except Exception:  # an object may raise whatever is asked of it
        raise Finding(f"{name} returned something that cannot be read, {NEEDED}") from None


class _Door:
    """One walk through a result. It asks only built-in types, never an object's own methods."""

    def __init__(self, name: str) -> None:
        self.name, self.count, self.numbers, self.outer = name, 0, 0, ""
        self.seen: dict[int, tuple[Any, int]] = {}  # containers: as plain data, and their items

    def plain(self, x: Any, depth: int = 0) -> Any:
        kind = type(x)
        self._count(1)
        if x is None or x is Ellipsis or kind is bool:
            return x
        if kind in _SCALARS:
            return x.item() if kind is not np.longdouble else float(x)
        if issubclass(kind, int):
            return self._integer(x if kind is int else int.__index__(x))
        for base, exactly in _EXACTLY.items():
            if issubclass(kind, base):
                return x if kind is base else exactly(x)
        if issubclass(kind, np.ndarray):
            return self._array(x)
        if issubclass(kind, _CONTAINERS):
            return self._container(x, kind, depth + 1)
        if kind is range:
            self._count(len(x))
            return list(x)
        if hasattr(kind, "get") and hasattr(kind, "dtype"):  # an array on a device
            fetched = x.get()
            if issubclass(type(fetched), np.ndarray):
                return self._array(fetched)
        return self._refuse(x, kind)

    def _count(self, items: int) -> None:
        self.count += items
        if self.count > MOST_ITEMS:
            raise Finding(f"{self.name} returned more than {MOST_ITEMS:,} items, {NEEDED}")

    def _container(self, x: Any, kind: type, depth: int) -> Any:
        """A list may stand in several places: it is read once, and counted for each of them."""
        if depth > DEEPEST:
            raise Finding(f"{self.name} returned lists nested more than {DEEPEST} deep, {NEEDED}")
        if id(x) in self.seen:
            made, items = self.seen[id(x)]
            self._count(items)
            return made
        before, self.outer = self.count, self.outer or kind.__name__
        base = next(base for base in _CONTAINERS if issubclass(kind, base))
        if base is dict:
            held = [y for pair in dict.items(x) for y in pair]
        else:
            held = list(base.__iter__(x))
        new = [self.plain(y, depth) for y in held]
        if kind is base and all(map(operator.is_, held, new)):
            made = x
        else:
            made = dict(zip(new[::2], new[1::2], strict=True)) if base is dict else base(new)
        self.seen[id(x)] = made, self.count - before
        return made

    def _integer(self, x: int) -> int:
        if x.bit_length() > MOST_BITS:
            digits = int(x.bit_length() * 0.30103)
            raise Finding(
                f"{self.name} returned an integer of about {digits:,} digits, needed a number "
                "below 1.8e308, the largest float"
            )
        return x

    def _array(self, x: np.ndarray) -> np.ndarray:
        if issubclass(type(x), np.ma.MaskedArray):
            raise Finding(
                f"{self.name} returned a masked array, needed a plain one: fill the masked places, "
                "for example with x.filled(0)"
            )
        array = x if type(x) is np.ndarray else np.ndarray.view(x, np.ndarray)
        if array.dtype.kind not in "biuf":
            raise Finding(
                f"{self.name} returned an array of dtype {array.dtype}, needed one of numbers "
                "(booleans, integers or floats)"
            )
        self.numbers += array.size
        if self.numbers > MOST_NUMBERS:
            raise Finding(
                f"{self.name} returned arrays of {self.numbers:,} numbers, the last of shape "
                f"{array.shape}; a checker reads at most {MOST_NUMBERS:,}"
            )
        return array

    def _refuse(self, x: Any, kind: type) -> Any:
        hint = ""
        if kind in (CoroutineType, AsyncGeneratorType):
            hint = "; define it with def, not with async def"
            if kind is CoroutineType:
                x.close()  # Python warns of one that is never awaited
        elif kind.__name__ == "generator" or hasattr(kind, "__next__") or hasattr(kind, "__iter__"):
            hint = "; collect the items in a list"
        elif callable(x):
            hint = "; call it, and return what it gives"
        came = "a class" if issubclass(kind, type) else a(kind.__name__)
        came = f"{a(self.outer)} with {came} in it" if self.outer else came
        raise Finding(f"{self.name} returned {came}, {NEEDED}{hint}")


_CONTAINERS = (list, tuple, dict, set, frozenset)
_EXACTLY: dict[type, Any] = {
    float: float.__float__,
    str: str.__str__,
    bytes: lambda x: bytes.__getitem__(x, slice(None)),
}
