"""Cascade attention is attention: against the oracle and against `run`, on random forks."""

import itertools
from functools import partial

import numpy as np
import pytest
from caches import feed
from schedules import check_run, close

from kvlib import DenseCache, LayerSpec, Meter
from kvlib.caches import BlockPool, PagedCache
from kvlib.caches.cascade import run_cascade, shared_tokens
from kvlib.codecs import fp8, int8, kivi
from kvlib.testing.memory import poison_unused

CODECS = {
    "plain": None, "int8": int8(), "int8, residual 5": int8(residual=5),
    "int4": kivi(4, group=8, residual=3), "fp8": fp8("e4m3"),
}


def queries(spec: LayerSpec, tokens: int, groups: int, rng) -> np.ndarray:
    shape = (tokens, groups * spec.num_kv_heads, spec.head_dim)
    return rng.standard_normal(shape).astype(np.float32)


def check(cache: PagedCache, layer: int, step, groups: int, rng) -> None:
    """run_cascade == run == the formula in float64 over what is stored."""
    q = queries(cache.layers[layer], step.num_tokens, groups, rng)
    o, lse = check_run(cache, layer, q, step, run=partial(run_cascade, cache))
    alone = run_cascade(cache, layer, q, step)
    assert (alone == o).all() and o.dtype == q.dtype and lse.dtype == np.float32
    for got, needed in zip((o, lse), cache.run(layer, q, step, return_lse=True)):
        close(got, needed, "run_cascade against run")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [8, 64])
def test_random_forks(codec: str, size: int, effort) -> None:
    rng = np.random.default_rng(1)
    found = 0
    seeds = effort.share("trees of forks", range(12), usual=6, quick=4)
    for tree in seeds:
        groups, heads = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        sinks = rng.standard_normal(groups * heads).astype(np.float32)
        layers = [
            LayerSpec(heads, 8, 16),
            LayerSpec(heads, 16, 8, v_from_k=True, sm_scale=0.7, softcap=1.5),
            LayerSpec(heads, 8, sinks=sinks),
            LayerSpec(heads, 8, window=int(rng.integers(1, 4 * size))),
        ]
        cache = PagedCache(layers, BlockPool(80, size), codec=CODECS[codec], xp=np)
        for x in cache.storage():
            x[...] = np.nan if x.dtype.kind == "f" else 0
        cache.add("r0")
        least = 1 if tree % 2 else 2 * size  # every second tree surely shares blocks
        feed(cache, ["r0"], [int(rng.integers(least, 3 * size))], rng)
        names = [f"r{i}" for i in range(int(rng.integers(2, 5)))]
        for name in names[1:]:
            cache.fork("r0", name)
        for _ in range(int(rng.integers(1, 4))):
            some = rng.permutation(names)[: rng.integers(2, len(names) + 1)].tolist()
            q_lens = rng.choice([1, 1, 1, 2, 9], len(some)).tolist()
            step, _ = feed(cache, some, q_lens, rng)
            step = step.last() if rng.integers(2) else step
            poison_unused(cache)
            for layer in range(len(layers)):
                found += shared_tokens(cache, layer, step) > 0
                check(cache, layer, step, groups, rng)
    assert found > len(seeds), "hardly anything was shared"


def shared_prompt(requests: int, prompt: int, own: int, size: int = 16, **spec):
    """Requests that found the same prompt in the pool, after a step of `own` tokens each."""
    rng = np.random.default_rng(2)
    cache = PagedCache([LayerSpec(2, 8, **spec)], BlockPool(400, size), xp=np)
    tokens = rng.integers(0, 50, prompt).tolist()
    cache.add("first", tokens)
    feed(cache, ["first"], [prompt], rng, tokens)
    cache.free("first")
    names = list(range(requests))
    held = [cache.add(name, tokens + [99]) for name in names]
    left = [prompt - n + own for n in held]
    step, _ = feed(cache, names, left, rng, [*itertools.chain(*([7] * n for n in left))])
    return cache, step, rng


@pytest.mark.parametrize("window", [None, 50, 51, 52, 16])
def test_a_window_that_hides_shared_keys_takes_the_way_of_run(window: int | None) -> None:
    cache, step, rng = shared_prompt(3, 48, 3, window=window)  # 51 tokens each
    assert shared_tokens(cache, 0, step) == (48 if window is None or window >= 51 else 0)
    check(cache, 0, step, 2, rng)


def test_one_request_and_nothing_shared() -> None:
    cache, step, rng = shared_prompt(1, 48, 3)
    assert shared_tokens(cache, 0, step) == 0
    check(cache, 0, step, 2, rng)
    cache = PagedCache([LayerSpec(2, 8)], BlockPool(40, 16), xp=np)
    for name in "ab":
        cache.add(name)
    step, _ = feed(cache, ["a", "b"], [20, 33], rng)
    assert shared_tokens(cache, 0, step) == 0
    check(cache, 0, step, 2, rng)


def test_tokens_of_the_step_itself_are_never_shared() -> None:
    rng = np.random.default_rng(3)
    cache = PagedCache([LayerSpec(1, 4)], BlockPool(20, 4), xp=np)
    cache.add("a")
    feed(cache, ["a"], [10], rng)
    cache.fork("a", "b")
    cache.truncate("b", 5)
    step, _ = feed(cache, ["a", "b"], [1, 1], rng)
    assert shared_tokens(cache, 0, step) == 4, "b has read 5 tokens, one whole block"
    check(cache, 0, step, 1, rng)


@pytest.mark.parametrize("requests", [2, 7, 30])
def test_the_shared_part_is_read_once(requests: int) -> None:
    cache, step, rng = shared_prompt(requests, 256, 1)
    q = queries(cache.layers[0], step.num_tokens, 2, rng)
    with Meter() as plain:
        cache.run(0, q, step)
    with Meter() as cascade:
        run_cascade(cache, 0, q, step)
    a_token = 2 * 2 * 8 * 4  # keys and values, heads, dim, float32
    assert plain.by_label["attention"].read == requests * 257 * a_token
    assert cascade.by_label["attention"].read == (256 + requests) * a_token
    assert plain.flops == cascade.flops, "the same products, only stacked"


def test_many_rows_are_computed_a_chunk_at_a_time() -> None:
    cache, step, rng = shared_prompt(3, 64, 150)
    assert step.num_tokens > 192 and shared_tokens(cache, 0, step) == 64
    check(cache, 0, step, 2, rng)


def test_what_it_refuses() -> None:
    cache, step, rng = shared_prompt(2, 32, 1)
    q = queries(cache.layers[0], step.num_tokens, 2, rng)
    with pytest.raises(TypeError, match="cache must be a PagedCache"):
        run_cascade(DenseCache([LayerSpec(2, 8)], 2, 40, xp=np), 0, q, step)
    with pytest.raises(ValueError, match="q of layer 0 must be"):
        run_cascade(cache, 0, q[:1], step)
    with pytest.raises(ValueError, match="layer must be 0 ... 0, got 1"):
        run_cascade(cache, 1, q, step)
    cache.free(0)
    with pytest.raises(ValueError, match="is over"):
        run_cascade(cache, 0, q, step)
