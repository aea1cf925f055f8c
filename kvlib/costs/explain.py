"""Which keys of a config.json lead to which numbers: ``python -m kvlib fit --explain FILE``.

The file is read as always, but every number remembers the keys that it is made of.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, Self

from kvlib.config.keys import Keys
from kvlib.config.read import read_shape
from kvlib.config.shape import Shape, Weight
from kvlib.config.weights import layer_weights, model_weights
from kvlib.config.words import printable
from kvlib.costs.spec import ModelSpec, layer_groups
from kvlib.costs.weights import alike


class Term(int):
    """A whole number, and how it was computed from keys of the file."""

    words: str

    def __new__(cls, value: int, words: str) -> Self:
        term = super().__new__(cls, value)
        term.words = words
        return term


def _operation(name: str, sign: str, right: bool) -> Callable[[Term, Any], Any]:
    def compute(self: Term, other: Any) -> Any:
        value = getattr(int, name)(self, other)
        if value is NotImplemented or isinstance(other, float):
            return value
        parts = [self.words, words(other)]
        if right:
            parts.reverse()
        if sign != "+":
            parts = [f"({part})" if " + " in part or " - " in part else part for part in parts]
        if words(other) == ("1" if sign == "*" else "0") and not (right and sign == "-"):
            return Term(value, self.words)
        return Term(value, f" {sign} ".join(parts))

    return compute


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "//")):
    setattr(Term, f"__{_name}__", _operation(f"__{_name}__", _sign, right=False))
    setattr(Term, f"__r{_name}__", _operation(f"__r{_name}__", _sign, right=True))


def words(value: int) -> str:
    """Return the keys that a number is made of; the number itself where it is a constant."""
    return value.words if isinstance(value, Term) else f"{value:,}"


class Remembering(Keys):
    """Keys whose counts know their names."""

    def count(self, key: str, *arguments: Any, **keywords: Any) -> Any:
        value = super().count(key, *arguments, **keywords)
        if value is None or isinstance(value, Term):
            return value
        missing = self.data.get(key) is None
        return Term(value, f"{key} (not stated)" if missing else key)


def explain(config: Any, without: Collection[str] = ()) -> str:
    """Return the weights and the cache of a config.json, each with the keys that decide it.

    Arguments and errors are those of `ModelSpec.from_config`.

    >>> from importlib.resources import files
    >>> "num_key_value_heads * head_dim" in explain(str(files("kvlib.reference") / "config.json"))
    True
    """
    counted = read_shape(config, without, Remembering)
    shape, table = counted.shape, []
    for weight in model_weights(shape._replace(num_hidden_layers=0)).values():
        table += [(row[0].strip(), *row[1:]) for row in _rows(weight, 1)]
    for layers in alike(shape):
        table.append((_layers(layers), "", "", ""))
        for weight in layer_weights(shape, layers[0]):
            table += _rows(weight, len(layers))
    spec = ModelSpec.from_config(config, without=without)
    lines = [f"{printable(counted.source)}, a {shape.model_type}", "", *_aligned(table), ""]
    lines.append(f"{spec.num_parameters:,} numbers, {spec.weight_bytes():.2f GB}")
    return "\n".join([*lines, "", *_kept(shape, spec)])


def _kept(shape: Shape, spec: ModelSpec) -> list[str]:
    """What a request keeps in each kind of layer, and the keys of it."""
    lines = ["A request keeps"]
    for group in layer_groups(shape):
        made_of = words(group.state if group.state else group.values)
        unit = "bytes" if group.state else "numbers an entry"
        lines += [f"  {str(group).strip()}", f"    {made_of}, {unit} of {_layers(group.indices)}"]
    each, kind = spec.kv_bytes_per_token(), spec.kv_codec().name
    lines.append(f"  {each.value:,} B a token in {kind}")
    if spec.state_bytes:
        lines.append(f"  {spec.state_bytes.value:,} B whatever its length")
    return [*lines, *spec.uncounted]


def _layers(indices: Collection[int]) -> str:
    """Layer numbers, in short."""
    numbers = sorted(indices)
    ends = f"{numbers[0]} to {numbers[-1]}"
    if numbers != [*range(numbers[0], numbers[-1] + 1)]:
        ends = f"{numbers[0]}, {numbers[1]} ... {numbers[-1]}"
    return f"layer {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} layers, {ends}"


def _rows(weight: Weight, layers: int) -> list[tuple[str, str, str, str]]:
    """A row for each tensor of a weight; one for all experts."""
    tensors: dict[str, list[int]] = {}
    for name, size in weight.tensors.items():
        parts = ("*" if part.isdigit() else part for part in name.split("."))
        tensors.setdefault(".".join(parts), []).append(size)
    kind = weight.name.rpartition(".")[2]
    suffix = f".{kind}" if kind == "bias" else ""
    width = weight.shape[1] if len(weight.shape) == 2 else None
    each = tensors.items()
    return [_row(f"  {n}{suffix}", layers * len(rows), rows[0], width) for n, rows in each]


def _row(name: str, times: int, rows: int, width: int | None) -> tuple[str, str, str, str]:
    sizes = [rows] if width is None else [rows, width]
    total = times * math.prod(map(int, sizes))
    shown = " x ".join(f"{int(size):,}" for size in sizes)
    made_of = [f"({w})" if " + " in w else w for w in map(words, sizes)]
    return name, f"{times:,} of {shown}", f"{total:,}", " x ".join(made_of)


def _aligned(rows: list[tuple[str, str, str, str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows
    ]
