"""Read JSON of a checkpoint, from files and in them, within limits of size, depth and digits."""

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from kvlib.config import words
from kvlib.errors import CheckpointError

MOST_BYTES = 5_000_000  # of a JSON file, or of a safetensors header; DeepSeek-V3's index has 4.2 MB
DEEPEST = 32  # objects and lists inside one another; a config.json has 4
DIGITS = 40  # of a whole number; files hold int(1e30) for "no limit", which has 31
# How many parts a text may have, so that what Python makes of them takes some tens of MB, and the
# character by which they are counted; one in a string counts, too.
PARTS = {
    "objects": ("{", 50_000),
    "lists": ("[", 100_000),
    "keys": (":", 200_000),
    "values": (",", 400_000),
}


def open_file(path: str) -> BinaryIO:
    """Open a regular file or a link to one; CheckpointError for a pipe, whose reader would wait."""
    shown = words.path(path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            # It may have been replaced by now, so what was opened is what counts.
            handle = os.open(path, flags)
            mode = os.fstat(handle).st_mode
            if stat.S_ISREG(mode):
                return os.fdopen(handle, "rb")
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        broken = os.path.islink(path)
        why = "a link to a file that does not exist" if broken else "no such file"
        raise CheckpointError(f"{shown}: {why}") from None
    except OSError as error:
        raise CheckpointError(f"{shown}: cannot be read ({error.strerror})") from None
    except ValueError:  # a NUL, or a lone surrogate
        raise CheckpointError(
            f"{shown}: not a file name (it holds a NUL or half a surrogate pair)"
        ) from None
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
    raise CheckpointError(f"{shown}: cannot be read (it is {kind}, needed: a regular file)")


def read_json(path: str | os.PathLike[str], check: bool = True) -> dict[str, Any]:
    """Return the object in a JSON file, or raise CheckpointError; check: call `check_parts`."""
    shown = words.path(path)
    with open_file(os.fspath(path)) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise CheckpointError(
                f"{shown}: {size:,} bytes of JSON, needed: at most {MOST_BYTES:,}"
            )
        try:
            raw = file.read(MOST_BYTES)
        except OSError as error:
            raise CheckpointError(f"{shown}: cannot be read ({error.strerror})") from None
    return parse(raw, shown, check=check)


def parse(raw: bytes, source: str, what: str = "", check: bool = True) -> dict[str, Any]:
    """Return the object in UTF-8 JSON; CheckpointError for none, and outside the limits.

    source, what: the file and the part of it that errors name. check: as for `read_json`.
    """
    if raw.startswith(b"\xef\xbb\xbf"):
        raise CheckpointError(
            f"{source}: {what}not JSON in UTF-8 (it begins with a byte order mark; save it without)"
        )
    for parts, (mark, most) in PARTS.items():
        if (count := raw.count(mark.encode())) > most:
            raise CheckpointError(
                f"{source}: too many {parts} ({mark!r} comes {count:,} times), needed: at most "
                f"{most:,}"
            )

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise CheckpointError(f"{source}: the key {words.shown(twice)} comes twice")
        return values

    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=distinct, parse_int=_whole)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: {what}not JSON in UTF-8 ({error})") from None
    if not isinstance(data, dict):
        stated = words.stated(data)
        raise CheckpointError(f"{source}: {what or 'holds '}{stated}, needed: a JSON object")
    if check:
        check_parts(data, source)
    return data


def check_parts(data: Mapping[str, Any], source: str) -> None:
    """Refuse a number that is not finite or too long, and what is too deep, naming its key."""
    above: list[str | int] = []  # the keys and indices that lead to the part being checked
    parts = [_items(data)]
    while parts:
        for key, value in parts[-1]:
            if isinstance(value, (dict, list)):
                above.append(key)
                if len(parts) == DEEPEST:
                    raise _refused(source, above, value, f"a depth of at most {DEEPEST}")
                parts.append(_items(value))
                break
            if isinstance(value, str):
                if key == "__float__":  # transformers 5 writes {"__float__": "Infinity"}
                    raise _refused(source, above, {key: value}, "a finite number")
            elif isinstance(value, int):
                if not -words.LONG_INT < value < words.LONG_INT:
                    raise _refused(source, [*above, key], value, f"at most {DIGITS} digits")
            elif isinstance(value, float):
                if not math.isfinite(value):
                    raise _refused(source, [*above, key], value, "a finite number")
            elif isinstance(value, _TooLong):
                raise _refused(source, [*above, key], value, f"at most {DIGITS} digits")
        else:
            parts.pop()
            if above:
                above.pop()


def _items(part: Any) -> Iterator[tuple[Any, Any]]:
    return iter(part.items() if isinstance(part, Mapping) else enumerate(part))


def _refused(source: str, above: list[str | int], value: object, needed: str) -> CheckpointError:
    place = words.name(above[0]) if above else "the file"
    for key in above[1:8]:
        place += f"[{key}]" if isinstance(key, int) else f".{words.name(key)}"
    place += "..." if len(above) > 8 else ""
    return CheckpointError(f"{source}: {place} is {words.stated(value)}, needed: {needed}")


class _TooLong:
    """A whole number with too many digits to compute; refused once its key is known."""

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def __repr__(self) -> str:
        return f"a whole number of {self.digits:,} digits"


def _whole(text: str) -> Any:
    digits = len(text) - text.startswith("-")
    return int(text) if digits <= DIGITS else _TooLong(digits)
