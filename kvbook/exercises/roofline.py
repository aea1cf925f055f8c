"""Exercises of the chapter on the roofline."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Draws, Seen
from kvlib.model import ModelConfig

# ----------------------------------------------------------------------------- attention_intensity

# Hidden size over heads is not the size of a head, and no two sizes are equal.
ODD = ModelConfig("llama", 64, 120, 160, 3, 12, 4, 24, 64)


def attention_intensity(c: Any, batch: int, seq_len: int, size: int) -> float:
    """attention_intensity(config, batch, seq_len, bytes_per_number) → operations per byte."""
    flops = 4 * batch * c.num_attention_heads * c.head_dim * seq_len
    return flops / (2 * batch * seq_len * c.num_key_value_heads * c.head_dim * size)


def _odd(*asked: tuple[int, int]) -> Any:
    def probe(attention_intensity: Any) -> Iterator[Seen]:
        for batch, seq_len in asked:
            what = f"12 query heads, 4 key/value heads, {batch} x {seq_len} tokens in float32"
            yield what, attention_intensity(ODD, batch, seq_len, 4)

    return probe


def _known(attention_intensity: Any) -> Iterator[Seen]:
    for name, heads, kv_heads, size in (
        ("Llama-2-7B in bfloat16", 32, 32, 2),
        ("Llama-3.1-8B in bfloat16", 32, 8, 2),
        ("Llama-3.1-70B in bfloat16", 64, 8, 2),
        ("Llama-3.1-8B with a cache in int8", 32, 8, 1),
    ):
        config = ModelConfig("llama", 64, 4096, 64, 32, heads, kv_heads, 128, 8192)
        yield name, attention_intensity(config, 1, 4096, size)
    rng = np.random.default_rng(0)
    for _ in range(6):
        groups, kv_heads, batch, seq_len, size = rng.integers(1, (17, 17, 9, 5000, 5)).tolist()
        heads = groups * kv_heads
        config = ModelConfig("llama", 64, 4096, 64, 8, heads, kv_heads, 64, 8192)
        what = f"{heads} query heads, {kv_heads} key/value heads, {size} bytes per number"
        yield what, attention_intensity(config, batch, seq_len, size)


_DIM = "c.hidden_size // c.num_attention_heads"

check_attention_intensity = Checker(
    attention_intensity,
    stages={
        "each number of a key serves 3 query heads, with 2 operations for each": _odd((1, 40)),
        "neither requests nor their length change the intensity": _odd((5, 40), (1, 64)),
        "the known values: Llama-2-7B in bfloat16 1, Llama-3.1-8B in bfloat16 4, Llama-3.1-70B in "
        "bfloat16 8, Llama-3.1-8B with a cache in int8 8; kvlib.Meter counts the same": _known,
    },
    mistakes={
        "half of the operations are missing: a multiplication and an addition are two": "4 * → 2 *",
        "both scores and weighted sum take multiplications and additions": "4 * → ",
        "the values take as many bytes again as the keys": "(2 * batch → (batch",
        "these are operations per number read: divide by bytes_per_number, too": (
            "c.head_dim * size → c.head_dim"
        ),
        "each query head has its own keys here, but 3 query heads use each key": (
            "c.num_key_value_heads → c.num_attention_heads"
        ),
        "upside down: divide the operations by the bytes": "flops / ( → 1 / flops * (",
        "the operations use hidden_size / num_attention_heads, 10, but head_dim is 24": (
            f"c.head_dim * seq_len → {_DIM} * seq_len"
        ),
        "the bytes use hidden_size / num_attention_heads, 10, but head_dim is 24": (
            f"c.head_dim * size → ({_DIM}) * size"
        ),
        "the layers are counted in the operations, but not in the bytes": (
            "= 4 * → = 4 * c.num_hidden_layers *"
        ),
        "each request has its own keys, so the bytes grow, too": "(2 * batch → (2",
        "each request has its own query, so the operations grow, too": "4 * batch → 4",
    },
    refused={
        "1 x 64 tokens in": "dim * seq_len → dim * seq_len * seq_len / 40",
        "Llama-2-7B in bfloat16: got 3": lambda c, b, s, n: 1.5 if c.head_dim == 24 else 3.0,
    },
)


# -------------------------------------------------------------------------------------- step_floor


def step_floor(w: float, token: float, batch: int, seq_len: int, shared: int, rate: float) -> float:
    """step_floor(weight_bytes, token_bytes, batch, seq_len, shared, bandwidth) → seconds."""
    tokens = shared + batch * (seq_len - shared)
    return (w + token * tokens) / rate


def _floors(rng: np.random.Generator) -> Any:
    yield (7e9, 1e5, 1, 5000, 3000, 2e12)
    for _ in range(4):
        w, a, rate = (10 ** rng.uniform((8, 3, 11), (11, 6, 13))).round().tolist()
        shared, more, batch = rng.integers(1, 5000, 3).tolist()
        yield w, a, batch, shared + more, shared, rate


# The weights, a token, the requests of Llama-3.1-8B on an H100
LLAMA_FLOOR = (15_009_316_864, 131_072, 16, 8192, 4096, 3.35e12)

check_step_floor = Checker(
    step_floor,
    stages={
        "weights are read once, keys and values of every request": [(7e9, 1e5, 6, 5000, 0, 2e12)],
        "a shared prefix is read once": [(7e9, 1e5, 6, 5000, 3000, 2e12)],
        "this holds for any number of requests and tokens": Draws(_floors),
        "within 1 % of kvlib.costs for Llama-3.1-8B (which counts new keys, too)": [LLAMA_FLOOR],
    },
    mistakes={
        "the weights are read once per step, not once per request": "(w + → (batch * w +",
        "one request's keys and values are counted, but the step reads those of all 6": (
            "tokens = → tokens = seq_len #"
        ),
        "the weights are missing": "(w + → (",
        "the cache is missing": "w + token * tokens → w",
        "this is divided by the 6 requests, but all of them wait for the whole step": (
            "rate\n → rate / batch\n"
        ),
        "these are bytes, not seconds: divide by the bandwidth": ") / rate → )",
        "upside down: seconds are bytes divided by bytes per second": (
            "return (w + token * tokens) / rate → return rate / (w + token * tokens)"
        ),
        "`shared` changes nothing here: the first 3,000 tokens are read once, not 6 times": (
            "tokens = → tokens = batch * seq_len #"
        ),
        "the shared prefix is not read at all: it must be read once": "= shared + → =",
        "`shared` is added to the 5,000 tokens, but it is the first part of them": (
            "(seq_len - shared) → seq_len"
        ),
        "only the shared prefix is read, but each request also has 2,000 other tokens": (
            "tokens = shared + → tokens = shared or"
        ),
    },
    refused={
        "step_floor(7000000000.0, 100000.0, 1, 5000": "rate\n → rate + (batch == 1)\n",
        "step_floor(15009316864, 131072, 16, ": "rate\n → rate * (1 + (batch == 16))\n",
    },
)


# -------------------------------------------------------------------------------------- busy_batch

_H100 = (989e12, 3.35e12)


def busy_batch(f: float, bandwidth: float, size: float, experts: int = 1, chosen: int = 1) -> int:
    """busy_batch(flops, bandwidth, bytes_per_weight, experts=1, chosen=1) → requests."""
    return math.ceil(f / bandwidth * size / 2 * experts / chosen)


def _processors(rng: np.random.Generator) -> Any:
    for _ in range(6):
        peak, rate = (10 ** rng.uniform((13, 11), (15, 13))).round().tolist()
        size, chosen, groups = rng.integers(1, (5, 9, 33)).tolist()
        yield peak, rate, size, groups * chosen, chosen


check_busy_batch = Checker(
    busy_batch,
    stages={
        "an H100 in bfloat16: 296 requests": [(*_H100, 2), (4e12, 1e12, 2), (*_H100, 2, 1, 1)],
        "weights of one byte, multiplied in bfloat16: 148": [(*_H100, 1)],
        "an expert sees only a part of the requests, so Mixtral needs 1,181 of them, and "
        "DeepSeek-V3 9,448": [(*_H100, 2, 8, 2), (*_H100, 2, 256, 8)],
        "any processor, any experts": Draws(_processors),
    },
    mistakes={
        "295 requests fall just short: round up": "ceil → floor",
        "4 requests are exactly enough": "math.ceil( → 1 + math.floor(",
        "a batch is a whole number: round up": "math.ceil → ",
        "each weight takes two operations per request, not one": "size / 2 → size",
        "a weight has bytes_per_weight bytes, 2 here": "size / 2 → 1 / 2",
        "upside down: divide operations per second by bytes per second": (
            "f / bandwidth * → bandwidth / f *"
        ),
        "weights of one byte have half the bytes: use bytes_per_weight": "size / 2 → 1",
        "fewer bytes are read in less time, so fewer requests are enough": "size / 2 → 2 / size",
        "all experts are read, but each token uses only some of them": " * experts / chosen → ",
        "with experts you need more requests, not fewer": "experts / chosen → chosen / experts",
        "round only once, at the end": "/ 2 * experts / chosen) → / 2) * experts // chosen",
    },
)


# ----------------------------------------------------------------------------------------- ceiling

# As the vendor prints it: the figure in large type needs half of the weights to be zero.
SHEET: Mapping[str, float] = MappingProxyType(
    {"bytes per second": 3.35e12, "bfloat16 operations per second, with sparsity": 1979e12}
)
# Llama-3.1-8B, Qwen3-0.6B (whose head_dim is not hidden_size / heads; tied embeddings)
LLAMA = ModelConfig("llama", 128256, 4096, 14336, 32, 32, 8, 128, 131072)
QWEN = ModelConfig("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, 40960, tie_word_embeddings=True)


def ceiling(c: Any, sheet: Any, batch: int, seq_len: int) -> float:
    """ceiling(config, sheet, batch, seq_len) → tokens per second at best, all in 16 bits."""
    heads, kv_heads, dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    layer = c.hidden_size * dim * (2 * heads + 2 * kv_heads)
    layer += 3 * c.hidden_size * c.intermediate_size
    weights = c.num_hidden_layers * layer + c.vocab_size * c.hidden_size
    cache = 2 * c.num_hidden_layers * batch * seq_len * kv_heads * dim
    flops = 2 * batch * weights + 4 * c.num_hidden_layers * batch * seq_len * heads * dim
    reading = 2 * (weights + cache) / sheet["bytes per second"]
    peak = sheet["bfloat16 operations per second, with sparsity"] / 2
    return batch / max(reading, flops / peak)


FAULTS = {
    "the output head is missing: a step multiplies with vocab_size x hidden_size weights": (
        " + c.vocab_size * c.hidden_size → "
    ),
    "the input embeddings are counted, but a step looks up one row of them for each request. Count "
    "the output head alone, whether it is tied or not": "layer + c.vocab → layer + 2 * c.vocab",
    "reading and arithmetic are added, but they overlap: a step takes the longer of the two": (
        "max(reading, flops / peak) → (reading + flops / peak)"
    ),
    "the values are missing: the cache holds a value for each key": "cache = 2 * → cache =",
    "the cache of one request is counted, but each request of the batch has its own keys": (
        "batch * seq_len * kv → seq_len * kv"
    ),
    "the cache is counted with num_attention_heads, but it holds num_key_value_heads": (
        "kv_heads * dim\n → heads * dim\n"
    ),
    "this is the rate of one request, but a step gives a token to each one of the batch": (
        "return batch → return 1"
    ),
    "the size of a head is taken for hidden_size / heads, but head_dim is a field": (
        f"heads, c.head_dim → heads, {_DIM}"
    ),
    "the peak on the sheet holds for matrices of which half is zero, and dense ones reach half of "
    "it (or a multiplication and an addition were counted as one)": 'sparsity"] / 2 → sparsity"]',
    "the operations of attention are missing, and with many tokens they count": (
        " + 4 * c.num_hidden_layers * batch * seq_len * heads * dim → "
    ),
}
_W = list(FAULTS)
# Faults that show in the same case: of the weights, and of the cache.
_PAIRS = [(_W[0], _W[2]), (_W[1], _W[2]), *combinations(_W[3:7], 2)]


def _case(config: ModelConfig, *asked: tuple[int, int]) -> Any:
    def probe(ceiling: Any) -> Iterator[Seen]:
        name = "Llama-3.1-8B" if config is LLAMA else "Qwen3-0.6B"
        drawn = np.random.default_rng(0).integers(1, (3000, 20_000), (4, 2)).tolist()
        for batch, seq_len in asked or drawn:
            what = f"{name}, {batch:,} requests of {seq_len:,} tokens: tokens per second"
            yield what, ceiling(config, dict(SHEET), batch, seq_len)

    return probe


check_ceiling = Checker(
    ceiling,
    rtol=1e-4,  # an answer that counts the norms, too, is right; a fault too small to show waits
    stages={
        "one short request: the weights that are multiplied are read once": _case(LLAMA, (1, 1)),
        "tied embeddings, and a head_dim from the config": _case(QWEN, (1, 1)),
        "long texts: the keys and values of every request are read": _case(LLAMA, (32, 16384)),
        "the same with tied embeddings": _case(QWEN, (16, 8192)),
        "a huge batch: arithmetic decides, at the dense rate": _case(LLAMA, (2048, 64)),
        "the operations of attention count": _case(LLAMA, (4096, 512)),
        "any batch of any texts, as kvlib.costs says within 2 %": _case(LLAMA),
    },
    mistakes={
        **FAULTS,
        **{f"{a}; and {b}": (FAULTS[a], FAULTS[b]) for a, b in _PAIRS},
        "these are seconds, not tokens per second": "return batch / → return",
    },
)
