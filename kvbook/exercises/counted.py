"""Counters for exercises about cost: steps of Python, and how many times a product reads an array.

A clock would say something else on every machine; a counter says the same everywhere.
"""

from __future__ import annotations

import math
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# How many of an operand's last axes one product of NumPy takes; those before are repeated.
PRODUCTS = {"matmul": (2, 2), "vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}
JOINED = ("dot", "inner", "vdot", "tensordot", "einsum")
LIBRARIES = tuple(os.path.dirname(x) + os.sep for x in (np.__file__, os.path.dirname(__file__)))


def python_steps(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """The result, and the lines of Python run for it outside NumPy and kvlib.

    A turn of a loop or a comprehension counts as a line, and so does a call. Arithmetic on whole
    arrays takes as many for ten numbers as for a million.

    >>> python_steps(lambda x: [y + 1 for y in x], range(1000))[1] > 1000
    True
    >>> python_steps(lambda x: x + 1, np.arange(1000))[1]
    2
    """
    count = 0

    def inside(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return inside

    def entered(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename.startswith(LIBRARIES):
            return None
        count += 1
        return inside

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        return function(*args), count
    finally:
        sys.settrace(before)


def allocated(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """The result, and the most bytes that were allocated at once while it was made.

    >>> allocated(np.zeros, 1000)[1] >= 8000
    True
    """
    tracemalloc.start()
    try:
        return function(*args), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Reads:
    """How many numbers of an array were read, by its name.

    sizes: how many the arrays have; width: the D of their rows, which tells a product with keys
    (over D) from one with values where a copy has lost its name.
    """

    def __init__(self, sizes: dict[str, int], width: int) -> None:
        self.sizes, self.width = sizes, width
        self.counts = dict.fromkeys(sizes, 0)

    def times(self, name: str) -> float:
        """Return how many times the whole array was read."""
        return self.counts[name] / self.sizes[name]

    def watch(self, array: np.ndarray, name: str = "") -> Watched:
        """The array, watched; with a name its readings count."""
        return _watched(array, name, self)


class Watched(np.ndarray):
    """An array that tells `Reads` which products it took part in; so does what comes of it."""

    name: str
    reads: Reads | None

    def __array_finalize__(self, source: Any) -> None:
        self.name, self.reads = getattr(source, "name", ""), getattr(source, "reads", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        result = getattr(ufunc, method)(*_plain(inputs), **_plain(settings))
        name = ""
        if method == "__call__" and ufunc.__name__ in PRODUCTS:
            self._product(ufunc.__name__, inputs)
        elif method == "__call__":
            name = self._passed_on(result, inputs)
        out = settings.get("out")
        if out is not None:
            return out[0] if len(out) == 1 else out
        return self._wrapped(result, name)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = function(*_plain(args), **_plain(kwargs))
        given = list(_arrays((args, kwargs)))
        if function.__name__ in JOINED:
            for x in given:
                self._read(x, x.size)
            return self._wrapped(result, "")
        return self._wrapped(result, self._passed_on(result, given))

    def dot(self, other: Any, out: Any = None) -> Any:
        return np.dot(self, other) if out is None else np.dot(self, other, out=out)

    def _product(self, kind: str, inputs: tuple[Any, ...]) -> None:
        shapes = [np.shape(x) for x in inputs[:2]]
        core = [min(len(s), n) for s, n in zip(shapes, PRODUCTS[kind], strict=True)]
        outer = (s[: len(s) - n] for s, n in zip(shapes, core, strict=True))
        times = math.prod(np.broadcast_shapes(*outer))
        for x, shape, n in zip(inputs, shapes, core, strict=False):
            self._read(x, times * math.prod(shape[len(shape) - n :]), over=shapes[0][-1])

    def _read(self, x: Any, count: int, over: int = 0) -> None:
        name, reads = getattr(x, "name", ""), self.reads
        if reads is None:
            return
        if not name and over and np.size(x) >= min(reads.sizes.values()):  # a copy, by its size
            name = list(reads.sizes)[over != reads.width]
        if name:
            reads.counts[name] += count

    def _passed_on(self, result: Any, given: Any) -> str:
        """The name that a result inherits; what was copied for it has been read."""
        for x in given:
            name = getattr(x, "name", "")
            first = result[0] if isinstance(result, list | tuple) and result else result
            if name and isinstance(first, np.ndarray):
                plain = _plain(x)
                if np.may_share_memory(first, plain):
                    return str(name)
                if first.size >= x.size:
                    self._read(x, first.size)
                    return str(name)
        return ""

    def _wrapped(self, result: Any, name: str) -> Any:
        if type(result) in (list, tuple):
            return type(result)(self._wrapped(x, name) for x in result)
        if not isinstance(result, np.ndarray) or self.reads is None:
            return result
        return _watched(result, name, self.reads)


def _watched(array: np.ndarray, name: str, reads: Reads) -> Watched:
    watched = array.view(Watched)
    watched.name, watched.reads = name, reads
    return watched


def _plain(x: Any) -> Any:
    if isinstance(x, Watched):
        return x.view(np.ndarray)
    if type(x) in (list, tuple):
        return type(x)(_plain(y) for y in x)
    if isinstance(x, dict):
        return {key: _plain(y) for key, y in x.items()}
    return x


def _arrays(x: Any) -> Iterator[Any]:
    if isinstance(x, np.ndarray):
        yield x
    elif isinstance(x, list | tuple):
        for y in x:
            yield from _arrays(y)
    elif isinstance(x, dict):
        yield from _arrays(list(x.values()))


@contextmanager
def kept_watched() -> Iterator[None]:
    """Inside, np.asarray and its kind do not take the watch off."""
    made = {name: getattr(np, name) for name in ("array", "asarray", "ascontiguousarray")}

    def keeping(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: Any, *args: Any, **settings: Any) -> Any:
            result = make(x, *args, **settings)
            if isinstance(x, Watched) and x.reads is not None and result.shape == x.shape:
                return _watched(result, x.name, x.reads)
            return result

        return call

    for name, make in made.items():
        setattr(np, name, keeping(make))
    try:
        yield
    finally:
        for name, make in made.items():
            setattr(np, name, make)
