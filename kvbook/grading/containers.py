"""Containers as they were and as they are, and stand-ins for what is neither plain nor one."""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

DEEPEST = 60  # containers within containers


class Thing:
    """Stands for what cannot cross: its class has the name of the original's.

    Two are equal where the originals have one name and print alike.
    """

    def __init__(self, text: str, digest: str) -> None:
        self._text, self._digest = text, digest

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        same = type(self).__name__ == type(other).__name__
        return same and isinstance(other, Thing) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


def thing(kind: str, text: str, digest: str) -> Any:
    """A Thing that calls itself `kind`."""
    name = kind if kind.isidentifier() and len(kind) < 80 else "object"
    return type(name, (Thing,), {})(text[:200], digest)


def within(x: Any, depth: int = 0) -> set[int]:
    """The ids of every container in x, itself included."""
    found = {id(x)}
    if isinstance(x, list | tuple | dict | set) and depth <= DEEPEST:
        for y in x.values() if isinstance(x, dict) else x:
            found |= within(y, depth + 1)
    return found


def copied(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.array(x, copy=True, order="C", subok=False)
    return _kind(x).copy(x)


def same(x: Any, before: Any) -> bool:
    if isinstance(x, np.ndarray):
        if x.shape != before.shape or x.dtype != before.dtype:
            return False
        return np.array_equal(memory_of(np.ascontiguousarray(x)), memory_of(before))
    if isinstance(x, dict):
        now, then = list(dict.items(x)), before.items()
        pairs = zip(now, then)
        return len(now) == len(then) and all(k is c and v is d for (k, v), (c, d) in pairs)
    if isinstance(x, list):
        return list.__len__(x) == len(before) and all(map(is_, list.__iter__(x), before))
    return bool(set.__eq__(x, before))


def _kind(x: Any) -> Any:
    """The built-in type of a container, whose methods do what they say; a subclass's may not."""
    return dict if isinstance(x, dict) else list if isinstance(x, list) else set


def memory_of(x: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, in pieces as large as its size allows."""
    flat = x.reshape(-1).view(np.uint8)
    return flat if x.nbytes % 8 else flat.view(np.uint64)
