"""Reading the keys of a config.json without NumPy: types checked, every key accounted for.

`kvlib.model.keys` reads what a model needs to run; this reads what decides how large it is, of many
more families. A key that nothing here has read and that is not known to be harmless is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvlib.costs.known import is_harmless
from kvlib.errors import CheckpointError

_UNSET: Any = object()


class Keys:
    """One object of a config.json; errors name file, key, what came and what was needed."""

    def __init__(self, data: Mapping[str, Any], source: str, inside: str = "") -> None:
        self.data, self.source, self.inside = data, source, inside
        self.seen: set[str] = set()

    def error(self, key: str, needed: str) -> CheckpointError:
        came = f"is {_short(self.data[key])}" if key in self.data else "is missing"
        return CheckpointError(f"{self.source}: {self.inside}{key} {came}, needed: {needed}")

    def read(self, key: str, kind: type, needed: str, default: Any = _UNSET) -> Any:
        """The value; `default` where the key is absent or null, an error where there is none."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is None:
            if default is _UNSET:
                raise self.error(key, needed)
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, needed)
        return value

    def count(self, key: str, default: Any = _UNSET, least: int = 1) -> int:
        needed = f"a whole number of at least {least}"
        value = self.read(key, int, needed, default)
        if self.data.get(key) is not None and value < least:
            raise self.error(key, needed)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return self.read(key, bool, "true or false", default)

    def only(self, key: str, allowed: Any, why: str) -> None:
        """Raise unless the key is absent or null or holds the one value that is understood."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is not None and value != allowed:
            raise self.error(key, f"{allowed!r} or no such key ({why})")

    def refuse_others(self, family: str) -> None:
        """Raise for the first key that says something and that nobody has read."""
        for key, value in self.data.items():
            says_nothing = value is None or value is False or value in ({}, [], "", 0)
            if key in self.seen or says_nothing or is_harmless(key):
                continue
            raise self.error(
                key,
                f"a key that {family} is known to have; if it changes neither weights nor "
                f"cache, or is not to be counted, read the config with without=[{key!r}]",
            )


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError where there is none to read."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: holds a {type(data).__name__}, needed: a JSON object")
    return data


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
