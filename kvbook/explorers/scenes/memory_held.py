"""What the layers of the memory explorer hold: the rule for windows, and the budget of eviction."""

from __future__ import annotations

from typing import Any

from kvlib.costs.formulas import visible
from kvlib.costs.reserves import layers_as_held


def evicts(layers: list[dict[str, Any]], settings: dict[str, Any]) -> bool:
    """Whether a budget is set, and the model has layers without a window, which alone take one."""
    return settings["budget"] > 0 and min([g["window"] for g in layers]) <= 0


def tokens_kept(layers: list[dict[str, Any]], settings: dict[str, Any]) -> float:
    """Tokens of a request in a layer without a window: its context, or the budget and a new one."""
    most = settings["budget"] + 1 if evicts(layers, settings) else 0
    return visible(settings["context"], most)


def held_rule(layers: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """The rule for windows that is in force.

    A cache that evicts gives back what it does not keep, of windows too (`kvlib.costs.Holding`).
    """
    return "needed" if evicts(layers, settings) else settings["held"]


def layers_held(
    layers: list[dict[str, Any]], settings: dict[str, Any], rule: str, block: float
) -> list[dict[str, Any]]:
    """`layers` by a rule of `kvlib.costs.reserves` and the budget, while decoding; block 0 or 1
    counts single tokens."""
    return layers_as_held(layers, rule, 1, block, [settings["budget"] for g in layers])
