"""What a cache holds of each request: the rule for layers with a window, blocks, and a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kvlib.config.words import shown
from kvlib.costs.checks import count
from kvlib.costs.layers import LayerGroup
from kvlib.costs.reserves import layers_as_held

Budget = int | Sequence[int | None] | None

RESERVES: Mapping[str, str] = MappingProxyType(
    {
        "needed": "the tokens that its queries see",
        "transformers": "window - 1 tokens, as transformers keeps between steps",
        "vllm": "whole blocks, in groups of layers that vLLM pads to one size",
        "all": "every token, as an engine without groups of layers does",
    }
)
VLLM_BLOCK = 16  # DEFAULT_BLOCK_SIZE in vllm/config/cache.py


@dataclass(frozen=True)
class Holding:
    """How much of a request a cache holds, by the rules of `kvlib.costs.reserves`.

    reserve  one of RESERVES: what a layer with a window holds
    step     new tokens of a step
    block    tokens of a block, 0 without blocks
    budget   tokens that eviction leaves in a layer without a window, between two steps: a number
             for all such layers, one (or None) for each layer of the model, or None for no eviction
    """

    reserve: str = "needed"
    step: int = 1
    block: int = 0
    budget: int | tuple[int | None, ...] | None = None

    @classmethod
    def of(
        cls,
        groups: Sequence[LayerGroup],
        block_size: object = None,
        reserve: str = "needed",
        step: object = 1,
        budget: Budget = None,
    ) -> Holding:
        """The same, checked for a model with these layers.

        Raises ValueError or TypeError for what makes no sense.
        """
        block = 0 if block_size is None else count("block_size", block_size)
        if reserve not in RESERVES:
            raise ValueError(f"reserve must be one of {', '.join(RESERVES)}, got {shown(reserve)}")
        if reserve == "transformers" and block:
            raise ValueError(
                f"block_size is {block}, but transformers stores no blocks; leave it out"
            )
        if reserve == "vllm":
            block = block or VLLM_BLOCK
        if budget is not None and reserve != "needed":
            raise ValueError(
                f"reserve is {reserve!r}, but a cache with a budget gives back what it does not "
                "keep; leave one of the two out"
            )
        return cls(reserve, count("step", step), block, _budget(groups, budget))

    def layers(
        self, groups: Sequence[LayerGroup], share: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """What one device holds of these layers, its `share`, with the tokens in each as window."""
        split: list[dict[str, Any]] = []
        budgets: list[float] = []
        for group, part in zip(groups, share, strict=True):
            for budget, layers in Counter(self._budget_of(i) for i in group.indices).items():
                split.append({**part, "count": layers})
                budgets.append(budget)
        return layers_as_held(split, self.reserve, self.step, self.block, budgets)

    @property
    def words(self) -> str:
        """What differs from a cache that holds what it needs, one token per step; may be empty."""
        found = [] if self.reserve == "needed" else [f"reserve {self.reserve}"]
        found += [f"blocks of {self.block:,} tokens"] * (self.block > 0)
        found += [f"steps of {self.step:,} tokens"] * (self.step > 1)
        if isinstance(self.budget, tuple):
            given = [b for b in self.budget if b is not None]
            found += [f"budgets of {min(given):,} to {max(given):,} tokens"] * bool(given)
        elif self.budget:
            found.append(f"budget of {self.budget:,} tokens")
        return ", ".join(found)

    def _budget_of(self, layer: int) -> int:
        if isinstance(self.budget, tuple):
            return self.budget[layer] or 0
        return self.budget or 0


def _budget(groups: Sequence[LayerGroup], budget: Budget) -> int | tuple[int | None, ...] | None:
    if budget is None:
        return None
    windows = {i: group.window for group in groups for i in group.indices}
    if all(windows.values()):
        raise ValueError(
            "budget is for layers without a window, and every layer of this model has one; "
            "leave it out"
        )
    if not isinstance(budget, (list, tuple)):
        return count("budget", budget)
    if len(budget) != len(windows):
        raise ValueError(
            f"budget has {len(budget)} numbers, needed: one number for all layers, or one for each "
            f"of the {len(windows)} layers"
        )
    for i, given in enumerate(budget):
        if given is not None and windows[i]:
            raise ValueError(
                f"budget of layer {i} is {shown(given)}, but the layer keeps its window of "
                f"{windows[i]:,} tokens; needed: None"
            )
    names = [f"budget of layer {i}" for i in range(len(budget))]
    return tuple(None if b is None else count(n, b) for n, b in zip(names, budget, strict=True))
