"""The whole museum: its exhibits in order."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from html import escape
from typing import overload

from kvbook.museum import forgetting, guesses, masks, memory, numbers, positions, sharing
from kvbook.museum.exhibit import TOPICS, Exhibit

_MODULES = masks, positions, memory, numbers, sharing, forgetting, guesses
_ALL: tuple[Exhibit, ...] = tuple(e for module in _MODULES for e in module.EXHIBITS)


class Hall(Sequence[Exhibit]):
    """Some exhibits in order, found by index or by name. A notebook shows them as a table."""

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

    def without(self, names: Sequence[str]) -> Hall:
        """Return the other exhibits."""
        return Hall([e for e in self if e.name not in {self[name].name for name in names}])

    def __iter__(self) -> Iterator[Exhibit]:
        return iter(self._by_name.values())

    def __contains__(self, item: object) -> bool:
        return item in self._by_name or item in self._by_name.values()

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        width = max((len(name) for name in self._by_name), default=0)
        lines = [f"  {e.name:<{width}}  {e.topic}" for e in self]
        return "\n".join([f"{len(self)} exhibits", *lines])

    def _repr_html_(self) -> str:
        rows = [
            (
                f"<code>{e.name}</code>".replace("_", "_<wbr>"),
                escape(e.happened),
                escape(e.cite).replace("_", "_<wbr>").replace("/", "/<wbr>"),
                e.caught_by.__name__.replace("_", " "),
            )
            for e in self
        ]
        head = "".join(
            f"<th>{x}</th>" for x in ("name", "what happens", "where it shipped", "test")
        )
        body = "".join("<tr>" + "".join(f"<td>{x}</td>" for x in row) + "</tr>\n" for row in rows)
        return (
            '<table class="dataframe">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"
        )


def exhibits(topic: str | None = None) -> Hall:
    """Return all exhibits, or those of one topic: masks, positions, memory, numbers, sharing,
    forgetting, guesses."""
    if topic is not None and topic not in TOPICS:
        raise ValueError(f"there is no topic {topic!r}, needed one of {', '.join(TOPICS)}")
    return Hall([e for e in _ALL if topic in (None, e.topic)])


def exhibit(name: str) -> Exhibit:
    """Return one exhibit. ValueError names the nearest ones if there is none of that name."""
    return exhibits()[name]
