"""Every allocator with every codec, every rule for what stays, and every way to attend.

A bug of two parts shows wherever the two meet, so a greedy search picks combinations until each
pair that is allowed has met, and random lives of each are compared with float64.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from caches import poison_all

from kvlib import BlockPool, Cache, LayerSpec, PagedCache, QuantizedCache, testing
from kvlib.caches import H2O, KeepAll, Scored, Sinks, Window, layer_groups, run_alone, run_cascade
from kvlib.codecs import codec as codec_of
from kvlib.codecs import fp8, int8, int8_per_channel, kivi
from kvlib.kernels import Kernels
from kvlib.kernels.caches import unsuited
from kvlib.testing.check import must_hold


def by_kernels(cache: Any, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
    """The kernels' twins, where they suit the layer."""
    if unsuited(cache, layer) is not None:
        return cache.attend(layer, q, step, return_lse)
    return Kernels(run_on="twin")(cache, layer, q, step, return_lse)


BLOCKS = {"rows": None, "blocks of 8": 8, "blocks of 16": 16, "blocks of 64": 64}
CODECS = {
    "plain": codec_of("plain"), "int8": int8(), "int8, 3 wait": int8(3),
    "int8 by channel": int8_per_channel(8), "kivi": kivi(4, 8, 5), "fp8": fp8(),
}
RULES: dict[str, Any] = {
    "its window": None, "all": KeepAll(), "the last 12": Window(12), "2 first, 6 last": Sinks(2, 7),
    "9 a head, by score": Scored(H2O(2), 9, every=2),
}
ATTENTION: dict[str, Callable[..., Any] | None] = {
    "its own": None, "one by one": run_alone, "cascade": run_cascade, "over read": Cache.attend,
    "kernels": by_kernels,
}
PARTS = (BLOCKS, CODECS, RULES, ATTENTION)
Chosen = tuple[str, str, str, str]


def allowed(*parts: str) -> bool:
    """Cascade needs blocks, rules with holes codecs that write each token alone."""
    waits = any(name in parts and codec.waits for name, codec in CODECS.items())
    holes = any(name in parts and rule is not None and rule.holes for name, rule in RULES.items())
    narrow = "int8 by channel" in parts or "kivi" in parts
    return not (
        ("rows" in parts and "cascade" in parts)
        or (holes and waits)
        or ("kernels" in parts and narrow)
    )


def pairs_of(chosen: Sequence[str]) -> set[tuple[str, str]]:
    return set(itertools.combinations(chosen, 2))


EVERY = [chosen for chosen in itertools.product(*PARTS) if allowed(*chosen)]
NEEDED = set().union(*(pairs_of(chosen) for chosen in EVERY))


def in_pairs() -> list[Chosen]:
    """Few combinations in which every allowed pair meets: each adds as many as it can."""
    left, found = set(NEEDED), list[Chosen]()
    while left:
        best = max(EVERY, key=lambda chosen: len(pairs_of(chosen) & left))
        found.append(best)
        left -= pairs_of(best)
    return found


def build(chosen: Chosen) -> Callable[[Sequence[LayerSpec]], Any]:
    home, codec, rule, attention = (part[name] for part, name in zip(PARTS, chosen, strict=True))
    more = {"retention": rule, "attention": attention, "xp": np}

    def make(layers: Sequence[LayerSpec]) -> Any:
        if home is None:
            cache: Any = QuantizedCache(layers, codec, 4, 40, **more)
        else:
            blocks = 5 * -(-40 // home) * len(layer_groups(layers, rule))
            cache = PagedCache(layers, BlockPool(blocks, home), codec=codec, **more)
        poison_all(cache)
        return cache

    return make


@pytest.mark.untraced
@pytest.mark.parametrize("chosen", in_pairs(), ids=" + ".join)
def test_any_life(chosen: Chosen, effort: Any) -> None:
    seeds = effort.share("lives of parts in pairs", range(12), usual=4, quick=1)
    rule, unit = RULES[chosen[2]], 64 if chosen[3] == "kernels" else 8
    for seed in seeds:
        forgets = rule is not None and rule != KeepAll()
        keeps = must_hold(rule) if forgets else None
        trial = testing.check_cache(
            build(chosen), schedules=1, seed=seed, unit=unit, keeps=keeps, xp=np
        )
        assert trial, trial


def test_each_pair_has_met() -> None:
    met = set().union(*(pairs_of(chosen) for chosen in in_pairs()))
    assert met == NEEDED and len(in_pairs()) < 40
    possible = sum(len(a) * len(b) for a, b in itertools.combinations(PARTS, 2))
    refused = [pair for a, b in itertools.combinations(PARTS, 2)
               for pair in itertools.product(a, b) if not allowed(*pair)]  # fmt: skip
    assert len(met) + len(refused) == possible
    # rows with cascade; two rules with holes and the three codecs that wait; kernels with two
    assert len(refused) == 1 + 2 * 3 + 2


def test_what_cannot_be_combined_is_refused_in_words() -> None:
    layers = [LayerSpec(1, 8)]
    cache = build(("rows", "plain", "its window", "cascade"))(layers)
    cache.add("a")
    x = np.zeros((1, 1, 8), np.float32)
    step = cache.plan(["a"], [1])
    cache.append(0, x, x, step)
    with pytest.raises(TypeError, match="cache must be a PagedCache, whose blocks can be shared"):
        cache.run(0, x, step)
    with pytest.raises(ValueError, match="encodes tokens later and together"):
        build(("blocks of 8", "kivi", "2 first, 6 last", "its own"))(layers)
