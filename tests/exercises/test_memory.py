"""Known wrong answers to the exercises of the chapter on memory: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.memory import (
    check_context_that_fits,
    check_hybrid_bytes,
    check_longest,
    check_token_bytes,
)


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# ------------------------------------------------------------------------------------- token_bytes


def token_bytes(config: dict[str, Any], size: int) -> int:
    if "kv_lora_rank" in config:
        latent = config["kv_lora_rank"] + config["qk_rope_head_dim"]
        return int(config["num_hidden_layers"] * latent * size)
    return ordinary(config, size)


def ordinary(config: dict[str, Any], size: int, heads: str = "num_key_value_heads") -> int:
    q_heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // q_heads
    return int(2 * config["num_hidden_layers"] * config.get(heads, q_heads) * dim * size)


def hidden_over_heads(config: dict[str, Any], size: int) -> int:
    return token_bytes({**config, "head_dim": None}, size)


def latent_only(config: dict[str, Any], size: int) -> int:
    return token_bytes({**config, "qk_rope_head_dim": 0}, size)


def latent_twice(config: dict[str, Any], size: int) -> int:
    return token_bytes(config, size) * (2 if "kv_lora_rank" in config else 1)


def latent_for_each(config: dict[str, Any], size: int) -> int:
    extra = config["num_hidden_layers"] * config.get("kv_lora_rank", 0) * size
    return token_bytes(config, size) + int(extra)


def no_null(config: dict[str, Any], size: int) -> int:
    dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if "kv_lora_rank" in config:
        return token_bytes(config, size)
    heads = config.get("num_key_value_heads", config["num_attention_heads"])
    return int(2 * config["num_hidden_layers"] * heads * dim * size)


WRONG_TOKENS: dict[str, tuple[Callable[..., Any], str]] = {
    "query heads": (lambda c, b: ordinary(c, b, "num_attention_heads"), "this counts query heads"),
    "hidden / heads": (hidden_over_heads, "but the file states head_dim"),
    "hidden": (lambda c, b: 2 * c["num_hidden_layers"] * c["hidden_size"] * b, "query heads"),
    "MLA as heads": (ordinary, "kv_lora_rank says that one latent vector is kept"),
    "no rope key": (latent_only, "the rotated part of the key"),
    "latent twice": (latent_twice, "is kept once"),
    "latent as key and value": (latent_for_each, "counted twice"),
    "keys only": (lambda c, b: token_bytes(c, b) // 2, "you counted the keys alone"),
    "one layer": (lambda c, b: token_bytes(c, b) // c["num_hidden_layers"], "one layer's bytes"),
    "numbers": (lambda c, b: token_bytes(c, 1), "these are numbers, not bytes"),
    "bits": (lambda c, b: token_bytes(c, b) * 8, "these are bits"),
    "always 16 bits": (lambda c, b: token_bytes(c, 2), "16 bits in spite of"),
    "off by one": (lambda c, b: token_bytes(c, b) + 1, "needed 262144"),
    "text": (lambda c, b: "128 KiB", "expected one number, got str"),
    "a part": (lambda c, b: token_bytes(c, b) + 0.5, "expected a whole number, got 262144.5"),
    "must state kv heads": (
        lambda c, b: token_bytes(c, b) + 0 * c["num_key_value_heads"],
        "files from before grouped heads leave it out",
    ),
    "must state head_dim": (lambda c, b: 2 * 32 * 8 * c["head_dim"] * b, "most files leave it out"),
    "null": (no_null, "treat it as left out"),
}


def test_token_bytes() -> None:
    report = check_token_bytes(token_bytes)
    assert report.passed and any("131,072 bytes in 16 bits" in p for p in report.proved)
    assert any("DeepSeek-V3: 70,272" in p for p in report.proved)
    assert check_token_bytes(lambda *a: np.int64(token_bytes(*a))).passed


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_wrong_token_bytes(name: str) -> None:
    wrong, message = WRONG_TOKENS[name]
    refused(check_token_bytes(wrong), message)


# ------------------------------------------------------------------------------------ hybrid_bytes


def hybrid_bytes(windows: list[int | None], layer: int, seq: int) -> int:
    return sum(layer * (seq if w is None else min(seq, w)) for w in windows)


WRONG_HYBRIDS: dict[str, tuple[Callable[..., Any], str]] = {
    "all in full": (lambda w, b, s: b * s * len(w), "tokens that have left its window"),
    "layer 0 for all": (lambda w, b, s: b * min(s, w[0] or s) * len(w), "look at each layer"),
    "W - 1": (
        lambda w, b, s: sum(b * (s if x is None else min(s, x - 1)) for x in w),
        "leaves out the query's own token",
    ),
    "W + 1": (
        lambda w, b, s: sum(b * (s if x is None else min(s, x + 1)) for x in w),
        "one token too many",
    ),
    "never shorter": (
        lambda w, b, s: sum(b * (s if x is None else x) for x in w),
        "even for a shorter text",
    ),
    "windows only": (
        lambda w, b, s: sum(b * min(s, x) for x in w if x is not None),
        "None means that they keep everything",
    ),
    "min with None": (lambda w, b, s: sum(b * min(s, x) for x in w), "raised TypeError"),
    "one layer too few": (lambda w, b, s: hybrid_bytes(w[1:], b, s), "needed"),
}


def test_hybrid_bytes() -> None:
    report = check_hybrid_bytes(hybrid_bytes)
    assert report.passed, report
    assert "Gemma-3-27B at 131,072 tokens: 10.4 GiB" in report.proved
    assert "gpt-oss-120b at 131,072 tokens: 4.84 GB" in report.proved


@pytest.mark.parametrize("name", WRONG_HYBRIDS)
def test_wrong_hybrids(name: str) -> None:
    wrong, message = WRONG_HYBRIDS[name]
    refused(check_hybrid_bytes(wrong), message)


# ----------------------------------------------------------------------------------------- longest


def longest(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if request_bytes(middle) <= budget else (low, middle)
    return low


def one_by_one(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    tokens = 0
    while tokens < limit and request_bytes(tokens + 1) <= budget:
        tokens += 1
    return tokens


def by_division(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    return min(limit, budget // request_bytes(1))


def at_least_one(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    return max(1, longest(request_bytes, budget, limit))


def unlimited(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    return longest(request_bytes, budget, 2**42)


def strictly_below(request_bytes: Callable[[int], int], budget: int, limit: int) -> int:
    return longest(request_bytes, budget - 1, limit)


def in_halves(request_bytes: Callable[[int], int], budget: int, limit: int) -> float:
    return longest(request_bytes, budget, limit) + request_bytes(limit / 3)


WRONG_SEARCHES: dict[str, tuple[Callable[..., Any], str]] = {
    "one by one": (one_by_one, "halve what is left instead"),
    "division": (by_division, "the first one opens a whole block"),
    "first that does not fit": (lambda f, b, n: longest(f, b, n) + 1, "the first length that does"),
    "at least one": (at_least_one, "the first length that does not fit"),
    "minus one for none": (
        lambda f, b, n: longest(f, b, n) or -1,
        "if not even one token fits, the answer is 0",
    ),
    "past the model": (unlimited, "the model reads no more than"),
    "below, not equal": (strictly_below, "but 977 tokens also fit"),
    "float": (lambda f, b, n: float(longest(f, b, n)), "(float), needed a whole number"),
    "parts of tokens": (in_halves, "tokens, which is not a whole number"),
    "far too many": (lambda f, b, n: n, "blocks are rounded up, so"),
}


def test_longest() -> None:
    report = check_longest(longest)
    assert report.passed and "the model can read: 131,072 tokens" in " ".join(report.proved)


@pytest.mark.parametrize("name", WRONG_SEARCHES)
def test_wrong_searches(name: str) -> None:
    wrong, message = WRONG_SEARCHES[name]
    refused(check_longest(wrong), message)


# ------------------------------------------------------------------------------- context_that_fits


def fits(
    config: dict[str, int],
    memory: int,
    weights: int,
    batch: int,
    heads: str = "num_key_value_heads",
    dim: int = 0,
) -> int:
    token = 2 * config["num_hidden_layers"] * config[heads] * (dim or config["head_dim"]) * 2
    return max(0, (memory - weights) // (token * batch))


def per_head(config: dict[str, int]) -> int:
    return config["hidden_size"] // config["num_attention_heads"]


def suspect(config: dict[str, int], memory: int, weights: int, batch: int) -> int:
    return fits(config, memory, weights, 1, "num_attention_heads", per_head(config))


WRONG_FITS: dict[str, tuple[Callable[..., Any], str]] = {
    "as given": (suspect, "it still counts num_attention_heads"),
    "heads mended": (lambda c, m, w, b: fits(c, m, w, 1, dim=per_head(c)), "states head_dim"),
    "dim mended": (lambda c, m, w, b: fits(c, m, w, 1, "num_attention_heads"), "num_key_value"),
    "both mended": (lambda c, m, w, b: fits(c, m, w, 1), "but the batch shares it"),
    "weights each": (
        lambda c, m, w, b: fits(c, m, w * b, b),
        "tokens for each",
    ),
    "no weights": (lambda c, m, w, b: fits(c, m, 0, b), "subtract the weights"),
    "below zero": (
        lambda c, m, w, b: fits(c, m, w, b) if m > w else (m - w) // 2**18,
        "expected 0 tokens",
    ),
    "rounded up": (lambda c, m, w, b: fits(c, m, w, b) + 1, "round down"),
    "float": (lambda c, m, w, b: float(fits(c, m, w, b)), "(float), needed a whole number"),
}


def test_context_that_fits() -> None:
    report = check_context_that_fits(fits)
    assert report.passed, report
    assert "Llama-2-7B, 1 request: 137,412 tokens each" in report.proved
    assert "Llama-3.1-8B, 1 request: 529,939 tokens each" in report.proved


def test_the_suspect_is_right_on_one_model() -> None:
    report = check_context_that_fits(suspect)
    assert report.proved == ("Llama-2-7B, 1 request: 137,412 tokens each",)
    assert "Llama-3.1-8B" in report.finding


@pytest.mark.parametrize("name", WRONG_FITS)
def test_wrong_fits(name: str) -> None:
    wrong, message = WRONG_FITS[name]
    refused(check_context_that_fits(wrong), message)


# ----------------------------------------------------------------------------------- half-done work


@pytest.mark.parametrize(
    "check", [check_token_bytes, check_hybrid_bytes, check_longest, check_context_that_fits]
)
def test_nothing_written_yet(check: Any) -> None:
    assert check(lambda *a: None).status == "not done yet"
