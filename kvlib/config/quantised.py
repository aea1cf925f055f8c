"""How numbers are stored in fewer bits: formats of a cache, and of the matrices of a checkpoint."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from fnmatch import translate
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

from kvlib.config import ranges

WILD = re.compile(r"[*?[]")
BLOCKS = frozenset(("linear", "expert"))  # kinds of `kvlib.costs.weights.Module`


@dataclass(frozen=True)
class Format:
    """How numbers are stored: `bits` per number, and `scale_bits` of scales per `group` numbers.

    group 0 means one scale for every vector of a cache; `residual` is how many of a request's last
    tokens stay in 16 bits (KIVI, arXiv:2402.02750). Bits are fractions where keys and values
    differ.

    >>> from kvlib.costs import CODECS
    >>> CODECS["int8"].bits, CODECS["bf16"].name
    (8, 'bfloat16')
    """

    name: str
    title: str
    bits: int | Fraction
    scale_bits: int | Fraction = 0
    group: int = 0
    residual: int = 0
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("bits", 1), ("scale_bits", 0), ("group", 0), ("residual", 0)):
            value = getattr(self, name)
            if not isinstance(value, Fraction):
                ranges.count(f"{name} of codec {self.name!r}", value, least)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers, as `kvlib.costs.formulas` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)[:-1]}


KV = {"FP8": Format("fp8", "fp8", 8), "NVFP4": Format("nvfp4", "nvfp4", 4, 8, 16)}


class Packing(NamedTuple):
    """How a matrix (rows, columns) is stored: `bits` per number, and more for each block of it.

    scale          bits of a block's scale, and of its zero point or bias, if it has one
    rows, columns  of a block; 0: all that the matrix has
    indices        bits of a number for each column
    whole          a matrix whose columns are not whole blocks stays in 16 bits

    What a matrix has once is not counted: a scale or two, a shape or a table, some bytes together.
    """

    bits: int
    scale: int | Fraction = 0
    rows: int = 1
    columns: int = 0
    indices: int = 0
    whole: bool = False

    def bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of a matrix, rounded up."""
        if self.whole and columns % self.columns:
            return 2 * rows * columns
        blocks = -(-rows // (self.rows or rows)) * -(-columns // (self.columns or columns))
        bits = rows * columns * self.bits + blocks * self.scale + columns * self.indices
        return int(-(-bits // 8))


@dataclass(frozen=True)
class Quantised:
    """What a file states of quantised weights.

    source   the file and the key, for errors; kv: the format of the cache, if stated
    name     what errors and bills call the weights; None if only the cache is quantised
    default  how modules of the kinds `covers` are stored that no name below covers; None: 16 bits
    kept     names of modules that stay in 16 bits
    listed   names of modules, and how each is stored

    A name is whole parts of a module's name, such as "mlp.gate", and covers modules inside it, too.
    One with wildcards of `fnmatch` is a pattern of the module's name between two dots.
    """

    source: str
    kv: Format | None
    name: str | None
    default: Packing | None = None
    covers: frozenset[str] = BLOCKS
    kept: tuple[str, ...] = ()
    listed: tuple[tuple[str, Packing | None], ...] = ()

    def agrees(self, other: Self) -> bool:
        """Return whether two files may describe the same weights; one may leave out the cache."""
        one, two = (q.listed or (q.default,) for q in (self, other))
        cache = None in (self.kv, other.kv) or self.kv == other.kv
        return cache and self.name == other.name and set(one) == set(two)

    def __str__(self) -> str:
        weights = f"{self.name} weights" if self.name else "weights in 16 bits"
        return f"{weights} and a cache in {self.kv.name if self.kv else '16 bits'}"

    def packing_of(self, module: str, kind: str) -> Packing | None:
        """Return how a module is stored, by its name without ".weight"; None for 16 bits."""
        if kind == "other":
            return None
        if module in self._names:
            return self._names[module]
        for name in _runs(module) if self._names else ():
            if name in self._names:
                return self._names[name]
        first = re.sub(r"experts\.\d+", "experts.0", module)  # patterns don't tell experts apart
        if first not in self._found:
            matches = (entry for entry in self._patterns if entry[0].match(f".{first}."))
            self._found[first] = next(matches, None)
        if matched := self._found[first]:
            return matched[1]
        return self.default if kind in self.covers else None

    def first_unknown(self, modules: Collection[str], layers: int) -> str | None:
        """Return the first of `listed` that covers no module, be it of a vision tower."""

        def elsewhere(name: str) -> bool:
            layer = re.search(r"layers\.(\d+)", name)
            other = "visual" in name or "vision" in name or WILD.search(name)
            return bool(other or (layer and int(layer[1]) >= layers))

        other = [n for n, _ in self.listed if n not in modules and not elsewhere(n)]
        covered = {run for name in modules for run in _runs(name)} if other else set()
        return next((name for name in other if name not in covered), None)

    @cached_property
    def _found(self) -> dict[str, tuple[re.Pattern[str], Packing | None] | None]:
        return {}

    @cached_property
    def layers_apart(self) -> frozenset[int | None]:
        """Layers of which a name may be that of one expert; None: of any layer."""
        layers: set[int | None] = set()
        for name in self._names:
            layer = re.search(r"layers\.(\d+)", name)
            if re.search(r"\d", name.replace(layer[0], "", 1) if layer else name):
                layers.add(int(layer[1]) if layer else None)
        return frozenset(layers)

    @cached_property
    def _names(self) -> Mapping[str, Packing | None]:
        """Names without wildcards → their format; None, which overrides others, for 16 bits."""
        names = dict(self.listed) | dict.fromkeys(self.kept)
        return {name: packing for name, packing in names.items() if not WILD.search(name)}

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Packing | None]]:
        every = (*((name, None) for name in self.kept), *self.listed)
        wild = [(translate(name), packing) for name, packing in every if WILD.search(name)]
        groups = groupby(wild, lambda entry: entry[1])
        return [(re.compile("|".join(n for n, _ in group)), packing) for packing, group in groups]


def plain(name: str) -> str:
    """Return a module's name in the text decoder, without what wraps it in a multimodal model."""
    return re.sub(r"language_model[.?]", "", name)


def _runs(module: str) -> list[str]:
    """Return the names that cover a module, the most specific first, those of all experts last."""
    parts = module.split(".")
    n = len(parts)
    runs = [".".join(parts[start:stop]) for stop in range(n, 0, -1) for start in range(stop)]
    together = re.sub(r"experts\.\d+\.", "experts.", module)
    return runs if together == module else [*runs, *_runs(together)]
