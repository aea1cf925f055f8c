"""Reading the keys of one JSON object: types are checked, and what was read is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvlib.config.known import is_harmless
from kvlib.errors import CheckpointError

_UNSET: Any = object()


class Keys:
    """One object of a config.json; errors name file, key, what came and what was needed.

    source      the file, for errors
    inside      what stands before a key in errors, such as "text_config."
    model_type  the family; `kvlib.config.read.family_of` fills it in
    seen        the keys that have been read
    """

    def __init__(self, data: Mapping[str, Any], source: str, inside: str = "") -> None:
        self.data, self.source, self.inside = data, source, inside
        self.model_type = ""
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
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, needed)
        return value

    def count(self, key: str, default: Any = _UNSET, least: int = 1) -> int:
        """A whole number of at least `least`."""
        needed = f"a whole number of at least {least}"
        value = self.read(key, int, needed, default)
        if self.data.get(key) is not None and value < least:
            raise self.error(key, needed)
        return value

    def number(self, key: str, default: Any = _UNSET) -> Any:
        """A finite number above 0, as a float; `default` as it is."""
        value = self.read(key, float, "a number above 0", default)
        if self.data.get(key) is None:
            return value
        if not 0 < value < float("inf"):
            raise self.error(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return self.read(key, bool, "true or false", default)

    def only(self, key: str, allowed: Any, why: str) -> None:
        """Raise unless the key is absent or null or holds the one value that is understood."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is not None and value != allowed:
            raise self.error(key, f"{allowed!r} or no such key ({why})")

    def refuse_others(self, to_run: bool = False) -> None:
        """Raise for the first key that says something and that nobody has read.

        to_run: for a forward pass, in which a key may matter that no size depends on.
        """
        advice = (
            "if it does not change what a forward pass computes, delete it from the file"
            if to_run
            else "if it changes neither weights nor cache, or is not to be counted, read the "
            "config with without=[{!r}]"
        )
        for key, value in self.data.items():
            says_nothing = value is None or value is False or value in ({}, [], "", 0)
            if key in self.seen or says_nothing or is_harmless(key, to_run):
                continue
            needed = f"a key that {self.model_type} is known to have; {advice.format(key)}"
            raise self.error(key, needed)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
