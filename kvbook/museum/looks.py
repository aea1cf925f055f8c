"""What a user would see: one look at a model for each kind of symptom.

A look takes a model and returns words. It runs once on a healthy kvlib and once on one with a bug,
and the two answers side by side are the symptom. All of them decode greedily, so the same code
always gives the same words.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from kvbook.museum.tiny import spread
from kvlib.arrays import to_numpy
from kvlib.attention import attend, merge_state
from kvlib.caches import (
    BlockPool,
    Cache,
    DenseCache,
    KeepAll,
    PagedCache,
    Scored,
    SnapKV,
)
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.model.decoder import Decoder
from kvlib.reference import sample_text
from kvlib.serve import greedy, probabilities
from kvlib.serve.editing import remove_span
from kvlib.serve.generation import generate
from kvlib.speculation import accept, lower_layers

PROMPT = "class Stack:\n    def __init__(self, items):\n        self.items = "
ASKED = "x = 1\nka = 'bdwo'\nmq = '{}'\nka = 'bdwo'\nmq = '"  # 48 bytes; the answer is in it
LONGER = (
    "import os\n\n\ndef read_lines(path):\n"
    "    with open(path) as file:\n        for line in file:\n"
)
NEW, ANSWER = 32, 8  # tokens of code, tokens that hold the name asked for
NAMED = ASKED.format("tfre")  # 48 tokens
BEFORE = "import os\nimport re\n"  # 20 tokens, to be cut out again
BRANCH = "class Stack:\n    def __init__(self, "  # four letters are about as likely to follow
KEPT = 4  # top-k


def one_request(model: Decoder) -> str:
    """one prompt, greedy"""
    return text(model, [PROMPT], zeroed(model))


def a_name_asked_for(model: Decoder) -> str:
    """one prompt that binds mq = 'tfre' and asks for mq"""
    return text(model, [ASKED.format("tfre")], zeroed(model), ANSWER)


def in_a_used_row(model: Decoder) -> str:
    """one prompt, in a row that a longer request used before"""
    cache = zeroed(model)
    text(model, [LONGER * 2], cache)
    return text(model, [PROMPT], cache)


def in_chunks(model: Decoder) -> str:
    """one prompt, read in chunks of 8 tokens"""
    return text(model, [PROMPT], zeroed(model), prefill_chunk=8)


def beside_a_longer_one(model: Decoder) -> str:
    """the shorter of two prompts in one batch: it binds mq = 'tfre' and asks for mq"""
    longer = sample_text()[:200]
    return text(model, [ASKED.format("tfre"), longer], zeroed(model, 2), ANSWER)


def through_a_window(model: Decoder) -> str:
    """the same weights with a window of 16 tokens, on a given text"""
    model = windowed(model, 16)
    return bits_of_a_text(model, zeroed(model))


def in_two_parts(model: Decoder) -> str:
    """attention over a prompt's keys in two merged parts, compared with all keys at once"""
    q, k, v, at = _head(model)
    whole: Any = attend(q, k, v, at[-1:], at)
    parts: Any = [
        attend(q, k[s], v[s], at[-1:], at[s], return_lse=True)
        for s in (slice(0, 12), slice(12, None))
    ]
    merged, _ = merge_state(*parts[0], *parts[1])
    return f"largest difference {np.abs(merged - whole).max():.2f}"


def a_window_of_one(model: Decoder) -> str:
    """the same weights with a window of 1 token, on a given text"""
    model = windowed(model, 1)
    cache = DenseCache(model.layer_specs, 1, 256, xp=model.xp, retention=KeepAll())
    return bits_of_a_text(model, cache)


def with_learned_sinks(model: Decoder) -> str:
    """the same weights and a learned sink with a score of 8 in each query head, on a given text"""
    config, xp = model.config, model.xp
    sink = xp.full((config.num_attention_heads,), 8.0, dtype=model.dtype)
    names = [f"layers.{i}.sinks.weight" for i in range(config.num_hidden_layers)]
    weights = {**model.weights, **dict.fromkeys(names, sink)}
    model = Decoder(replace(config, sinks=True), weights, model.tokenizer)
    return bits_of_a_text(model, zeroed(model))


def two_cuts(model: Decoder) -> str:
    """a name asked for after 10 earlier tokens were cut out of the text, and then 10 more"""
    return _answer(model, zeroed(model), BEFORE + NAMED, 10, 10)


def a_prompt_twice_through_windows(model: Decoder) -> str:
    """a prompt sent again, so that the cache holds all of it; layer 0 has a window of 14 tokens"""
    windows = (14,) + (None,) * (model.config.num_hidden_layers - 1)
    model = Decoder(replace(model.config, windows=windows), model.weights, model.tokenizer)
    cache = paged(model, 60, 13)
    text(model, [PROMPT], cache, ANSWER)
    return text(model, [PROMPT], cache, ANSWER)


def bytes_under_a_budget(model: Decoder) -> str:
    """a name asked for under a budget of 24 tokens per head: the answer, and the bytes in use"""
    retention = Scored(SnapKV(window=8), 24, every=4)
    cache = paged(model, 300, 4, retention=retention)
    answer, pool = _answer(model, cache, NAMED), cache.pool
    held = cache.memory().reserved * (pool.num_blocks - pool.num_free) // pool.num_blocks
    return f"{answer}, {held:,} bytes"


def the_same_question_later(model: Decoder) -> str:
    """a prompt that binds 'tfre', two others that take its blocks, then the first prompt again"""
    cache = paged(model, 3, 32)  # the name is bound in the first block, the only one that is full
    for value in ("tfre", "wqpl", "onhs"):
        text(model, [ASKED.format(value)], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)


def a_colliding_hash(model: Decoder) -> str:
    """a prompt that binds 'tfre' after one that binds 'wqpl'; the hash only counts blocks"""
    cache = paged(model, index=HashIndex(lambda before, tokens, extra: before + b"."))
    text(model, [ASKED.format("wqpl")], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)


def a_prompt_twice(model: Decoder) -> str:
    """a prompt that fills its blocks exactly, sent a second time"""
    cache = paged(model)
    text(model, [ASKED.format("tfre")], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)


def shares_of_a_token(model: Decoder) -> str:
    """shares of the next token at top-k 4; each possible guess counts with its probability"""
    ids, points = model.tokenizer.encode(BRANCH), spread()
    q = probabilities(_logits(lower_layers(model, 3), ids), 1.0, KEPT)
    found, kept = np.zeros(q.shape[1]), 0.0
    for guess in np.flatnonzero(q).tolist():
        p = probabilities(_logits(model, [*ids, guess], 2), 1.0, KEPT)  # at the guess, and after
        for verdict, number in points:
            new = accept(p.copy(), [guess], q, [verdict], [number] * 2)
            found[new[0]] += q[0, guess] / len(points)
            kept += q[0, guess] / len(points) * (len(new) == 2)
    said = [f"{chr(token)} {_percent(found[token])}" for token in np.flatnonzero(p[0])]
    others = _percent(found[p[0] == 0].sum())
    return f"{', '.join(said)}, others {others}; guesses kept: {_percent(kept)}"


# Parts of looks -----------------------------------------------------------------------------------


def zeroed(model: Decoder, rows: int = 1) -> Cache:
    """A dense cache whose unused memory holds zeros, as other libraries allocate it."""
    cache = model.new_cache(rows, 256)
    for x in cache.storage():
        x[...] = 0
    return cache


def windowed(model: Decoder, window: int) -> Decoder:
    config = replace(model.config, windows=(window,) * model.config.num_hidden_layers)
    return Decoder(config, model.weights, model.tokenizer)


def text(model: Decoder, prompts: list[str], cache: Cache, new: int = NEW, **settings: Any) -> str:
    """What follows the first prompt, or the error."""
    try:
        texts = generate(model, prompts, max_new_tokens=new, cache=cache, **settings)
    except Exception as error:  # the user of a broken library sees whatever it raises
        return in_words(error)
    return repr(texts[0])


def in_words(error: Exception) -> str:
    """An exception as its user reads it: the kind and the first 60 characters."""
    text = str(error)
    return f"{type(error).__name__}: {text if len(text) <= 60 else text[:57] + '...'}"


def bits_of_a_text(model: Decoder, cache: Cache, prompt: int = 32, tokens: int = 96) -> str:
    """Bits per byte of a given text: a prompt, then token by token."""
    ids = list(sample_text().encode()[2000 : 2000 + tokens])
    cache.add("a")
    rows = [model.forward(ids[:prompt], cache, cache.plan(["a"], [prompt]))]
    for token in ids[prompt:-1]:
        rows.append(model.forward([token], cache, cache.plan(["a"], [1])))
    logits = np.concatenate([to_numpy(x) for x in rows]).astype(float)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(rows)), ids[prompt:]] - np.log(np.exp(logits).sum(axis=1))
    return f"{-chosen.mean() / np.log(2):.3f} bits per byte"


def _head(model: Decoder) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A query that looks at all of a prompt (the mean key of layer 1), its keys and values."""
    ids, cache = model.tokenizer.encode(PROMPT), zeroed(model)
    cache.add("a")
    model.forward(ids, cache, cache.plan(["a"], [len(ids)]))
    k, v, at = (to_numpy(x) for x in cache.read(1, "a"))
    return k.mean(axis=0, keepdims=True), k, v, at


def paged(
    model: Decoder,
    num_blocks: int = 24,
    block_size: int = 8,
    retention: Any = None,
    **settings: Any,
) -> PagedCache:
    """A paged cache, its memory zeroed."""
    pool = BlockPool(num_blocks, block_size, **settings)
    cache = PagedCache(model.layer_specs, pool, xp=model.xp, retention=retention)
    for x in cache.storage():
        x[...] = 0
    return cache


def _answer(model: Decoder, cache: Cache, prompt: str, *cuts: int) -> str:
    """What follows a prompt, some of whose first tokens are cut out; it stays in the cache."""
    fed = model.tokenizer.encode(prompt)
    new: list[int] = []
    cache.add("a")
    if cuts:
        model.forward(fed[:-1], cache, cache.plan(["a"], [len(fed) - 1]))
        fed = fed[-1:]
    for n in cuts:
        remove_span(model, cache, "a", 0, n)
    while len(new) < ANSWER:
        logits = model.forward(fed, cache, cache.plan(["a"], [len(fed)]))
        fed = [int(greedy(logits)[0])]
        new += fed
    return repr(model.tokenizer.decode(new))


def _logits(model: Decoder, ids: list[int], rows: int = 1) -> np.ndarray:
    cache = zeroed(model)
    cache.add("a")
    step = cache.plan(["a"], [len(ids)])
    wanted = list(range(len(ids) - rows, len(ids)))
    return np.asarray(to_numpy(model.forward(ids, cache, step, rows=wanted)))


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"
