"""The checker of a small roofline calculator, which knows the faults of those in public use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from kvbook.exercises.received import number
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.wording import apart
from kvlib.model import ModelConfig

# As the vendor prints it: the figure in large type needs half of the weights to be zero.
SHEET: Mapping[str, float] = MappingProxyType(
    {"bytes per second": 3.35e12, "bfloat16 operations per second, with sparsity": 1979e12}
)

# Llama-3.1-8B, Qwen3-0.6B (whose head_dim is not hidden_size / heads; tied embeddings)
_LLAMA = ModelConfig("llama", 128256, 4096, 14336, 32, 32, 8, 128, 131072)
_QWEN = ModelConfig("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, 40960, tie_word_embeddings=True)

_FAULTS = {
    "sparse": "the arithmetic takes half the time it should: the peak on the sheet holds for "
    "matrices of which half is zero, and dense ones reach half of it (or you counted a "
    "multiplication and an addition as one operation)",
    "embedding": "the input embeddings are counted, but a step looks up one row of them for each "
    "request and multiplies with none. Count the output head alone, vocab_size x hidden_size "
    "weights, whether it is tied or not",
    "no head": "the output head is missing: every step multiplies with vocab_size x hidden_size "
    "weights",
    "no values": "the values are missing: the cache holds a value for each key, so it is twice "
    "as large",
    "query heads": "the cache is counted with num_attention_heads, but it holds "
    "num_key_value_heads",
    "hidden": "the size of a head is taken to be hidden_size / num_attention_heads, but head_dim "
    "is a field of its own",
    "one request": "the cache of one request is counted, but each request of the batch has keys "
    "of its own",
    "one token": "this is the token rate of one request, but a step gives a token to each request "
    "of the batch",
    "no attention": "the operations of attention are missing, and in a long text they count",
    "sum": "reading and arithmetic are added, but they overlap: the step takes the longer of "
    "the two",
}


def ceiling(c: ModelConfig, batch: int, seq_len: int, faults: tuple[str, ...] = ()) -> float:
    """Tokens per second that an H100's roofline allows in 16 bits, with some `faults` built in."""
    dim = c.hidden_size // c.num_attention_heads if "hidden" in faults else c.head_dim
    kv_heads = c.num_attention_heads if "query heads" in faults else c.num_key_value_heads
    heads = 2 * c.num_attention_heads + 2 * c.num_key_value_heads
    layer = c.hidden_size * dim * heads + 3 * c.hidden_size * c.intermediate_size
    copies = 1 + ("embedding" in faults) - ("no head" in faults)
    weights = c.num_hidden_layers * layer + copies * c.vocab_size * c.hidden_size
    held = c.num_hidden_layers * kv_heads * dim * seq_len * (2 - ("no values" in faults))
    held *= 1 if "one request" in faults else batch
    pairs = c.num_hidden_layers * c.num_attention_heads * dim * seq_len * batch
    operations: float = 2 * weights * batch + 4 * pairs * ("no attention" not in faults)
    peak = SHEET["bfloat16 operations per second, with sparsity"] / (2 - ("sparse" in faults))
    reading, arithmetic = 2 * (weights + held) / SHEET["bytes per second"], operations / peak
    step = reading + arithmetic if "sum" in faults else max(reading, arithmetic)
    return (1 if "one token" in faults else batch) / step


# Each row lets one thing decide: weights, cache, arithmetic, arithmetic of attention.
_CASES = (
    ("Llama-3.1-8B, 1 request of 1 token", _LLAMA, 1, 1),
    ("Qwen3-0.6B, 1 request of 1 token", _QWEN, 1, 1),
    ("Llama-3.1-8B, 32 requests of 16,384 tokens", _LLAMA, 32, 16384),
    ("Qwen3-0.6B, 16 requests of 8,192 tokens", _QWEN, 16, 8192),
    ("Llama-3.1-8B, 2,048 requests of 64 tokens", _LLAMA, 2048, 64),
    ("Llama-3.1-8B, 4,096 requests of 512 tokens", _LLAMA, 4096, 512),
)
_CLOSE = 1e-4  # an answer that counts the norms, too, is right; a fault too small to show waits
_PROVED = (
    "one short request: the weights that are multiplied are read once",
    "tied embeddings, and a head_dim of its own",
    "long texts: the keys and values of every request are read",
    "the same with tied embeddings",
    "a huge batch of short texts: arithmetic decides, at the dense rate",
    "the operations of attention count",
)


@checker
def check_ceiling(ceiling: Any) -> Iterator[str]:
    """ceiling(config, sheet, batch, seq_len) -> tokens per second at best, all in 16 bits."""
    for (name, config, batch, seq_len), proved in zip(_CASES, _PROVED, strict=True):
        got = number(ceiling(config, dict(SHEET), batch, seq_len), name)
        _explain(got, name, config, batch, seq_len)
        yield proved
    rng = np.random.default_rng(0)
    for batch, seq_len in rng.integers(1, (3000, 20_000), (4, 2)).tolist():
        name = f"Llama-3.1-8B, {batch:,} requests of {seq_len:,} tokens"
        got = number(ceiling(_LLAMA, dict(SHEET), batch, seq_len), name)
        _explain(got, name, _LLAMA, batch, seq_len)
    _agree(ceiling)
    yield "kvlib.costs says the same, within 2 %"


def _explain(got: float, name: str, config: ModelConfig, batch: int, seq_len: int) -> None:
    right = _ceiling(config, batch, seq_len)
    if math.isclose(got, right, rel_tol=_CLOSE):
        return
    for n in range(1, 4):  # the fewest faults that give this very number
        for faults in combinations(_FAULTS, n):
            if math.isclose(got, _ceiling(config, batch, seq_len, faults), rel_tol=_CLOSE):
                found = "; and ".join(_FAULTS[fault] for fault in faults)
                raise Finding(f"{name}: {found}")
    if math.isclose(got * right, batch, rel_tol=_CLOSE):
        raise Finding(f"{name}: these are seconds, not tokens per second")
    said = apart(got, right, ",.1f")
    raise Finding(f"{name}: expected {said[1]} tokens per second, got {said[0]}")


_ceiling = ceiling  # the checker's argument has the learner's name for it


def _agree(ceiling: Any) -> None:
    from kvlib.costs import GPUS, MODELS, decode

    for key, config, batch, seq_len in (
        ("llama-3.1-8b", _LLAMA, 8, 8192),
        ("qwen3-0.6b", _QWEN, 8, 8192),
    ):
        work = decode(MODELS[key], batch, seq_len)
        wanted = work.floor(GPUS["h100-sxm"]).tokens_per_second.value
        got = number(ceiling(config, dict(SHEET), batch, seq_len), key)
        if not math.isclose(got, wanted, rel_tol=0.02):
            raise Finding(
                f"{key}: kvlib.costs says {wanted:,.0f} tokens per second, got {got:,.0f}"
            )
