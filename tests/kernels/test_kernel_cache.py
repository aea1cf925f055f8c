"""Decode steps of kvlib's own caches through the kernels, against float64 over what they read."""

import gc
import itertools
import weakref
from dataclasses import replace

import numpy as np
import pytest
from engines import RUNS, back, library
from exact import expect

from kvlib import LayerSpec, codecs
from kvlib.caches import BlockPool, DenseCache, PagedCache, QuantizedCache
from kvlib.codecs import BFloat16, Codec, Fp8, Int8, PerChannel, PerToken, Plain
from kvlib.kernels import decode_cache, use_kernels
from kvlib.kernels.caches import step_tables, unsuited

CODECS = {
    "plain": None,
    "int8": codecs.int8(),
    "int8 residual": codecs.int8(residual=5),
    "e4m3": codecs.fp8("e4m3"),
    "int4": codecs.kivi(4, 8, residual=9),
    "int2": codecs.kivi(2, 8, residual=0),
}
LAYERS = (
    LayerSpec(2, 64),
    LayerSpec(1, 64, window=11, softcap=2.0),
    LayerSpec(2, 64, sm_scale=0.2, sinks=np.array([0.3, -1.0, 0.0, 2.0], np.float32)),
)
HEADS = (4, 3, 4)


def build(kind, name, dtype, xp=np):
    codec, layers = CODECS[name], LAYERS
    if xp is not np:  # sinks lie where the cache does
        layers = [
            replace(s, sinks=s.sinks if s.sinks is None else xp.asarray(s.sinks)) for s in layers
        ]
    if kind == "paged":
        return PagedCache(layers, BlockPool(24, 16), codec=codec, dtype=dtype, xp=xp)
    if codec is None:
        return DenseCache(layers, 4, 70, dtype=dtype, xp=xp)
    return QuantizedCache(layers, codec, 4, 72, dtype=dtype, xp=xp)


def play(cache, rng, check):
    """Ragged prompts, steps of some, one taken back, one forked, one freed; then others."""
    for name in "abc":
        cache.add(name)
    one_pass(cache, rng, "ab", (23, 1))
    one_pass(cache, rng, "c", (16,))
    for names in ("a", "abc", "ca", "abc"):
        check(one_pass(cache, rng, names, (1,) * len(names)))
    cache.truncate("a", cache.seq_len("a") - 1)
    cache.fork("c", "d")
    check(one_pass(cache, rng, "ad", (1, 1)))
    cache.free("b")
    cache.add("e")
    check(one_pass(cache, rng, "ec", (1, 1)))
    check(one_pass(cache, rng, "dea", (3, 20, 9)).last())


def one_pass(cache, rng, names, q_lens):
    step = cache.plan(list(names), q_lens)
    for layer, spec in enumerate(cache.layers):
        new = rng.standard_normal((2, step.num_tokens, spec.num_kv_heads, 64)) * 2
        cache.append(layer, *(cache.xp.asarray(x.astype(cache.dtype)) for x in new), step)
    return step


def rounded(cache, dtype):
    """Spacing of what tensor cores are handed: int8 as pairs of bfloat16, KIVI's as float16."""
    codec = getattr(cache, "codec", None)
    kept = type(codec.keys).__name__ if codec is not None else ""
    if dtype != "float32" or cache.dtype != np.float32 or kept == "PerChannel":
        return 2.0**-10
    return 2.0**-16 if kept == "Int8" else 0.0


def compare(cache, rng, step, run_on, dtype):
    """Every layer against float64 attention over what the cache reads, and against its own run."""
    made = {
        group: step_tables(cache, step, cache.group_of.index(group)) for group in {*cache.group_of}
    }
    for layer, spec in enumerate(cache.layers):
        tables = made[cache.group_of[layer]]
        q = rng.standard_normal((len(step.seq_ids), HEADS[layer], 64)).astype(dtype)
        asked = cache.xp.asarray(q)
        if tables is None:  # a long prompt of a window lies in a row of its own
            assert spec.window and cache.pages(step, layer) is None
            found = cache.run(layer, asked, step, return_lse=True)
        else:
            found = decode_cache(
                cache, layer, asked, step, tables=tables, return_lse=True, run_on=run_on
            )
        o, lse = back(found)
        plain = back(cache.run(layer, asked, step, return_lse=True))
        assert o.dtype == q.dtype and lse.dtype == np.float32
        settings = spec.settings
        if spec.sinks is not None:
            settings["sinks"] = back(spec.sinks).astype(np.float64)
        for b, name in enumerate(step.seq_ids):
            k, v, positions = back(cache.read(layer, name))
            assert positions[-1] == cache.seq_len(name) - 1
            last = np.array([len(k) - 1])  # counted among what the layer still has
            for every_o, every_lse in ((o, lse), plain):
                own = every_o[b : b + 1], every_lse[b : b + 1]
                operand = rounded(cache, dtype)
                expect(own, q[b : b + 1], k, v, last, run_on, operand, **settings)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("kind", ["paged", "dense"])
def test_steps_of_a_cache(kind, name, run_on):
    rng, cache = np.random.default_rng(7), build(kind, name, np.float32, library(run_on))
    play(cache, rng, lambda step: compare(cache, rng, step, run_on, "float32"))


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", ["twin", RUNS[-1]])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["plain", "int4"])
def test_a_narrow_cache_and_its_queries(name, dtype, run_on):
    """float16 is stored; queries, and so results, may be float32."""
    rng, cache = np.random.default_rng(8), build("paged", name, np.float16, library(run_on))
    play(cache, rng, lambda step: compare(cache, rng, step, run_on, dtype))


def test_what_the_kernels_cannot_do_is_said():
    spec = LayerSpec(1, 64)
    for other, words in (
        (LayerSpec(1, 40), "head_dim must be one of"),
        (LayerSpec(1, 128, 64), "as long as keys"),
        (LayerSpec(1, 64, v_from_k=True), "values must be of their own"),
    ):
        cache = DenseCache([spec, other], 1, 8, xp=np)
        assert unsuited(cache, 0) is None and words in unsuited(cache, 1)
    assert "power of two" in unsuited(PagedCache([spec], BlockPool(2, 12), xp=np), 0)
    for codec, words in ((codecs.kivi(4, 4), "from 8 on, got 4"), (codecs.kivi(2, 8), None)):
        why = unsuited(QuantizedCache([spec], codec, 1, 64, xp=np), 0)
        assert (why is None) == (words is None) and (words is None or words in why)
    assert "float64" in unsuited(DenseCache([spec], 1, 8, dtype=np.float64, xp=np), 0)
    cache = DenseCache([spec], 1, 8, xp=np)
    cache.add("a")
    step = cache.plan(["a"], [2])
    x = np.ones((2, 1, 64), np.float32)
    with pytest.raises(ValueError, match="has not appended"):
        decode_cache(cache, 0, x, step)
    cache.append(0, x, x, step)
    with pytest.raises(ValueError, match="one query per request"):
        decode_cache(cache, 0, x, step)
    with pytest.raises(TypeError, match="CuPy arrays"):
        decode_cache(cache, 0, x[:1], step.last(), run_on="device")


class Halved(Int8):
    """Somebody's own, derived from int8: codes of half the numbers."""

    def encode(self, x):
        return super().encode(x / 2)

    def decode(self, parts, dtype):
        return 2 * super().decode(parts, dtype)

    def scores(self, rows, parts):
        return 2 * super().scores(rows, parts)

    def weigh(self, p, parts, dim):
        return 2 * super().weigh(p, parts, dim)


UNKNOWN = {
    "bfloat16": codecs.bfloat16(),
    "own": Codec("int8", Halved(), Halved()),
    "int8 and fp8": Codec("mixed", Int8(), Fp8("e4m3")),
    "numbers and int8": Codec("mixed", Plain(), Int8()),
    "two kinds of fp8": Codec("mixed", Fp8("e4m3"), Fp8("e5m2")),
    "axes swapped": Codec("int4", PerToken(4, 8), PerChannel(4, 8)),
    "4 bits and 2": Codec("int4", PerChannel(4, 8), PerToken(2, 8)),
}


@pytest.mark.parametrize("codec", UNKNOWN.values(), ids=UNKNOWN)
def test_a_codec_that_the_kernels_do_not_know_is_refused_at_once(codec):
    """And not in the middle of generate."""
    cache = PagedCache([LayerSpec(1, 64)], BlockPool(4, 16), codec=codec, xp=np)
    with pytest.raises(ValueError, match="suit no layer .*, got .*Use the cache as it is"):
        use_kernels(cache)
    assert cache.attention is None, "the cache was changed"


def test_every_pair_of_codecs_is_run_or_refused():
    """Prompts and decode steps of whatever is accepted; what the kernels give is what run gives."""
    parts = [Plain(), Int8(), Halved(), Fp8("e4m3"), Fp8("e5m2"), BFloat16()]
    parts += [kind(bits, 8) for kind in (PerChannel, PerToken) for bits in (2, 4)]
    accepted = []
    for keys, values in itertools.product(parts, parts):
        cache = QuantizedCache([LayerSpec(1, 64)], Codec("c", keys, values), 1, 48, xp=np)
        if unsuited(cache, 0) is not None:
            continue
        use_kernels(cache, run_on="twin")
        accepted.append((keys, values))
        rng = np.random.default_rng(3)
        cache.add("a")
        for n in (19, 1, 1):
            step = one_pass(cache, rng, "a", (n,))
            q = rng.standard_normal((n, 2, 64)).astype(np.float32)
            plain = cache.attend(0, q, step)
            np.testing.assert_allclose(cache.run(0, q, step), plain, atol=8e-3, rtol=8e-3)
    kinds = {(type(keys).__name__, type(values).__name__) for keys, values in accepted}
    assert kinds == {("Plain",) * 2, ("Int8",) * 2, ("Fp8",) * 2, ("PerChannel", "PerToken")}


@pytest.mark.parametrize("name", ["plain", "int8 residual"])
def test_a_layer_that_no_kernel_suits_runs_as_before(name):
    layers = (LayerSpec(2, 64), LayerSpec(1, 40), LayerSpec(1, 64, v_from_k=True))
    cache = PagedCache(layers, BlockPool(4, 16), codec=CODECS[name], xp=np)
    use_kernels(cache, run_on="twin")
    rng = np.random.default_rng(5)
    cache.add("a")
    for n in (9, 1):
        step = cache.plan(["a"], [n])
        for layer, spec in enumerate(layers):
            k = rng.standard_normal((n, spec.num_kv_heads, spec.head_dim)).astype(np.float32)
            cache.append(layer, k, None if spec.v_from_k else -k, step)
            q = rng.standard_normal((n, 2, spec.head_dim)).astype(np.float32)
            found, plain = cache.run(layer, q, step), cache.attend(layer, q, step)
            np.testing.assert_allclose(found, plain, atol=2e-4, rtol=2e-4)
            assert layer == 0 or np.array_equal(found, plain)


def test_a_cache_on_kernels_goes_when_nobody_holds_it():
    cache = use_kernels(build("dense", "plain", np.float32), run_on="twin")
    rng = np.random.default_rng(0)
    cache.add("a")
    for n in (3, 1):  # a step knows its cache, and must not be kept by it
        step = one_pass(cache, rng, "a", (n,))
        cache.run(0, rng.standard_normal((n, 4, 64)).astype(np.float32), step)
    del step
    watched = weakref.ref(cache)
    gc.disable()  # nothing may have to look for it
    try:
        del cache
        assert watched() is None
    finally:
        gc.enable()
