"""What a checker may expect of a result, and the words for each way of missing it."""

from typing import Any

import numpy as np

from kvbook.exercises.wording import apart


class Finding(Exception):
    """One thing that is wrong, in the learner's words: what came, what was needed, why.

    >>> def check_lengths(lengths, tokens):
    ...     if sum(lengths) != tokens:
    ...         raise Finding(f"the lengths: got {sum(lengths)} tokens in all, needed {tokens}")
    >>> check_lengths([2, 2], tokens=5)
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the lengths: got 4 tokens in all, needed 5
    """


def _fetched(x: Any) -> Any:
    """An array on a device as NumPy's; anything else as it is."""
    return x.get() if hasattr(x, "get") and hasattr(x, "dtype") else x


def expect_array(got: Any, what: str) -> np.ndarray:
    """Return `got` as a NumPy array, copied from a device if needed; a Finding if it is no array.

    >>> expect_array([0.5, 0.5], "the weights")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the weights: got list, needed a NumPy array
    """
    got = _fetched(got)
    if not isinstance(got, np.ndarray):
        raise Finding(f"{what}: got {_kind(got)}, needed a NumPy array")
    return got


def expect_shape(got: Any, shape: tuple[int, ...], what: str, *, letters: str = "") -> None:
    """The array has exactly this shape. letters names the axes in the message: "T Hq D".

    >>> import numpy as np
    >>> expect_shape(np.zeros((8, 3, 64)), (3, 8, 64), "the output", letters="T Hq D")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the output has shape (8, 3, 64), needed (3, 8, 64) (T, ...
    >>> expect_shape(np.zeros((3, 8, 64)), (3, 8, 64), "the output")  # says nothing where it fits
    """
    array = expect_array(got, what)
    if array.shape == shape:
        return
    needed = f"{shape} ({', '.join(letters.split())})" if letters else f"{shape}"
    hint = ""
    if array.ndim == len(shape) and sorted(array.shape) == sorted(shape):
        hint = ": the right sizes in another order, so an axis is in the wrong place"
    has = "have" if _several(what) else "has"
    raise Finding(f"{what} {has} shape {array.shape}, needed {needed}{hint}")


def expect_dtype(got: Any, dtype: Any, what: str) -> None:
    """The array has exactly this dtype, which NumPy knows by name or as a type.

    >>> import numpy as np
    >>> expect_dtype(np.zeros(4), np.float32, "the cache")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the cache is float64, needed float32: twice the bytes. ...
    """
    array, needed = expect_array(got, what), np.dtype(dtype)
    if array.dtype == needed:
        return
    hint = ""
    if array.dtype == np.float64 and needed == np.float32:
        hint = (
            ": twice the bytes. np.zeros, np.arange and np.array make float64 unless you pass dtype"
        )
    verb = "are" if _several(what) else "is"
    raise Finding(f"{what} {verb} {array.dtype}, needed {needed}{hint}")


def expect_equal(got: Any, expected: Any, what: str, *, why: str = "") -> None:
    """The two are equal: a count, a list of tokens, a string. why: ends the message, after a colon.

    >>> why = "the last block is not full"
    >>> expect_equal(1, 2, "blocks of 20 tokens", why=why)
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: blocks of 20 tokens: got 1, needed 2: the last block ...
    >>> expect_equal("2", 2, "blocks of 20 tokens")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: blocks of 20 tokens: got str, needed int (2)
    """
    got = _as_python(got)
    if type(got) is not type(expected) and not (_is_number(got) and _is_number(expected)):
        raise Finding(f"{what}: got {_kind(got)}, needed {_kind(expected)}")
    if not _equals(got, expected):
        raise Finding(f"{what}: got {got!r}, needed {expected!r}{_because(why)}")


def expect_close(
    got: Any,
    expected: Any,
    what: str,
    *,
    axes: tuple[str, ...] = (),
    rtol: float = 1e-4,
    atol: float = 1e-5,
    why: str = "",
) -> None:
    """Every number of `got` is within atol + rtol |expected|.

    axes names the axes in the message: ("row", "head"). The message shows the first number that
    is off, the largest difference, and how many are off.

    >>> import numpy as np
    >>> right, got = np.ones((2, 3)), np.array([[1, 1, 1], [1, 1.1, 7]])
    >>> expect_close(got, right, "o", axes=("row", "head"))
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: o: row 1, head 1 is 1.1, needed 1; farthest off: row 1, ...
    """
    got, wanted = _fetched(got), np.asarray(_fetched(expected))
    if wanted.ndim == 0 and (_is_number(got) or isinstance(got, np.generic)):
        got = np.asarray(got)
    expect_shape(got, wanted.shape, what)
    array = expect_array(got, what)
    if array.dtype.kind not in "biufc":
        raise Finding(f"{what}: got an array of dtype {array.dtype}, needed one of numbers")
    floating = array.dtype.kind == "f"
    bad: Any = np.argwhere(np.isnan(array) & ~np.isnan(wanted)) if floating else []
    if len(bad):
        raise Finding(f"{what}: {_place(bad[0], axes)} is NaN{_because(why)}")
    off = ~np.isclose(array, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if not off.any():
        return
    first = tuple(np.argwhere(off)[0])
    with np.errstate(invalid="ignore"):  # −∞ − −∞ where both are right
        gap = np.where(off, np.abs(array.astype(np.float64) - wanted.astype(np.float64)), 0.0)
    worst = tuple(np.unravel_index(int(np.argmax(gap)), gap.shape))
    words = _differs(first, array, wanted, axes)
    if worst != first:
        words += f"; farthest off: {_differs(worst, array, wanted, axes)}"
    count = f" ({int(off.sum())} of {off.size} numbers are off)" if off.size > 1 else ""
    raise Finding(f"{what}: {words}{count}{_because(why)}")


def _several(what: str) -> bool:
    """Whether "the bytes" or "codes of a later text" names more than one thing."""
    words = what.rsplit(": ", 1)[-1].split(",")[0].split(" of ")[0].split()
    return bool(words) and words[-1].endswith("s") and not words[-1].endswith(("ss", "returns"))


def _place(index: Any, axes: tuple[str, ...]) -> str:
    if len(axes) == len(index):
        return ", ".join(f"{name} {i}" for name, i in zip(axes, index, strict=True)) or "it"
    return f"number {index[0]}" if len(index) == 1 else f"[{', '.join(map(str, index))}]"


def _differs(index: Any, got: np.ndarray, wanted: np.ndarray, axes: tuple[str, ...]) -> str:
    a, b = got[index], wanted[index]
    bools = isinstance(a, np.bool_) or isinstance(b, np.bool_)
    texts = (str(a), str(b)) if bools else apart(a, b)
    return f"{_place(index, axes)} is {texts[0]}, needed {texts[1]}"


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _as_python(x: Any) -> Any:
    """Numbers and arrays of NumPy as Python's numbers and lists, at any depth."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.ndarray):
        return x.tolist()
    if isinstance(x, list | tuple):
        return type(x)(_as_python(y) for y in x)
    if isinstance(x, dict):
        return {key: _as_python(value) for key, value in x.items()}
    return x


def _equals(got: Any, expected: Any) -> bool:
    """`got == expected`, but True is no number in a list either."""
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        alike = type(got) is type(expected) and len(got) == len(expected)
        return alike and all(map(_equals, got, expected))
    if isinstance(got, bool) != isinstance(expected, bool):
        return False
    return bool(got == expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return f"{type(value).__name__} ({value!r})" if _is_number(value) else type(value).__name__
