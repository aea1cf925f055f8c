"""Tests that catch the bugs of the museum: windows, cuts, eviction by score. See `guards`."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvbook.museum.guards_stores import random_qkv
from kvbook.museum.tiny import close, prompt, small_model, weights
from kvlib.attention import attend, attend_causal, attend_tiled
from kvlib.caches import (
    BlockPool,
    DenseCache,
    KNorm,
    LayerSpec,
    PagedCache,
    Policy,
    Scored,
    Sinks,
)
from kvlib.config.rope import RopeConfig
from kvlib.model.decoder import Decoder
from kvlib.model.rope import frequencies
from kvlib.serve.editing import remove_span


def windows_of_every_size() -> None:
    """Windows of 1, 2 and 5 tokens, one query over up to twice as many keys."""
    for window in (1, 2, 5):
        for s in range(1, 2 * window + 2):
            seen = int((weights(1, s, window=window) > 0).sum())
            assert seen == min(s, window), f"a window of {window} over {s} keys sees {seen}"


def a_sink_takes_its_share_in_every_form() -> None:
    """With a sink z, attention is what it is without, times 1 / (1 + e^(z - lse))."""
    sinks, at = np.asarray([-1, 0, 1, 2], np.float32), np.arange(9)
    for t in (1, 3):
        q, k, v = random_qkv(t, 9)
        o, lse = (np.asarray(x) for x in attend(q, k, v, at[-t:], at, return_lse=True))
        wanted = o / (1 + np.exp(sinks - lse))[..., None]
        by_head = k.transpose(1, 0, 2), v.transpose(1, 0, 2)
        close(attend(q, k, v, at[-t:], at, sinks=sinks), wanted)
        close(attend_tiled(q, k, v, at[-t:], at, sinks=sinks, tile=4), wanted)
        close(attend_causal(q, *by_head, sinks=sinks), wanted)


def every_layer_turns_by_its_own_rope() -> None:
    """One token again and again: its keys differ by their rotation alone, in every layer."""
    model = small_model(windows=(3, None))
    fast, slow = RopeConfig(), RopeConfig(kind="linear", factor=8.0)
    model = Decoder(replace(model.config, rope=slow, window_rope=fast), model.weights)
    cache = model.new_cache(1, 8)
    cache.add("a")
    model.forward([7] * 6, cache, cache.plan(["a"], [6]))
    for layer, rope in enumerate((fast, slow)):
        k, _, at = (np.asarray(x) for x in cache.read(layer, "a"))
        z = k[..., :4] + 1j * k[..., 4:]  # (T, Hkv, D/2)
        turned = np.exp(1j * (at - at[0])[:, None] * frequencies(rope, 8))
        close(z, z[0] * turned[:, None, :])


def two_cuts_are_one() -> None:
    """Seven tokens cut out at once, or first three and then four: the keys of layer 0."""
    model, ids = small_model(), prompt(14)
    fresh = model.new_cache(1, 16)
    fresh.add("a")
    model.forward(ids[:2] + ids[9:], fresh, fresh.plan(["a"], [7]))
    for cuts in ([(2, 9)], [(2, 5), (2, 6)]):
        cache = model.new_cache(1, 16)
        cache.add("a")
        model.forward(ids, cache, cache.plan(["a"], [14]))
        for cut in cuts:
            remove_span(model, cache, "a", *cut)
        close(cache.read(0, "a")[0], fresh.read(0, "a")[0])


def a_prompt_sent_twice_gets_the_same_logits() -> None:
    """A prompt that fills its blocks exactly, through full layers and through a window."""
    for windows in ((None, None), (5, None)):
        model, ids, seen = small_model(windows), prompt(8), []
        cache = PagedCache(model.layer_specs, BlockPool(24, 4), xp=np)
        for name in "ab":
            held = cache.add(name, ids)
            step = cache.plan([name], [len(ids) - held], ids[held:])
            seen.append(model.forward(ids[held:], cache, step))
            assert cache.seq_len(name) == len(ids)
            cache.free(name)
        close(*seen)


@dataclass(frozen=True)
class _Shown(Policy):
    """Keeps the probabilities that it is shown."""

    queries: int | None = None
    found: list[np.ndarray] = field(default_factory=list, compare=False)

    def fold(self, notes: Any, p: Any) -> Any:
        self.found.append(np.asarray(p))
        return p[:, 0, -1, :]


def the_future_changes_no_score() -> None:
    """Each query's probabilities are 0 for the keys after it, and add up to 1."""
    q, k, v = random_qkv(20, 20)
    policy = _Shown()
    cache = DenseCache([LayerSpec(2, 8)], 1, 24, retention=Scored(policy, 22), xp=np)
    cache.add("a")
    step = cache.plan(["a"], [20])
    cache.append(0, k, v, step)
    cache.run(0, q, step)
    cache.plan(["a"], [1])
    (p,) = policy.found  # (Hkv, G, T, S)
    assert (p == np.tril(p)).all(), "a query gave weight to a key after it"
    close(p.sum(axis=-1), 1.0)


def a_budget_bounds_the_bytes() -> None:
    """Blocks of a text of 16 tokens under a budget of four per kv head, and two until the next."""
    model, ids = small_model(), prompt(16)
    pool = BlockPool(60, 2)
    retention = Scored(KNorm(recent=2), budget=4, every=2)
    cache = PagedCache(model.layer_specs, pool, retention=retention, xp=np)
    layers, heads, dim, float32 = 2, 2, 8, 4
    most = layers * 6 * 2 * heads * dim * float32  # 6 tokens, keys and values
    cache.add("a")
    for token in ids:
        model.forward([token], cache, cache.plan(["a"], [1]))
        held = cache.memory().reserved * (pool.num_blocks - pool.num_free) // pool.num_blocks
        assert held <= most, f"{held} bytes, at most {most} wanted"
    cache.free("a")
    assert pool.num_free == pool.num_blocks


def the_next_token_stands_at_the_end_of_the_text() -> None:
    """Positions of new tokens after others were given back."""
    model, ids = small_model(), prompt(12)
    cache = DenseCache(model.layer_specs, 1, 16, retention=Sinks(1, 3), xp=np)
    cache.add("a")
    for a, b in ((0, 8), (8, 9), (9, 12)):
        step = cache.plan(["a"], [b - a])
        assert step.positions.tolist() == [*range(a, b)]
        model.forward(ids[a:b], cache, step)
