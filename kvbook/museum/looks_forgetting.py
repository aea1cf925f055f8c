"""Looks at windows, cuts, and eviction by score. See `kvbook.museum.looks`."""

from __future__ import annotations

from dataclasses import replace

from kvbook.museum.looks import (
    ANSWER,
    ASKED,
    PROMPT,
    bits_of_a_text,
    paged,
    text,
    windowed,
    zeroed,
)
from kvlib.caches import Cache, DenseCache, KeepAll, PagedCache, Policy, Scored, SnapKV
from kvlib.model.decoder import Decoder
from kvlib.serve import greedy
from kvlib.serve.editing import remove_span

NAMED = ASKED.format("tfre")  # 48 tokens
BEFORE = "import os\nimport re\n"  # 20 tokens, to be cut out again


def a_window_of_one(model: Decoder) -> str:
    """the same weights with a window of 1 token, on a given text"""
    model = windowed(model, 1)
    return bits_of_a_text(model, DenseCache(model.layer_specs, 1, 256, retention=KeepAll()))


def with_learned_sinks(model: Decoder) -> str:
    """the same weights and a learned sink with a score of 8 in each query head, on a given text"""
    config, xp = model.config, model.xp
    sink = xp.full((config.num_attention_heads,), 8.0, dtype=model.dtype)
    names = [f"layers.{i}.sinks.weight" for i in range(config.num_hidden_layers)]
    weights = {**model.weights, **dict.fromkeys(names, sink)}
    model = Decoder(replace(config, sinks=True), weights, model.tokenizer)
    return bits_of_a_text(model, zeroed(model))


def two_cuts(model: Decoder) -> str:
    """a name asked for after 10 earlier tokens were cut out of the text, and then 10 more"""
    return _answer(model, zeroed(model), BEFORE + NAMED, 10, 10)


def _answer(model: Decoder, cache: Cache, prompt: str, *cuts: int) -> str:
    """What follows a prompt, some of whose first tokens are cut out; it stays in the cache."""
    fed = model.tokenizer.encode(prompt)
    new: list[int] = []
    cache.add("a")
    if cuts:
        model.forward(fed[:-1], cache, cache.plan(["a"], [len(fed) - 1]))
        fed = fed[-1:]
    for n in cuts:
        remove_span(model, cache, "a", 0, n)
    while len(new) < ANSWER:
        logits = model.forward(fed, cache, cache.plan(["a"], [len(fed)]))
        fed = [int(greedy(logits)[0])]
        new += fed
    return repr(model.tokenizer.decode(new))


def a_prompt_twice_through_windows(model: Decoder) -> str:
    """a prompt sent again, so that the cache holds all of it; layer 0 has a window of 14 tokens"""
    windows = (14,) + (None,) * (model.config.num_hidden_layers - 1)
    model = Decoder(replace(model.config, windows=windows), model.weights, model.tokenizer)
    cache = paged(model, 60, 13)
    text(model, [PROMPT], cache, ANSWER)
    return text(model, [PROMPT], cache, ANSWER)


# Eviction by score --------------------------------------------------------------------------------


def bytes_under_a_budget(model: Decoder) -> str:
    """a name asked for under a budget of 24 tokens per head: the answer, and the bytes in use"""
    cache = _scored(model, SnapKV(window=8), 24)
    answer, pool = _answer(model, cache, NAMED), cache.pool
    held = cache.memory().reserved * (pool.num_blocks - pool.num_free) // pool.num_blocks
    return f"{answer}, {held:,} bytes"


def _scored(model: Decoder, policy: Policy, budget: int) -> PagedCache:
    return paged(model, 300, 4, retention=Scored(policy, budget, every=4))
