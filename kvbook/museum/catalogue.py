"""The whole museum: its exhibits in order, and the bugs that have no exhibit yet."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from kvbook.museum import (
    eviction,
    guessing,
    masks,
    memory,
    numbers,
    positions,
    sharing,
    windows,
)
from kvbook.museum.exhibit import ROOMS, Exhibit

_ALL: tuple[Exhibit, ...] = (
    *masks.EXHIBITS,
    *positions.EXHIBITS,
    *memory.EXHIBITS,
    *numbers.EXHIBITS,
    *sharing.EXHIBITS,
    *windows.EXHIBITS,
    *eviction.EXHIBITS,
    *guessing.EXHIBITS,
)


class Hall(Sequence[Exhibit]):
    """Some exhibits in order, found by index, by name, or as attributes (``hall.stale_prefix``)."""

    def __init__(self, exhibits: Sequence[Exhibit]) -> None:
        self._by_name = {e.name: e for e in exhibits}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    @overload
    def __getitem__(self, key: int | str) -> Exhibit: ...

    @overload
    def __getitem__(self, key: slice) -> Hall: ...

    def __getitem__(self, key: int | str | slice) -> Exhibit | Hall:
        if isinstance(key, str):
            return self._named(key)
        found = tuple(self._by_name.values())[key]
        return Hall(found) if isinstance(found, tuple) else found

    def _named(self, name: str) -> Exhibit:
        if name in self._by_name:
            return self._by_name[name]
        near = difflib.get_close_matches(name, self._by_name, 3, 0.4)
        hint = f"near it: {', '.join(near)}" if near else f"there are {', '.join(self._by_name)}"
        raise ValueError(f"there is no exhibit {name!r}; {hint}")

    def __getattr__(self, name: str) -> Exhibit:
        if not name.startswith("_") and name in self._by_name:
            return self._by_name[name]
        raise AttributeError(f"there is no exhibit {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._by_name]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._by_name)

    def __iter__(self) -> Iterator[Exhibit]:
        return iter(self._by_name.values())

    def __contains__(self, item: object) -> bool:
        return item in self._by_name or item in self._by_name.values()

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        width = max((len(name) for name in self._by_name), default=0)
        lines = [f"{len(self)} exhibits"]
        for room in ROOMS:
            here = [e for e in self if e.room == room]
            lines += [room] if here else []
            for e in here:
                cite = textwrap.shorten(e.cite, 76 - width, placeholder=" ...")
                lines.append(f"  {e.name:<{width}}  {cite}")
        return "\n".join(lines)


class Waiting(NamedTuple):
    """A bug that shipped and has no exhibit yet."""

    bug: str
    cite: str
    why: str


WAITING = (
    Waiting(
        "the state of a recurrent layer, which the next request inherits",
        "tpu-inference #2431, #2779",
        "kvlib has no layers that keep one state in place of keys and values",
    ),
    Waiting(
        "a quantised history that is encoded again at every flush, so its error grows",
        "Hugging Face QuantizedLayer",
        "the groups of kvlib's codecs never change, and encoding what was decoded gives the same "
        "codes; the bug needs a codec whose scale spans a growing history",
    ),
)


def exhibits(room: str | None = None) -> Hall:
    """All exhibits, or those of one room: masks, positions, memory, numbers, sharing,
    forgetting, guesses."""
    if room is not None and room not in ROOMS:
        raise ValueError(f"there is no room {room!r}, needed one of {', '.join(ROOMS)}")
    return Hall([e for e in _ALL if room in (None, e.room)])


def exhibit(name: str) -> Exhibit:
    """One exhibit. ValueError names the nearest ones where there is none of that name."""
    return exhibits()[name]


def waiting() -> tuple[Waiting, ...]:
    """Bugs that shipped and that cannot be rebuilt in kvlib yet."""
    return WAITING
