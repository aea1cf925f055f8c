"""Operations and bytes, to the last one."""

import numpy as np
import pytest

from kvlib import DenseCache, LayerSpec, Meter, attend, attend_causal, attend_tiled
from kvlib.meter import Count, counting, report
from kvlib.model.layers import linear

F32 = np.float32


def test_meters_nest_and_close_whatever_happens():
    report("nobody listens", flops=1)
    assert not counting()
    with Meter() as outer:
        report("x", flops=3, read=1)
        with Meter() as inner:
            assert counting()
            report("x", flops=4, written=2)
            report("y", copied=5)
        report("x", flops=5)
    assert not counting()
    assert (inner.flops, inner.read, inner.written, inner.copied) == (4, 0, 2, 5)
    assert (outer.flops, outer.read, outer.written, outer.copied) == (12, 1, 2, 5)
    assert outer.by_label == {"x": Count(12, 1, 2, 0), "y": Count(0, 0, 0, 5)}
    with pytest.raises(KeyError), Meter():
        raise KeyError
    assert not counting()


def test_meters_that_are_equal_close_apart():
    a, b = Meter(), Meter()
    with a:
        with b:
            pass
        report("x", flops=1)
    assert a.flops == 1 and b.flops == 0


def test_intensity():
    assert Meter().intensity() == 0.0
    assert Meter(flops=30, read=1, written=2, copied=7).intensity() == 3.0


@pytest.mark.parametrize("rows", [1, 3, 13, 100])
def test_linear(rows):
    x, w = np.ones((rows, 6), F32), np.ones((10, 6), F32)
    with Meter() as m:
        linear(x, w, np.ones(10, F32))
    assert m.by_label == {"linear": Count(2 * rows * 10 * 6, 4 * (10 * 6 + rows * 6), 0, 0)}


def test_attention():
    q, k, v = np.ones((3, 4, 8), F32), np.ones((11, 2, 8), F32), np.ones((11, 2, 5), F32)
    whole = Count(flops=2 * 3 * 11 * 4 * (8 + 5), read=4 * 11 * 2 * (8 + 5))
    for form in (attend, attend_tiled):
        with Meter() as m:
            form(q, k, v, np.arange(3), np.arange(11))
        assert m.by_label == {"attention": whole}


@pytest.mark.parametrize("dtype, size", [(F32, 4), (np.float16, 2)])
def test_attention_of_one_token_reads_each_stored_byte_once(dtype, size):
    q, k, v = np.ones((1, 4, 8), F32), np.ones((2, 11, 8), dtype), np.ones((2, 11, 5), dtype)
    for window, keys in ((None, 11), (4, 4), (20, 11)):
        with Meter() as m:
            attend_causal(q, k, v, window=window)
        assert m.by_label == {"attention": Count(2 * keys * 4 * 13, size * keys * 2 * 13)}


def test_attention_of_a_prompt_reads_keys_up_to_each_chunk(monkeypatch):
    monkeypatch.setattr("kvlib.attention.causal.CHUNK_ROWS", 128)
    q, k = np.ones((300, 1, 8), F32), np.ones((1, 320, 8), F32)
    with Meter() as m:  # chunks of 128 queries that end at keys 148, 276 and 320
        attend_causal(q, k, k)
    pairs = 128 * 148 + 128 * 276 + 44 * 320
    assert (m.flops, m.read) == (2 * pairs * 16, 4 * (148 + 276 + 320) * 16)
    with Meter() as m:  # with a window of 100 they start at 20-99 < 0, 148-99 and 276-99
        attend_causal(q, k, k, window=100)
    pairs = 128 * 148 + 128 * (276 - 49) + 44 * (320 - 177)
    assert (m.flops, m.read) == (2 * pairs * 16, 4 * (148 + 227 + 143) * 16)


def test_append_and_fork():
    cache = DenseCache([LayerSpec(2, 8, 5), LayerSpec(1, 6, 4, v_from_k=True)], dtype=np.float16)
    cache.add("a")
    step = cache.plan(["a"], [7])
    with Meter() as m:
        cache.append(0, np.ones((7, 2, 8), F32), np.ones((7, 2, 5), F32), step)
        cache.append(1, np.ones((7, 1, 6), F32), None, step)
    assert m.by_label == {"append": Count(written=2 * 7 * (2 * 8 + 2 * 5 + 6))}
    with Meter() as m:
        cache.fork("a", "b")
    assert m.by_label == {"fork": Count(copied=2 * 7 * (2 * 8 + 2 * 5 + 6))}
