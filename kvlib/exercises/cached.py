"""Checkers of the chapter on caching: bytes, a layer's cache, a decode loop, an edited prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvlib.attention import attend
from kvlib.caches import Cache, DenseCache
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_equal,
    expect_shape,
    guarded,
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
                zeros = np.zeros((gap, spec.num_kv_heads, spec.head_dim), dtype=np.float32)
                cache.append(layer, zeros, zeros, step)
        step = cache.plan(["slots"], [len(tokens)])
        return self.model.forward(tokens, cache, step)[0]


# ------------------------------------------------------------------------------------------- bytes

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
    if not isinstance(got, int | float | np.number):
        raise Finding(f"the bytes: got {type(got).__name__}, needed one number")
    if got in suspects:
        raise Finding(suspects[got])
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
    for name, layers, heads, kv_heads, dim, hidden, published in _PUBLISHED:
        config = ModelConfig("llama", 64, hidden, 64, layers, heads, kv_heads, dim, 64)
        expect_equal(kv_bytes(config, 1, 1, 2), published, f"{name}, one token in 16 bits")
    yield "the bytes a token of " + ", ".join(row[0] for row in _PUBLISHED)


# ----------------------------------------------------------------------------- a cache for one layer

_HKV, _HQ, _D = 2, 4, 8


@checker
def check_layer_cache(layer_cache: type) -> Iterator[str]:
    """LayerCache(num_kv_heads, head_dim) with append(k, v) and attend(q)."""
    if not isinstance(layer_cache, type):
        raise Finding("hand over the class LayerCache itself, not one of its objects")
    q, k, v = _qkv(seed=1, tokens=10)
    first, _ = _new(layer_cache)
    first(k[5:8], v[5:8])  # a request that lives beside all others and is none of their business
    append, run = _new(layer_cache)
    append(k[:1], v[:1])
    _first_token(layer_cache, run(q[:1]), q, k, v)
    yield "a request's first token gets its own value: nothing else is stored, nothing is shared"

    append, run = _new(layer_cache)
    append(k[:5], v[:5])
    _compare(run(q[:5]), q[:5], k[:5], v[:5], "a prompt of 5")
    yield "a prompt of 5: query i sees keys 0 to i"
    for t in range(5, 7):
        append(k[t : t + 1], v[t : t + 1])
        _compare(run(q[t : t + 1]), q[t : t + 1], k[: t + 1], v[: t + 1], f"decoding token {t}")
    yield "decoding: one query sees every key of the request, the prompt's included"
    append(k[7:], v[7:])
    _compare(run(q[7:]), q[7:], k, v, "a chunk of 3 behind 7 held tokens")
    yield "three tokens behind seven: chunks of any length"

    append, run = _new(layer_cache)
    lent_k, lent_v = k[:4].copy(), v[:4].copy()
    append(lent_k, lent_v)
    lent_k[...], lent_v[...] = 7.0, 7.0
    got = run(q[:4])
    if not np.allclose(got, _reference(q[:4], k[:4], v[:4]), rtol=1e-4, atol=1e-5):
        raise Finding(
            "the caller reused its arrays after append, and what you hold changed with them: "
            "append must store a copy"
        )
    yield "what is held is the cache's own copy"


def _new(layer_cache: type) -> tuple[Any, Any]:
    """append and attend of a fresh object, guarded."""
    cache = guarded(layer_cache, may_return_none=True)(_HKV, _D)
    for method in ("append", "attend"):
        if not callable(getattr(cache, method, None)):
            raise Finding(f"LayerCache has no method {method}")
    return guarded(cache.append, may_return_none=True), guarded(cache.attend)


def _qkv(seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (T, Hkv, D): float32, scores large enough to tell keys apart."""
    rng = np.random.default_rng(seed)
    q = 2 * rng.standard_normal((tokens, _HQ, _D), dtype=np.float32)
    k, v = rng.standard_normal((2, tokens, _HKV, _D), dtype=np.float32)
    return q, k, v


def _reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, **settings: Any) -> np.ndarray:
    """Attention of the last T positions."""
    s, t = k.shape[0], q.shape[0]
    positions = np.arange(s, dtype=np.int64)
    return attend(q, k, v, settings.pop("q_pos", positions[s - t :]), positions, **settings)


def _first_token(cls: type, got: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    _form(got, 1)
    right = _reference(q[:1], k[:1], v[:1])
    if np.allclose(got, right, rtol=1e-4, atol=1e-5):
        return
    _usual_suspects(got, q[:1], k[:1], v[:1])
    both_k, both_v = np.concatenate([k[5:8], k[:1]]), np.concatenate([v[5:8], v[:1]])
    shared = np.allclose(got, _reference(q[:1], both_k, both_v), rtol=1e-4, atol=1e-5)
    held = [n for n, x in vars(cls).items() if isinstance(x, list | dict | set | np.ndarray)]
    if shared or held:
        where = f" ({', '.join(held)} belongs to the class)" if held else ""
        raise Finding(
            "a new request's first token attends to another request's keys: one store is shared "
            f"by all{where}. Make the store in __init__, one for each object"
        )
    expect_close(got, right, "a single token", axes=("query", "head", "dim"))


def _compare(got: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, what: str) -> None:
    t, s = q.shape[0], k.shape[0]
    _form(got, t)
    right = _reference(q, k, v)
    if np.allclose(got, right, rtol=1e-4, atol=1e-5):
        return
    _usual_suspects(got, q, k, v)
    corner = np.arange(t, dtype=np.int64)
    if s > t:
        diagnose(
            got,
            {
                f"{what}: query i sees keys 0 to i only, as if the text began with this call. The "
                "mask sits in the top left corner; a query stands behind everything that is held: "
                f"query 0 is at position {s - t}": _reference(q, k, v, q_pos=corner),
                f"{what}: only this call's own keys are seen. Were the earlier ones never "
                "stored, or overwritten?": _reference(q, k[s - t :], v[s - t :]),
            },
        )
    everything = np.full(t, s, dtype=np.int64)
    message = (
        f"{what}: every query sees every key, so token {s - t} is told by token {s - 1} what comes "
        "next. Within one call a query sees what stands before it and itself"
    )
    if t > 1:
        diagnose(got, {message: _reference(q, k, v, q_pos=everything)})
    expect_close(got, right, what, axes=("query", "head", "dim"))


def _form(got: Any, t: int) -> None:
    expect_shape(got, (t, _HQ, _D), "what attend returns", letters="T Hq D")
    expect_dtype(got, np.float32, "what attend returns")


def _usual_suspects(got: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    right = _reference(q, k, v)
    share = np.sum(got * right, axis=-1, keepdims=True) / np.sum(right**2, axis=-1, keepdims=True)
    if np.allclose(got, share * right, rtol=1e-3, atol=1e-5) and np.all(share < 0.9999):
        raise Finding(
            "the result points the right way but is too short: something with value 0 takes part. "
            "Slots that hold no token are attended to: a key of zeros scores 0, and e^0 is 1, "
            "not 0. Read only what was appended"
        )
    tiled = np.tile(np.arange(_HKV), _HQ // _HKV)
    diagnose(
        got,
        {
            "query head h read key head h % Hkv: neighbours share a key head, h // G (repeat each "
            "head, do not tile them)": _reference(q, k[:, tiled], v[:, tiled]),
            "the scores are not divided by sqrt(D)": _reference(q, k, v, sm_scale=1.0),
        },
    )


# ------------------------------------------------------------------------------------- a decode loop


@checker
def check_decode(decode: Any) -> Iterator[str]:
    """decode(forward, prompt, n) -> n greedy tokens; forward is a Slots."""
    model = _tiny_model()
    for prompt, n in (([7, 21, 3, 40, 12], 6), ([50], 4), ([9, 9, 33], 1)):
        slots = Slots(model, 32)
        got = decode(slots, list(prompt), n)
        wanted = _recompute(model, prompt, n)
        _look_at_calls(slots.calls, prompt)
        tokens = [int(t) for t in np.ravel(np.asarray(got, dtype=np.int64))]
        if tokens[: n - 1] == wanted[1:] and tokens != wanted:
            raise Finding(
                "the first new token is missing: it is chosen by the logits of the prompt itself"
            )
        expect_equal(tokens, wanted, f"{n} tokens after a prompt of {len(prompt)}")
        yield f"{n} tokens after a prompt of {len(prompt)}: the tokens of recomputation"
        rows, needed = sum(len(t) for t, _ in slots.calls), len(prompt) + n - 1
        if rows == needed + 1:
            raise Finding(
                f"{rows} tokens were run where {needed} are enough: the last new token is "
                "returned, and nobody asks for the logits behind it"
            )
        expect_equal(rows, needed, "tokens run in all", why="each token is run once")
    yield "every token was run once: the prompt in one call, then one a call"


def _look_at_calls(calls: list[tuple[list[int], int]], prompt: list[int]) -> None:
    """Where the tokens went: the fault shows before any token is wrong."""
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
        if start == held and tokens == prompt[-1:] and held == length and length > 1:
            raise Finding(
                f"token {prompt[-1]}, the prompt's last, was run at {length - 1} and again at "
                f"{length}: it stands in the cache twice. The first new token comes from the logits "
                "that the prompt's own call returned"
            )
        if start != held:
            raise Finding(
                f"{held} slots are written, so the next position is {held}; got {start}"
                + (": a stored key is overwritten" if start < held else "")
            )
        held += len(tokens)


# ---------------------------------------------------------------------------------- an edited prompt


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
        cache = model.new_cache(2, 24)
        cache.add("chat")
        model.forward(base, cache, cache.plan(["chat"], [len(base)]))
        feed = guarded(reuse, may_modify=True)(cache, "chat", list(base), list(wanted))
        tokens = [int(t) for t in np.ravel(np.asarray(feed, dtype=np.int64))]
        _look_at_reuse(cache, base, wanted, tokens, what)
        logits = model.forward(tokens, cache, cache.plan(["chat"], [len(tokens)]))
        expect_close(logits[0], _logits(model, wanted), f"{what}: logits", atol=1e-4)
        yield f"{what}: {len(tokens)} of {len(wanted)} tokens run, the logits are those of a new run"


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


# ---------------------------------------------------------------------------------------- the models


def _tiny_model() -> Decoder:
    """A random Llama of 2 layers: fast, and its greedy tokens win by a clear margin."""
    config = ModelConfig("llama", 64, 32, 48, 2, 4, 2, 8, 64)
    return Decoder(config, random_weights(config, seed=3))


def _logits(model: Decoder, tokens: Sequence[int]) -> Any:
    """Logits (V,) behind a text, computed from nothing."""
    cache = DenseCache(model.layer_specs, 1, len(tokens))
    cache.add("text")
    return model.forward(tokens, cache, cache.plan(["text"], [len(tokens)]))[0]


def _recompute(model: Decoder, prompt: Sequence[int], n: int) -> list[int]:
    """n greedy tokens, every step from nothing."""
    tokens = list(prompt)
    for _ in range(n):
        tokens += greedy(_logits(model, tokens)[None, :])
    return tokens[len(prompt) :]
