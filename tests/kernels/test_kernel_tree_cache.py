"""Steps of kvlib's own caches with trees of guesses, through the kernels, against float64."""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, library
from exact import expect_tree
from test_kernel_cache import CODECS, HEADS, build, one_pass, rounded

from kvlib import DenseCache, LayerSpec, QuantizedCache
from kvlib.kernels import Kernels, decode_cache, use_kernels, watched
from kvlib.kernels.trees import MOST_NODES

# Over codes tensor cores take a weight as two 16-bit numbers. float16 has few bits left for the
# weights of keys that hardly matter, and where a row sees few keys, that shows.
PAIRED = 2.0**-16


def drawn_tree(rng, n):
    """Parents of n new tokens; about one in five follows what the request held before."""
    return [-1 if rng.random() < 0.2 else int(rng.integers(j)) if j else -1 for j in range(n)]


def poisoned(cache):
    """The same cache; nothing that is not written may be read."""
    for x in cache.storage():
        if x.dtype.kind == "f":
            x[...] = np.nan
    return cache


def planned(cache, rng, names, q_lens, parents):
    """A step that every layer has appended to."""
    step = cache.plan(list(names), q_lens, parents=parents)
    for layer, spec in enumerate(cache.layers):
        new = rng.standard_normal((2, step.num_tokens, spec.num_kv_heads, 64))
        cache.append(layer, *(cache.xp.asarray(x.astype(cache.dtype)) for x in new), step)
    return step


def compare(cache, rng, step, run_on):
    """Each row against float64 attention over what the layer has of the row's own path."""
    for layer, spec in enumerate(cache.layers):
        q = rng.standard_normal((step.num_tokens, HEADS[layer], 64)).astype(cache.dtype)
        o, lse = back(cache.run(layer, cache.xp.asarray(q), step, return_lse=True))
        settings = spec.settings
        if spec.sinks is not None:
            settings["sinks"] = back(spec.sinks).astype(np.float64)
        for b, name in enumerate(step.seq_ids):
            k, v, _ = back(cache.read(layer, name))
            n = step.q_lens[b]
            seen = step.ancestors(b)
            seen = np.tril(np.ones((n, n), bool)) if seen is None else seen
            own = slice(step.qo_indptr[b], step.qo_indptr[b + 1])
            operand = max(0.0 if cache.plain else PAIRED, rounded(cache, str(q.dtype)))
            expect_tree((o[own], lse[own]), q[own], k, v, seen, run_on, operand, **settings)


def play(cache, rng, run_on):
    """Trees beside chains and single tokens; then paths are kept, and trees again."""
    for name in "abc":
        cache.add(name)
    one_pass(cache, rng, "abc", (27, 1, 16))
    for lens, last, n in (((9, 1, 3), [2, 1, 1], 1), ((3, 6, 5), None, 2)):
        parents = [drawn_tree(rng, lens[0]), None, drawn_tree(rng, lens[2])]
        step = planned(cache, rng, "abc", lens, parents)
        compare(cache, rng, step, run_on)
        assert step.parents is not None
        compare(cache, rng, step.last(last), run_on)
        for b, name in enumerate("abc"):
            seen = step.ancestors(b)
            path = np.flatnonzero(seen[-1]) if seen is not None else range(lens[b])
            cache.keep(name, [int(j) for j in path])
        compare(cache, rng, one_pass(cache, rng, "abc", (1, n, 1)), run_on)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["plain", "int8", "int8 residual", "e4m3", "int4"])
@pytest.mark.parametrize("kind", ["paged", "dense"])
def test_trees_of_a_cache(kind, name, dtype, run_on):
    rng = np.random.default_rng(5)
    cache = poisoned(build(kind, name, np.dtype(dtype), library(run_on)))
    play(use_kernels(cache, run_on=run_on), rng, run_on)


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
        step = planned(cache, rng, "ab", (3, 5), parents)
        with watched() as seen:
            compare(cache, rng, step, run_on)
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
    step = planned(cache, rng, "a", [n], [[-1] * n])
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
    step = planned(cache, rng, "a", [n], [[-1] * n])
    with pytest.raises(ValueError, match="a tree of guesses; call cache.run"):
        decode_cache(cache, 0, q[:1], step.last())
    assert Kernels.trees
