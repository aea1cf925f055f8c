"""Entries by name, and values that know their source: what all catalogues are made of."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from kvlib.config.words import shown

T = TypeVar("T")
LONG = 100  # characters of a name that are compared with those of a catalogue


class UnknownName(KeyError, ValueError):
    """A name that a catalogue does not have; the message offers the nearest it has.

    >>> from kvlib.costs import GPUS
    >>> GPUS["h101"]
    Traceback (most recent call last):
        ...
    kvlib.costs.rows.UnknownName: ...
    """

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])


class Catalogue(Mapping[str, T], Generic[T]):
    """Entries by name. Case, spaces, underscores and hyphens do not matter; iteration keeps order.

    Raises UnknownName (a KeyError and a ValueError) with the nearest names, TypeError for a key
    that is no string.

    >>> from kvlib.costs import GPUS
    >>> GPUS["H100 SXM"] is GPUS["h100-sxm"], "h100-sxm" in GPUS
    (True, True)
    """

    def __init__(
        self,
        kind: str,
        load: Callable[[], dict[str, T]],
        aliases: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """aliases: other names of an entry, where the entries do not name their own."""
        self.kind, self._load, self._aliases = kind, load, aliases or {}
        self._entries: dict[str, T] | None = None
        self._names: dict[str, str] = {}

    def check_free(self, entry: T, names: tuple[str, ...]) -> None:
        """Raise ValueError for a name that another entry has."""
        for name in names:
            if name in self and self[name] != entry:
                raise ValueError(f"there is a {self.kind} {shown(name)}, needed: another name")

    def add(self, entry: T, names: tuple[str, ...]) -> None:
        """Add an entry under these names, the first of which it is listed by."""
        self.entries[names[0]] = entry
        self._names.update((_plain(name), names[0]) for name in names)

    @property
    def entries(self) -> dict[str, T]:
        if self._entries is None:
            entries = self._load()
            for key, entry in entries.items():
                others = (*getattr(entry, "aliases", ()), *self._aliases.get(key, ()))
                spellings = (key, getattr(entry, "title", key), *others)
                self._names.update((_plain(name), key) for name in spellings)
            self._entries = entries
        return self._entries

    def __getitem__(self, name: str) -> T:
        entries = self.entries
        if not isinstance(name, str):
            raise TypeError(f"{self.kind} must be a name (a string), got {shown(name)}")
        if _plain(name) in self._names:
            return entries[self._names[_plain(name)]]
        raise UnknownName(f"unknown {self.kind} {shown(name)}; {self._nearest(name[:LONG])}")

    def _nearest(self, name: str) -> str:
        close = difflib.get_close_matches(_plain(name), self._names, n=6, cutoff=0.5)
        keys = list(dict.fromkeys(self._names[n] for n in close))[:3]
        if keys:
            return f"did you mean {' or '.join(keys)}?"
        return f"there are {', '.join(self.entries)}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.entries)

    def __repr__(self) -> str:
        return f"{len(self)} {self.kind}s: {', '.join(self.entries)}"


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c not in " _-\t\n")


@dataclass(frozen=True)
class Value:
    """A value of a data file, with its source and whether that could be confirmed.

    >>> from kvlib.costs import GPUS
    >>> GPUS["h100-sxm"].value("bandwidth").confirmed
    True
    """

    value: Any
    source: str
    confirmed: bool


@dataclass(frozen=True)
class Row:
    """One entry of a data file: values, their default source and the exceptions."""

    key: str
    values: Mapping[str, Any]
    source: str
    sources: Mapping[str, str]
    unconfirmed: tuple[str, ...]

    def value(self, name: str) -> Value:
        """The value with its source. Raises UnknownName for one that the entry does not have."""
        if name not in self.values:
            known = ", ".join(self.values)
            close = difflib.get_close_matches(name[:LONG], self.values, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {known}"
            raise UnknownName(f"{self.key} has no value {shown(name)}; {hint}")
        source = self.sources.get(name, self.source)
        return Value(self.values[name], source, name not in self.unconfirmed)


@cache
def read_data(file: str) -> dict[str, dict[str, Any]]:
    import tomllib
    from importlib.resources import files

    data = files("kvlib.costs").joinpath("data", file).read_text(encoding="utf-8")
    return tomllib.loads(data)


def row_of(key: str, entry: Mapping[str, Any], values: Mapping[str, Any]) -> Row:
    unconfirmed = tuple(entry.get("unconfirmed", ()))
    return Row(key, values, entry["source"], entry.get("sources", {}), unconfirmed)
