"""The slots that the decode loop runs on, and the model behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights
from kvlib.serve import greedy


class Slots:
    """A model over numbered slots, as many small programs keep it, without a check of the numbers.

    ``slots(tokens, start)`` runs the tokens at positions start, start + 1, ..., writes their keys
    and values into the slots of the same numbers, attends to every slot up to the last one
    written, and returns the logits (V,) of the last token. Slots hold zeros until written.

    model a Decoder; max_seq_len slots a layer. ``calls`` lists (tokens, start) of every call.
    """

    def __init__(self, model: Decoder, max_seq_len: int) -> None:
        self.model, self.cache = model, model.new_cache(1, max_seq_len)
        self.cache.add("slots")
        self.calls: list[tuple[list[int], int]] = []

    def __call__(self, tokens: Sequence[int], start: int) -> Any:
        tokens, start, cache = [int(t) for t in tokens], int(start), self.cache
        self.calls.append((tokens, start))
        gap = start - cache.seq_len("slots")
        if gap < 0:
            cache.truncate("slots", start)
        if gap > 0:  # the slots that the caller leapt over are attended to: they hold zeros
            step = cache.plan(["slots"], [gap])
            for layer, spec in enumerate(cache.layers):
                shape = (gap, spec.num_kv_heads, spec.head_dim)
                zeros = cache.xp.zeros(shape, dtype=cache.dtype)
                cache.append(layer, zeros, zeros, step)
        step = cache.plan(["slots"], [len(tokens)])
        return self.model.forward(tokens, cache, step)[0]


def tiny_model() -> Decoder:
    """A random Llama of 2 layers: fast, and its greedy tokens win by a clear margin."""
    config = ModelConfig("llama", 64, 32, 48, 2, 4, 2, 8, 64)
    return Decoder(config, random_weights(config, seed=3, xp=np))


def logits_after(model: Decoder, tokens: Sequence[int]) -> Any:
    """Logits (V,) after a text, computed from nothing."""
    cache = model.new_cache(1, len(tokens))
    cache.add("text")
    return model.forward(tokens, cache, cache.plan(["text"], [len(tokens)]))[0]


def recompute(model: Decoder, prompt: Sequence[int], n: int) -> list[int]:
    """n greedy tokens, every step from nothing."""
    tokens = list(prompt)
    for _ in range(n):
        tokens += greedy(logits_after(model, tokens)[None, :])
    return tokens[len(prompt) :]
