"""What the functions of kvlib.costs ask of their arguments, with one wording for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kvlib.costs.quantity import Quantity
from kvlib.costs.units import Tokens

T = TypeVar("T")


def count(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least`; Tokens count as their number.

    Raises TypeError for what is no whole number, ValueError for one that is too small.
    """
    number = value.value if isinstance(value, Tokens) else value
    if isinstance(number, (bool, Quantity)) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} is {value!r}, needed: a whole number of at least {least}")
    if number.__index__() < least:
        raise ValueError(f"{name} is {value!r}, needed: a whole number of at least {least}")
    return int(number.__index__())


def one_of(name: str, value: str | T, rows: Mapping[str, T], kind: type[T]) -> T:
    """The row itself, or the row of that name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        return rows[value]
    raise TypeError(f"{name} is {value!r}, needed: a {kind.__name__} or the name of one")
