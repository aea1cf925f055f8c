"""Read JSON of a checkpoint, from files and in them, within limits of size, depth and digits."""

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

from kvlib.config import words
from kvlib.errors import CheckpointError

MOST_BYTES = 5_000_000  # of a JSON file, or of a safetensors header; DeepSeek-V3's index has 4.2 MB
DEEPEST = 32  # objects and lists inside one another; a config.json has 4
UNBOUNDED = "time_step_limit"  # of Mamba-2, from 0 to infinity, which no size depends on
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
        why = "it holds a NUL or half a surrogate pair"
        raise CheckpointError(f"{shown}: not a file name ({why})") from None
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
    raise CheckpointError(f"{shown}: cannot be read (it is {kind}, needed: a regular file)")


def read_json(path: str | os.PathLike[str], check: bool = True) -> dict[str, Any]:
    """Return the object in a JSON file, or raise CheckpointError; check: call `check_parts`."""
    shown = words.path(path)
    with open_file(os.fspath(path)) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            needed = f"at most {MOST_BYTES:,}"
            raise CheckpointError(f"{shown}: {size:,} bytes of JSON, needed: {needed}")
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
        why = "it begins with a byte order mark; save it without"
        raise CheckpointError(f"{source}: {what}not JSON in UTF-8 ({why})")
    for parts, (mark, most) in PARTS.items():
        if (count := raw.count(mark.encode())) > most:
            times, needed = f"{mark!r} comes {count:,} times", f"at most {most:,}"
            raise CheckpointError(f"{source}: too many {parts} ({times}), needed: {needed}")

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


def check_parts(part: Any, source: str, above: tuple[Any, ...] = ()) -> None:
    """Refuse a number that is not finite or too long, and what is too deep, naming its key.

    above: the keys and indices that lead to this part of the file.
    """
    for key, value in part.items() if isinstance(part, Mapping) else enumerate(part):
        inside, needed = (*above, key), ""
        if isinstance(value, (dict, list)):
            if len(inside) < DEEPEST:
                check_parts(value, source, inside)
            else:
                needed = f"a depth of at most {DEEPEST}"
        elif isinstance(value, float):
            if math.isnan(value) or (math.isinf(value) and UNBOUNDED not in above):
                needed = "a finite number"
        elif isinstance(value, _TooLong) or (
            isinstance(value, int) and abs(value) >= words.LONG_INT
        ):
            needed = f"at most {DIGITS} digits"
        elif key == "__float__" and isinstance(value, str) and UNBOUNDED not in above:
            # transformers 5 writes {"__float__": "Infinity"}
            inside, value, needed = above, {key: value}, "a finite number"
        if needed:
            place = words.name(inside[0]) if inside else "the file"
            for step in inside[1:8]:
                place += f"[{step}]" if isinstance(step, int) else f".{words.name(step)}"
            place += "..." if len(inside) > 8 else ""
            raise CheckpointError(f"{source}: {place} is {words.stated(value)}, needed: {needed}")


class _TooLong:
    """A whole number with too many digits to compute; refused once its key is known."""

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def __repr__(self) -> str:
        return f"a whole number of {self.digits:,} digits"


def _whole(text: str) -> Any:
    digits = len(text) - text.startswith("-")
    return int(text) if digits <= DIGITS else _TooLong(digits)
