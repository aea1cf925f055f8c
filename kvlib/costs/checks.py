"""What the functions of kvlib.costs ask of their arguments, with one wording for all."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TypeVar

from kvlib.config.words import shown
from kvlib.costs.quantity import Quantity
from kvlib.costs.units import Tokens

T = TypeVar("T")


MOST = 10**15  # requests, tokens or GPUs; the products of a few such numbers are still floats


def count(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least` and at most MOST; Tokens count as their number.

    Raises TypeError for what is no whole number, ValueError for one that is too small or too large.
    """
    number = value.value if isinstance(value, Tokens) else value
    needed = f"a whole number of at least {least}"
    flag = type(number).__name__.startswith("bool")  # NumPy 2.0 takes its own bool as an index
    try:
        found = None if flag or isinstance(number, Quantity) else index(number)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{name} is {shown(value)}, needed: {needed}")
    if found < least:
        raise ValueError(f"{name} is {shown(value)}, needed: {needed}")
    if found > MOST:
        raise ValueError(f"{name} is {shown(value)}, needed: at most {MOST:,}")
    return found


def one_of(name: str, value: str | T, rows: Mapping[str, T], kind: type[T]) -> T:
    """The row itself, or the row of that name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        return rows[value]
    raise TypeError(f"{name} is {shown(value)}, needed: a {kind.__name__} or the name of one")
