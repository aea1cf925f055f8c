"""Checker of the chapter on memory: the bytes of a token, read from a model's config.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import whole_number
from kvbook.exercises.report import Finding, checker, expect_equal
from kvlib.caches import DenseCache, LayerSpec

# ---------------------------------------- bytes of a token, from a config.json

# The keys that decide, as each file has them; what a file leaves out is left out.
_CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "Qwen3-0.6B": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "an early Llama": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
    "a file that says null": {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "head_dim": None,
    },
    "DeepSeek-V3": {
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    },
}


@checker
def check_token_bytes(token_bytes: Any) -> Iterator[str]:
    """token_bytes(config, bytes_per_number) -> bytes that one token adds; config is a dict."""
    for name, config in _CONFIGS.items():
        for size in (4, 2, 1):
            _compare(token_bytes, name, config, size)
        yield f"{name}: {_token_bytes(config, 2):,} bytes in 16 bits, half of that in 8"
    rng = np.random.default_rng(0)
    for _ in range(6):
        _compare(token_bytes, "a file of your own", _drawn(rng), int(rng.integers(1, 5)))
    for name, spec in (
        ("Llama-3.1-8B", LayerSpec(8, 128)),
        ("DeepSeek-V3", LayerSpec(1, 576, 512, v_from_k=True)),
    ):
        layers = [spec] * _CONFIGS[name]["num_hidden_layers"]
        cache = DenseCache(layers, 1, 3, dtype=np.float16)
        cache.add("a")
        cache.plan(["a"], [3])
        measured = cache.memory().payload
        got = whole_number(token_bytes(dict(_CONFIGS[name]), 2), name)
        expect_equal(3 * got, measured, f"{name}, a live cache")
    yield "live caches of two of these shapes hold exactly as many bytes for three tokens"


def _compare(token_bytes: Any, name: str, config: dict[str, Any], size: int) -> None:
    got = whole_number(_ask(token_bytes, name, config, size), name)
    right = _token_bytes(config, size)
    for words, wrong in _wrong_bytes(config, size).items():
        if got == wrong != right:
            raise Finding(f"{name}: expected {right:,} bytes, got {got:,}: {words}")
    expect_equal(got, right, f"{name}, bytes per token with {size} bytes per number")


def _drawn(rng: np.random.Generator) -> dict[str, Any]:
    """A config.json with or without each of the keys that a file may leave out."""
    layers, groups, kv_heads, eights = rng.integers(1, (80, 9, 17, 17)).tolist()
    heads = groups * kv_heads
    c: dict[str, Any] = {
        "hidden_size": 8 * eights * heads,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    if rng.random() < 0.7:
        c["num_key_value_heads"] = kv_heads
    if rng.random() < 0.5:
        c["head_dim"] = 8 * int(rng.integers(1, 33))
    if rng.random() < 0.3:
        c["kv_lora_rank"], c["qk_rope_head_dim"] = rng.integers(8, 600, 2).tolist()
    return c


def _token_bytes(c: dict[str, Any], size: int) -> int:
    if "kv_lora_rank" in c:
        return int(c["num_hidden_layers"] * (c["kv_lora_rank"] + c["qk_rope_head_dim"]) * size)
    heads = c.get("num_key_value_heads") or c["num_attention_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return int(2 * c["num_hidden_layers"] * heads * dim * size)


def _wrong_bytes(c: dict[str, Any], size: int) -> dict[str, int]:
    """Results of the mistakes that people make, by the words for each."""
    right, layers, q_heads = _token_bytes(c, size), c["num_hidden_layers"], c["num_attention_heads"]
    per_head = c["hidden_size"] // q_heads
    dim, heads = c.get("head_dim") or per_head, c.get("num_key_value_heads") or q_heads
    found = {}
    if "kv_lora_rank" in c:
        latent, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        found = {
            "this counts keys and values of every head, but kv_lora_rank says that one latent "
            "vector is kept for all of them": 2 * layers * heads * dim * size,
            "this counts the latent vector alone: the rotated part of the key, qk_rope_head_dim "
            "numbers, is kept beside it": layers * latent * size,
            "this is twice too much, because the latent vector serves as key and as value, and "
            "is kept once": (2 * layers * (latent + rope) * size),
            "the latent vector is counted twice, but it serves as key and as value": (
                layers * (2 * latent + rope) * size
            ),
        }
    found |= {
        "this counts query heads, but only key/value heads are kept (num_key_value_heads)": (
            2 * layers * q_heads * dim * size
        ),
        "this uses hidden_size / num_attention_heads, but the file states head_dim": (
            2 * layers * heads * per_head * size
        ),
        "this counts hidden_size numbers per key": 2 * layers * c["hidden_size"] * size,
        "half of the bytes are missing: you counted the keys alone, or 16 bits in spite of "
        "bytes_per_number": right // 2,
        "these are one layer's bytes: every layer keeps its own": right // layers,
        "these are numbers, not bytes: multiply by bytes_per_number": right // size,
        "these are bits, not bytes": right * 8,
    }
    return found


def _ask(token_bytes: Any, name: str, config: dict[str, Any], size: int) -> Any:
    try:
        return token_bytes(dict(config), size)
    except Finding as finding:
        hints = {
            "KeyError: 'num_key_value_heads'": "files from before grouped heads leave it out; then "
            "every query head has a key/value head of its own",
            "KeyError: 'head_dim'": "most files leave it out; then it is hidden_size divided by "
            "num_attention_heads",
            "NoneType": "a key may be present and say null; treat it as left out",
        }
        for sign, hint in hints.items():
            if sign in str(finding):
                raise Finding(f"{name}: {finding}\n{hint}") from None
        raise
