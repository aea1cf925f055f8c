"""What a cache spares: operations to generate a text with it and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlib.costs import formulas
from kvlib.costs.catalogue import MODELS
from kvlib.costs.checks import count, one_of
from kvlib.costs.limits import within
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Flops, Tokens


@dataclass(frozen=True)
class Sides:
    """The same quantity with a cache and without."""

    cached: Any
    recomputed: Any

    @property
    def ratio(self) -> float:
        """How many times more it is without the cache."""
        return float(self.recomputed / self.cached)


@dataclass(frozen=True)
class Comparison:
    """Operations to generate text with a cache and without: the total, and its parts.

    passes counts tokens that go through the layers; linear and attention are Flops.

    >>> uncached("llama-2-7b", prompt=1024, new=100).passes.ratio > 95
    True
    """

    passes: Sides
    linear: Sides
    attention: Sides

    @property
    def cached(self) -> Flops:
        return self.linear.cached + self.attention.cached  # type: ignore[no-any-return]

    @property
    def recomputed(self) -> Flops:
        return self.linear.recomputed + self.attention.recomputed  # type: ignore[no-any-return]

    @property
    def ratio(self) -> float:
        """How many times as many operations are needed without the cache."""
        return Sides(self.cached, self.recomputed).ratio

    def __repr__(self) -> str:
        rows = [("linear", self.linear), ("attention", self.attention)]
        rows.append(("total", Sides(self.cached, self.recomputed)))
        lines = [f"{'':>11}{'cached':>15}{'recomputed':>15}{'ratio':>9}"]
        for name, x in rows:
            lines.append(f"{name:>11}{str(x.cached):>15}{str(x.recomputed):>15}{x.ratio:>9.1f}")
        return "\n".join(lines)


def uncached(model: ModelSpec | str, prompt: int, new: int) -> Comparison:
    """Operations to generate `new` tokens after `prompt`, with a cache and without.

    Without a cache, each step computes all tokens again. The last new token never goes through the
    layers. All rows go through the output head here, as in the simplest programs; if only the
    wanted rows do, the total ratio is a little smaller. Raises the same errors as `prefill`.

    >>> found = uncached("llama-2-7b", prompt=1024, new=100)
    >>> round(found.linear.ratio, 1)  # 107,350 against 1,123 tokens through the weights
    95.6
    """
    spec = one_of("model", model, MODELS, ModelSpec)
    prompt, new = count("prompt", prompt), count("new", new)
    within(spec, "prompt + new - 1", prompt + new - 1)
    slow = formulas.uncached_flops(spec.facts, prompt, new)
    fast = formulas.cached_flops(spec.facts, prompt, new)
    return Comparison(
        passes=Sides(Tokens(fast["tokens"]), Tokens(slow["tokens"])),
        linear=Sides(Flops(fast["linear"]), Flops(slow["linear"])),
        attention=Sides(Flops(fast["attention"]), Flops(slow["attention"])),
    )
