"""The kind of number that a checker needs, taken from what a learner's function returned.

`kvbook.exercises.guard` has made the result plain data, but it may be a string where a checker
needs a number. The functions of this file then raise a `Finding` that says so.
"""

from typing import Any

import numpy as np

from kvbook.exercises.expect import Finding, expect_array


def whole(x: Any, what: str) -> int:
    """x as an int where it is a whole number (not True, not 4.0), else a Finding.

    >>> import numpy as np
    >>> whole(np.int32(4), "the length")
    4
    >>> whole("4", "the length")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the length: got '4' (str), needed a whole number
    """
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return int(x)
    raise Finding(f"{what}: got {shown(x)}, needed a whole number")


def number(x: Any, what: str) -> float:
    """x as a float where it is one real number (not True), else a Finding. NaN is a float."""
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if isinstance(x, bool | np.bool_) or not isinstance(x, int | float | np.number):
        raise Finding(f"{what}: expected one number, got {type(x).__name__}")
    return float(x)


def token_list(x: Any, what: str, of: str = "token ids, which are integers") -> list[int]:
    """The token ids (or other integers) in a list or an array of any shape, else a Finding.

    >>> token_list(["7"], "the answer")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the answer: got ['7'] (list), needed a list of token ids, ...
    """
    needed = Finding(f"{what}: got {shown(x)}, needed a list of {of}")
    if not isinstance(x, int | list | tuple | np.ndarray):
        raise needed
    try:
        array = np.asarray(x)
    except (ValueError, OverflowError):  # lists of several lengths in a list
        raise needed from None
    whole_floats = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    if array.size and array.dtype.kind not in "iu" and not whole_floats:
        raise needed
    if not np.isfinite(array).all() or not (abs(array) < 2**62).all():
        raise needed
    return [int(token) for token in array.ravel()]


def numbers(x: Any, what: str) -> np.ndarray:
    """x as an array of real numbers or booleans, else a Finding.

    A list of numbers, or of lists of them, is as good as an array where no dtype is asked for.

    >>> import numpy as np
    >>> numbers([4, 5], "the slots").dtype
    dtype('int64')
    >>> numbers(np.array([None]), "o")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: o: got an array of dtype object, needed one of numbers
    """
    array = _listed(x) if isinstance(x, list | tuple) else None
    array = expect_array(x, what) if array is None else array
    if array.dtype.kind not in "biuf":
        raise Finding(f"{what}: got an array of dtype {array.dtype}, needed one of numbers")
    return array


def integers(x: Any, what: str) -> np.ndarray:
    """x as an array of integers, else a Finding.

    >>> integers([0.5], "the slots")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the slots: got an array of float64, needed integers. ...
    """
    array = numbers(x, what)
    if array.dtype.kind not in "iu":
        hint = ". / gives floats, // integers; np.zeros gives floats unless you pass dtype=np.int64"
        hint *= array.dtype.kind == "f"
        raise Finding(f"{what}: got an array of {array.dtype}, needed integers{hint}")
    return array


def _listed(x: Any) -> np.ndarray | None:
    """A list of numbers of one kind as an array; None for any other list."""
    try:
        array = np.asarray(x)
    except (ValueError, OverflowError):  # lists of several lengths in a list
        return None
    kinds = {type(y) for y in np.asarray(x, dtype=object).ravel().tolist()}
    if not array.size:
        return array.astype(np.int64)
    fits = array.dtype.kind in "biuf" and (kinds == {bool} or bool not in kinds)
    return array if fits else None


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
