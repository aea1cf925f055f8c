"""What a learner's function was lent and gave back, before a checker looks at it more closely.

An answer of another kind (None in a list, a text for a number) becomes words here, so that no
checker stumbles over it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from kvlib.exercises.expect import Finding, expect_array


def lend(function: Callable[..., Any], *given: Any) -> Any:
    """Call the function with these; a Finding if it changed a list, a dict or what they hold.

    >>> lend(lambda tokens: tokens.pop(), [1, 2, 3])
    Traceback (most recent call last):
        ...
    kvlib.exercises.expect.Finding: argument 1 of <lambda> was changed: copy it first, the ...
    """
    before = copy.deepcopy(given)
    result = function(*given)
    name = getattr(function, "__name__", "your function")
    for i, (now, was) in enumerate(zip(given, before, strict=True)):
        if not _same(now, was):
            raise Finding(
                f"argument {i + 1} of {name} was changed: copy it first, the caller still needs it"
            )
    return result


def _same(now: Any, was: Any) -> bool:
    if isinstance(was, np.ndarray):
        fits = isinstance(now, np.ndarray) and now.shape == was.shape and now.dtype == was.dtype
        return fits and bool(now.tobytes() == was.tobytes())
    if isinstance(was, dict):
        same_keys = isinstance(now, dict) and list(now) == list(was)
        return same_keys and all(_same(now[key], was[key]) for key in was)
    if isinstance(was, list | tuple):
        fits = isinstance(now, list | tuple) and len(now) == len(was)
        return fits and all(_same(x, y) for x, y in zip(now, was, strict=True))
    return bool(now == was)


def whole(x: Any, what: str) -> int:
    """x as an int where it is a whole number (not True, not 4.0), else a Finding.

    >>> import numpy as np
    >>> whole(np.int32(4), "the length")
    4
    >>> whole("4", "the length")
    Traceback (most recent call last):
        ...
    kvlib.exercises.expect.Finding: the length: got '4' (str), needed a whole number
    """
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return int(x)
    raise Finding(f"{what}: got {shown(x)}, needed a whole number")


def numbers(x: Any, what: str) -> np.ndarray:
    """x if it is an array of real numbers or booleans, else a Finding.

    >>> import numpy as np
    >>> numbers(np.array([None]), "o")
    Traceback (most recent call last):
        ...
    kvlib.exercises.expect.Finding: o: got an array of dtype object, needed one of numbers
    """
    array = expect_array(x, what)
    if array.dtype.kind not in "biuf":
        raise Finding(f"{what}: got an array of dtype {array.dtype}, needed one of numbers")
    return array


def shown(x: Any) -> str:
    """The thing and its type, short enough for a sentence.

    >>> shown([1, 2])
    '[1, 2] (list)'
    """
    if x is None:
        return "None"
    try:
        text = repr(x)
    except Exception:  # a learner's own class may not have one that works
        text = ""
    kind = type(x).__name__
    return f"{text} ({kind})" if 0 < len(text) <= 40 and "\n" not in text else kind
