"""Codecs and GPUs by name, whose values know their source; files are read on first use."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar

from kvlib.config.quantised import Format
from kvlib.config.words import shown
from kvlib.costs.units import Bytes, BytesPerSecond, FlopsPerByte, FlopsPerSecond, Quantity

T = TypeVar("T")
Dtype: TypeAlias = str | Format | None  # a format, its name, or what the checkpoint says
LONG = 100  # characters of a name that are compared with those of a catalogue


class UnknownName(KeyError, ValueError):
    """A name that a catalogue does not have; the message offers the nearest it has.

    >>> str(UnknownName("unknown GPU 'h101'; did you mean h100-sxm?"))
    "unknown GPU 'h101'; did you mean h100-sxm?"
    """

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])


class Catalogue(Mapping[str, T], Generic[T]):
    """Entries by name. Case, spaces, underscores and hyphens do not matter; iteration keeps order.

    Raises UnknownName with the nearest names, TypeError for a key that is no string.

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
        close = difflib.get_close_matches(_plain(name[:LONG]), self._names, n=6, cutoff=0.5)
        keys = list(dict.fromkeys(self._names[n] for n in close))[:3]
        hint = f"did you mean {' or '.join(keys)}?" if keys else f"there are {', '.join(entries)}"
        raise UnknownName(f"unknown {self.kind} {shown(name)}; {hint}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, name: str, value: str | T, kind: type[T]) -> T:
        """Return `value` if it is an entry, or the entry of that name; `name` is the argument's."""
        if isinstance(value, kind):
            return value
        if isinstance(value, str):
            return self[value]
        raise TypeError(f"{name} is {shown(value)}, needed: a {kind.__name__} or the name of one")

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.entries)

    def __repr__(self) -> str:
        return f"{len(self)} {self.kind}s: {', '.join(self.entries)}"


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c not in " _-\t\n")


@dataclass(frozen=True)
class Value:
    """A value of a data file, with its source and whether that could be confirmed.

    >>> GPUS["h100-sxm"].value("bandwidth").confirmed
    True
    """

    value: Any
    source: str
    confirmed: bool


@dataclass(frozen=True)
class Row:
    """One entry of a data file, and those of its values that have a source."""

    key: str
    entry: Mapping[str, Any]
    values: Mapping[str, Any]

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        return tuple(self.entry.get("unconfirmed", ()))

    def value(self, name: str) -> Value:
        """Return a value with its source. Raises UnknownName for one that the entry lacks."""
        if name not in self.values:
            close = difflib.get_close_matches(name[:LONG], self.values, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(self.values)}"
            raise UnknownName(f"{self.key} has no value {shown(name)}; {hint}")
        source = self.entry.get("sources", {}).get(name, self.entry["source"])
        return Value(self.values[name], source, name not in self.unconfirmed)


@cache
def read_data(file: str) -> dict[str, dict[str, Any]]:
    import tomllib
    from importlib.resources import files

    data = files("kvlib.costs").joinpath("data", file).read_text(encoding="utf-8")
    return tomllib.loads(data)


_FP8 = ("float8", "f8", "fp8_e4m3", "fp8_e4m3fn", "float8_e4m3fn", "fp8_e5m2", "float8_e5m2")
_KIVI: dict[str, Any] = dict(scale_bits=32, group=32, residual=128)  # two fp16 numbers per group

_CODECS = (
    Format("float32", "float32", 32, aliases=("fp32", "f32")),
    Format("float16", "float16", 16, aliases=("fp16", "f16", "half")),
    Format("bfloat16", "bfloat16", 16, aliases=("bf16",)),
    Format("fp8", "fp8", 8, aliases=_FP8),
    Format("int8", "int8, a scale for each vector", 8, scale_bits=32),
    Format("int8_per_channel", "int8, groups of 32", 8, scale_bits=32, group=32),
    Format("int4", "int4, groups of 32", 4, aliases=("kivi4",), **_KIVI),
    Format("int2", "int2, groups of 32", 2, aliases=("kivi2",), **_KIVI),
)

CODECS: Catalogue[Format] = Catalogue("dtype", lambda: {c.name: c for c in _CODECS})


def codec(dtype: str | Format) -> Format:
    """Return the codec of a dtype's name ("bfloat16", "bf16", "int8", ...), or the codec itself."""
    return dtype if isinstance(dtype, Format) else CODECS[dtype]


# field of a Gpu → its key in gpus.toml, what it is, and the unit there
_FIGURES: dict[str, tuple[str, type[Quantity], int]] = {
    "memory": ("memory_GB", Bytes, 10**9),
    "usable": ("usable_MiB", Bytes, 2**20),
    "bandwidth": ("bandwidth_GB_per_s", BytesPerSecond, 10**9),
    "bf16": ("bf16_TFLOP_per_s", FlopsPerSecond, 10**12),
    "fp8": ("fp8_TFLOP_per_s", FlopsPerSecond, 10**12),
    "l2": ("l2_MiB", Bytes, 2**20),
    "shared_memory_per_sm": ("shared_memory_per_sm_KiB", Bytes, 2**10),
}


@dataclass(frozen=True)
class Gpu:
    """A GPU by its maker's figures (dense operations), and what its driver leaves to programs.

    bf16, fp8: operations per second of the matrix units, None if there are none. ``memory`` is the
    size on the data sheet (GB = 10^9), ``usable`` what the driver reports.

    >>> round(GPUS["h100-sxm"].ridge().value)
    295
    """

    name: str
    title: str
    memory: Bytes
    usable: Bytes
    bandwidth: BytesPerSecond
    bf16: FlopsPerSecond
    fp8: FlopsPerSecond | None
    l2: Bytes
    shared_memory_per_sm: Bytes
    row: Row

    def ridge(self, dtype: str = "bf16") -> FlopsPerByte:
        """Return the operations per byte above which a kernel is bound by arithmetic.

        Williams et al., doi:10.1145/1498765.1498785. dtype: bf16 (float16 runs as fast) or fp8.
        """
        kind = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}.get(codec(dtype).name)
        rate = getattr(self, kind) if kind else None
        if rate is None:
            rates = "bf16 or fp8" if self.fp8 else "bf16"
            raise ValueError(f"{self.title} has no rate for {dtype!r}, needed: {rates}")
        return rate / self.bandwidth

    def value(self, name: str) -> Value:
        """Return a figure in its source's unit, by the name of a field or its key in gpus.toml."""
        return self.row.value(_FIGURES[name][0] if name in _FIGURES else name)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers in bytes and operations per second, as the explorers take them."""
        names = ("bandwidth", "bf16", "fp8", "memory", "usable")
        plain = {n: getattr(self, n).value if getattr(self, n) else 0 for n in names}
        return {"name": self.name, "title": self.title, **plain}

    def __repr__(self) -> str:
        fp8 = f"{self.fp8:.0f TFLOP/s}" if self.fp8 else "none"
        return (
            f"{self.title}: {self.memory:.0f GB} ({self.usable:.2f GiB} usable), "
            f"{self.bandwidth:.2f TB/s}, bf16 {self.bf16:.0f TFLOP/s}, fp8 {fp8}, "
            f"ridge {self.ridge():.0f}"
        )


def gpu_of(key: str, entry: dict[str, Any]) -> Gpu:
    aside = ("title", "source", "sources", "unconfirmed")
    values = {name: value for name, value in entry.items() if name not in aside}
    figures: dict[str, Any] = {}
    for name, (theirs, kind, unit) in _FIGURES.items():
        hundredths = round((values[theirs] or 0) * 100)  # 165.2 is not exact in binary
        figures[name] = kind(hundredths * unit // 100) if hundredths else None
    return Gpu(key, entry["title"], **figures, row=Row(key, entry, values))


GPUS: Catalogue[Gpu] = Catalogue(
    "GPU", lambda: {key: gpu_of(key, entry) for key, entry in read_data("gpus.toml").items()}
)
