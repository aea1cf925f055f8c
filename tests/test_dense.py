"""The dense cache: what it allocates and measures, and what it and its steps say of themselves."""

import numpy as np
import pytest
from caches import feed

from kvlib import DenseCache, LayerSpec, Memory

LAYERS = [LayerSpec(2, 4, 3), LayerSpec(1, 6, 5, v_from_k=True)]  # 2·4 + 2·3 + 6 numbers per token


def filled(lengths, dtype=np.float32):
    cache = DenseCache(LAYERS, 3, 10, dtype=dtype)
    for name, n in lengths.items():
        cache.add(name)
        feed(cache, [name], [n])
    return cache


@pytest.mark.parametrize("dtype, size", [(np.float32, 4), (np.float16, 2), (np.float64, 8)])
def test_memory_is_measured_and_adds_up(dtype, size):
    cache = DenseCache(LAYERS, 3, 10, dtype=dtype)
    arrays = list(cache.storage())
    assert len(arrays) == 3 and {a.dtype for a in arrays} == {np.dtype(dtype)}
    reserved = sum(a.nbytes for a in arrays)
    assert reserved == 3 * 10 * 20 * size
    assert cache.memory() == Memory(payload=0, metadata=0, reserved=reserved, wasted=0)
    assert cache.memory().free == reserved
    a_token = 20 * size
    cache.add("a")
    cache.plan(["a"], [7])
    assert cache.memory() == Memory(7 * a_token, 0, reserved, 3 * a_token)
    assert cache.memory().free == 20 * a_token
    cache.fork("a", "b")
    cache.truncate("a", 2)
    assert cache.memory() == Memory(9 * a_token, 0, reserved, 11 * a_token)
    cache.free("a")
    assert cache.memory() == Memory(7 * a_token, 0, reserved, 3 * a_token)
    cache.free("b")
    assert cache.memory().free == reserved


def test_values_from_keys_share_their_memory():
    cache = filled({"a": 4})
    k, v, _ = cache.read(1, "a")
    assert np.shares_memory(k, v) and (v == k[..., :5]).all()


def test_a_16_bit_cache_narrows_float32():
    cache = filled({"a": 3}, dtype=np.float16)
    assert cache.read(0, "a")[0].dtype == np.float16
    step = cache.plan(["a"], [1])
    cache.append(0, np.ones((1, 2, 4), np.float32), np.ones((1, 2, 3), np.float32), step)
    assert cache.run(0, np.ones((1, 2, 4), np.float32), step).dtype == np.float32
    cache.truncate("a", 3)
    step = cache.plan(["a"], [1])
    cache.append(0, np.ones((1, 2, 4), np.float16), np.ones((1, 2, 3), np.float16), step)
    assert cache.run(0, np.ones((1, 2, 4), np.float16), step).dtype == np.float16
    with pytest.raises(TypeError, match="float64, the cache stores float16"):
        cache.append(0, np.ones((1, 2, 4)), np.ones((1, 2, 3)), step)


def test_repr_and_last_rows():
    cache = filled({"a": 3, "b": 2})
    assert repr(cache) == "DenseCache(2 layers, 2 requests, 5 tokens, 2,400 bytes)"
    step = cache.plan(["b", "a"], [2, 1])
    assert repr(step) == "Step(3 tokens of 2 requests: 'b': 2→4, 'a': 3→4)"
    assert step.last_rows == [1, 2] and step.num_tokens == 3
    last = step.last()
    assert last.last() is last and step.last() is last
    assert last.q_lens == (1, 1) and last.seq_lens == (4, 4) and last.positions.tolist() == [3, 3]
    one = cache.plan(["a"], [1])
    assert one.last() is one
