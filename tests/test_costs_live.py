"""What the bill says a cache holds, against the arrays of a real one for every model."""

from __future__ import annotations

import numpy as np
import pytest

from kvlib import DenseCache, LayerSpec
from kvlib.costs.catalogue import MODELS
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes

TOKENS = (3, 2)  # of two requests


def layer_specs(spec: ModelSpec) -> list[LayerSpec]:
    """One for each layer, in order."""
    found: dict[int, LayerSpec] = {}
    for group in spec.layers:
        layer = LayerSpec(
            group.num_kv_heads,
            group.head_dim,
            group.v_dim,
            window=group.window or None,
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
@pytest.mark.parametrize("name", MODELS)
def test_payload_of_a_live_cache(name: str, dtype: str) -> None:
    spec = MODELS[name]
    cache = filled(layer_specs(spec), TOKENS, getattr(np, dtype))
    memory = cache.memory()
    held = sum((spec.kv_bytes(1, n, dtype) for n in TOKENS), Bytes(0))
    assert Bytes(memory.payload) == held == sum(TOKENS) * spec.kv_bytes_per_token(dtype)
    assert Bytes(sum(array.nbytes for array in cache.storage())) == Bytes(memory.reserved)
    assert Bytes(memory.reserved) == spec.kv_bytes(len(TOKENS), max(TOKENS), dtype)
