"""Operations on caches that forget: a window, sinks, each policy, a rule for each layer.

The model of retention_model.py says what a cache must hold, to the token where the rule does.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import oracle
import pytest
from killers_lives import Life
from retention_model import Held

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, caches
from kvlib.codecs import fp8
from kvlib.testing.memory import check_bill
from kvlib.testing.rounding import sum_bound
from kvlib.testing.schedule import close

OPERATIONS, LIVES = 40, 25  # of each of the twelve rules
MAX_SEQS, MAX_SEQ_LEN = 3, 48


class Forgetful(Life):
    """A life in which a model follows each request in each layer, through the cache's calls."""

    def __init__(self, seed: int, cache: Any, rules: list[Any]) -> None:
        super().__init__(seed, cache)
        self.layer_rules, self.models = rules, dict[int, list[Held]]()
        self.done, self.too_near = Counter[str](), 0
        calls = dict(add=self.add, plan=self.plan, truncate=self.truncate, free=self.free)
        for name, follow in {**calls, "fork": self.copy}.items():
            setattr(cache, name, partial(follow, getattr(cache, name)))

    # What the models are told -------------------------------------------------------------------

    def add(self, add: Any, name: int, tokens: list[int], extra: tuple) -> int:
        held: int = add(name, tokens, extra=extra)
        self.models[name] = [self.new_model(layer, held) for layer in self.each_layer]
        return held

    def plan(self, plan: Any, names: list[int], q_lens: list[int], tokens: list[int]) -> Any:
        lengths = [self.cache.seq_len(name) for name in names]
        step = plan(names, q_lens, tokens)
        for name, n, length in zip(names, q_lens, lengths, strict=True):
            for layer, model in enumerate(self.models[name]):
                keys, values = (partial(self.exact, layer, name, which) for which in (0, 1))
                found = self.found_at(layer, name)
                self.too_near += model.plan(length, n, keys, values, found)
        return step

    def new_model(self, layer: int, length: int) -> Held:
        model = Held(self.layers[layer], self.layer_rules[layer], 2)
        assert not (model.exact and length), "blocks with holes were found"
        for positions in model.positions:
            positions.extend(range(length))
        self.done["prefix hit"] += length > 0
        return model

    def copy(self, fork: Any, name: int, new: int) -> None:
        fork(name, new)
        self.models[new] = [model.copy() for model in self.models[name]]

    def truncate(self, truncate: Any, name: int, length: int) -> None:
        firsts = [self.first_at(layer, name) for layer in self.each_layer]
        models = self.models[name]
        lost = any(model.refuses(length, a) for model, a in zip(models, firsts, strict=True))
        try:
            truncate(name, length)
        except ValueError as error:
            assert lost and "cannot be truncated" in str(error), error
            raise
        assert not lost, f"{name} went back to {length}, and a layer lacks what it needs there"
        for model in models:
            model.truncate(length)

    def free(self, free: Any, name: int) -> None:
        free(name)
        del self.models[name]

    def give_up(self, before: dict[int, int]) -> None:
        """A pass that stopped halfway is undone, which is always possible."""
        for name, length in before.items():
            self.cache.truncate(name, length)
            del self.texts[name].tokens[length:]
            self.texts[name].begun = length

    # What must be there -------------------------------------------------------------------------

    @property
    def each_layer(self) -> range:
        return range(len(self.layers))

    def exact(self, layer: int, name: int, which: int) -> np.ndarray:
        return self.expected(layer, name)[which].astype(np.float64)

    def found_at(self, layer: int, name: int) -> np.ndarray:
        """The positions (Hkv, n) that the cache says it holds."""
        positions = self.cache.read(layer, name)[2]
        return np.broadcast_to(positions, (self.layers[layer].num_kv_heads, positions.shape[-1]))

    def first_at(self, layer: int, name: int) -> int:
        return int(self.found_at(layer, name).min(initial=self.cache.seq_len(name)))

    def needed(self, layer: int, name: int) -> np.ndarray:
        """(Hkv, n). A window may hold a few tokens more, in one block with one that stays."""
        model, rule, text = self.models[name][layer], self.layer_rules[layer], self.texts[name]
        if model.exact:
            return np.array(model.positions, int)
        first, length = self.first_at(layer, name), len(text.tokens)
        if isinstance(rule, caches.Window):
            slack = self.cache.block_size or max(1, rule.size // 4) + 1
            assert first <= max(0, length - rule.size + 1), f"a window of {length} from {first} on"
            if length > text.begun and self.cache.block_size is not None:
                assert first > text.begun - rule.size + 1 - slack, f"{name} still holds {first}"
        else:
            assert first == 0, f"layer {layer} of {name} keeps all and lacks {first} tokens"
        return np.tile(np.arange(first, length), (self.layers[layer].num_kv_heads, 1))

    def compare(self) -> None:
        check_bill(self.cache)
        if self.pool is not None:
            self.compare_blocks()
        for name, text in self.texts.items():
            assert self.cache.seq_len(name) == len(text.tokens)
            for layer in self.each_layer:
                self.compare_layer(layer, name)

    def compare_layer(self, layer: int, name: int) -> None:
        """Each head holds what the definition says, and every number of it is right."""
        *stored, _ = self.cache.read(layer, name)
        found, needed = self.found_at(layer, name), self.needed(layer, name)
        assert (found.shape == needed.shape) and (found == needed).all(), (
            f"layer {layer} ({self.layer_rules[layer]}) of {name} holds {found.tolist()}, needed "
            f"{needed.tolist()}"
        )
        for x, whole in zip(stored, self.expected(layer, name), strict=True):
            assert (x == whole[needed.T, np.arange(len(needed))]).all(), f"{name} has changed"
        self.done["heads that differ"] += len({own.tobytes() for own in needed}) > 1

    def attend(self, layer: int, step: Any) -> None:
        spec = self.layers[layer]
        if self.below(5) == 0:  # the last rows alone, as the last layer of a model runs
            step = step.last([1 + layer % n for n in step.q_lens])
        shape = (step.num_tokens, 2 * spec.num_kv_heads, spec.head_dim)
        q = self.rng.standard_normal(shape, dtype=np.float32)
        o, lse = self.cache.run(layer, q, step, return_lse=True)
        for i, name in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            self.models[name][layer].run(q[rows].copy(), step.seq_lens[i] - step.q_lens[i])
            positions = self.needed(layer, name)
            k, v = (x[positions.T, np.arange(len(positions))] for x in self.expected(layer, name))
            right = oracle.attention(
                q[rows], k, v, step.positions[rows], positions, **spec.settings
            )
            for got, needed in zip((o, lse), right, strict=True):
                bound = sum_bound(spec.head_dim + MAX_SEQ_LEN, 4.0)
                close(got[rows].astype(np.float64), needed, f"layer {layer} of {name}", bound)
            self.done["results compared"] += 1
        q[...] = np.nan  # the array is the caller's again


def in_rows(codec: Any = None) -> Callable[..., Any]:
    def make(layers: list[LayerSpec], rules: list[Any]) -> Any:
        return DenseCache(layers, MAX_SEQS, MAX_SEQ_LEN, codec=codec, retention=rules, xp=np)

    return make


def in_blocks(size: int, requests: float = MAX_SEQS + 1, codec: Any = None) -> Callable[..., Any]:
    """Blocks for so many requests of full length."""

    def make(layers: list[LayerSpec], rules: list[Any]) -> Any:
        groups = len(caches.layer_groups(layers, rules))
        pool = BlockPool(int(requests * -(-MAX_SEQ_LEN // size)) * groups, size)
        return PagedCache(layers, pool, codec=codec, retention=rules, xp=np)

    return make


HOMES: dict[str, Callable[..., Any]] = {
    "blocks of 4": in_blocks(4), "rows": in_rows(), "blocks of 1": in_blocks(1),
    "a small pool": in_blocks(4, 1.2), "codes in blocks": in_blocks(8, codec=fp8()),
    "codes in rows": in_rows("int8"),
}

# W → the rules of two or three layers, and which of these look at a window
Chosen = tuple[list[Any], list[int | None]]
Rule = Callable[[int], Chosen]


def everywhere(rule: Callable[[int], Any]) -> Rule:
    return lambda w: ([rule(w)] * 2, [None] * 2)


def by(policy: caches.Policy, every: int = 1) -> Rule:
    return everywhere(lambda w: caches.Scored(policy, w + 2, every))


RULES: dict[str, Rule] = {
    "window": lambda w: ([caches.Window(w)] * 2, [w, w]),
    "windows beside all": lambda w: (
        [caches.Window(w), caches.KeepAll(), caches.Window(w + 3)], [w, None, w + 3],
    ),
    "sinks": everywhere(lambda w: caches.Sinks(2, w)),
    "sinks, three at a time": everywhere(lambda w: caches.Sinks(1, w, every=3)),
    "k-norm": by(caches.KNorm(recent=1)),
    "tova": by(caches.Tova()),
    "h2o": by(caches.H2O(recent=2), every=2),
    "h2o by mean": by(caches.H2O(recent=1, mean=True)),
    "snapkv": by(caches.SnapKV(window=2, kernel=3)),
    "snapkv by maximum": by(caches.SnapKV(window=2, kernel=3, pooling="max")),
    "expected attention": by(caches.ExpectedAttention((1.0, 0.4, 0.1, 0.02), future=5, sinks=2)),
    "one rule per layer": lambda w: (
        [caches.Scored(caches.H2O(1), w), caches.Window(w), caches.Sinks(1, w),
         caches.Scored(caches.KNorm(), w + 1)], [None, w, None, None],
    ),
}


def life(name: str, seed: int, replace: Callable[[Any], Any] = lambda rule: rule) -> Forgetful:
    """A life under rules of that name, or what `replace` makes of them, in each home in turn."""
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
    return Forgetful(seed, home(specs, [replace(rule) for rule in rules]), rules)


@pytest.mark.untraced
@pytest.mark.parametrize("rule", RULES)
def test_any_life_holds_what_the_rule_says(rule: str, effort: Any, record_property: Any) -> None:
    seeds = effort.share("lives that forget", range(LIVES), usual=3, quick=1)
    done = life(rule, seeds[0]).done
    for seed in seeds:
        one = life(rule, seed)
        with np.errstate(all="ignore"):  # NaN that is read shows in the results
            one.play(OPERATIONS)
        for open_name in list(one.texts):
            one.cache.free(open_name)
        assert one.pool is None or one.pool.num_free == one.pool.num_blocks, "blocks have leaked"
        done += one.done
        done["scores too near to tell"] += one.too_near
    record_property("done", dict(done))
    assert done["results compared"] > 10 * len(seeds)
    assert done["scores too near to tell"] <= 1


def test_it_sees_a_token_that_stays_too_long() -> None:
    """The model is no copy of the cache: what one token more or less changes, it finds."""

    class OneMore(caches.Sinks):
        def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
            return (positions < self.first_tokens) | (positions >= length - self.recent)

    with pytest.raises(AssertionError, match="off by|holds .*, needed"):
        life("sinks", 0, lambda rule: OneMore(rule.first_tokens, rule.recent)).play(80)
