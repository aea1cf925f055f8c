"""How an error shows what a file holds: short, printable, and quick for numbers of any length."""

import os

MOST = 60  # characters of a value or a name
PATH = 255  # characters of a path
LONG_INT = 10**40
JSON = {"None": "null", "True": "true", "False": "false"}  # Python's names of these values


def shown(value: object, most: int = MOST, names: dict[str, str] | None = None) -> str:
    """Return `repr` of a value, cut after `most` characters, reading only the beginning."""
    text = _text(value, most, 4, names or {})
    return text if len(text) <= most else f"{text[: most - 3]}..."


def stated(value: object, most: int = MOST) -> str:
    """Return `shown` of a value of a JSON file, whose null, true and false keep their names."""
    return shown(value, most, JSON)


def name(key: object) -> str:
    """Return a key or tensor's name as it is, or quoted and cut if long or not printable."""
    plain = isinstance(key, str) and key.isprintable() and 0 < len(key) <= MOST
    return str(key) if plain else shown(key)


def without(key: str) -> str:
    """Return how a program leaves a key out; `kvlib.costs.cli` puts its option there instead."""
    return f"without=[{shown(key)}]"


def path(file: str | os.PathLike[str]) -> str:
    """Return a path with control characters escaped, and without its middle if it is long."""
    text = str(os.fspath(file))
    return printable(f"{text[:100]}...{text[-100:]}" if len(text) > PATH else text)


def printable(text: str) -> str:
    """Return the text with its control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def fault(error: BaseException) -> str:
    """Return what an error of another package says, cut and printable."""
    text = str(error)
    return printable(text if len(text) <= PATH else f"{text[: PATH - 3]}...")


def _text(value: object, room: int, depth: int, names: dict[str, str]) -> str:
    """Return all of `repr`, or at least `room` characters; `names` replaces Python's."""
    if isinstance(value, str):
        return repr(value[: room + 1])
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= LONG_INT:
        return f"a whole number of about {int(value.bit_length() * 0.30103) + 1:,} digits"
    if isinstance(value, (dict, list)):
        first, last = "{}" if isinstance(value, dict) else "[]"
        return f"{first}{_several(value, room, depth, names)}{last}"
    try:
        return names.get(repr(value), repr(value))
    except Exception:  # an object of the caller's own, or a tuple with a number too long to print
        return f"a {type(value).__name__}"


def _several(
    values: dict[object, object] | list[object], room: int, depth: int, names: dict[str, str]
) -> str:
    if not depth and values:
        return "..."
    texts, length = [], 0
    for part in values:
        text = _text(part, room, depth - 1, names)
        if isinstance(values, dict):
            text += f": {_text(values[part], room, depth - 1, names)}"
        texts.append(text)
        length += len(text)
        if length > room:
            break
    return ", ".join(texts)
