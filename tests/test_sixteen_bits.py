"""float16 and bfloat16: what is stored is narrow, what is computed is float32."""

import numpy as np
import oracle
import pytest
from caches import CACHES
from device_double import xp as device
from narrow_lives import live
from schedules import close
from test_attention import all_forms, draw

from kvlib import (
    BlockPool,
    DenseCache,
    LayerSpec,
    Meter,
    PagedCache,
    QuantizedCache,
    attend_causal,
    generate,
    load_reference_model,
    merge_state,
    merge_states,
)
from kvlib.arrays import bits_as, to_numpy
from kvlib.caches import run_cascade
from kvlib.codecs import BFloat16, bfloat16
from kvlib.model.safetensors import widen_bfloat16

HALF = 2.0**-11  # float16 rounds by at most this part of a number
BF = 2.0**-8  # and bfloat16 by this


@all_forms
@pytest.mark.parametrize("t", [1, 5])
@pytest.mark.parametrize("settings", [{}, {"sinks": 1}, {"window": 3}], ids=str)
def test_only_the_output_is_rounded(form, t, settings):
    """The lse is float32's own, and o is the float64 answer rounded once."""
    q, k, v, q_pos, kv_pos = draw(31, t, 9)
    q, k, v = (x.astype(np.float16) for x in (q, k, v))
    if "sinks" in settings:
        settings = {"sinks": np.asarray([0.5, 1.0, -1.0, 2.0], np.float32)}
    o, lse = form(q, k, v, q_pos, kv_pos, return_lse=True, **settings)
    assert o.dtype == np.float16 and lse.dtype == np.float32
    right, right_lse = oracle.attention(q, k, v, q_pos, kv_pos, **settings)
    close(lse, right_lse, "lse", 2e-6)
    assert (np.abs(o - right) <= 1.01 * HALF * np.abs(right) + 1e-6).all()
    assert form(q, k, v, q_pos, kv_pos, **settings).dtype == np.float16


@all_forms
def test_scores_beyond_float16(form):
    q, k, v, q_pos, kv_pos = draw(32, 2, 6)
    q, k = (x.astype(np.float16) * np.float16(400) for x in (q, k))  # products up to a million
    v = v.astype(np.float16)
    o, lse = form(q, k, v, q_pos, kv_pos, return_lse=True)
    right, right_lse = oracle.attention(q, k, v, q_pos, kv_pos)
    assert np.abs(right_lse).max() > 65504
    close(lse, right_lse, "lse", 1e-6)
    close(o.astype(np.float64), right, "o", 2e-3)


def test_many_small_shares():
    """4,096 equal keys: a float16 sum stops growing at 2,048."""
    n = 4096
    q, k, v = np.ones((1, 2, 4)), np.ones((1, n, 4)), np.ones((1, n, 4))
    o, lse = attend_causal(*(x.astype(np.float16) for x in (q, k, v)), return_lse=True)
    close(lse, np.full((1, 2), 2.0 + np.log(n)), "lse", 1e-6)
    assert (o == 1).all()


def test_merged_in_float32():
    rng = np.random.default_rng(0)
    o = rng.standard_normal((5, 7, 3)).astype(np.float16)
    lse = rng.standard_normal((5, 7)).astype(np.float32)
    weight = np.exp(lse.astype(float))
    right = (weight[..., None] * o).sum(axis=0) / weight.sum(axis=0)[..., None]
    merged, whole = merge_states(o, lse)
    two, lse_two = merge_state(o[0], lse[0], o[1], lse[1])
    assert merged.dtype == two.dtype == np.float16 and whole.dtype == lse_two.dtype == np.float32
    assert (np.abs(merged - right) <= 1.01 * HALF * np.abs(right) + 1e-7).all()
    pair = (weight[:2, :, None] * o[:2]).sum(axis=0) / weight[:2].sum(axis=0)[..., None]
    assert (np.abs(two - pair) <= 1.01 * HALF * np.abs(pair) + 1e-7).all()


def caches(xp):
    spec = [LayerSpec(2, 16)]
    half = xp.float16
    return {
        "dense": (DenseCache(spec, 2, 600, dtype=half, xp=xp), HALF),
        "blocks": (PagedCache(spec, BlockPool(80, 16), dtype=half, xp=xp), HALF),
        "shared": (Cascade(spec, BlockPool(80, 16), dtype=half, xp=xp), HALF),
        "bfloat16 rows": (QuantizedCache(spec, bfloat16(), 2, 600, xp=xp), BF),
        "bfloat16 blocks": (PagedCache(spec, BlockPool(80, 16), codec=bfloat16(), xp=xp), BF),
    }


class Cascade(PagedCache):
    run = run_cascade


@pytest.mark.parametrize("xp", [np, device], ids=["NumPy", "device"])
@pytest.mark.parametrize("name", caches(np))
@pytest.mark.parametrize("narrow", [False, True], ids=["float32 queries", "cache's queries"])
def test_a_narrow_cache_costs_its_own_rounding_and_half_the_bytes(xp, name, narrow):
    cache, rounding = caches(xp)[name]
    queries = to_numpy(xp.zeros((1,), dtype=cache.dtype)).dtype if narrow else np.float32
    rng = np.random.default_rng(1)
    k, v = (rng.standard_normal((570, 2, 16)).astype(np.float32) for _ in range(2))
    q = rng.standard_normal((2, 4, 16)).astype(queries)
    cache.add("a")
    for a, b in ((0, 560), (560, 569), (569, 570)):
        step = cache.plan(["a"], [b - a])
        cache.append(0, xp.asarray(k[a:b]), xp.asarray(v[a:b]), step)
        if b == 569:
            cache.fork("a", "b")
    other = cache.plan(["b"], [1])
    cache.append(0, xp.asarray(k[569:]), xp.asarray(v[569:]), other)
    cache.truncate("a", 569)
    cache.truncate("b", 569)
    step = cache.plan(["a", "b"], [1, 1])
    cache.append(0, *(xp.asarray(np.concatenate([x[569:]] * 2)) for x in (k, v)), step)
    with Meter() as meter:
        o, lse = cache.run(0, xp.asarray(q), step, return_lse=True)
    assert to_numpy(o).dtype == queries and to_numpy(lse).dtype == np.float32
    held = [to_numpy(x).astype(np.float64) for x in cache.read(0, "a")[:2]]
    for x, stored in zip((k, v), held):
        assert (np.abs(stored - x) <= rounding * np.abs(x) + 1e-7).all()
    right, right_lse = oracle.attention(q, *held, np.full(2, 569), np.arange(570))
    close(to_numpy(lse), right_lse, "lse", 3e-6)
    close(to_numpy(o).astype(np.float64), right, "o", 3e-5 if queries == np.float32 else 1e-3)
    a_token = 2 * 2 * 16 * 2
    assert meter.by_label["attention"].read <= 2 * 570 * a_token
    assert cache.memory().metadata == 0


@pytest.mark.untraced
@pytest.mark.parametrize("xp", [np, device], ids=["NumPy", "device"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", CACHES)
def test_every_cache_in_every_dtype(name, dtype, xp):
    live(name, xp, dtype)


@pytest.mark.parametrize("xp", [np, device], ids=["NumPy", "device"])
def test_bfloat16_rounds_to_the_nearest_and_ties_to_even(xp):
    codec = BFloat16()
    bits = np.asarray(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x7F800000,
         0xFF800000, 0x80000000, 0x00000001, 0x7FFFFFFF, 0xFFC00001],
        np.uint32,
    )  # fmt: skip
    needed = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x7F80,
              0xFF80, 0x8000, 0x0000, 0x7FC0, 0x7FC0]  # fmt: skip
    x = xp.asarray(bits.view(np.float32).reshape(1, 1, -1))
    parts = codec.encode(x)
    assert to_numpy(parts["codes"]).ravel().tolist() == needed
    decoded = to_numpy(codec.decode(parts, xp.float32)).ravel()
    np.testing.assert_array_equal(decoded, widen_bfloat16(np.asarray(needed, np.uint16)))


def test_bfloat16_is_the_nearest_of_all():
    """Every code comes back, and what is between two goes to the nearer one."""
    codec, codes = BFloat16(), np.arange(2**16, dtype=np.uint16)
    values = widen_bfloat16(codes)
    finite = np.isfinite(values)
    again = codec.encode(values.reshape(1, 1, -1))["codes"].ravel()
    np.testing.assert_array_equal(again[finite], codes[finite])
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(20_000) * 10.0 ** rng.integers(-30, 30, 20_000)).astype(np.float32)
    near = widen_bfloat16(codec.encode(x.reshape(1, 1, -1))["codes"].ravel()).astype(np.float64)
    grid = np.sort(values[finite].astype(np.float64))
    at = np.searchsorted(grid, x)
    best = np.minimum(np.abs(grid[at] - x), np.abs(grid[at - 1] - x))
    np.testing.assert_array_equal(np.abs(near - x), best)


def test_bits_of_a_library_without_views():
    import array_api_strict as strict

    x = strict.asarray([1.0, -2.0], dtype=strict.float32)
    bits = bits_as(strict, x, "uint32")
    assert bits.dtype == strict.uint32 and to_numpy(bits).tolist() == [0x3F800000, 0xC0000000]
    assert (to_numpy(bits_as(strict, bits, "float32")) == to_numpy(x)).all()


@pytest.mark.parametrize("xp", [np, device], ids=["NumPy", "device"])
def test_the_reference_model_on_sixteen_bits(xp):
    model = load_reference_model(xp=xp)
    prompt = ["class Stack:\n    def push(self, "]
    needed = generate(model, prompt, max_new_tokens=12)
    layers = model.layer_specs
    for cache in (
        model.new_cache(1, 128, dtype=xp.float16),
        QuantizedCache(layers, bfloat16(), 1, 128, xp=xp),
        PagedCache(layers, BlockPool(8, 16), dtype=xp.float16, xp=xp),
    ):
        assert generate(model, prompt, max_new_tokens=12, cache=cache) == needed
