"""Exercises of the chapter on caching, and the slots that its decode loop runs on."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, Shows, shared
from kvbook.exercises.expect import expect_equal
from kvbook.exercises.received import token_list
from kvlib.attention import attend
from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights
from kvlib.serve import greedy


def tiny_model() -> Decoder:
    """A random Llama of 2 layers: fast, and its greedy tokens win by a clear margin."""
    config = ModelConfig("llama", 64, 32, 48, 2, 4, 2, 8, 64)
    return Decoder(config, random_weights(config, seed=3, xp=np))


# ---------------------------------------------------------------------------------------- kv_bytes

# Every factor differs from every other, so that a forgotten one shows as itself.
_ODD = ModelConfig("llama", 64, 120, 160, 3, 12, 4, 24, 64)
# name, layers, query heads, kv heads, head_dim, hidden, published bytes per token in 16 bits
_PUBLISHED = (
    ("Llama-2-7B", 32, 32, 32, 128, 4096, 524_288),
    ("Llama-3.1-8B", 32, 32, 8, 128, 4096, 131_072),
    ("Qwen3-0.6B", 28, 16, 8, 128, 1024, 114_688),
)


def kv_bytes(c: ModelConfig, batch: int, seq_len: int, size: int) -> int:
    """kv_bytes(config, batch, seq_len, bytes_per_number) → bytes of all keys and values."""
    numbers = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim
    return numbers * batch * seq_len * size


def _odd(kv_bytes: Any) -> Iterator[Seen]:
    what = "bytes of 5 requests of 7 tokens, 3 layers, 4 kv heads of 24, float32"
    yield what, kv_bytes(_ODD, 5, 7, 4)


def _live(kv_bytes: Any) -> Iterator[Seen]:
    for dtype, size in ((np.float32, 4), (np.float16, 2)):
        model = tiny_model()
        cache = model.new_cache(2, 16, dtype=dtype)
        for name in ("a", "b"):
            cache.add(name)
            model.forward(list(range(9)), cache, cache.plan([name], [9]))
        what = f"payload of a live DenseCache, {np.dtype(dtype).name}"
        got = kv_bytes(model.config, 2, 9, size)
        expect_equal(got, cache.memory().payload, what)
        yield what, got


def _published(kv_bytes: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(0)
    for _ in range(4):
        layers, groups, kv_heads, eights, batch, tokens, size = rng.integers(
            1, (40, 9, 9, 33, 9, 500, 5)
        ).tolist()
        heads, dim = groups * kv_heads, 8 * eights
        config = ModelConfig("llama", 64, 64 * heads, 64, layers, heads, kv_heads, dim, 64)
        what = f"{batch} requests of {tokens} tokens, {layers} layers, {kv_heads} kv heads of {dim}"
        yield f"{what}, {size} bytes per number", kv_bytes(config, batch, tokens, size)
    for name, layers, heads, kv_heads, dim, hidden, published in _PUBLISHED:
        config = ModelConfig("llama", 64, hidden, 64, layers, heads, kv_heads, dim, 64)
        got, what = kv_bytes(config, 1, 1, 2), f"{name}, one token in 16 bits"
        expect_equal(got, published, what)
        yield what, got


check_kv_bytes = Checker(
    kv_bytes,
    stages={
        "every factor counts once: 2, layers, kv heads, head_dim, requests, tokens, bytes": _odd,
        "the payload of a live cache, measured from its arrays, in float32 and float16": _live,
        "the bytes per token of " + ", ".join(row[0] for row in _PUBLISHED): _published,
    },
    mistakes={
        "half of the bytes are missing: a token has a key and a value in each layer": (
            "2 * → 1 *"
        ),
        "this counts num_attention_heads, but the cache keeps keys and values of "
        "num_key_value_heads heads (4 here, beside 12 query heads)": (
            "num_key_value_heads → num_attention_heads"
        ),
        "this takes hidden_size / num_attention_heads for the size of a head (10 here): head_dim "
        "is a field of its own (24)": "c.head_dim → (c.hidden_size // c.num_attention_heads)",
        "this counts hidden_size numbers per token and layer, but the cache holds "
        "num_key_value_heads x head_dim of them": (
            "c.num_key_value_heads * c.head_dim → c.hidden_size"
        ),
        "these are the bytes of one layer, but every layer has keys and values": (
            "c.num_hidden_layers * → "
        ),
        "these are the bytes of one request, but each request of the batch has its own text": (
            " * batch → "
        ),
        "these are the bytes of one token: multiply by seq_len": " * seq_len → ",
        "these are numbers, not bytes: multiply by bytes_per_number": "seq_len * size → seq_len",
    },
)


# -------------------------------------------------------------------------------------- LayerCache

_HKV, _HQ, _D = 2, 4, 8


class LayerCache:
    """LayerCache(num_kv_heads, head_dim) with append(k, v) and attend(q)."""

    def __init__(self, num_kv_heads: int, head_dim: int) -> None:
        self.k = self.v = np.zeros((0, num_kv_heads, head_dim), dtype=np.float32)

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        self.k, self.v = np.concatenate([self.k, k]), np.concatenate([self.v, v])

    def attend(self, q: np.ndarray) -> Any:
        k, v, kv_pos = self.k, self.v, np.arange(len(self.k), dtype=np.int64)
        q_pos = kv_pos[len(k) - len(q) :]
        return attend(q, k, v, q_pos, kv_pos)


def _too_short(got: Any, right: np.ndarray) -> bool:
    """Whether each vector has the right direction and is too short."""
    if not isinstance(got, np.ndarray) or got.shape != right.shape:
        return False
    share = np.sum(got * right, axis=-1, keepdims=True) / np.sum(right**2, axis=-1, keepdims=True)
    return bool(np.allclose(got, share * right, rtol=1e-3, atol=1e-5) and np.all(share < 0.9999))


def _qkv() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (T, Hkv, D): float32, scores large enough to tell keys apart."""
    rng = np.random.default_rng(1)
    q = 2 * rng.standard_normal((10, _HQ, _D), dtype=np.float32)
    k, v = rng.standard_normal((2, 10, _HKV, _D), dtype=np.float32)
    return q, k, v


def _first_token(layer_cache: Any) -> Iterator[Seen]:
    q, k, v = _qkv()
    layer_cache(_HKV, _D).append(k[5:8], v[5:8])
    cache = layer_cache(_HKV, _D)
    cache.append(k[:1], v[:1])
    why = shared(cache) or "the weight of a single key is 1, so o is its value"
    yield "the first token of a cache", cache.attend(q[:1]), why


def _chunks(*lengths: int) -> Any:
    """Ask after each chunk of these lengths, one after the other."""

    def probe(layer_cache: Any) -> Iterator[Seen]:
        (q, k, v), cache, end = _qkv(), layer_cache(_HKV, _D), 0
        for n in lengths:
            new, end = slice(end, end + n), end + n
            cache.append(k[new], v[new])
            yield f"{n} {'token' if n == 1 else 'tokens'} after {end - n}", cache.attend(q[new])

    return probe


def _reused(layer_cache: Any) -> Iterator[Seen]:
    (q, k, v), cache = _qkv(), layer_cache(_HKV, _D)
    cache.append(k, v)
    k[...], v[...] = 7.0, 7.0
    yield "the same after the caller reused its arrays", cache.attend(q)


check_layer_cache = Checker(
    LayerCache,
    name="layer_cache",
    no_result=["append"],
    letters="T Hq D",
    typed=True,
    stages={
        "a first token gets its own value back, even while another cache holds tokens": (
            _first_token
        ),
        "a prompt of 5: query i sees keys 0 to i": _chunks(5),
        "decoding: one query sees every key of the request, the prompt's included": (
            _chunks(5, 1, 1)
        ),
        "three tokens after seven: chunks of any length": _chunks(5, 1, 1, 3),
        "what is held is the cache's own copy": _reused,
    },
    mistakes={
        "query i sees keys 0 to i only, as if the text began with this call. The mask sits in the "
        "top left corner, but the queries are after all that is held": (
            "kv_pos[len(k) - len(q) :] → kv_pos[: len(q)]"
        ),
        "only this call's own keys are seen. Were the earlier ones never stored, or "
        "overwritten?": "k, v, q_pos, kv_pos → k[-len(q) :], v[-len(q) :], q_pos, q_pos",
        "every query sees every key, also those after it. Within one call, too, a query sees "
        "itself and what is before it": "kv_pos[len(k) - len(q) :] → np.full(len(q), len(k))",
        "the result has the right direction but is too short, because slots that hold no token "
        "are attended to: a key of zeros scores 0, and e^0 is 1, not 0. Read only what was "
        "appended": Shows(
            "k, v, q_pos, kv_pos → *(np.pad(x, ((0, 9), (0, 0), (0, 0))) for x in (k, v)), q_pos, "
            "np.append(kv_pos, [0] * 9)",
            _too_short,
        ),
        "query head h read key head h % Hkv, needed h // G: neighbouring query heads share a key "
        "head (repeat each, do not tile them)": (
            "k, v, q_pos → *(np.tile(x, (1, 2, 1)) for x in (k, v)), q_pos"
        ),
        "the scores are not divided by sqrt(D)": "q_pos, kv_pos) → q_pos, kv_pos, sm_scale=1.0)",
        "what you hold changed with them: append must store a copy": (
            "np.concatenate([self.k, k]) → np.concatenate([self.k, k]) if len(self.k) else k",
            "np.concatenate([self.v, v]) → np.concatenate([self.v, v]) if len(self.v) else v",
        ),
    },
    refused={
        "held belongs to the class, so all objects share it": [
            (
                "    def __init__ →     held: list = []\n\n    def __init__",
                "self.k, self.v = np.concatenate([self.k, k]), np.concatenate([self.v, v]) → "
                "self.held.append((k, v)); self.k, self.v = map(np.concatenate, zip(*self.held))",
            )
        ]
        * 2,  # the cell run again
    },
)


# ------------------------------------------------------------------------------------------ decode


class Slots:
    """A model over numbered slots, as many small programs keep it, without a check of the numbers.

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


def recompute(model: Decoder, prompt: Sequence[int], n: int) -> list[int]:
    """n greedy tokens, every step from nothing."""
    tokens = list(prompt)
    for _ in range(n):
        cache = model.new_cache(1, len(tokens))
        cache.add("text")
        tokens += greedy(model.forward(tokens, cache, cache.plan(["text"], [len(tokens)])))
    return tokens[len(prompt) :]


def decode(forward: Slots, prompt: list[int], n: int) -> list[int]:
    """decode(forward, prompt, n) → n greedy tokens; forward is a Slots."""
    logits = forward(prompt, 0)
    new = [int(logits.argmax())]
    while len(new) < n:
        logits = forward(new[-1:], len(prompt) + len(new) - 1)
        new.append(int(logits.argmax()))
    return new


def _decoded(prompts: Any) -> Any:
    """The new tokens and the calls of forward, for each (prompt, n) that prompts(rng) gives."""

    def probe(decode: Any) -> Iterator[Seen]:
        for prompt, n in prompts(np.random.default_rng(0)):
            slots, what = Slots(tiny_model(), 32), f"{n} new after a prompt of {len(prompt)}"
            new = token_list(decode(slots, list(prompt), n), what)
            calls = ", ".join(f"{tokens} at {start}" for tokens, start in slots.calls)
            yield what, (calls or "none", new)

    return probe


def _drawn_prompt(rng: np.random.Generator) -> list[tuple[list[int], int]]:
    return [(rng.integers(0, 64, int(rng.integers(2, 8))).tolist(), 3)]


check_decode = Checker(
    decode,
    names=("calls of forward", "new tokens"),
    stages={
        **{
            f"{n} new after a prompt of {len(prompt)}: the same tokens as by recomputation": (
                _decoded(lambda rng, prompt=prompt, n=n: [(prompt, n)])
            )
            for prompt, n in (([7, 21, 3, 40, 12], 6), ([50], 4), ([9, 9, 33], 1))
        },
        "every token was run once: the prompt in one call, then one per call": (
            _decoded(_drawn_prompt)
        ),
    },
    mistakes={
        "a new token is one position late. The slot before it stays zero and is attended to, and "
        "every later key is rotated one position too far": "len(new) - 1) → len(new))",
        "a new token is one position early, so a stored key is overwritten": (
            "len(new) - 1) → len(new) - 2)"
        ),
        "the last token of the prompt was run twice, so it is in the cache twice. The first new "
        "token comes from the logits that the call with the prompt returned": (
            "new = [int(logits.argmax())] → new = []",
            "forward(new[-1:], len(prompt) + len(new) - 1) → "
            "forward((prompt + new)[-1:], len(prompt) + len(new))",
        ),
        "the keys of the prompt's other tokens were never stored. Run the whole prompt at 0": (
            "forward(prompt, 0) → forward(prompt[-1:], len(prompt) - 1)"
        ),
        "tokens were run again from position 0: that is recomputation. Their keys are in the slots "
        "already; run the new token alone": (
            "forward(new[-1:], len(prompt) + len(new) - 1) → forward(prompt + new, 0)"
        ),
        "the last new token is only returned, so the logits after it are not needed": (
            "return new → forward(new[-1:], len(prompt) + n - 1); return new"
        ),
        "the first new token is missing: it is chosen by the logits of the prompt itself": [
            "return new → return new[1:]",
            (
                "len(new) < n → len(new) <= n",
                "return new → return new[1:]",
            ),
        ],
    },
)


# ------------------------------------------------------------------------------------------- reuse


def reuse(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    """reuse(cache, seq_id, held, wanted) → tokens still to be run; truncates the cache."""
    keep = 0
    while keep < min(len(held), len(wanted) - 1) and held[keep] == wanted[keep]:
        keep += 1
    cache.truncate(seq_id, keep)
    return wanted[keep:]


def _edited(texts: Any) -> Any:
    """How many tokens are kept and which are run, for each (what, held, wanted) of texts(rng)."""

    def probe(reuse: Any) -> Iterator[Seen]:
        model = tiny_model()
        for what, held, wanted in texts(np.random.default_rng(0)):
            cache = model.new_cache(2, 24)
            cache.add("chat")
            model.forward(held, cache, cache.plan(["chat"], [len(held)]))
            feed = reuse(cache, "chat", list(held), list(wanted))
            rest = token_list(feed, f"{what}: the tokens to run")
            yield what, (cache.seq_len("chat"), rest)

    return probe


def _drawn_edits(rng: np.random.Generator) -> Iterator[tuple[str, list[int], list[int]]]:
    for _ in range(4):
        held = rng.integers(0, 64, int(rng.integers(1, 12))).tolist()
        rest = rng.integers(0, 64, int(rng.integers(1, 8))).tolist()
        wanted = [*held[: int(rng.integers(0, len(held) + 1))], *rest]
        yield f"{held} held, {wanted} wanted", held, wanted


_BASE = [7, 21, 3, 40, 12, 9, 55, 30]
_EDITS = (  # what, the text that is wanted, how many of its tokens are run
    ("an edit in the middle", [*_BASE[:3], 41, *_BASE[4:], 2], 6),
    ("a text that only grew", [*_BASE, 17, 4], 2),
    ("another text altogether", [1, *_BASE[1:5]], 5),
    ("the same text again", list(_BASE), 1),
    ("the text cut short", _BASE[:5], 1),
)
check_reuse = Checker(
    reuse,
    names=("tokens kept", "tokens to run"),
    stages={
        **{
            f"{what}: {run} of {len(wanted)} tokens are run": (
                _edited(lambda rng, what=what, wanted=wanted: [(what, _BASE, wanted)])
            )
            for what, wanted, run in _EDITS
        },
        "the same for any two texts": _edited(_drawn_edits),
    },
    mistakes={
        "there is nothing left to run, so there are no logits from which to choose the next token. "
        "Truncate the cache by one token, and run the last token again": (
            "len(wanted) - 1 → len(wanted)"
        ),
        "a key after the first difference was computed from the old text, even where the token is "
        "the same: truncate the cache to the common beginning": [
            "    cache.truncate(seq_id, keep)\n → ",
            "    cache →     keep = sum(a == b for a, b in zip(held, wanted[:-1])); cache",
        ],
        "some tokens would be in the cache twice. Run only what is not cached": (
            "wanted[keep:] → wanted"
        ),
        "the result is right, but the tokens before the first difference could be kept": (
            "cache.truncate → keep = 0; cache.truncate"
        ),
    },
)
