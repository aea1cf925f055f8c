"""12,000 operations on caches that forget: a window, sinks, each policy, a rule for each layer.

`make test` plays three of every 25, KVLIB_TESTS=whole all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from retention_checks import MAX_SEQ_LEN, MAX_SEQS
from retention_lives import Life

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache
from kvlib.caches import (
    H2O,
    ExpectedAttention,
    KeepAll,
    KNorm,
    Policy,
    Scored,
    Sinks,
    SnapKV,
    Tova,
    Window,
    layer_groups,
)
from kvlib.codecs import fp8

OPERATIONS, LIVES = 40, 25  # of each of the twelve rules


def in_rows(codec: Any = None) -> Callable[..., Any]:
    def make(layers: list[LayerSpec], rules: list[Any]) -> Any:
        return DenseCache(layers, MAX_SEQS, MAX_SEQ_LEN, codec=codec, retention=rules, xp=np)

    return make


def in_blocks(size: int, requests: float = MAX_SEQS + 1, codec: Any = None) -> Callable[..., Any]:
    """Blocks for so many requests of full length."""

    def make(layers: list[LayerSpec], rules: list[Any]) -> Any:
        groups = len(layer_groups(layers, rules))
        pool = BlockPool(int(requests * -(-MAX_SEQ_LEN // size)) * groups, size)
        return PagedCache(layers, pool, codec=codec, retention=rules, xp=np)

    return make


HOMES: dict[str, Callable[..., Any]] = {
    "blocks of 4": in_blocks(4),
    "rows": in_rows(),
    "blocks of 1": in_blocks(1),
    "a small pool": in_blocks(4, 1.2),
    "codes in blocks": in_blocks(8, codec=fp8()),
    "codes in rows": in_rows("int8"),
}

# W → the rules of two or three layers, and which of these look at a window
Chosen = tuple[list[Any], list[int | None]]
Rule = Callable[[int], Chosen]


def everywhere(rule: Callable[[int], Any]) -> Rule:
    return lambda w: ([rule(w)] * 2, [None] * 2)


def by(policy: Policy, every: int = 1) -> Rule:
    return everywhere(lambda w: Scored(policy, w + 2, every))


RULES: dict[str, Rule] = {
    "window": lambda w: ([Window(w)] * 2, [w, w]),
    "windows beside all": lambda w: ([Window(w), KeepAll(), Window(w + 3)], [w, None, w + 3]),
    "sinks": everywhere(lambda w: Sinks(2, w)),
    "sinks, three at a time": everywhere(lambda w: Sinks(1, w, every=3)),
    "k-norm": by(KNorm(recent=1)),
    "tova": by(Tova()),
    "h2o": by(H2O(recent=2), every=2),
    "h2o by mean": by(H2O(recent=1, mean=True)),
    "snapkv": by(SnapKV(window=2, kernel=3)),
    "snapkv by maximum": by(SnapKV(window=2, kernel=3, pooling="max")),
    "expected attention": by(ExpectedAttention((1.0, 0.4, 0.1, 0.02), future=5, sinks=2)),
    "one rule per layer": lambda w: (
        [Scored(H2O(1), w), Window(w), Sinks(1, w), Scored(KNorm(), w + 1)],
        [None, w, None, None],
    ),
}


def life(name: str, seed: int) -> Life:
    """A life under rules of that name; each has seeds of its own, and goes through all homes."""
    number = list(RULES).index(name)
    home = list(HOMES.values())[(seed + number) % len(HOMES)]
    seed += 100 * number
    rng = np.random.default_rng(seed)
    edge = int(rng.integers(3, 10))
    rules, windows = RULES[name](edge)
    heads = int(rng.integers(1, 3))
    specs = []
    for window in windows:
        sinks = rng.standard_normal(2 * heads).astype(np.float32) if rng.random() < 0.3 else None
        softcap, scale = (x if rng.random() < 0.3 else None for x in (1.5, 0.7))
        specs.append(
            LayerSpec(heads, 8, window=window, sinks=sinks, softcap=softcap, sm_scale=scale)
        )
    return Life(seed, home, specs, rules, edge)


@pytest.mark.untraced
@pytest.mark.parametrize("rule", RULES)
def test_any_life_holds_what_the_rule_says(rule: str, effort: Any, record_property: Any) -> None:
    seeds = effort.share("lives that forget", range(LIVES), usual=3, quick=1)
    done = life(rule, seeds[0]).done
    for seed in seeds:
        one = life(rule, seed)
        one.play(OPERATIONS)
        done += one.done
        done["scores too near to tell"] += one.too_near
    record_property("done", dict(done))
    assert done["results compared"] > 10 * len(seeds)
    assert done["scores too near to tell"] <= 1


def test_it_sees_a_token_that_stays_too_long() -> None:
    """The model is no copy of the cache: what one token more or less changes, it finds."""

    class OneMore(Sinks):
        def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
            return (positions < self.first_tokens) | (positions >= length - self.recent)

    one = life("sinks", 0)
    wrong = [OneMore(rule.first_tokens, rule.recent) for rule in one.rules]
    with pytest.raises(AssertionError, match="off by|holds .*, needed"):
        Life(0, lambda specs, _: in_rows()(specs, wrong), one.specs, one.rules, one.edge).play(80)
