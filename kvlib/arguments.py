"""Check public arguments, and return them as Python's own int, float, bool or list.

NumPy's small integers overflow, and its float64 scalars turn every float32 array that they meet
into float64, so neither is passed on.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from operator import index
from typing import Any

import numpy as np

LARGEST = 2**63 - 1  # no size or index of anything in memory is larger
SEEDS = 2**128 - 1  # what NumPy recommends for a seed
FLOAT32 = (1.1754944e-38, 3.4028234e38)  # what float32 holds in full precision


def is_integer(x: object) -> bool:
    """Whether ``x`` counts something: an integer of Python or NumPy, and no bool."""
    return type(x) is int or (isinstance(x, int | np.integer) and not isinstance(x, bool))


def check_integer(name: str, value: Any, least: int = 1, most: int = LARGEST) -> int:
    """The value as a Python integer; ValueError unless it is an integer from `least` to `most`."""
    if type(value) is not int and is_integer(value):
        value = index(value)
    if type(value) is not int or not least <= value <= most:
        above = f" and at most {most}" if type(value) is int and value > most else ""
        raise ValueError(
            f"{name} must be an integer of at least {least}{above}, got {describe(value)}"
        )
    return value


def check_index(name: str, value: Any, count: int) -> int:
    """The value as a Python integer; ValueError unless it is one of 0 ... count - 1."""
    if type(value) is not int and is_integer(value):
        value = index(value)
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{name} must be 0 ... {count - 1}, got {describe(value)}")
    return value


def check_seed(name: str, value: Any) -> int:
    """The value as a Python integer; ValueError unless it is an integer of up to 128 bits."""
    return check_integer(name, value, 0, SEEDS)


def number(value: Any) -> float:
    """A real number as a Python float: infinity if too large for one, NaN for anything else."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_positive(name: str, value: Any) -> float:
    """The value as a Python float; ValueError unless it is above 0 and float32 holds it."""
    low, high = FLOAT32
    found = number(value)
    if not low <= found <= high:
        fine = math.isfinite(found) and found > 0
        what = f"between {low} and {high}, which float32 holds" if fine else "above 0"
        raise ValueError(f"{name} must be a finite number {what}, got {describe(value)}")
    return found


def check_flag(name: str, value: Any) -> bool:
    """The value as a Python bool; TypeError for anything but True and False (a text is true)."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {describe(value)}")


def check_hashable(name: str, value: Any) -> Hashable:
    """The value itself; TypeError unless it can be the key of a dict."""
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{name} must be hashable, got {describe(value)}") from None
    return value  # type: ignore[no-any-return]


def check_list(name: str, value: Any, of: str) -> Sequence[Any]:
    """The value itself where it is a list, a tuple, a range or an array of a dimension or more.

    TypeError for a text, and for what has no order or can be read only once. of: what it holds.
    """
    if type(value) is list or type(value) is tuple:
        return value
    if getattr(value, "ndim", 0) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
    ):
        return value
    raise TypeError(f"{name} must be a list of {of}, got {_unordered(value)}")


def listed(name: str, value: Any, of: str) -> list[Any]:
    """The members as a list, also of a generator; TypeError for a text, or for no order."""
    return list(in_order(name, value, of))


def in_order(name: str, value: Any, of: str) -> Iterator[Any]:
    """Return an iterator over the members of anything that `listed` takes."""
    unfit = isinstance(value, str | Set | Mapping) or not isinstance(value, Iterable)
    if unfit or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a list of {of}, got {_unordered(value)}")
    return iter(value)


def _unordered(value: object) -> str:
    """What came, and why it is no list."""
    what = describe(value)
    if isinstance(value, Mapping):
        return f"{what}, a {type(value).__name__}; pass a list of what is meant"
    if isinstance(value, Set):
        return f"{what}, which has no order; pass a list, such as sorted(...)"
    return what


def type_of(x: object) -> str:
    """The type of what came, with its article: "an int", "a list"."""
    name = type(x).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def describe(x: object) -> str:
    """What came, in a few words: of an array its kind and shape, of a long text its beginning."""
    if getattr(x, "ndim", 0):
        return f"an array of shape {tuple(x.shape)}"  # type: ignore[attr-defined]
    if type(x) is int and x.bit_length() > 256:  # Python prints no number of 5,000 digits
        sign = "a negative integer" if x < 0 else "an integer"
        return f"{sign} of about {int(x.bit_length() * math.log10(2)) + 1:,} digits"
    try:
        text = repr(x)
    except Exception:  # the repr of somebody's own class, or a list of such numbers
        return f"{type_of(x)} that cannot be printed"
    return text if len(text) <= 80 else f"{text[:60]}... ({type_of(x)})"
