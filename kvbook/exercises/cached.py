"""Checkers of the chapter on caching: the bytes of a cache here.

A layer's cache is in `cached_layer`, a decode loop and an edited prompt in `cached_loop`, and the
slots that the decode loop runs on in `cached_slots`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.cached_layer import check_layer_cache
from kvbook.exercises.cached_loop import check_decode, check_reuse
from kvbook.exercises.cached_slots import Slots, tiny_model
from kvbook.exercises.received import whole_number
from kvbook.exercises.report import Finding, checker, expect_equal
from kvlib.model import ModelConfig

__all__ = ["Slots", "check_decode", "check_kv_bytes", "check_layer_cache", "check_reuse"]

# Every factor differs from every other, so that a forgotten one shows as itself.
_ODD = ModelConfig(
    model_type="llama",
    vocab_size=64,
    hidden_size=120,
    intermediate_size=160,
    num_hidden_layers=3,
    num_attention_heads=12,
    num_key_value_heads=4,
    head_dim=24,
    max_position_embeddings=64,
)
# name, layers, query heads, kv heads, head_dim, hidden, published bytes a token in 16 bits
_PUBLISHED = (
    ("Llama-2-7B", 32, 32, 32, 128, 4096, 524_288),
    ("Llama-3.1-8B", 32, 32, 8, 128, 4096, 131_072),
    ("Qwen3-0.6B", 28, 16, 8, 128, 1024, 114_688),
)


@checker
def check_kv_bytes(kv_bytes: Any) -> Iterator[str]:
    """kv_bytes(config, batch, seq_len, bytes_per_number) -> bytes of all keys and values."""
    c, batch, seq_len, size = _ODD, 5, 7, 4
    right = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * batch * seq_len * size
    got = kv_bytes(c, batch, seq_len, size)
    per_head = c.hidden_size // c.num_attention_heads
    suspects = {
        right // 2: "half of the bytes are missing: a token leaves a key and a value in each layer",
        right * 3: "this counts num_attention_heads, but the cache keeps keys and values of "
        "num_key_value_heads heads (4 here, beside 12 query heads)",
        right * per_head // 24: "this takes hidden_size / num_attention_heads for the size of a "
        f"head ({per_head} here): head_dim is a field of its own ({c.head_dim})",
        right * c.hidden_size // 96: "this counts hidden_size numbers per token and layer, but "
        "the cache holds num_key_value_heads x head_dim of them",
        right // 3: "these are the bytes of one layer, but every layer keeps keys and values "
        "of its own",
        right // batch: "these are the bytes of one request, but each request of the batch has "
        "its own text",
        right // seq_len: "these are the bytes of one token: multiply by seq_len",
        right // size: "these are numbers, not bytes: multiply by bytes_per_number",
    }
    if whole_number(got, "the bytes") in suspects:
        raise Finding(suspects[whole_number(got, "the bytes")])
    expect_equal(got, right, "bytes of 5 requests of 7 tokens, 3 layers, 4 kv heads of 24, float32")
    yield "every factor counts once: 2, layers, kv heads, head_dim, requests, tokens, bytes"
    for dtype, size in ((np.float32, 4), (np.float16, 2)):
        model = tiny_model()
        cache = model.new_cache(2, 16, dtype=dtype)
        for name, n in (("a", 9), ("b", 9)):
            cache.add(name)
            model.forward(list(range(n)), cache, cache.plan([name], [n]))
        measured = cache.memory().payload
        what = f"payload of a live DenseCache, {np.dtype(dtype).name}"
        expect_equal(kv_bytes(model.config, 2, 9, size), measured, what)
    yield "the payload of a live cache, measured from its arrays, in float32 and float16"
    rng = np.random.default_rng(0)
    for _ in range(4):
        layers, groups, kv_heads, eights, batch, tokens, size = rng.integers(
            1, (40, 9, 9, 33, 9, 500, 5)
        ).tolist()
        heads, dim = groups * kv_heads, 8 * eights
        config = ModelConfig("llama", 64, 64 * heads, 64, layers, heads, kv_heads, dim, 64)
        right = 2 * layers * kv_heads * dim * batch * tokens * size
        what = f"{batch} requests of {tokens} tokens, {layers} layers, {kv_heads} kv heads of {dim}"
        expect_equal(
            kv_bytes(config, batch, tokens, size), right, f"{what}, {size} bytes per number"
        )
    for name, layers, heads, kv_heads, dim, hidden, published in _PUBLISHED:
        config = ModelConfig("llama", 64, hidden, 64, layers, heads, kv_heads, dim, 64)
        expect_equal(kv_bytes(config, 1, 1, 2), published, f"{name}, one token in 16 bits")
    yield "the bytes per token of " + ", ".join(row[0] for row in _PUBLISHED)
