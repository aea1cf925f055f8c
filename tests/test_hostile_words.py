"""How errors show what a hostile file holds: short and printable, whatever it is."""

from __future__ import annotations

import pytest

from kvlib.config.words import name, shown


class Loud:
    def __repr__(self) -> str:
        raise OverflowError("no")


SHOWN: dict[str, tuple[object, str]] = {
    "a long integer": (-(10**5000), "a whole number of about 5,001 digits"),
    "a long string": ("x" * 10**6, "'" + "x" * 56 + "..."),
    "a long list": (
        list(range(10**6)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16...",
    ),
    "depth": ([[[[[[1]]]]]], "[[[[[...]]]]]"),
    "an object that has no words": (Loud(), "a Loud"),
    "a tuple with a long integer": ((10**5000,), "a tuple"),
    "an empty object": ({}, "{}"),
    "an escape code": ("\x1b[2J", r"'\x1b[2J'"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_how_a_value_is_shown(case: str) -> None:
    value, expected = SHOWN[case]
    assert shown(value) == expected


def test_how_a_name_is_shown() -> None:
    assert name("hidden_size") == "hidden_size" and name(7) == "7" and name("") == "''"
    assert name("a\n") == r"'a\n'" and len(name("x" * 999)) == 60
