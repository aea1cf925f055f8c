"""Text that strangers wrote, made safe to print, to store as JSON and to open in a spreadsheet."""

from __future__ import annotations

import unicodedata

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with these a spreadsheet begins a formula
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format (turns text round), surrogates, breaks


def plain(text: object, most: int = 20_000) -> str:
    r"""The text with everything invisible escaped, apart from line breaks; cut after `most`.

    A terminal obeys some control characters, and a lone surrogate cannot be written as UTF-8.

    >>> plain("\x1b[2Jall\npassed \ud800")
    '\\x1b[2Jall\npassed \\ud800'
    """
    said = str(text)
    cut = said[:most] + ("..." if len(said) > most else "")
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(_visible(c) for c in cut)


def line(text: object, most: int = 500) -> str:
    r"""The same in one line.

    >>> line("two\nlines")
    'two\\nlines'
    """
    return plain(text, most).replace("\n", "\\n")


def cell(value: object) -> object:
    """A cell of a table: a text that a spreadsheet would take for a formula gets a quote first.

    >>> cell("=1+1"), cell(-3)
    ("'=1+1", -3)
    """
    if not isinstance(value, str):
        return value
    safe = line(value)
    return f"'{safe}" if safe.startswith(FORMULA) or value.startswith(FORMULA) else safe


def _visible(c: str) -> str:
    if c == "\n" or unicodedata.category(c) not in HIDDEN:
        return c
    return c.encode("unicode_escape", "surrogatepass").decode("ascii")
