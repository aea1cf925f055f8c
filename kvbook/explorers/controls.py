"""The controls of an explorer: a choice among names, and a slider that steps through numbers.

Both offer a list of values, so that a setting can be checked, tried one by one in a test, and
written into an address. They are data: `kvbook.explorers.live` turns them into Jupyter widgets, and
the script of the rendered page reads `to_json()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from numbers import Real
from typing import Any, Self

Value = str | int | float


class Control:
    """What a Choice and a Slider have in common; make one of those."""

    name: str
    label: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]
    value: Any  # a Value once the control is made
    kind: str

    def to_json(self) -> dict[str, Any]:
        """What the rendered page needs to make this control."""
        named = {"kind": self.kind, "name": self.name, "label": self.label}
        return named | self._offered() | {"value": self.value}

    def _offered(self) -> dict[str, Any]:
        raise NotImplementedError

    def check(self, value: Any) -> Value:
        """The offered value that equals `value`; ValueError that names the nearest if none does."""
        for offered in self.values:
            if not isinstance(value, bool) and value == offered:
                return offered
        raise ValueError(
            f"{self.name}: {value!r} is not offered; the nearest is {self.nearest(value)!r} "
            f"(offered: {_listed(self.values)})"
        )

    def nearest(self, value: Any) -> Value:
        """The offered value most like `value`: in size, or in the spelling of its name or text."""
        numbers = [offered for offered in self.values if not isinstance(offered, str)]
        if numbers and isinstance(value, Real):
            return min(numbers, key=lambda offered: abs(offered - float(value)))
        wanted = str(value).lower()

        def likeness(i: int) -> float:
            names = str(self.values[i]).lower(), self.texts[i].lower()
            return max(SequenceMatcher(None, wanted, name).ratio() for name in names)

        return self.values[max(range(len(self.values)), key=likeness)]

    def at(self, value: Any) -> Self:
        """The same control, set to `value`."""
        changed: Self = replace(self, value=self.check(value))  # type: ignore[type-var]
        return changed

    def _made(self, **fields: Any) -> None:
        """Check and set what was given, and the first value where none was."""
        for name, values in fields.items():
            object.__setattr__(self, name, values)
        if not self.name.isidentifier():
            raise ValueError(f"control: got the name {self.name!r}, needed a Python identifier")
        if not all(words.strip() for words in (self.label, *self.texts)):
            raise ValueError(f"{self.name}: the label or a text is empty")
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise TypeError(f"{self.name}: a value is a str or a number, got {value!r}")
        if len(self.values) < 2:
            raise ValueError(f"{self.name}: got {len(self.values)} values, needed two or more")
        for what, entries in (("values", self.values), ("texts", self.texts)):
            if len(set(entries)) < len(entries):
                raise ValueError(f"{self.name}: {what} are not unique: {_listed(entries)}")
        first = self.values[0] if self.value is None else self.check(self.value)
        object.__setattr__(self, "value", first)


@dataclass(frozen=True)
class Choice(Control):
    """One of several things that have names: a drop-down list.

    options: value → what the reader sees, as a dict or pairs. value: what is chosen at first, the
    first option if not given. groups: under which headings a long list shows its options, as pairs
    (heading, how many of the next options). ValueError for options that could not be told apart and
    for groups that don't take each once, TypeError for a value that is neither a str nor a number.

    >>> kv = Choice("kv", "Keys and values in", {"bfloat16": "16 bits", "int8": "8 bits"})
    >>> kv.value, kv.at("int8").value
    ('bfloat16', 'int8')
    >>> kv.nearest("int4")  # what an error suggests
    'int8'
    """

    name: str
    label: str
    options: Any
    value: Any = None
    groups: Any = ()

    kind = "choice"

    def __post_init__(self) -> None:
        pairs = self.options.items() if isinstance(self.options, Mapping) else self.options
        self._made(options=tuple((value, str(text)) for value, text in pairs))
        grouped = sum(count for _, count in self.groups)
        if self.groups and grouped != len(self.options):
            raise ValueError(
                f"{self.name}: groups have {grouped} options, needed: {len(self.options)}"
            )

    @property
    def values(self) -> tuple[Value, ...]:  # type: ignore[override]
        return tuple(value for value, _ in self.options)

    @property
    def texts(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(text for _, text in self.options)

    def _offered(self) -> dict[str, Any]:
        grouped = {"groups": [list(pair) for pair in self.groups]} if self.groups else {}
        return {"options": [list(pair) for pair in self.options], **grouped}


@dataclass(frozen=True)
class Slider(Control):
    """A slider that steps through rising numbers; each has a text: '32,768 tokens'.

    unit: what is counted, in the plural ('requests'; a text for 1 drops the final s). texts: what
    the reader sees instead of number and unit. value: where it is at first, the first number if
    not given. play: a button on the rendered page shows the values one after the other; the page
    also does so by itself, once, unless the reader's system asks for less motion. ValueError for
    numbers that do not rise and for texts that repeat, TypeError for values that are no numbers.

    >>> Slider.powers("batch", "Requests", 1, 16, unit="requests").texts
    ('1 request', '2 requests', '4 requests', '8 requests', '16 requests')
    >>> Slider("layer", "Layer", range(0, 16, 4)).at(5)
    Traceback (most recent call last):
    ValueError: layer: 5 is not offered; the nearest is 4 (offered: 0, 4, 8, 12)
    """

    name: str
    label: str
    values: Any
    value: Any = None
    unit: str = ""
    texts: Any = ()
    play: bool = False

    kind = "slider"

    def __post_init__(self) -> None:
        values = tuple(self.values)
        if any(isinstance(value, str) for value in values):
            raise TypeError(f"{self.name}: a slider steps through numbers, got {_listed(values)}")
        texts = tuple(self.texts) or tuple(with_unit(v, self.unit) for v in values)
        if len(texts) != len(values):
            raise ValueError(f"{self.name}: got {len(texts)} texts, needed {len(values)}")
        self._made(values=values, texts=texts)
        if list(values) != sorted(values):
            raise ValueError(f"{self.name}: values must rise, got {_listed(values)}")

    @classmethod
    def powers(
        cls, name: str, label: str, first: int, last: int, *, halves: bool = False, **more: Any
    ) -> Slider:
        """From `first` to `last`, each step doubling: 1, 2, 4, ... (halves: 1, 2, 3, 4, 6, 8, ...).

        `first` is a whole number of at least 1; `last` must be one of the steps. more: value, unit.
        """
        if first < 1 or last <= first:
            raise ValueError(f"{name}: needed 1 <= first < last, got {first} and {last}")
        values, at = [], first
        while at <= last:
            values.append(at)
            if halves and at % 2 == 0 and at * 3 // 2 <= last:
                values.append(at * 3 // 2)
            at *= 2
        if values[-1] != last:
            raise ValueError(f"{name}: doubling {first} does not meet {last}; {values[-1]} would")
        return cls(name, label, values, **more)

    def _offered(self) -> dict[str, Any]:
        offered: dict[str, Any] = {"values": list(self.values), "texts": list(self.texts)}
        return offered | {"play": True} if self.play else offered


def with_unit(value: float, unit: str) -> str:
    """A number in words, thousands separated: '1 request', '32,768 tokens', '0.5 s'."""
    number = f"{value:,}"
    return f"{number} {unit.removesuffix('s') if value == 1 else unit}" if unit else number


def _listed(values: Sequence[Any], most: int = 12) -> str:
    words = [repr(value) for value in values]
    if len(words) > most:
        words = [*words[: most - 2], "...", words[-1]]
    return ", ".join(words)
