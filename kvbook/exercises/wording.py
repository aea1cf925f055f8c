"""Names and texts of a learner's objects, as a message can hold them."""

import unicodedata
from collections.abc import Iterable
from typing import Any

LONGEST = 4000  # characters of a finding


def a(noun: str) -> str:
    """The noun with its article.

    >>> a("list"), a("int")
    ('a list', 'an int')
    """
    return f"an {noun}" if noun[:1].lower() in ("a", "e", "i", "o") else f"a {noun}"


def name_of(function: Any) -> str:
    """What a function or class is called; "your function" if it has no name."""
    return readable(getattr(function, "__name__", "your function"), 80)


def text_of(thing: Any) -> str:
    """str(thing), or nothing if it has none."""
    try:
        return str(thing)
    except Exception:
        return ""


def apart(got: Any, needed: Any, spec: str = ".4g") -> tuple[str, str]:
    """Return two numbers as texts, with as many digits more than `spec` as tell them apart.

    >>> apart(0.35331, 0.35329)
    ('0.35331', '0.35329')
    >>> apart(1 / 3, 0.5)
    ('0.3333', '0.5')
    """
    start, kind = spec[:-2], spec[-1]
    for digits in range(int(spec[-2]), 18):
        texts = f"{got:{start}{digits}{kind}}", f"{needed:{start}{digits}{kind}}"
        if texts[0] != texts[1] or got == needed:
            break
    return texts


def readable(text: str, most: int = LONGEST) -> str:
    """The text with escapes for what no terminal or file should get, cut where it is too long.

    >>> print(readable("half a pair: \\ud800, a bell: \\a"))
    half a pair: \\ud800, a bell: \\x07
    """
    if len(text) > most:
        text = text[:most] + " ..."
    return "".join(_characters(text))


def _characters(text: str) -> Iterable[str]:
    for c in text:
        category = unicodedata.category(c)
        harmless = c == "\n" or not (category[0] == "C" or category in ("Zl", "Zp"))
        yield c if harmless else c.encode("unicode_escape").decode()
