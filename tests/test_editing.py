"""A span is removed from a request: keys are exact for their new positions, the rest unchanged."""

from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from caches import refused, snapshot
from models import decoder, text

import kvlib
from kvlib import BlockPool, DenseCache, OutOfBlocks, PagedCache, QuantizedCache
from kvlib.codecs import kivi
from kvlib.model import RopeConfig
from kvlib.model.rope import frequencies
from kvlib.testing.rounding import EPS

GOLDEN = Path(__file__).parent / "golden"
HOMES: dict[str, Any] = {
    "rows": lambda specs: DenseCache(specs, 2, 64, xp=np),
    "blocks of 1": lambda specs: PagedCache(specs, BlockPool(200, 1), xp=np),
    "blocks of 4": lambda specs: PagedCache(specs, BlockPool(50, 4), xp=np),
}


def model_of(name: str = "llama") -> Any:
    return kvlib.load_model(GOLDEN / name, tokenizer=False)


def fill(model: Any, cache: Any, seq_id: str, tokens: list[int]) -> np.ndarray:
    cache.add(seq_id)
    return model.forward(tokens, cache, cache.plan([seq_id], [len(tokens)], tokens))


def tokens_of(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 64, n).tolist()


def turned(rope: RopeConfig, k: np.ndarray, distance: int) -> np.ndarray:
    """Keys (T, H, D) at positions that are `distance` later, in float64."""
    return oracle.rotate(k, np.full(len(k), distance), frequencies(rope, k.shape[-1]))


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (3, 4), (4, 8), (7, 20), (18, 20), (0, 20)])
def test_every_layer_holds_the_rest_at_its_new_positions(home: str, start: int, stop: int) -> None:
    model = model_of()
    cache = HOMES[home](model.layer_specs)
    fill(model, cache, "a", tokens_of(20))
    before = [[x.copy() for x in cache.read(i, "a")] for i in range(2)]
    kvlib.remove_span(model, cache, "a", start, stop)
    assert cache.seq_len("a") == 20 - (stop - start)
    for i, (k, v, _) in enumerate(before):
        got_k, got_v, positions = cache.read(i, "a")
        assert positions.tolist() == list(range(20 - (stop - start)))
        moved = turned(model.config.rope, k[stop:], start - stop)
        # a rotation is two products and a sum, of numbers as large as the key's pair
        np.testing.assert_allclose(got_k[start:], moved, atol=4 * EPS * np.abs(k).max())
        assert (got_k[:start] == k[:start]).all()
        assert (got_v == np.concatenate([v[:start], v[stop:]])).all()


@pytest.mark.parametrize("home", HOMES)
def test_the_next_tokens_follow_the_new_end(home: str) -> None:
    """Logits of the next tokens equal those over a cache that was given the moved keys."""
    model, tokens = model_of(), tokens_of(20)
    cache = HOMES[home](model.layer_specs)
    by_hand = DenseCache(model.layer_specs, 1, 32, xp=np)
    fill(model, cache, "a", tokens)
    held = [cache.read(i, "a") for i in range(2)]
    by_hand.add("a")
    step = by_hand.plan(["a"], [14])
    for i, (k, v, _) in enumerate(held):
        k = np.concatenate([k[:6], turned(model.config.rope, k[12:], -6)]).astype(np.float32)
        by_hand.append(i, k, np.concatenate([v[:6], v[12:]]), step)
    kvlib.remove_span(model, cache, "a", 6, 12)
    for n in (1, 3, 1):
        more = tokens_of(n, seed=n)
        ours = model.forward(more, cache, cache.plan(["a"], [n]))
        np.testing.assert_allclose(
            ours, model.forward(more, by_hand, by_hand.plan(["a"], [n])), atol=1e-5
        )
    cache.truncate("a", 14)
    assert cache.seq_len("a") == 14


@pytest.mark.parametrize("home", HOMES)
def test_two_cuts_without_a_step_between_them_are_one(home: str) -> None:
    model, tokens = model_of(), tokens_of(20)
    twice, once = (HOMES[home](model.layer_specs) for _ in range(2))
    for cache in (twice, once):
        fill(model, cache, "a", tokens)
    kvlib.remove_span(model, twice, "a", 2, 6)
    kvlib.remove_span(model, twice, "a", 1, 7)
    kvlib.remove_span(model, once, "a", 1, 11)
    for layer in range(2):
        (k, v, at), (needed, values, _) = (cache.read(layer, "a") for cache in (twice, once))
        # two turns, each of two products and a sum of numbers as large as the key's pair
        np.testing.assert_allclose(k, needed, atol=8 * EPS * np.abs(needed).max())
        assert (v == values).all() and at.tolist() == list(range(10))


def test_another_request_keeps_the_blocks_that_both_hold() -> None:
    model, tokens = model_of(), tokens_of(20)
    cache = HOMES["blocks of 4"](model.layer_specs)
    fill(model, cache, "a", tokens)
    cache.fork("a", "b")
    before = [x.copy() for x in cache.read(1, "b")]
    kvlib.remove_span(model, cache, "a", 2, 9)
    for x, y in zip(before, cache.read(1, "b"), strict=True):
        assert (x == y).all()
    assert cache.seq_ids == ("b", "a") or cache.seq_ids == ("a", "b")
    cache.pool.check()
    # the edited text is found up to the span, and no further
    edited = tokens[:2] + tokens[9:]
    cache.free("a")
    assert cache.add("c", edited + [1]) == 0
    assert cache.add("d", tokens) == 16
    cache.pool.check()


def test_without_room_for_the_copy_nothing_changes() -> None:
    model, tokens = model_of(), tokens_of(20)
    cache = PagedCache(model.layer_specs, BlockPool(7, 4), xp=np)
    fill(model, cache, "a", tokens)
    fill(model, cache, "b", tokens_of(3))
    refused(cache, OutOfBlocks, "lacks", lambda: kvlib.remove_span(model, cache, "a", 1, 3))
    kvlib.remove_span(model, cache, "a", 1, 18)  # what remains needs one block more
    assert cache.seq_ids == ("a", "b") and cache.seq_len("a") == 3
    cache.free("a")
    cache.free("b")
    assert cache.pool.num_free == 7
    cache.pool.check()


OTHERS = {
    "fewer layers": (dict(num_hidden_layers=1), "built for 2 layers, the model has 1"),
    "more layers": (dict(num_hidden_layers=3), "built for 2 layers, the model has 3"),
    "other heads": (dict(num_key_value_heads=1), "num_kv_heads = 2, the model's has 1"),
    "other sizes": (dict(head_dim=16), "head_dim = 8, the model's has 16"),
}


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("sizes, words", OTHERS.values(), ids=OTHERS)
def test_a_model_that_the_cache_does_not_belong_to(home: str, sizes: Any, words: str) -> None:
    model = decoder("llama")
    cache = HOMES[home](model.layer_specs)
    fill(model, cache, "a", text(0, 20))
    before = snapshot(cache)
    with pytest.raises(ValueError, match=words):
        kvlib.remove_span(decoder("llama", **sizes), cache, "a", 2, 5)
    for thing in (None, "llama", model):
        with pytest.raises(TypeError, match="cache must be a cache of the model's layers"):
            kvlib.remove_span(model, thing, "a", 2, 5)
        with pytest.raises(TypeError, match="model must be a Decoder"):
            kvlib.remove_span(thing if thing is not model else cache, cache, "a", 2, 5)
    assert snapshot(cache) == before


def test_codes_are_turned_too() -> None:
    model, tokens = model_of("qwen3"), tokens_of(20)
    cache = QuantizedCache(model.layer_specs, "int8", 1, 32, xp=np)
    fill(model, cache, "a", tokens)
    k = cache.read(1, "a")[0].copy()
    kvlib.remove_span(model, cache, "a", 4, 10)
    moved = turned(model.config.rope, k[10:], -6)
    # encoding rounds to 127 steps of the largest number of a head
    step = np.abs(moved).max(axis=-1, keepdims=True) / 127
    assert (np.abs(cache.read(1, "a")[0][4:] - moved) <= 0.51 * step).all()


def test_spans_that_cannot_be_cut_are_refused() -> None:
    model = model_of()
    cache = model.new_cache(2, 32)
    fill(model, cache, "a", tokens_of(9))
    for start, stop in [(-1, 3), (3, 3), (4, 2), (2, 10), (None, 4)]:
        with pytest.raises(ValueError, match=r"needs 0 <= start < stop <= 9"):
            kvlib.remove_span(model, cache, "a", start, stop)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'b'"):
        kvlib.remove_span(model, cache, "b", 0, 1)
    learned = model_of("gpt2")
    other = learned.new_cache(1, 32)
    fill(learned, other, "a", tokens_of(9))
    with pytest.raises(ValueError, match="learned positions"):
        kvlib.remove_span(learned, other, "a", 0, 1)
    windowed = model_of("mistral")
    other = windowed.new_cache(1, 32)
    fill(windowed, other, "a", tokens_of(20))
    windowed.forward([1], other, other.plan(["a"], [1]))
    with pytest.raises(ValueError, match=r"layer 0 holds \d+ of the 21 tokens"):
        kvlib.remove_span(windowed, other, "a", 0, 1)
    grouped = QuantizedCache(model.layer_specs, kivi(4, 8, 8), 1, 32, xp=np)
    fill(model, grouped, "a", tokens_of(30))
    grouped.settle("a")  # until then, so short a step can be undone in part
    with pytest.raises(ValueError, match="cannot be truncated to 3 tokens"):
        kvlib.remove_span(model, grouped, "a", 3, 5)
    assert grouped.seq_len("a") == 30
