"""Checkers of the chapter on caching: bytes, a decode loop, an edited prompt (a layer's cache is in
`cached_layer`), and the slots that the decode loop runs on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvlib.caches import Cache
from kvlib.exercises.cached_layer import check_layer_cache
from kvlib.exercises.received import token_list, whole_number
from kvlib.exercises.report import (
    Finding,
    checker,
    expect_close,
    expect_equal,
)
from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights
from kvlib.sampling import greedy

__all__ = ["Slots", "check_decode", "check_kv_bytes", "check_layer_cache", "check_reuse"]


class Slots:
    """A model over numbered slots, as many small programs keep it: nobody checks the numbers.

    ``slots(tokens, start)`` runs the tokens at positions start, start + 1, ..., writes their keys
    and values into the slots of the same numbers, attends to every slot up to the last one
    written, and returns the logits (V,) of the last token. Slots hold zeros until written.

    model a Decoder; max_seq_len slots a layer. ``calls`` lists (tokens, start) of every call.
    """

    def __init__(self, model: Decoder, max_seq_len: int) -> None:
        self.model, self.cache = model, model.new_cache(1, max_seq_len)
        self.cache.add("slots")
        self.calls: list[tuple[list[int], int]] = []

    def __call__(self, tokens: Sequence[int], start: int) -> Any:
        tokens, start, cache = [int(t) for t in tokens], int(start), self.cache
        self.calls.append((tokens, start))
        gap = start - cache.seq_len("slots")
        if gap < 0:
            cache.truncate("slots", start)
        if gap > 0:  # the slots that the caller leapt over are attended to: they hold zeros
            step = cache.plan(["slots"], [gap])
            for layer, spec in enumerate(cache.layers):
                shape = (gap, spec.num_kv_heads, spec.head_dim)
                zeros = cache.xp.zeros(shape, dtype=cache.dtype)
                cache.append(layer, zeros, zeros, step)
        step = cache.plan(["slots"], [len(tokens)])
        return self.model.forward(tokens, cache, step)[0]


# ---------------------------------------- bytes

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
        right * 3: "this counts num_attention_heads: only keys and values are kept, and there are "
        "num_key_value_heads of them (4 here, against 12 query heads)",
        right * per_head // 24: "this takes hidden_size / num_attention_heads for the size of a "
        f"head ({per_head} here): head_dim is a field of its own ({c.head_dim})",
        right * c.hidden_size // 96: "this counts hidden_size numbers a token and layer: the "
        "cache holds num_key_value_heads x head_dim of them",
        right // 3: "one layer's bytes: every layer keeps keys and values of its own",
        right // batch: "one request's bytes: each of the batch has its own text",
        right // seq_len: "one token's bytes: multiply by seq_len",
        right // size: "these are numbers, not bytes: multiply by bytes_per_number",
    }
    if whole_number(got, "the bytes") in suspects:
        raise Finding(suspects[whole_number(got, "the bytes")])
    expect_equal(got, right, "bytes of 5 requests of 7 tokens, 3 layers, 4 kv heads of 24, float32")
    yield "every factor counts once: 2, layers, kv heads, head_dim, requests, tokens, bytes"
    for dtype, size in ((np.float32, 4), (np.float16, 2)):
        model = _tiny_model()
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
        expect_equal(kv_bytes(config, batch, tokens, size), right, f"{what}, {size} bytes a number")
    for name, layers, heads, kv_heads, dim, hidden, published in _PUBLISHED:
        config = ModelConfig("llama", 64, hidden, 64, layers, heads, kv_heads, dim, 64)
        expect_equal(kv_bytes(config, 1, 1, 2), published, f"{name}, one token in 16 bits")
    yield "the bytes a token of " + ", ".join(row[0] for row in _PUBLISHED)


# ---------------------------------------- a decode loop


@checker
def check_decode(decode: Any) -> Iterator[str]:
    """decode(forward, prompt, n) -> n greedy tokens; forward is a Slots."""
    model = _tiny_model()
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 64, int(rng.integers(2, 8))).tolist()
    for prompt, n in (([7, 21, 3, 40, 12], 6), ([50], 4), (drawn, 3), ([9, 9, 33], 1)):
        slots = Slots(model, 32)
        got = decode(slots, list(prompt), n)
        wanted = _recompute(model, prompt, n)
        _look_at_calls(slots.calls, prompt, wanted[0])
        new = token_list(got, f"{n} tokens after a prompt of {len(prompt)}")
        if new[: n - 1] == wanted[1:] and new != wanted:
            raise Finding(
                "the first new token is missing: it is chosen by the logits of the prompt itself"
            )
        expect_equal(new, wanted, f"{n} tokens after a prompt of {len(prompt)}")
        if prompt is not drawn:
            yield f"{n} tokens after a prompt of {len(prompt)}: the tokens of recomputation"
        rows, needed = sum(len(t) for t, _ in slots.calls), len(prompt) + n - 1
        if rows == needed + 1:
            raise Finding(
                f"{rows} tokens were run where {needed} are enough: the last new token is "
                "returned, and nobody asks for the logits behind it"
            )
        expect_equal(rows, needed, "tokens run in all", why="each token is run once")
    yield "every token was run once: the prompt in one call, then one a call"


def _look_at_calls(calls: list[tuple[list[int], int]], prompt: list[int], first: int) -> None:
    """Where the tokens went: the fault shows before any token is wrong. first: the first new one.

    Where it happens to be the prompt's last token, to run it next is right.
    """
    length = len(prompt)
    if not calls:
        raise Finding("forward was never called")
    if calls[0] != (prompt, 0):
        tokens, start = calls[0]
        if tokens == prompt[-1:] or start > 0:
            raise Finding(
                f"the first call ran {len(tokens)} of the prompt's {length} tokens at position "
                f"{start}: the keys of the others were never stored. Run the whole prompt at 0"
            )
        expect_equal((tokens, start), (prompt, 0), "the first call, tokens and position")
    held = length
    for tokens, start in calls[1:]:
        if start == held + 1:
            raise Finding(
                f"positions 0 to {held - 1} are written, and the next token was put at "
                f"{start}: one position late. Slot {held} stays zero and is attended to, and every "
                "later key is rotated one place too far"
            )
        if start == 0 and len(tokens) > 1:
            raise Finding(
                f"{len(tokens)} tokens were run again from position 0: that is recomputation. "
                "Their keys are in the slots already; run the new token alone"
            )
        twice = tokens == prompt[-1:] and prompt[-1] != first
        if start == held and twice and held == length and length > 1:
            raise Finding(
                f"token {prompt[-1]}, the prompt's last, was run at {length - 1} and again at "
                f"{length}: it stands in the cache twice. The first new token comes from the "
                "logits that the prompt's own call returned"
            )
        if start != held:
            raise Finding(
                f"{held} slots are written, so the next position is {held}; got {start}"
                + (": a stored key is overwritten" if start < held else "")
            )
        held += len(tokens)


# ---------------------------------------- an edited prompt


@checker
def check_reuse(reuse: Any) -> Iterator[str]:
    """reuse(cache, seq_id, held, wanted) -> tokens still to be run; truncates the cache."""
    model = _tiny_model()
    base = [7, 21, 3, 40, 12, 9, 55, 30]
    for what, wanted in (
        ("an edit in the middle", [*base[:3], 41, *base[4:], 2]),
        ("a text that only grew", [*base, 17, 4]),
        ("another text altogether", [1, *base[1:5]]),
        ("the same text again", list(base)),
        ("the text cut short", base[:5]),
    ):
        run = _try_reuse(reuse, model, base, wanted, what)
        yield f"{what}: {run} of {len(wanted)} tokens run, the logits of a new run"
    rng = np.random.default_rng(0)
    for _ in range(4):
        held = rng.integers(0, 64, int(rng.integers(1, 12))).tolist()
        rest = rng.integers(0, 64, int(rng.integers(1, 8))).tolist()
        wanted = [*held[: int(rng.integers(0, len(held) + 1))], *rest]
        _try_reuse(reuse, model, held, wanted, f"{held} held, {wanted} wanted")


def _try_reuse(reuse: Any, model: Decoder, held: list[int], wanted: list[int], what: str) -> int:
    """One edit of a text; how many tokens were run for it."""
    cache = model.new_cache(2, 24)
    cache.add("chat")
    model.forward(held, cache, cache.plan(["chat"], [len(held)]))
    feed = reuse(cache, "chat", list(held), list(wanted))
    rest = token_list(feed, f"{what}: the tokens to run")
    _look_at_reuse(cache, held, wanted, rest, what)
    logits = model.forward(rest, cache, cache.plan(["chat"], [len(rest)]))
    expect_close(logits[0], _logits(model, wanted), f"{what}: logits", atol=1e-4)
    return len(rest)


def _look_at_reuse(
    cache: Cache, held: list[int], wanted: list[int], feed: list[int], what: str
) -> None:
    kept = cache.seq_len("chat")
    same = next(
        (i for i, (a, b) in enumerate(zip(held, wanted, strict=False)) if a != b),
        min(len(held), len(wanted)),
    )
    if not feed:
        raise Finding(
            f"{what}: there is nothing left to run, so there are no logits to choose the next "
            "token by. Take the cache back one token and run the last one again"
        )
    if kept > same:
        raise Finding(
            f"{what}: the texts part at position {same}, and the cache still holds {kept} tokens. "
            "A key behind the first difference was computed from the old text, even where the "
            "token is the same: truncate to the common beginning"
        )
    if kept + len(feed) > len(wanted):
        raise Finding(
            f"{what}: {kept} tokens are held and {len(feed)} are to be run, but the text has "
            f"{len(wanted)}: some would stand in the cache twice. Run only what is not held"
        )
    expect_equal(feed, wanted[kept:], f"{what}: tokens to run behind {kept} held ones")
    best = min(same, len(wanted) - 1)
    if kept < best:
        raise Finding(f"{what}: right but wasteful, {best} tokens could be kept, got {kept}")


# ---------------------------------------- the models


def _tiny_model() -> Decoder:
    """A random Llama of 2 layers: fast, and its greedy tokens win by a clear margin."""
    config = ModelConfig("llama", 64, 32, 48, 2, 4, 2, 8, 64)
    return Decoder(config, random_weights(config, seed=3, xp=np))


def _logits(model: Decoder, tokens: Sequence[int]) -> Any:
    """Logits (V,) behind a text, computed from nothing."""
    cache = model.new_cache(1, len(tokens))
    cache.add("text")
    return model.forward(tokens, cache, cache.plan(["text"], [len(tokens)]))[0]


def _recompute(model: Decoder, prompt: Sequence[int], n: int) -> list[int]:
    """n greedy tokens, every step from nothing."""
    tokens = list(prompt)
    for _ in range(n):
        tokens += greedy(_logits(model, tokens)[None, :])
    return tokens[len(prompt) :]
