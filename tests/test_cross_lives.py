"""Any cache whose requests are filled once and then seen: each result against float64."""

from typing import Any

import array_api_strict
import device_double
import numpy as np
import pytest
from caches import CACHES, build, feed, fitting, poison_all, takes
from outside.listed import ListCache
from schedules import check_run

from kvlib import BlockPool, LayerSpec, PagedCache, QuantizedCache
from kvlib.arrays import to_numpy
from kvlib.caches import cross_step
from kvlib.kernels import Kernels
from kvlib.testing import oracle
from kvlib.testing.memory import check_bill, poison_unused
from kvlib.testing.rounding import sum_bound


def lives(name: str, seed: int, xp: Any = np) -> int:
    """Random texts, queries, forks and new requests in any cache; results compared."""
    rng = np.random.default_rng(seed)
    kv = int(rng.integers(1, 3))
    groups = int(rng.integers(1, 4))
    sinks = xp.asarray(rng.standard_normal(kv * groups).astype(np.float32))
    layers = [
        LayerSpec(kv, 16, softcap=1.5 if seed % 2 else None),
        LayerSpec(kv, 16, 8, sinks=sinks),
        LayerSpec(kv, 16, 8, v_from_k=True, sm_scale=0.3),
    ]
    if not takes(name, layers):
        layers = fitting(name, [LayerSpec(kv, 16)] * 2)
    cache: Any = build(name, layers, xp, xp.float32)
    compared, texts, bound = 0, dict[str, int](), sum_bound(16 + 40, 4.0)

    def draw(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal(shape).astype(np.float32))

    for turn in range(12):
        new = f"r{turn}"
        if len(texts) < 2 or (len(texts) < 4 and rng.random() < 0.3):
            if texts and rng.random() < 0.5:
                source = list(texts)[rng.integers(len(texts))]
                cache.fork(source, new)
                texts[new] = texts[source]
            else:
                texts[new] = int(rng.integers(1, 14))
                cache.add(new)
                feed(cache, [new], [texts[new]], rng)
        elif len(texts) > 2 and rng.random() < 0.3:
            cache.free(texts.popitem()[0])
        poison_unused(cache)
        names = list(texts)
        rng.shuffle(names)
        names = names[: int(rng.integers(1, len(names) + 1))]
        q_lens = [int(rng.integers(1, 4)) for _ in names]
        step = cross_step(cache, names, q_lens)
        assert step.num_tokens == sum(q_lens)
        for layer in range(len(layers)):
            q = draw(step.num_tokens, kv * groups, layers[0].head_dim)
            check_run(cache, layer, q, step, bound)
            compared += len(names)
            for name in names:
                assert to_numpy(cache.read(layer, name)[2]).tolist() == list(range(texts[name]))
        check_bill(cache)
    return compared


@pytest.mark.untraced
@pytest.mark.parametrize("name", CACHES)
def test_any_cache_equals_float64(name: str, effort: Any) -> None:
    for seed in effort.share("lives of an encoder's cache", range(12), usual=2):
        assert lives(name, seed) >= 12


@pytest.mark.parametrize("library", [array_api_strict, device_double.xp], ids=["strict", "device"])
@pytest.mark.parametrize("name", ["dense", "paged, blocks of 4"])
def test_the_standard_alone_and_a_device(name: str, library: Any) -> None:
    assert lives(name, 3, library) >= 12


def test_kernels_run_it_as_a_decode_step() -> None:
    rng = np.random.default_rng(0)
    cache = PagedCache(
        [LayerSpec(2, 64)], BlockPool(20, 16), xp=np, attention=Kernels(run_on="twin")
    )
    for name, n in (("a", 37), ("b", 5)):
        cache.add(name)
        feed(cache, [name], [n], rng)
    q = rng.standard_normal((4, 4, 64), dtype=np.float32)
    check_run(cache, 0, q, cross_step(cache, ["b", "a"], [1, 3]), sum_bound(64 + 40, 4.0))


def test_a_custom_cache_can_be_seen_too() -> None:
    cache, rng = ListCache([LayerSpec(1, 4)], xp=np), np.random.default_rng(0)
    cache.add("a")
    feed(cache, ["a"], [5], rng)
    q = rng.standard_normal((3, 2, 4), dtype=np.float32)
    check_run(cache, 0, q, cross_step(cache, ["a"], [3]), 1e-6)


def test_codes_are_seen_like_numbers() -> None:
    cache = QuantizedCache([LayerSpec(2, 16)], "int8", 1, 16, xp=np)
    poison_all(cache)
    cache.add("a")
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 9, 2, 16), dtype=np.float32)
    cache.append(0, k, v, cache.plan(["a"], [9]))
    q = rng.standard_normal((5, 4, 16), dtype=np.float32)
    o = cache.run(0, q, cross_step(cache, ["a"], [5]))
    exact, _ = oracle.attention(q, k, v, np.full(5, 9), np.arange(9))
    assert 0 < np.abs(o - exact).max() < 0.05
