"""attend, attend_tiled and attend_causal against the formula in float64."""

import math

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import close

from kvlib import attend, attend_causal, attend_tiled, blas

pytestmark = pytest.mark.filterwarnings("error")


def draw(seed, t, s, num_kv_heads=2, groups=2, dim=4, v_dim=3, scale=1.0):
    """q, k, v and positions of T queries behind S keys, the last query at the last key."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((t, num_kv_heads * groups, dim)).astype(np.float32) * scale
    k = rng.standard_normal((s, num_kv_heads, dim)).astype(np.float32) * scale
    v = rng.standard_normal((s, num_kv_heads, v_dim)).astype(np.float32)
    return q.astype(np.float32), k.astype(np.float32), v, np.arange(s - t, s), np.arange(s)


def by_causal(q, k, v, q_pos, kv_pos, **settings):
    heads_first = (k.transpose(1, 0, 2), v.transpose(1, 0, 2))
    return attend_causal(q, *heads_first, **settings)


FORMS = {"attend": attend, "attend_tiled": attend_tiled, "attend_causal": by_causal}
all_forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def same(form, inputs, tolerance=2e-5, **settings):
    o, lse = form(*inputs, return_lse=True, **settings)
    assert o.dtype == inputs[0].dtype and lse.dtype == np.float32
    assert (form(*inputs, **settings) == o).all(), "o depends on whether lse is asked for"
    settings.pop("tile", None)
    o64, lse64 = oracle.attention(*inputs, **settings)
    close(o, o64, "o", tolerance)
    close(lse, lse64, "lse", tolerance)


@all_forms
@pytest.mark.parametrize("q_len", [1, 2, 5])
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_queries_behind_a_cache(form, q_len, groups):
    same(form, draw(1, q_len, 13, groups=groups))
    same(form, draw(2, q_len, q_len, groups=groups))
    same(form, draw(3, q_len, 1300, num_kv_heads=1, groups=groups))  # several tiles or pieces


@all_forms
@pytest.mark.parametrize("extra", ["W-1", "W", "W+1", "2W"])
@pytest.mark.parametrize("q_len", [1, 2, 5, 11])
def test_at_the_edge_of_the_window(form, extra, q_len):
    window = 7
    s = {"W-1": window - 1, "W": window, "W+1": window + 1, "2W": 2 * window}[extra]
    if q_len <= s:
        same(form, draw(4, q_len, s), window=window)
        same(form, draw(5, q_len, s), window=1)


@all_forms
@pytest.mark.parametrize("setting", [{"sm_scale": 0.3}, {"softcap": 0.9}, {"window": 4}, {}])
def test_settings_and_sinks(form, setting):
    sinks = np.asarray([0.5, -3.0, 6.0, -math.inf], dtype=np.float32)
    for q_len in (1, 4):
        same(form, draw(7, q_len, 9), sinks=sinks, **setting)
        same(form, draw(8, q_len, 9), **setting)


@pytest.mark.parametrize("piece", [1, 4, 1000])
@pytest.mark.parametrize("rows", [1, 5, 16, 1000])
def test_every_chunk_of_a_long_prefill(monkeypatch, rows, piece):
    monkeypatch.setattr("kvlib.attention.causal.CHUNK_ROWS", rows)
    monkeypatch.setattr("kvlib.blas.CHUNK_PIECE", piece)
    for t, s, groups in ((15, 15, 1), (16, 20, 1), (17, 17, 1), (33, 40, 1), (9, 12, 4)):
        inputs = draw(9, t, s, num_kv_heads=1, groups=groups)
        for window in (None, 3, 8, 16, 50):
            same(by_causal, inputs, window=window)


@pytest.mark.parametrize("groups, q_len", [(1, 2), (3, 9), (4, 8), (1, 33)])
def test_few_queries_stay_small_products_where_those_are_quick(monkeypatch, groups, q_len):
    """A larger product would wake threads of BLAS, which then slow those of the weights."""
    most, found = groups * q_len * 4 * 150, []  # 150 keys of 4 numbers
    for module in ("blas", "attention.causal"):
        monkeypatch.setattr(f"kvlib.{module}.multiplies_small", lambda: True)
    monkeypatch.setattr(blas, "SMALL_PRODUCT", most)

    def counted(form):
        def counts(xp, rows, keys):
            found.append(rows.shape[-2] * keys.shape[-2] * keys.shape[-1])
            return form(xp, rows, keys)

        return counts

    for form in (blas.scores, blas.weigh):
        monkeypatch.setattr(blas, form.__name__, counted(form))
    for s in (40, 250, 301, 777):
        same(by_causal, draw(12, q_len, s, num_kv_heads=2, groups=groups))
    few = groups * q_len <= blas.FEW
    assert (max(found) <= most) == few, "a chunk of many queries takes long pieces as before"
    assert max(found) > most // 2


@pytest.mark.parametrize("per_head", [False, True])
def test_every_tile_size(per_head):
    q, k, v, q_pos, kv_pos = draw(12, 4, 11)
    if per_head:
        kv_pos = np.stack([kv_pos, kv_pos[::-1] + 2])
    whole = attend(q, k, v, q_pos, kv_pos, window=6)
    for tile in range(1, 15):
        inputs = (q, k, v, q_pos, kv_pos)
        same(lambda *a, **b: attend_tiled(*a, tile=tile, **b), inputs, window=6)  # noqa: B023
        close(attend_tiled(*inputs, window=6, tile=tile), whole, f"tile {tile}")


@given(st.data())
def test_positions_in_any_order_and_apart_for_each_head(data):
    num_kv_heads, t, s = (data.draw(st.integers(a, b)) for a, b in ((1, 3), (0, 5), (0, 8)))
    groups, window = data.draw(st.integers(1, 3)), data.draw(st.none() | st.integers(1, 6))
    q, k, v, _, _ = draw(data.draw(st.integers(0, 99)), t, s, num_kv_heads, groups)
    number = st.integers(0, 9)
    shape = (num_kv_heads, s) if data.draw(st.booleans()) else (s,)
    size = math.prod(shape)
    kv_pos = np.asarray(
        data.draw(st.lists(number, min_size=size, max_size=size)), dtype=np.int64
    ).reshape(shape)
    q_pos = np.asarray(data.draw(st.lists(number, min_size=t, max_size=t)), dtype=np.int64)
    tile = data.draw(st.integers(1, 10))
    for form in (attend, lambda *a, **b: attend_tiled(*a, tile=tile, **b)):
        same(form, (q, k, v, q_pos, kv_pos), window=window)


@pytest.mark.parametrize("form", [attend, attend_tiled])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_query_that_sees_no_key_returns_exactly_nothing(form, softcap):
    q, k, v, _, kv_pos = draw(13, 3, 5)
    q_pos = np.asarray([-1, 2, 100])
    o, lse = form(q, k, v, q_pos, kv_pos, window=10, softcap=softcap, return_lse=True)
    assert (o[[0, 2]] == 0).all() and (lse[[0, 2]] == -math.inf).all()
    assert (o[1] != 0).all() and np.isfinite(lse[1]).all()
    nothing = np.full(4, -math.inf, dtype=np.float32)  # a sink without weight changes nothing
    o, lse = form(q, k, v, q_pos, kv_pos, window=10, sinks=nothing, return_lse=True)
    assert (o[[0, 2]] == 0).all() and (lse[[0, 2]] == -math.inf).all()


@pytest.mark.parametrize("form", [attend, attend_tiled])
def test_no_keys(form):
    q, k, v, q_pos, kv_pos = draw(14, 2, 5)
    o, lse = form(q, k[:0], v[:0], q_pos, kv_pos[:0], return_lse=True)
    assert o.shape == (2, 4, 3) and (o == 0).all() and (lse == -math.inf).all()


@all_forms
def test_the_past_does_not_see_the_future(form):
    q, k, v, q_pos, kv_pos = draw(15, 6, 9)
    before = form(q, k, v, q_pos, kv_pos)
    for j in range(3, 9):
        k2, v2 = k.copy(), v.copy()
        k2[j], v2[j] = 9.0, -9.0
        after = form(q, k2, v2, q_pos, kv_pos)
        unseen = q_pos < j
        assert (before[unseen] == after[unseen]).all() and (before[~unseen] != after[~unseen]).all()


@all_forms
@pytest.mark.parametrize("q_len", [1, 5])
def test_scores_of_ten_thousand(form, q_len):
    inputs = draw(16, q_len, 9, scale=100.0)
    scores = np.einsum("thd,shd->ths", inputs[0][:, ::2].astype(float), inputs[1].astype(float))
    assert np.abs(scores).max() > 1e4
    o, lse = form(*inputs, return_lse=True)
    o64, lse64 = oracle.attention(*inputs)
    close(o, o64, "o", 5e-3)  # a float32 score of 1e4 is exact to 1e-3
    close(lse, lse64, "lse", 1e-5)


@all_forms
def test_values_of_a_narrower_cache_are_widened(form):
    q, k, v, q_pos, kv_pos = draw(18, 3, 8)
    k16, v16 = k.astype(np.float16), v.astype(np.float16)
    o, lse = form(q, k16, v16, q_pos, kv_pos, return_lse=True)
    assert o.dtype == np.float32 and lse.dtype == np.float32
    close(o, oracle.attention(q, k16, v16, q_pos, kv_pos)[0], "o")


@all_forms
def test_numpy_scalars_as_settings_leak_no_float64(form):
    for q_len in (1, 3):
        inputs = draw(20, q_len, 8)
        wide = {"sm_scale": 1 / np.sqrt(4.0), "softcap": np.float64(3.0), "window": np.int64(4)}
        same(form, inputs, **wide)
        sinks = np.zeros(4, dtype=np.float64)
        o, lse = form(*inputs, sinks=sinks, return_lse=True, **wide)
        assert o.dtype == np.float32 and lse.dtype == np.float32


@pytest.mark.parametrize("queries", [0, 1, 3])
@pytest.mark.parametrize("num_qo_heads", [0, 2])
def test_no_queries_or_no_query_heads(queries, num_qo_heads):
    q = np.ones((queries, num_qo_heads, 4), np.float32)
    k, v = np.ones((5, 2, 4), np.float32), np.ones((5, 2, 3), np.float32)
    at = np.arange(5 - queries, 5), np.arange(5)
    for form in (attend, attend_tiled):
        o, lse = form(q, k, v, *at, return_lse=True)
        assert o.shape == (queries, num_qo_heads, 3) and lse.shape == o.shape[:2]
    o, lse = attend_causal(q, k.transpose(1, 0, 2), v.transpose(1, 0, 2), return_lse=True)
    assert o.shape == (queries, num_qo_heads, 3) and lse.shape == o.shape[:2]
