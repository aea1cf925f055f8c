"""Errors that a stranger met as Python's own: each names what came and what was needed."""

import numpy as np
import pytest

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, attend
from kvlib import attend_causal as causal
from kvlib.attention import attend_tiled
from kvlib.codecs import int8_per_channel, kivi

SPEC = LayerSpec(2, 4)
X = np.ones((2, 2, 4), np.float32)
NONE, AT = np.ones((2, 2, 0), np.float32), np.arange(2)
CACHES = {
    "dense": lambda spec=SPEC, **more: DenseCache([spec], 1, 8, **{"xp": np, **more}),
    "paged": lambda spec=SPEC, **more: PagedCache([spec], BlockPool(4, 2), **{"xp": np, **more}),
}


def planned(make):
    cache = make()
    cache.add("a")
    return cache, cache.plan(["a"], [2])


CALLS = {
    "no step": (lambda c, s: c.append(0, X, X, None), TypeError, "step must be a Step.*got None"),
    "run without a step": (lambda c, s: c.run(0, X, [0]), TypeError, r"step must .*got \[0\]"),
    "an array for a layer": (
        lambda c, s: c.append(X, X, s, 0), ValueError,
        r"layer must be 0 \.\.\. 0, got an array of shape \(2, 2, 4\)$",
    ),
    "a text for tokens": (lambda c, s: c.add("g", "hello"), TypeError, "tokens .*got 'hello'"),
    "a number for tokens": (lambda c, s: c.add("g", 7), TypeError, "tokens .*got 7"),
    "half tokens of a generator": (
        lambda c, s: c.add("g", (t for t in (1, 1.5))), TypeError, "whole numbers, got 1.5",
    ),
    "words in a plan": (
        lambda c, s: c.plan(["a"], [2], ["to", "be"]), TypeError, "whole numbers, got 'to'",
    ),
    "a text in a plan": (lambda c, s: c.plan(["a"], [2], "to"), TypeError, "tokens .*got 'to'"),
    "a long text": (
        lambda c, s: c.add("g", "word " * 99), TypeError, r"got 'word .{50,60}\.\.\. \(a str\)$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("call, error, words", CALLS.values(), ids=CALLS)
def test_calls(make, call, error, words):
    cache, step = planned(make)
    with pytest.raises(error, match=words) as said:
        call(cache, step)
    assert len(str(said.value)) < 200
    assert cache.seq_ids == ("a",) and cache.seq_len("a") == 2
    cache.append(0, X, X, step)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_tokens_of_a_generator_are_tokens(make):
    cache = make()
    assert cache.add("a", (t for t in (1, 2, 3))) == 0
    assert cache.plan(["a"], [2], (t for t in (1, 2))).seq_lens == (2,)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("xp", ("numpy", 3, {}))
def test_libraries(make, xp):
    with pytest.raises(TypeError, match="xp must be an array library, the module itself, got"):
        make(xp=xp)


@pytest.mark.parametrize("layers", (SPEC, 3, None))
def test_layers(layers):
    with pytest.raises(TypeError, match="layers must be a list of LayerSpec, one per layer, got "):
        DenseCache(layers)


SINKS = {
    "a list": ([0.0], TypeError, r"sinks must be an array \(num_qo_heads,\), got \[0.0\]"),
    "two axes": (np.ones((2, 2)), ValueError, r"sinks .* 2 heads, got shape \(2, 2\)"),
    "no heads": (np.ones(0), ValueError, r"sinks .* 2 heads, got shape \(0,\)"),
    "other heads": (np.ones(3), ValueError, r"sinks .*a multiple of 2 heads, got shape \(3,\)"),
}


@pytest.mark.parametrize("sinks, error, words", SINKS.values(), ids=SINKS)
def test_sinks(sinks, error, words):
    with pytest.raises(error, match=words):
        LayerSpec(2, 4, sinks=sinks)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_sinks_of_another_library(make):
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(TypeError, match="sinks of layer 0 must be an array of numpy.ndarray"):
        make(LayerSpec(2, 4, sinks=strict.ones(2)))


def test_attention():
    for call in (attend, attend_tiled):
        with pytest.raises(ValueError, match="head_dim of q and k must be at least 1, got 0"):
            call(NONE, NONE, X, AT, AT)
        with pytest.raises(TypeError, match=r"sinks must be an array \(Hq,\) = \(2,\), got \[0.0"):
            call(X, X, X, AT, AT, sinks=[0.0, 0.0])
    with pytest.raises(ValueError, match="Dk at least 1 needed"):
        causal(NONE, NONE, NONE)
    with pytest.raises(TypeError, match="sinks must be an array"):
        causal(X, X, X, sinks=[0.0, 0.0])


@pytest.mark.parametrize("codec, made_by", [
    (kivi(4, 32, 0), r"kivi\(bits=4, group=32, residual=0\)"),
    (int8_per_channel(32), r"int8_per_channel\(group=32, residual=0\)"),
])  # fmt: skip
def test_codecs_are_called_what_the_caller_wrote(codec, made_by):
    words = f"must be a multiple of the 32 tokens that {made_by} encodes together, got 40"
    with pytest.raises(ValueError, match=f"^max_seq_len {words}"):
        QuantizedCache([LayerSpec(1, 32)], codec, 1, 40, xp=np)
    with pytest.raises(ValueError, match=f"^block_size {words}"):
        PagedCache([LayerSpec(1, 32)], BlockPool(2, 40), codec=codec, xp=np)
    with pytest.raises(ValueError, match="group must divide the head_dim of values"):
        QuantizedCache([LayerSpec(1, 48)], codec, 1, 64, xp=np)
    cache = QuantizedCache([LayerSpec(1, 32)], codec, 1, 96, xp=np)
    cache.add("a")
    x = np.ones((96, 1, 32), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [96]))
    with pytest.raises(ValueError, match=f"cannot go back to 40 tokens: {made_by} has encoded"):
        cache.truncate("a", 40)
