"""What a user would see: one look at a model for each kind of symptom.

A look takes a model and returns words. It runs once on a healthy kvlib and once on one with a bug,
and the two answers side by side are the symptom. All of them decode greedily, so the same code
always gives the same words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kvlib.arrays import to_numpy
from kvlib.attention import attend, merge_state
from kvlib.caches import BlockPool, Cache, PagedCache
from kvlib.model.decoder import Decoder
from kvlib.reference import sample_text
from kvlib.serve.generation import generate

PROMPT = "class Stack:\n    def __init__(self, items):\n        self.items = "
ASKED = "x = 1\nka = 'bdwo'\nmq = '{}'\nka = 'bdwo'\nmq = '"  # 48 bytes; the answer is in it
LONGER = (
    "import os\n\n\ndef read_lines(path):\n"
    "    with open(path) as file:\n        for line in file:\n"
)
NEW, ANSWER = 32, 8  # tokens of code, tokens that hold the name asked for


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


# Numbers ------------------------------------------------------------------------------------------


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
    cache = PagedCache(model.layer_specs, pool, retention=retention)
    for x in cache.storage():
        x[...] = 0
    return cache
