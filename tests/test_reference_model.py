"""The model the book runs on loads with NumPy alone, and says with a cache what it says without."""

import ast
from importlib.resources import files

import numpy as np

import kvlib
from kvlib.reference import sample_text

FOLDER = files("kvlib.reference")


def test_what_it_is(model):
    config = model.config
    assert config.num_key_value_heads == 2 and config.num_attention_heads > 2
    assert 2_000_000 <= model.num_parameters <= 5_000_000
    assert all(weight.dtype == np.float32 for weight in model.weights.values())
    assert all(np.isfinite(weight).all() for weight in model.weights.values())


def test_text_in_text_out(model):
    assert model.tokenizer.encode("é") == [0xC3, 0xA9]
    (text,) = kvlib.generate(model, ["def add(a, b):\n    return "], max_new_tokens=8)
    assert isinstance(text, str) and text


def test_the_sample_is_python():
    text = sample_text()
    assert text.isascii() and 15_000 < len(text) < 18_000
    assert "\t" not in text and "\r" not in text and max(map(len, text.splitlines())) <= 100
    ast.parse(text)


def test_greedy_with_a_cache_is_greedy_by_recomputation(model):
    """Each token the cache led to wins when everything is computed anew (ties within 0.001)."""
    prompt = model.tokenizer.encode(sample_text())[:200]
    (found,) = kvlib.generate(model, [prompt], max_new_tokens=64, stop_tokens=())
    assert len(found) == 64

    def recomputed(tokens: list[int]) -> np.ndarray:
        cache = model.new_cache(max_seqs=1, max_seq_len=len(tokens))
        cache.add(0)
        return model.forward(tokens, cache, cache.plan([0], [len(tokens)]), rows="all")

    at_once = recomputed(prompt + found)[len(prompt) - 1 : -1]
    for n, (logits, token) in enumerate(zip(at_once, found, strict=True)):
        assert logits.max() - logits[token] < 1e-3, f"token {n}"
    for n in (0, 1, 7, 31, 63):
        logits = recomputed(prompt + found[:n])[-1]
        assert logits.max() - logits[found[n]] < 1e-3, f"token {n}"


def test_it_has_learned_python(model):
    tokens = model.tokenizer.encode(sample_text())[:1024]
    cache = model.new_cache(max_seqs=1, max_seq_len=1024)
    cache.add(0)
    logits = model.forward(tokens, cache, cache.plan([0], [1024]), rows="all")[:-1]
    top = logits.max(axis=1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    bits = (lse - logits[np.arange(1023), tokens[1:]]).mean() / np.log(2)
    assert bits < 2.5
