"""Whether a learner's function has changed what it was lent."""

from __future__ import annotations

from typing import Any

import numpy as np


def copied(x: Any) -> Any:
    """A copy of arrays, and of lists, tuples and dicts with what they hold; else x itself."""
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, list | tuple):
        return tuple(copied(y) for y in x)
    if isinstance(x, dict):
        return {key: copied(value) for key, value in x.items()}
    return x


def same(now: Any, before: Any) -> bool:
    """Whether `now`, of which `before` is the copy, still holds the same. NaN equals itself."""
    if isinstance(before, np.ndarray):
        alike = now.shape == before.shape and now.dtype == before.dtype
        return bool(alike and now.tobytes() == before.tobytes())
    if isinstance(before, tuple):
        return len(now) == len(before) and all(map(_still, now, before))
    if isinstance(before, dict):
        alike = len(now) == len(before) and all(map(_still, now, before))
        return alike and all(map(_still, now.values(), before.values()))
    return True


def _still(now: Any, before: Any) -> bool:
    """The same for one thing in a list, in whose place the answer may have put anything."""
    if isinstance(before, np.ndarray):
        return issubclass(type(now), np.ndarray) and same(now, before)
    if isinstance(before, tuple):
        return type(now) in (list, tuple) and same(now, before)
    if isinstance(before, dict):
        return type(now) is dict and same(now, before)
    return now is before or (type(now) is type(before) and bool(now == before))
