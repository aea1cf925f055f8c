"""The dense cache: what it allocates, reuses, copies and measures."""

import numpy as np
import pytest

from kvlib import CacheFull, DenseCache, LayerSpec, Memory

LAYERS = [LayerSpec(2, 4, 3), LayerSpec(1, 6, 5, v_from_k=True)]  # 2·4 + 2·3 + 6 numbers a token


def filled(lengths, max_seqs=3, max_seq_len=10, dtype=np.float32):
    cache = DenseCache(LAYERS, max_seqs, max_seq_len, dtype=dtype)
    for name, n in lengths.items():
        cache.add(name)
        store(cache, name, n)
    return cache


def store(cache, name, n, value=None):
    """Append n tokens whose every number is ``value``, or counts up."""
    step = cache.plan([name], [n])
    for i, spec in enumerate(cache.layers):
        k = np.arange(n * spec.num_kv_heads * spec.head_dim, dtype=np.float32)
        k = k.reshape(n, spec.num_kv_heads, spec.head_dim)
        v = None if spec.v_from_k else -k[..., : spec.v_dim]
        if value is not None:
            k, v = np.full_like(k, value), None if v is None else np.full_like(v, value)
        cache.append(i, k, v, step)


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


def test_values_from_keys_take_no_memory_and_follow_the_keys():
    cache = filled({"a": 4})
    k, v, _ = cache.read(1, "a")
    assert np.shares_memory(k, v) and (v == k[..., :5]).all()


def test_read_returns_what_was_stored_in_order():
    cache = filled({"a": 3})
    k, v, positions = cache.read(0, "a")
    assert k.shape == (3, 2, 4) and v.shape == (3, 2, 3)
    assert (k.ravel() == np.arange(24)).all() and (v == -k[..., :3]).all()
    assert positions.dtype == np.int64 and positions.tolist() == [0, 1, 2]


def test_rows_are_reused_and_nothing_of_the_old_request_is_seen():
    cache = filled({"a": 9, "b": 9, "c": 9})
    storage = [id(x) for x in cache.storage()]
    for i in range(20):
        cache.free(cache.seq_ids[0])
        cache.add(i)
        with pytest.raises(CacheFull):
            cache.add("one more")
        assert cache.seq_len(i) == 0 and cache.read(0, i)[0].shape == (0, 2, 4)
        store(cache, i, 2, value=i)
        assert (cache.read(0, i)[0] == i).all() and cache.read(0, i)[0].shape == (2, 2, 4)
    assert storage == [id(x) for x in cache.storage()]


def test_a_fork_goes_its_own_way():
    cache = filled({"a": 4})
    cache.fork("a", "b")
    store(cache, "b", 2, value=7)
    store(cache, "a", 1, value=8)
    cache.truncate("b", 3)
    store(cache, "b", 1, value=9)
    for layer in (0, 1):
        a, b = cache.read(layer, "a")[0], cache.read(layer, "b")[0]
        assert (a[:3] == b[:3]).all() and not np.shares_memory(a, b)
        assert (a[4] == 8).all() and (b[3] == 9).all() and not (a[3] == 9).any()
    cache.free("a")
    assert cache.read(0, "b")[0].shape == (4, 2, 4) and (cache.read(0, "b")[0][3] == 9).all()


def test_truncated_tokens_are_overwritten():
    cache = filled({"a": 6})
    cache.truncate("a", 0)
    assert cache.read(1, "a")[1].shape == (0, 1, 5)
    store(cache, "a", 2, value=1)
    assert (cache.read(0, "a")[0] == 1).all()


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


def test_what_it_says_of_itself():
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


def test_a_cache_that_defines_nothing_says_what_it_lacks():
    from kvlib import Cache

    cache = Cache(LAYERS)
    cache.add("a")
    for call in (
        lambda: cache.fork("a", "b"),
        lambda: cache.storage(),
        lambda: cache.append(0, None, None, None),
        lambda: cache.read(0, "a"),
        lambda: cache.memory(),
    ):
        with pytest.raises(TypeError, match="Cache (cannot|does not)"):
            call()
    cache.plan(["a"], [3])
    cache.truncate("a", 1)
    assert cache.seq_len("a") == 1 and cache.seq_ids == ("a",)
    cache.free("a")
    assert cache.seq_ids == ()
