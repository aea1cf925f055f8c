"""Checkers of the chapter on the roofline: the intensity of attention, the floor of a step, the
batch that keeps the multipliers busy (a calculator with three faults is in `roofline_ceiling`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import expect_number, number
from kvbook.exercises.report import Finding, checker, expect_equal
from kvbook.exercises.roofline_ceiling import SHEET, check_ceiling
from kvbook.exercises.wording import apart
from kvlib.meter import Meter
from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights

__all__ = [
    "SHEET",
    "check_attention_intensity",
    "check_busy_batch",
    "check_ceiling",
    "check_step_floor",
]


# ---------------------------------------- the intensity of attention

# Hidden size over heads is not the size of a head, and no two sizes are equal.
_ODD = ModelConfig("llama", 64, 120, 160, 3, 12, 4, 24, 64)
# name, query heads, kv heads, bytes of a number, operations a byte
_KNOWN = (
    ("Llama-2-7B in bfloat16", 32, 32, 2, 1.0),
    ("Llama-3.1-8B in bfloat16", 32, 8, 2, 4.0),
    ("Llama-3.1-70B in bfloat16", 64, 8, 2, 8.0),
    ("Llama-3.1-8B with a cache in int8", 32, 8, 1, 8.0),
)


@checker
def check_attention_intensity(attention_intensity: Any) -> Iterator[str]:
    """attention_intensity(config, batch, seq_len, bytes_per_number) -> operations a byte."""
    what = "12 query heads, 4 key/value heads, one request of 40 tokens, 4 bytes per number"
    got = number(attention_intensity(_ODD, 1, 40, 4), what)
    suspects = {
        "half of the operations are missing: a multiplication and an addition are two operations, "
        "and both the scores and the weighted sum of the values count": 0.75,
        "three quarters of the operations are missing: the scores and the weighted sum each take "
        "a multiplication and an addition": 0.375,
        "only the keys are counted as read, but the values take as many bytes again": 3.0,
        "these are operations per number read: divide by bytes_per_number, too": 6.0,
        "each query head is given keys of its own, or each key/value head a single query: here "
        "3 query heads use each key that is read": 0.5,
        "upside down: divide the operations by the bytes": 2 / 3,
        "the size of a head is head_dim (24), not hidden_size / num_attention_heads (10): the "
        "operations use the wrong one, the bytes the right one": 0.625,
        "the size of a head is head_dim (24), not hidden_size / num_attention_heads (10): the "
        "bytes use the wrong one, the operations the right one": 3.6,
        "the layers are counted in the operations but not in the bytes: each layer has keys and "
        "values of its own": 4.5,
    }
    expect_number(got, 1.5, what, suspects)
    yield "each number of a key serves 3 query heads, with 2 operations for each of them"
    words = {
        "five requests got five times the intensity of one: each request has keys of its own, so "
        "the bytes grow with the operations": 7.5,
        "five requests got a fifth of the intensity of one: each request has a query of its own, "
        "so the operations grow with the bytes": 0.3,
    }
    for batch, seq_len in ((5, 40), (1, 64)):
        what = f"{batch} x {seq_len} tokens instead of 1 x 40"
        got = number(attention_intensity(_ODD, batch, seq_len, 4), what)
        expect_number(got, 1.5, what, words)
    yield "neither the number of requests nor their length changes the intensity"
    for name, heads, kv_heads, size, right in _KNOWN:
        config = ModelConfig("llama", 64, 4096, 64, 32, heads, kv_heads, 128, 8192)
        got = number(attention_intensity(config, 1, 4096, size), name)
        expect_number(got, right, name, {})
    yield "the known values: " + ", ".join(f"{row[0]} {row[4]:.0f}" for row in _KNOWN)
    rng = np.random.default_rng(0)
    for _ in range(6):
        groups, kv_heads, batch, seq_len, size = rng.integers(1, (17, 17, 9, 5000, 5)).tolist()
        config = ModelConfig("llama", 64, 4096, 64, 8, groups * kv_heads, kv_heads, 64, 8192)
        what = (
            f"{groups * kv_heads} query heads, {kv_heads} key/value heads, {size} bytes per number"
        )
        got = number(attention_intensity(config, batch, seq_len, size), what)
        expect_number(got, 2 * groups / size, what, {})
    counted = _counted(_ODD, 40)
    got = number(attention_intensity(_ODD, 1, 40, 4), "float32")
    expect_number(got, counted, "a live model in float32, counted by kvlib.Meter", {})
    yield "it equals what kvlib.Meter counts in a decode step of a live model"


def _counted(config: ModelConfig, seq_len: int) -> float:
    """Operations per byte of attention in one real decode step (float32)."""
    model = Decoder(config, random_weights(config, seed=5, xp=np))
    cache = model.new_cache(1, seq_len)
    cache.add("a")
    model.forward([1] * (seq_len - 1), cache, cache.plan(["a"], [seq_len - 1]))
    with Meter() as meter:
        model.forward([2], cache, cache.plan(["a"], [1]))
    count = meter.by_label["attention"]
    return count.flops / count.read


# ---------------------------------------- the floor of a step


@checker
def check_step_floor(step_floor: Any) -> Iterator[str]:
    """step_floor(weight_bytes, token_bytes, batch, seq_len, shared, bandwidth) -> seconds."""
    w, a, b, s, n, rate = 7e9, 1e5, 6, 5000, 3000, 2e12
    right = (w + a * b * s) / rate
    got = number(step_floor(w, a, b, s, 0, rate), "6 requests of 5,000 tokens")
    suspects = {
        "the weights are read once per step, not once per request": b * (w + a * s) / rate,
        "only one request's keys and values are counted: the step reads those of all 6": (w + a * s)
        / rate,
        "the weights are missing": a * b * s / rate,
        "the cache is missing": w / rate,
        "this is the time of the step divided by its 6 tokens: the step takes the whole time, "
        "and every user waits for all of it": right / b,
        "these are bytes, not seconds: divide by the bandwidth": w + a * b * s,
        "upside down: seconds are bytes divided by bytes per second": 1 / right,
    }
    expect_number(got, right, "6 requests of 5,000 tokens, nothing shared", suspects)
    yield "the weights are read once, and the keys and values of every request"
    right = (w + a * (n + b * (s - n))) / rate
    suspects = {
        "`shared` changes nothing here: the first 3,000 tokens are read once, not 6 times": (
            w + a * b * s
        )
        / rate,
        "the shared prefix is not read at all: it must be read once": (w + a * b * (s - n)) / rate,
        "`shared` is added to the 5,000 tokens, but it is the first part of them": (
            w + a * (n + b * s)
        )
        / rate,
        "only the shared prefix is read: each request also has 2,000 tokens of its own": (w + a * n)
        / rate,
    }
    got = number(step_floor(w, a, b, s, n, rate), "a shared prefix")
    expect_number(got, right, "6 requests that share their first 3,000 tokens", suspects)
    yield "a shared prefix is read once, and what follows it once per request"
    got = number(step_floor(w, a, 1, s, n, rate), "one request")
    expect_number(got, (w + a * s) / rate, "one request, which shares with no other", {})
    rng = np.random.default_rng(1)
    for _ in range(4):
        b, s = rng.integers(2, 9000, 2).tolist()
        n, w, a, rate = int(rng.integers(0, s)), *(10 ** rng.uniform((8, 3, 11), (11, 6, 13)))
        what = f"{b} requests of {s:,} tokens that share their first {n:,}"
        got = number(step_floor(w, a, b, s, n, rate), what)
        expect_number(got, (w + a * (n + b * (s - n))) / rate, what, {})
    from kvlib.costs import GPUS, MODELS, decode

    model, gpu = MODELS["llama-3.1-8b"], GPUS["h100-sxm"]
    work = decode(model, 16, 8192, shared=4096)
    weights, token = work.linear.bytes.value, model.kv_bytes_per_token().value
    got = number(step_floor(weights, token, 16, 8192, 4096, gpu.bandwidth.value), "Llama-3.1-8B")
    wanted = work.floor(gpu).seconds.value
    if not math.isclose(got, wanted, rel_tol=0.01):
        said = apart(got, wanted, ".6g")
        raise Finding(f"Llama-3.1-8B on an H100: kvlib.costs says {said[1]} s, got {said[0]} s")
    yield "within 1 % of kvlib.costs for Llama-3.1-8B (which also counts new keys and values)"


# ---------------------------------------- the batch that keeps the multipliers busy


@checker
def check_busy_batch(busy_batch: Any) -> Iterator[str]:
    """busy_batch(flops, bandwidth, bytes_per_weight, experts=1, chosen=1) -> requests."""
    flops, bandwidth = 989e12, 3.35e12
    ridge = flops / bandwidth
    got = number(busy_batch(flops, bandwidth, 2), "an H100, 2 bytes per weight")
    suspects = {
        "295 requests fall just short: reading still takes longer. The smallest whole number "
        "that is enough is one more": math.floor(ridge),
        f"a batch is a whole number: round {ridge:.1f} up": ridge,
        "each weight takes two operations per request, not one": math.ceil(2 * ridge),
        "a weight has bytes_per_weight bytes, 2 here, so reading takes twice as long as you "
        "assumed": (math.ceil(ridge / 2)),
        "upside down: divide operations per second by bytes per second": math.ceil(1 / ridge),
    }
    expect_number(got, math.ceil(ridge), "an H100, 2 bytes per weight", suspects)
    yield f"an H100 in bfloat16: {math.ceil(ridge)} requests"
    got = number(busy_batch(flops, bandwidth, 1), "weights of one byte")
    words = {
        "the weights have half the bytes, and the batch is still the same: use "
        "bytes_per_weight": 296.0,
        "weights of one byte are read in half the time, so fewer requests are enough": 591.0,
    }
    expect_number(got, math.ceil(ridge / 2), "1 byte per weight, multiplied in bfloat16", words)
    yield f"weights of one byte, multiplied in bfloat16: {math.ceil(ridge / 2)}"
    if number(busy_batch(4e12, 1e12, 2), "4 operations per byte") != 4:
        raise Finding("4e12 operations and 1e12 bytes per second: 4 requests are exactly enough")
    for experts, chosen, name in ((8, 2, "Mixtral"), (256, 8, "DeepSeek-V3")):
        right = math.ceil(ridge * experts / chosen)
        got = number(busy_batch(flops, bandwidth, 2, experts, chosen), name)
        words = {
            f"{name}: all {experts} experts are read, but a token uses {chosen} of them, so an "
            "expert sees only a part of the requests": float(math.ceil(ridge)),
            f"{name}: you need fewer requests with experts than without, but an expert sees "
            f"{chosen} of every {experts} requests, so it takes more": float(
                math.ceil(ridge * chosen / experts)
            ),
            f"{name}: round only once, at the end": float(math.ceil(ridge) * experts / chosen),
        }
        expect_number(got, right, name, words)
    rng = np.random.default_rng(2)
    for _ in range(6):
        peak, rate = (10 ** rng.uniform((13, 11), (15, 13))).tolist()
        size, chosen, groups = rng.integers(1, (5, 9, 33)).tolist()
        what = f"{peak:.4g} operations and {rate:.4g} bytes per second, {size} bytes per weight, "
        what += f"{chosen} of {groups * chosen} experts"
        got = number(busy_batch(peak, rate, size, groups * chosen, chosen), what)
        expect_number(got, math.ceil(peak / rate * size / 2 * groups), what, {})
    expect_equal(busy_batch(flops, bandwidth, 2, 1, 1), 296, "one expert, always chosen")
    yield (
        "an expert sees only a part of the requests, so Mixtral needs 1,181 of them, and "
        "DeepSeek-V3 9,448"
    )
