"""What the museum's tests share: a model whose steps take a millisecond, and ways to feed it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from kvlib.attention import attend_causal
from kvlib.model.config import ModelConfig
from kvlib.model.decoder import Decoder
from kvlib.model.weights import random_weights


def small_model(windows: Sequence[int | None] = (None, None)) -> Decoder:
    """Two layers, four query heads on two kv heads of 8, a vocabulary of 31, random weights."""
    config = ModelConfig(
        model_type="llama",
        vocab_size=31,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=48,
        windows=tuple(windows),
    )
    return Decoder(config, dict(_small_weights(config)))


@cache
def _small_weights(config: ModelConfig) -> Mapping[str, Any]:
    return random_weights(config, 0, xp=np)


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random token ids for `small_model`."""
    return np.random.default_rng(seed).integers(0, 31, length).tolist()


def logits_of_all(model: Decoder, ids: Sequence[int]) -> np.ndarray:
    """Logits (T, V) after every token of a text, computed in one step over all of it."""
    held = model.new_cache(1, len(ids))
    held.add("all")
    return np.asarray(model.forward(list(ids), held, held.plan(["all"], [len(ids)]), rows="all"))


def follow(
    model: Decoder,
    texts: Mapping[str, Sequence[int]],
    steps: Sequence[Mapping[str, int]],
    *,
    fill: float = 0.0,
    leave: bool = False,
) -> Iterator[tuple[dict[str, int], dict[str, np.ndarray]]]:
    """Feed texts to one dense cache; each step says how many tokens of each text it takes.

    fill: what the cache's memory holds at first. leave: a text without tokens in a step is freed
    before that step.
    Yields (tokens fed so far, logits of the last one) by name after each step.
    """
    held = model.new_cache(len(texts), 24)
    for x in held.storage():
        x[...] = fill
    for name in texts:
        held.add(name)
    done = dict.fromkeys(texts, 0)
    for step in steps:
        for gone in [n for n in held.seq_ids if leave and n not in step]:
            held.free(gone)
        fed = [list(texts[name][done[name] : done[name] + n]) for name, n in step.items()]
        plan = held.plan(list(step), list(step.values()))
        logits = np.asarray(model.forward(sum(fed, []), held, plan))
        for name, n in step.items():
            done[name] += n
        yield dict(done), dict(zip(step, logits, strict=True))


def weights(t: int, s: int, window: int | None = None) -> np.ndarray:
    """Attention weights (T, S) of one head over random keys: the values are the unit vectors."""
    rng = np.random.default_rng(t + 100 * s)
    q, k = (rng.standard_normal(shape).astype(np.float32) for shape in ((t, 1, 8), (1, s, 8)))
    v = np.eye(s, dtype=np.float32)[None]
    return np.asarray(attend_causal(q, k, v, window=window))[:, 0, :]


def spread(points: int = 377, step: int = 233) -> list[tuple[float, float]]:
    """Pairs of numbers in [0, 1), evenly spread: a lattice of two neighbouring Fibonacci numbers.

    The share of points at which something happens is closer to its probability than a share of
    random draws would be.
    """
    return [((i + 0.5) / points, (i * step % points + 0.5) / points) for i in range(points)]


def close(got: Any, wanted: Any, atol: float = 2e-4) -> None:
    """AssertionError where two arrays differ by more than float32 rounding, or hold a NaN."""
    error = np.abs(np.asarray(got) - np.asarray(wanted)).max()
    assert error <= atol, f"off by {error:.3g}"
