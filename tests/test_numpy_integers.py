"""Integers of NumPy count as integers: kept as Python's, so that nothing wraps round later."""

import numpy as np
import pytest

from kvlib import (
    BlockPool,
    LayerSpec,
    PagedCache,
    QuantizedCache,
    attend,
    attend_causal,
    generate,
    load_reference_model,
)
from kvlib.attention import attend_tiled
from kvlib.caches.layouts import from_csr, to_csr
from kvlib.codecs import Codec, int8, int8_per_channel, kivi

KINDS = (np.int8, np.uint8, np.uint32, np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window(kind):
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 70, 1, 8)).astype(np.float32)
    q, at = rng.standard_normal((70, 2, 8)).astype(np.float32), np.arange(70)
    needed = attend(q, k, v, at, at, window=30)
    assert np.isfinite(needed).all()
    heads_first = (x.transpose(1, 0, 2) for x in (k, v))
    assert (attend(q, k, v, at, at, window=kind(30)) == needed).all()
    for got in (
        attend_tiled(q, k, v, at, at, tile=kind(100), window=kind(30)),
        attend_causal(q, *heads_first, window=kind(30)),
        *(run(cache, q, k, v) for cache in caches(LayerSpec(1, 8, window=kind(30)))),
    ):
        np.testing.assert_allclose(got, needed, atol=2e-6)


def caches(spec):
    assert type(spec.window) is int
    return PagedCache([spec], BlockPool(20, 4), xp=np), PagedCache([spec], BlockPool(2, 64), xp=np)


def run(cache, q, k, v):
    cache.add("a")
    step = cache.plan(["a"], [len(k)])
    cache.append(0, k, v, step)
    return cache.run(0, q, step)


@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind):
    spec = LayerSpec(kind(2), kind(4), kind(3))
    assert (spec.num_kv_heads, spec.head_dim, spec.v_head_dim) == (2, 4, 3)
    assert {type(x) for x in (spec.num_kv_heads, spec.head_dim, spec.v_head_dim)} == {int}


@pytest.mark.parametrize("kind", KINDS)
def test_codecs(kind):
    codec = kivi(kind(4), kind(32), kind(100))
    assert codec == kivi(4, 32, 100) or repr(codec) == repr(kivi(4, 32, 100))
    parts = (codec.keys.bits, codec.keys.size, codec.values.size, codec.residual, codec.group)
    assert parts == (4, 32, 32, 100, 32) and {type(x) for x in parts} == {int}
    assert type(int8(kind(5)).residual) is type(int8_per_channel(kind(8)).group) is int
    assert codec.coded(1000) == kivi(4, 32, 100).coded(1000)
    layers = [LayerSpec(1, 32)]
    cache = QuantizedCache(layers, codec, kind(1), kind(96), xp=np)
    assert cache.memory() == QuantizedCache(layers, kivi(4, 32, 100), 1, 96, xp=np).memory()


@pytest.mark.parametrize("kind", (np.uint8, np.int64))
def test_blocks(kind):
    pool = BlockPool(kind(100), kind(100))
    blocks = [kind(b) for b in pool.allocate(kind(5))]
    pool.touch(blocks)
    pool.publish(blocks[0], None, range(100))
    pool.free(blocks)
    pool.free(blocks[::-1])
    again = pool.allocate(100)
    assert {type(b) for b in again} == {int}
    pool.free(again)
    pool.check()


def test_layouts():
    table = np.array([[3, 1, -1], [7, 8, 9]], np.int32)
    csr = to_csr(table, [190, 290], np.uint8(100))
    assert csr.last_page_len.tolist() == [90, 90]
    back, lengths = from_csr(csr, np.uint8(100), np.int8(3))
    assert (back == table).all() and lengths.tolist() == [190, 290]


@pytest.mark.parametrize("wrong", (True, 1.0, "4", None, np.float32(4), np.array([4])))
def test_what_is_no_integer(wrong):
    for make in (
        lambda: LayerSpec(wrong, 4), lambda: kivi(4, group=wrong), lambda: kivi(wrong),
        lambda: int8(wrong), lambda: BlockPool(wrong, 4),
    ):
        with pytest.raises((ValueError, TypeError), match="must be|whole number|one of"):
            make()


def test_a_codec_of_parts():
    part = kivi(4).keys
    assert type(Codec("mine", part, part, np.int16(3)).residual) is int


def test_how_many_tokens_are_generated():
    """200 and 100 are more than a uint8 holds, and the cache is made for their sum."""
    model, prompt = load_reference_model(xp=np), list(range(1, 201))
    needed = generate(model, [prompt], max_new_tokens=100, seed=7, temperature=0.8)
    got = generate(model, [prompt], max_new_tokens=np.uint8(100), seed=np.int8(7), temperature=0.8)
    assert got == needed and len(got[0]) == 100
