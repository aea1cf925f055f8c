"""Steps of kvlib's caches through the kernels, against float64 over what the caches read."""

import gc
import itertools
import weakref
from dataclasses import replace

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, library
from exact import expect

from kvlib import LayerSpec, codecs
from kvlib.caches import BlockPool, DenseCache, PagedCache, QuantizedCache
from kvlib.codecs import BFloat16, Codec, Fp8, Int8, PerChannel, PerToken, Plain
from kvlib.kernels import Kernels, use_kernels, watched
from kvlib.kernels.caches import unsuited
from kvlib.kernels.trees import MOST_NODES

CODECS = {
    "plain": None, "int8": codecs.int8(), "int8 residual": codecs.int8(residual=5),
    "e4m3": codecs.fp8("e4m3"), "int4": codecs.kivi(4, 8, residual=9),
    "int2": codecs.kivi(2, 8, residual=0),
}
LAYERS = (
    LayerSpec(2, 64), LayerSpec(1, 64, window=11, softcap=2.0),
    LayerSpec(2, 64, sm_scale=0.2, sinks=np.array([0.3, -1.0, 0.0, 2.0], np.float32)),
)
HEADS = (4, 3, 4)


def build(kind, name, dtype, xp=np):
    codec, layers = CODECS[name], LAYERS
    if xp is not np:  # sinks are stored where the cache is
        layers = [
            replace(s, sinks=s.sinks if s.sinks is None else xp.asarray(s.sinks)) for s in layers
        ]
    if kind == "paged":
        return PagedCache(layers, BlockPool(24, 16), codec=codec, dtype=dtype, xp=xp)
    if codec is None:
        return DenseCache(layers, 4, 70, dtype=dtype, xp=xp)
    return QuantizedCache(layers, codec, 4, 72, dtype=dtype, xp=xp)


def play(cache, rng, check):
    """Ragged prompts, steps of some, one undone, one forked, one freed; then trees of guesses."""
    for name in "abc":
        cache.add(name)
    one_pass(cache, rng, "ab", (23, 1))
    one_pass(cache, rng, "c", (16,))
    for names in ("a", "abc", "ca"):
        check(one_pass(cache, rng, names, (1,) * len(names)))
    cache.truncate("a", cache.seq_len("a") - 1)
    cache.fork("c", "d")
    check(one_pass(cache, rng, "ad", (1, 1)))
    cache.free("b")
    cache.add("e")
    check(one_pass(cache, rng, "ec", (1, 1)))
    check(one_pass(cache, rng, "dea", (3, 20, 9)).last())
    for lens, last, n in (((9, 1, 3), None, 1), ((3, 6, 5), [2, 1, 1], 2)):
        parents = [drawn_tree(rng, lens[0]), None, drawn_tree(rng, lens[2])]
        step = one_pass(cache, rng, "ace", lens, parents)
        check(step if last is None else step.last(last))
        for b, name in enumerate("ace"):
            seen = step.ancestors(b)
            path = range(lens[b]) if seen is None else np.flatnonzero(seen[-1])
            cache.keep(name, [int(j) for j in path])
        check(one_pass(cache, rng, "ace", (1, n, 1)))


def drawn_tree(rng, n):
    """Parents of n new tokens; about one in five follows what was cached before."""
    return [-1 if rng.random() < 0.2 else int(rng.integers(j)) if j else -1 for j in range(n)]


def one_pass(cache, rng, names, q_lens, parents=None):
    """A step that every layer has appended to."""
    step = cache.plan(list(names), q_lens, parents=parents)
    for layer, spec in enumerate(cache.layers):
        new = rng.standard_normal((2, step.num_tokens, spec.num_kv_heads, 64))
        cache.append(layer, *(cache.xp.asarray(x.astype(cache.dtype)) for x in new), step)
    return step


def rounded(cache, step, dtype):
    """Spacing of what tensor cores are handed: int8 as pairs of bfloat16, KIVI's as float16.

    Over codes, guesses take a weight as two 16-bit numbers. float16 has few bits left for the
    weights of keys that hardly matter, and where a row sees few keys, that shows.
    """
    keys = type(cache.codec.keys).__name__
    if dtype != "float32" or cache.dtype != np.float32 or keys == "PerChannel":
        return 2.0**-10
    return 2.0**-16 if keys == "Int8" or not (cache.plain or max(step.q_lens) == 1) else 0.0


def compare(cache, rng, step, run_on, dtype):
    """Each row against float64 attention over what the layer has of the row's own path."""
    operand = rounded(cache, step, dtype)
    for layer, spec in enumerate(cache.layers):
        q = rng.standard_normal((step.num_tokens, HEADS[layer], 64)).astype(dtype)
        o, lse = back(cache.run(layer, cache.xp.asarray(q), step, return_lse=True))
        assert o.dtype == q.dtype and lse.dtype == np.float32
        settings = dict(spec.settings)
        if spec.sinks is not None:
            settings["sinks"] = back(spec.sinks).astype(np.float64)
        for b, name in enumerate(step.seq_ids):
            k, v, positions = back(cache.read(layer, name))
            assert positions[-1] == cache.seq_len(name) - 1 or step.parents is not None
            seen, n = step.ancestors(b), step.q_lens[b]
            seen = np.tril(np.ones((n, n), bool)) if seen is None else seen
            rows = slice(step.qo_indptr[b], step.qo_indptr[b + 1])
            expect((o[rows], lse[rows]), q[rows], k, v, seen, run_on, operand, **settings)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtypes", ["float32 float32", "float16 float16", "float16 float32"])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("kind", ["paged", "dense"])
def test_steps_of_a_cache(kind, name, dtypes, run_on):
    """float16 is stored; queries, and so results, may be float32. What isn't written is NaN."""
    stored, asked = dtypes.split()
    rng, cache = np.random.default_rng(7), build(kind, name, np.dtype(stored), library(run_on))
    for x in cache.storage():
        if x.dtype.kind == "f":
            x[...] = np.nan
    use_kernels(cache, run_on=run_on)
    play(cache, rng, lambda step: compare(cache, rng, step, run_on, asked))


def test_what_the_kernels_cannot_do_is_said():
    spec = LayerSpec(1, 64)
    for other, words in (
        (LayerSpec(1, 40), "head_dim must be one of"), (LayerSpec(1, 128, 64), "as long as keys"),
        (LayerSpec(1, 64, v_from_k=True), "values must be stored separately"),
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
    cache.append(0, x, x, step)
    with pytest.raises(TypeError, match="CuPy arrays"):
        use_kernels(cache, run_on="device").run(0, x[:1], step.last())


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
    "bfloat16": codecs.bfloat16(), "own": Codec("int8", Halved(), Halved()),
    "int8 and fp8": Codec("mixed", Int8(), Fp8("e4m3")),
    "numbers and int8": Codec("mixed", Plain(), Int8()),
    "two kinds of fp8": Codec("mixed", Fp8("e4m3"), Fp8("e5m2")),
    "axes swapped": Codec("int4", PerToken(4, 8), PerChannel(4, 8)),
    "4 bits and 2": Codec("int4", PerChannel(4, 8), PerToken(2, 8)),
}


@pytest.mark.parametrize("codec", UNKNOWN.values(), ids=UNKNOWN)
def test_a_codec_that_the_kernels_do_not_know_is_refused_at_once(codec):
    cache = PagedCache([LayerSpec(1, 64)], BlockPool(4, 16), codec=codec, xp=np)
    with pytest.raises(ValueError, match="suit no layer .*, got .*Use the cache as it is"):
        use_kernels(cache)
    assert cache.attention is None, "the cache was changed"


def test_every_pair_of_codecs_is_run_or_refused():
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
    for n in (3, 1):  # a step knows its cache, and the cache must not keep the step alive
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


@pytest.mark.parametrize("run_on", RUNS)
def test_a_tree_of_sixteen_equals_its_paths_run_apart(run_on):
    """In one step, of which every older key is read once per kv head."""
    rng, xp = np.random.default_rng(6), library(run_on)
    parents = [-1, 0, 0, 1, 1, 2, 3, 3, 5, 6, 8, 8, 9, 11, 12, 13]
    made = [use_kernels(DenseCache([LayerSpec(2, 64)], 1, 160, xp=xp), run_on=run_on) for _ in "ta"]
    old, new = rng.standard_normal((2, 2, 100, 2, 64)), rng.standard_normal((2, 16, 2, 64))
    q = xp.asarray(rng.standard_normal((16, 4, 64)).astype(np.float32))
    for cache in made:
        cache.add("a")
        cache.append(
            0, *(xp.asarray(x.astype(np.float32)) for x in old[0]), cache.plan(["a"], [100])
        )
    tree, alone = made
    step = tree.plan(["a"], [16], parents=[parents])
    k, v = (xp.asarray(x.astype(np.float32)) for x in new)
    tree.append(0, k, v, step)
    with watched() as seen:
        o = back(tree.run(0, q, step))
    assert run_on != "processor" or [x.kernel.unit for x, _ in seen] == ["prefill_tree_float"]
    for leaf in {*range(16)} - {*parents}:
        path = np.flatnonzero(step.ancestors(0)[leaf]).tolist()
        chain = alone.plan(["a"], [len(path)])
        alone.append(0, k[path], v[path], chain)
        np.testing.assert_allclose(o[path], back(alone.run(0, q[path], chain)), atol=1e-5)
        alone.truncate("a", 100)


def test_a_chain_of_guesses_is_split_by_keys():
    rng = np.random.default_rng(7)
    cache = use_kernels(DenseCache([LayerSpec(1, 64)], 1, 1100, xp=np), run_on="processor")
    cache.add("a")
    one_pass(cache, rng, "a", (1000,))
    step = one_pass(cache, rng, "a", (3,))
    q = rng.standard_normal((3, 2, 64)).astype(np.float32)
    with watched() as seen:
        o = cache.run(0, q, step)
    assert [x.kernel.unit for x, _ in seen] == ["prefill_tree_float", "decode"]
    np.testing.assert_allclose(o, cache.attend(0, q, step), atol=1e-5)


@pytest.mark.parametrize("run_on", HOSTS)
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_guesses_over_codes_are_more_query_heads(name, run_on):
    """One piece of codes, one of new tokens; no code is decoded but those of new tokens."""
    rng = np.random.default_rng(9)
    cache = QuantizedCache([LayerSpec(2, 64)], CODECS[name], 2, 200, xp=np)
    use_kernels(cache, run_on=run_on)
    for request in "ab":
        cache.add(request)
    one_pass(cache, rng, "ab", (120, 70))
    for parents in ([[-1, 0, 0], [-1, -1, 1, 1, 0]], None):
        step = one_pass(cache, rng, "ab", (3, 5), parents)
        with watched() as seen:
            compare(cache, rng, step, run_on, "float32")
        units = [launch.kernel.unit for launch, _ in seen]
        tail = "prefill_float" if parents is None else "prefill_tree_float"
        assert units == ([tail, "decode_tensor"] if run_on == "processor" else [])
        for request in "ab":
            cache.truncate(request, 120 if request == "a" else 70)


def test_what_no_kernel_suits_is_left_to_the_cache():
    rng = np.random.default_rng(8)
    cache = use_kernels(DenseCache([LayerSpec(1, 64)], 1, 1100, xp=np), run_on="processor")
    cache.add("a")
    n = MOST_NODES + 1
    step = one_pass(cache, rng, "a", [n], [[-1] * n])
    q = rng.standard_normal((n, 1, 64)).astype(np.float32)
    with watched() as seen:
        np.testing.assert_array_equal(cache.run(0, q, step), cache.attend(0, q, step))
    assert not seen
    for n, window in ((33, None), (3, 20)):  # too many rows, a window that hides something
        layers = [LayerSpec(1, 64, window=window)]
        cache = use_kernels(QuantizedCache(layers, "int8", 1, 200, xp=np), run_on="processor")
        cache.add("a")
        one_pass(cache, rng, "a", (40,))
        step = one_pass(cache, rng, "a", (n,))
        q = rng.standard_normal((n, 2, 64)).astype(np.float32)
        with watched() as seen:
            np.testing.assert_array_equal(cache.run(0, q, step), cache.attend(0, q, step))
        assert not seen
    cache = use_kernels(DenseCache([LayerSpec(1, 64)], 1, 1100, xp=np))
    cache.add("a")
    step = one_pass(cache, rng, "a", [n], [[-1] * n])
    assert Kernels.trees
