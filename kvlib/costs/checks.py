"""What the functions of kvlib.costs ask of their arguments, with one wording for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kvlib.costs import formulas
from kvlib.costs.quantity import Quantity
from kvlib.costs.units import Tokens

if TYPE_CHECKING:
    from kvlib.costs.catalogue import Gpu
    from kvlib.costs.spec import ModelSpec

T = TypeVar("T")


def count(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least`; Tokens count as their number.

    Raises TypeError for what is no whole number, ValueError for one that is too small.
    """
    number = value.value if isinstance(value, Tokens) else value
    if isinstance(number, (bool, Quantity)) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} is {value!r}, needed: a whole number of at least {least}")
    if number.__index__() < least:
        raise ValueError(f"{name} is {value!r}, needed: a whole number of at least {least}")
    return int(number.__index__())


def one_of(name: str, value: str | T, rows: Mapping[str, T], kind: type[T]) -> T:
    """The row itself, or the row of that name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        return rows[value]
    raise TypeError(f"{name} is {value!r}, needed: a {kind.__name__} or the name of one")


def within(model: ModelSpec, name: str, tokens: int) -> int:
    """`tokens`, which must not be past the model's own limit. Raises ValueError."""
    limit = int(model.max_context)
    if tokens > limit:
        raise ValueError(
            f"{name} is {tokens:,} tokens, needed: at most {limit:,}, where {model.title} ends"
        )
    return tokens


def shared_out(model: ModelSpec, gpus: int) -> list[dict[str, Any]]:
    """The layers as one of `gpus` devices holds them under tensor parallelism (arXiv:1909.08053).

    Each device takes an equal share of the query heads and the key/value heads that they read. With
    more devices than key/value heads, a head is held by several; MLA's one latent vector by all.
    Raises ValueError if the heads cannot be shared out evenly.
    """
    layers: list[dict[str, Any]] = model.facts["layers"]
    for g in layers:
        latent = g["vectors"] == 1
        kv_heads = 1 if latent else g["vectors"] // 2
        if g["num_qo_heads"] % gpus or (kv_heads % gpus and gpus % kv_heads):
            heads = f"{g['num_qo_heads']} query heads"
            heads += "" if latent else f" and {kv_heads} key/value heads"
            raise ValueError(
                f"gpus is {gpus}, needed: a number that shares out the {heads} of {model.title} "
                "evenly"
            )
    return formulas.layers_on_one(layers, gpus)


def rate(gpu: Gpu, kind: str) -> Any:
    """Operations a second of `gpu` in "bf16" or "fp8". Raises ValueError where it has none."""
    if kind not in ("bf16", "fp8"):
        raise ValueError(f"compute is {kind!r}, needed: 'bf16' or 'fp8'")
    found = getattr(gpu, kind)
    if found is None:
        raise ValueError(f"compute is {kind!r}, but {gpu.title} has no {kind} products")
    return found
