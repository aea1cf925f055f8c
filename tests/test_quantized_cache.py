"""Caches of codes: what is written while tokens stream in, how many bytes, and what is decoded."""

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from caches import feed, give, refused

from kvlib import LayerSpec, Meter, costs
from kvlib.arrays import nbytes
from kvlib.attention.causal import attend_pieces
from kvlib.caches import BlockPool, PagedCache, QuantizedCache, stored
from kvlib.codecs import PLAIN, Codec, Int8, PerChannel, fp8, int8, int8_per_channel, kivi
from kvlib.costs import formulas

CODECS = (
    int8(), int8(7), int8_per_channel(8, 3), kivi(4, 8, 5), kivi(2, 8), kivi(2, 4, 0), fp8("e4m3"),
    fp8("e5m2"),
)
TOKENS = 96


def rows(layers, codec, length, dtype=None, max_seqs=1):
    return QuantizedCache(layers, codec, max_seqs, length, dtype=dtype, xp=np)


def blocks(size):
    return lambda layers, codec, length, dtype=None: PagedCache(
        layers, BlockPool(-(-length // size), size), codec=codec, dtype=dtype, xp=np
    )


HOMES = {"rows": rows, "blocks of 8": blocks(8), "blocks of 64": blocks(64)}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("codec", [PLAIN, *CODECS], ids=lambda c: f"{c.name}, {c.residual}")
def test_reserved_is_every_array_there_is(home, codec):
    """Counted by walking over the cache's objects, not by asking it."""
    cache = HOMES[home]([LayerSpec(2, 16, 8), LayerSpec(1, 8, v_from_k=True)], codec, TOKENS)
    cache.add("a")
    for n in (70, 9, 1):
        feed(cache, ["a"], [n])
    found = {}
    for store in cache.stores:
        for tensor in store.tensors:
            found |= {id(x): x for x in tensor.arrays.values()}
    for tail in cache._sequences["a"].state.residuals:
        found |= {id(x): x for x in [*tail.waiting, *(tail.previous or ())]}
    assert cache.memory().reserved == sum(x.nbytes for x in found.values())
    assert cache.memory().reserved == sum(nbytes(x) for x in cache.storage())


@pytest.mark.parametrize(
    "name, codec",
    [("float32", PLAIN), ("fp8", fp8()), ("int8", int8()), ("int4", kivi(4)), ("int2", kivi(2))],
)
def test_the_calculator_agrees_with_a_live_cache(name, codec):
    """What is live; where tokens wait, at lengths at which no group is half full."""
    dtype = np.float32 if name == "float32" else np.float16  # residuals are 16 bits there
    layers = [LayerSpec(4, 64)] * 3
    book = costs.CODECS[name]
    assert codec.residual == book.residual
    layer = dict(count=3, values=2 * 4 * 64, vectors=2 * 4, window=0, every=1, state=0)
    for length in (32, 128, 160, 480):
        cache = rows(layers, codec, 480, dtype)
        cache.add("a")
        feed(cache, ["a"], [length])
        memory = cache.memory()
        held = formulas.stored_bytes([layer], book.facts, length)
        assert memory.payload + memory.metadata == held


@pytest.mark.parametrize("bits, bound", [(4, 5.0), (2, 3.0)])
def test_kivi_takes_bits_and_32_over_group_a_number(bits, bound):
    cache = rows([LayerSpec(1, 64)], kivi(bits, 32, 0), 3200)
    cache.add("a")
    feed(cache, ["a"], [3200])
    memory = cache.memory()
    assert (memory.payload + memory.metadata) * 8 == bound * 2 * 3200 * 64
    assert memory.payload * 8 == bits * 2 * 3200 * 64


@pytest.mark.parametrize("home", ["rows", "blocks of 8"])
@pytest.mark.parametrize("codec", [int8(), int8(7), kivi(4, 8, 5)], ids=lambda c: c.made_by)
def test_what_an_append_writes_is_counted(home, codec):
    """Codes of what a step completes, and numbers as they came of what is moved or waits."""
    cache = HOMES[home]([LayerSpec(2, 16)], codec, TOKENS)
    cache.add("a")
    vector = sum(x.nbytes for x in codec.keys.encode(normal(2, 8, 16)).values()) // 8
    vector += sum(x.nbytes for x in codec.values.encode(normal(2, 8, 16)).values()) // 8
    done = coded = 0
    for n in (3, 2, 1, 9, 30, 1, 8):
        step = cache.plan(["a"], [n])
        with Meter() as meter:
            give(cache, step)
        done, before, coded = done + n, coded, codec.coded(done + n)
        waiting = n if coded == before else done - coded
        needed = (coded - before) * vector + waiting * 2 * 2 * 16 * 4
        assert meter.by_label["append"].written == needed, f"{n} tokens up to {done}"


@pytest.mark.untraced
@pytest.mark.pairwise
@pytest.mark.parametrize("home", ["rows", "blocks of 8", "blocks of 64"])
@pytest.mark.parametrize("codec", [int8(), kivi(4, 32, 32), fp8()], ids=lambda c: c.name)
@pytest.mark.parametrize("queries", [1, 64])
def test_run_needs_little_memory(home, codec, queries):
    """Its peak stays far below one head's keys in float32, and far below all of them."""
    if home == "blocks of 8":
        codec = Codec(codec.name, *(
            type(c)(c.bits, 8) if isinstance(c, PerChannel) else c
            for c in (codec.keys, codec.values)), codec.residual)  # fmt: skip
    cache = HOMES[home]([LayerSpec(4, 64)], codec, 16 * 1024)
    cache.add("a")
    for n in (*[1024] * 15, queries):
        step, _ = feed(cache, ["a"], [n])
    q = normal(queries, 8, 64)
    tracemalloc.start()
    try:
        cache.run(0, q, step)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.2 * (4 * 15 * 1024 * 64 * 4)


def encoding(change):
    """int8, whose `encode` gives what change(codes, scales) makes of it."""

    class Changed(Int8):
        def encode(self, x):
            parts = super().encode(x)
            return change(parts["codes"], parts["scales"])

        def __repr__(self):
            return "Changed()"

    return Codec("changed", Changed(), Changed())


@pytest.mark.parametrize("home", ("rows", "blocks of 8"))
@pytest.mark.parametrize("change, error, words", [
    (lambda c, s: {"codes": c}, ValueError, r"\['codes'\], needed \['codes', 'scales'\]"),
    (lambda c, s: {"codes": c, "scales": s, "signs": s}, ValueError, "'signs'"),
    (lambda c, s: (c, s), TypeError, "tuple"), (lambda c, s: None, TypeError, "None"),
    (lambda c, s: {"codes": c, "scales": 1.0}, TypeError, "'scales'.*1.0"),
    (lambda c, s: {"codes": c[0], "scales": s}, ValueError, "'codes'.*shape"),
    (lambda c, s: {"codes": c, "scales": s[..., None]}, ValueError, r"\(2, 5, 1\).*\(2, 5\)"),
    (lambda c, s: {"codes": c[:, 1:], "scales": s}, ValueError, r"\(2, 4, 64\).*\(2, 5, 64\)"),
    (lambda c, s: {"codes": c.swapaxes(0, 1), "scales": s}, ValueError, r"\(5, 2, 64\)"),
    (lambda c, s: {"codes": c * 1.0, "scales": s}, ValueError, "float64.*int8"),
])
def test_what_encode_returns_is_checked_against_fields(home, change, error, words):
    cache = HOMES[home]([LayerSpec(2, 64)], encoding(change), 16)
    cache.add("a")
    step = cache.plan(["a"], [5])
    x = np.ones((5, 2, 64), np.float32)
    words = rf"encode of Changed\(\).*{words}"
    refused(cache, error, words, lambda: cache.append(0, x, x, step))


def test_an_encode_that_drops_an_axis_for_one_token():
    codec = encoding(lambda c, s: {"codes": c.squeeze(), "scales": s})
    cache = QuantizedCache([LayerSpec(2, 64)], codec, 1, 16, xp=np)
    cache.add("a")
    for n in (5, 1):
        x, step = np.ones((n, 2, 64), np.float32), cache.plan(["a"], [n])
        if n == 5:
            cache.append(0, x, x, step)
            continue
        with pytest.raises(ValueError, match=r"'codes' of shape \(2, 64\), needed \(2, 1, 64\)"):
            cache.append(0, x, x, step)


def test_what_is_no_codec_is_refused():
    with pytest.raises(TypeError, match=r"codec must be a Codec .*such as 'int8', got an int"):
        rows([LayerSpec(1, 8)], 8, 8)
    with pytest.raises(TypeError, match=r"codec must be a Codec .*got a PerChannel"):
        PagedCache([LayerSpec(1, 8)], BlockPool(2, 8), codec=PerChannel(4, 8), xp=np)


@pytest.mark.parametrize("codec", [int8(), kivi(4, 8, 5)], ids=lambda c: c.name)
def test_a_fork_of_a_row_copies_the_codes_it_has(codec):
    cache = rows([LayerSpec(2, 16)] * 2, codec, TOKENS, max_seqs=2)
    cache.add("a")
    feed(cache, ["a"], [30])
    with Meter() as meter:
        cache.fork("a", "b")
    coded = normal(2, codec.coded(30), 16)
    codes = [*codec.keys.encode(coded).values(), *codec.values.encode(coded).values()]
    assert meter.by_label["fork"].copied == 2 * sum(x.nbytes for x in codes)


@pytest.mark.parametrize("home", HOMES)
def test_pieces_begin_with_the_window_and_not_with_the_text(home):
    """What no query sees is not even listed: a step costs the window, however long the text."""
    listed = []

    def counting(q, pieces, *rest, **settings):
        listed.append(len(pieces.spans))
        return attend_pieces(q, pieces, *rest, **settings)

    cache = HOMES[home]([LayerSpec(1, 16, window=64)], int8(), 4096)
    cache.add("a")
    with patch.object(stored, "attend_pieces", counting):
        for n in (600, 3400, 1):
            step, _ = feed(cache, ["a"], [n])
            cache.run(0, normal(1, 1, 16), step.last())
    assert max(listed) <= 2
