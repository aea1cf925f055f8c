"""What the bill says a cache holds, against the arrays of a real one for every model."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache
from kvlib.caches import KNorm, Scored, Window, layer_groups
from kvlib.costs.spec import MODELS, ModelSpec
from kvlib.costs.units import Bytes

TOKENS = (3, 2)  # of two requests
HELD = [  # the models whose layers keep what a cache of kvlib's holds: no states, no indices
    name
    for name, model in MODELS.items()
    if not any(group.state or group.index or group.every > 1 for group in model.layers)
]


def layer_specs(spec: ModelSpec) -> list[LayerSpec]:
    """One for each layer, in order."""
    found: dict[int, LayerSpec] = {}
    for group in spec.layers:
        layer = LayerSpec(
            group.num_kv_heads, group.head_dim, group.v_dim, window=group.window or None,
            v_from_k=group.latent,
        )
        found.update((index, layer) for index in group.indices)
    assert sorted(found) == list(range(spec.shape.num_hidden_layers))
    return [found[index] for index in sorted(found)]


def filled(layers: list[LayerSpec], lengths: tuple[int, ...], dtype: type) -> DenseCache:
    """A dense cache with one request of each length, all zeros."""
    cache = DenseCache(layers, len(lengths), max(lengths), dtype=dtype)
    for i in range(len(lengths)):
        cache.add(i)
    step = cache.plan(list(range(len(lengths))), list(lengths))
    for i, layer in enumerate(layers):
        k = np.zeros((sum(lengths), layer.num_kv_heads, layer.head_dim), dtype)
        v = np.zeros((sum(lengths), layer.num_kv_heads, layer.v_dim), dtype)
        cache.append(i, k, None if layer.v_from_k else v, step)
    return cache


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", HELD)
def test_payload_of_a_live_cache(name: str, dtype: str) -> None:
    spec = MODELS[name]
    cache = filled(layer_specs(spec), TOKENS, getattr(np, dtype))
    memory = cache.memory()
    held = sum((spec.kv_bytes(1, n, dtype) for n in TOKENS), Bytes(0))
    assert Bytes(memory.payload) == held == sum(TOKENS) * spec.kv_bytes_per_token(dtype)
    assert Bytes(sum(array.nbytes for array in cache.storage())) == Bytes(memory.reserved)
    assert Bytes(memory.reserved) == spec.kv_bytes(len(TOKENS), max(TOKENS), dtype)


HYBRID = ("mistral-7b-v0.1", "gemma-2-9b", "gemma-3-27b", "gpt-oss-120b")
BLOCK = 16


def pattern(name: str, shrunk: int) -> tuple[ModelSpec, list[LayerSpec]]:
    """The model's layers with windows of a `shrunk`-th; one kv head of one number is stored."""
    spec = MODELS[name]
    windows = tuple(w and w // shrunk for w in spec.shape.windows)
    shape = spec.shape._replace(windows=windows, num_key_value_heads=1, head_dim=1)
    return ModelSpec(name, spec.title, shape), [LayerSpec(1, 1, window=w or None) for w in windows]


def live(home: str, layers: list[LayerSpec], tokens: int, retention: Any = None) -> Any:
    """An empty cache for one request of so many tokens."""
    if home == "rows":
        return DenseCache(layers, 1, tokens, retention=retention, xp=np)
    groups = len(layer_groups(layers, retention))
    pool = BlockPool(groups * (-(-tokens // BLOCK) + 1), BLOCK)
    return PagedCache(layers, pool, retention=retention, xp=np)


def decode_to(cache: Any, tokens: int) -> Iterator[int]:
    """Feed zeros: half of the tokens in one step, then one by one; yields the length after each."""
    cache.add("a")
    sizes = [tokens // 2] + [1] * (tokens - tokens // 2)
    for done, n in zip(accumulate(sizes), sizes, strict=True):
        step = cache.plan(["a"], [n])
        zeros = np.zeros((n, 1, 1), np.float32)
        for layer in range(len(cache.layers)):
            cache.append(layer, zeros, zeros, step)
        yield done


def in_blocks(cache: Any) -> int:
    """Bytes of all blocks that a request holds: 8 bytes for a token of one layer."""
    tables = cache._sequences["a"].state.tables
    pairs = zip(tables, cache.groups, strict=True)
    return sum(len(table.pages) * BLOCK * 8 * len(group.layers) for table, group in pairs)


@pytest.mark.parametrize("name", HYBRID)
def test_a_live_cache_of_windows_holds_what_the_bill_says(name: str) -> None:
    """To the byte in each step, and to the block over the steps in which a window moves on."""
    spec, layers = pattern(name, 32)  # windows of 128, 128, 32 and 4
    tokens = 2 * max(group.window for group in spec.layers) + 3 * BLOCK
    for home in ("rows", "blocks"):
        cache, most = live(home, layers, tokens), 0
        for done in decode_to(cache, tokens):
            if done == tokens // 2:
                continue  # a step of that many tokens still holds them all
            assert Bytes(cache.memory().payload) == spec.kv_bytes(1, done, "float32")
            if home == "blocks":
                rule = spec.kv_bytes(1, done, "float32", block_size=BLOCK).value
                assert in_blocks(cache) <= rule
                most += in_blocks(cache) == rule
        assert (most > 0) == (home == "blocks")


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gemma-3-27b"])
@pytest.mark.parametrize("home", ["rows", "blocks"])
def test_a_live_cache_with_a_budget_holds_what_the_bill_says(name: str, home: str) -> None:
    spec, layers = pattern(name, 32)
    of_each = [None if w else 20 + i for i, w in enumerate(spec.shape.windows)]
    rules = [
        Window(s.window or 1) if b is None else Scored(KNorm(), b) for s, b in zip(layers, of_each)
    ]
    for budget, retention in ((24, Scored(KNorm(), 24)), (of_each, rules)):
        cache = live(home, layers, 110, retention)
        for done in decode_to(cache, 110):
            if done == 55 or done % 3:
                continue
            assert Bytes(cache.memory().payload) == spec.kv_bytes(1, done, "float32", budget=budget)
            if home == "blocks" and name.startswith("llama"):
                rule = spec.kv_bytes(1, done, "float32", block_size=BLOCK, budget=budget)
                assert Bytes(in_blocks(cache)) == rule
