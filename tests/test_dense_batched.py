"""Several short requests in one product: each gets its own result, and nothing of free memory."""

from unittest.mock import patch

import array_api_strict
import numpy as np
import pytest
from caches import give
from schedules import check_run

from kvlib import DenseCache, LayerSpec, Meter, attend_causal
from kvlib.attention import batched
from kvlib.attention.batched import (
    COPIED,
    LARGE,
    attend_texts,
    batch_rows,
    batches_in_place,
    few_queries,
    one_product_pays,
)
from kvlib.blas import DECODE_PIECE, FEW
from kvlib.caches import stored

F32 = np.float32
SETTINGS = {
    "plain": {}, "one head each": {"groups": 1}, "values of their own length": {"v_head_dim": 5},
    "values from keys": {"v_head_dim": 3, "v_from_k": True},
    "window that hides": {"window": 4}, "window that hides nothing": {"window": 60},
    "softcap and scale": {"softcap": 1.5, "sm_scale": 0.7},
    "sinks": {"sinks": True},
}
LENGTHS = {
    "alike": [9, 9, 9, 9], "near": [9, 8, 9, 7], "of one key": [1, 6, 3, 1],
    "two pairs": [300, 301, 2, 3], "one long": [4, 5, 900, 5],
}


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def decoding(lengths, xp=np, order=None, poison=np.nan, new=1, **given):
    """A cache of requests of `lengths`, a step of `new` tokens each, queries; NaN elsewhere."""
    groups, sinks = given.pop("groups", 4), given.pop("sinks", False)
    heads = 2 * groups
    spec = LayerSpec(2, 6, sinks=xp.asarray(normal(5, heads)) if sinks else None, **given)
    cache = DenseCache([spec], len(lengths) + 1, max(lengths) + 12, xp=xp)
    for x in cache.storage():
        x[...] = poison
    for i, n in enumerate(lengths):
        cache.add(i)
        if n > 1:
            give(cache, cache.plan([i], [n - 1]), i)
    names = list(range(len(lengths)) if order is None else order)
    step = cache.plan(names, [new] * len(names) if type(new) is int else new)
    give(cache, step, 99)
    return cache, step, xp.asarray(normal(7, step.num_tokens, heads, 6))


def alone():
    """Count the requests that attend alone."""
    return patch.object(stored, "attend_causal", side_effect=attend_causal)


@pytest.mark.untraced
@pytest.mark.parametrize("new", (1, 2, 5))
@pytest.mark.parametrize("xp", (np, array_api_strict), ids=("NumPy", "strict"))
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("given", SETTINGS.values(), ids=SETTINGS)
def test_each_gets_what_it_gets_alone(given, lengths, xp, new):
    for poison in (np.nan, np.inf):
        with np.errstate(all="raise", under="ignore"):
            cache, step, q = decoding(lengths, xp, poison=poison, new=new, **given)
            again = cache.run(0, q, step)
        o, lse = check_run(cache, 0, q, step)
        assert (np.asarray(again) == np.asarray(o)).all()
        assert o.dtype == lse.dtype == xp.float32


def test_the_last_rows_of_a_prefill():
    cache = DenseCache([LayerSpec(2, 6)], 3, 20, xp=np)
    for i in range(3):
        cache.add(i)
    step = cache.plan([0, 1, 2], [7, 9, 7])
    give(cache, step, 3)
    q = normal(7, 23, 8, 6)
    with alone() as calls:
        last = cache.run(0, q[step.last_rows], step.last())
        assert calls.call_count == 0
        np.testing.assert_allclose(last, cache.run(0, q, step)[step.last_rows], atol=2e-6)
        assert calls.call_count == 3, "several queries each: one request after the other"


def test_masks_follow_lengths_not_positions():
    """Positions turn queries and keys; a model that gets them wrong reads no free memory."""
    cache, step, q = decoding([9, 8, 9, 7])
    right = cache.run(0, q, step)
    step.positions[:] = 999
    assert (cache.run(0, q, step) == right).all()
    assert step.lengths is step.lengths and step.lengths.tolist() == list(step.seq_lens)


@pytest.mark.parametrize("lengths, order, singles", [
    ([8] * 6, None, 0), ([8, 9] * 3, None, 0), ([8], None, 1), ([DECODE_PIECE] * 3, None, 0),
    ([DECODE_PIECE + 1] * 3, None, 3), ([5, 5, 2000, 6, 6, 6], None, 1), ([5] * 6, [5, 4, 1, 0], 0),
    ([5] * 6, [5, 3, 1, 0], 2),
])  # fmt: skip
def test_who_attends_alone(lengths, order, singles):
    cache, step, q = decoding(lengths, order=order)
    with alone() as calls:
        cache.run(0, q, step)
    assert calls.call_count == singles


@pytest.mark.parametrize("new, singles", [
    ([3] * 6, 0),
    ([1, 1, 3, 3, 3, 1], 1),  # in rows beside each other
    ([8] * 6, 0),
    ([9] * 6, 6),  # of 4 query heads each: 36 rows
    ([1, 2, 3, 4, 5, 6], 6),
    ([2, 2, 12, 2, 2, 1], 2),  # a prompt among guesses
])  # fmt: skip
def test_requests_with_as_many_guesses_attend_together(new, singles):
    cache, step, q = decoding([8] * 6, new=new)
    with alone() as calls:
        check_run(cache, 0, q, step)
    assert calls.call_count == singles


@pytest.mark.parametrize("dtype, singles", [(np.float64, 0), (np.float16, 3)])
def test_a_narrow_cache_is_not_widened_at_once(dtype, singles):
    cache = DenseCache([LayerSpec(2, 6)], 3, 20, dtype=dtype, xp=np)
    for i in range(3):
        cache.add(i)
    step = cache.plan([0, 1, 2], [1] * 3)
    x = normal(1, 3, 2, 6).astype(dtype)
    cache.append(0, x, x, step)
    with alone() as calls:
        assert cache.run(0, x, step).dtype == dtype
    assert calls.call_count == singles


@pytest.mark.parametrize("new", (1, 3))
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("given", SETTINGS.values(), ids=SETTINGS)
def test_counted_is_what_each_holds(given, lengths, new):
    cache, step, q = decoding(lengths, new=new, **given)
    with Meter() as together_:
        cache.run(0, q, step)
    with Meter() as one_by_one, patch.object(batched, "batches_in_place", return_value=[]):
        cache.run(0, q, step)
    assert together_.by_label == one_by_one.by_label
    assert together_.flops > 0 and together_.read > 0


@pytest.mark.parametrize("most, more, settings", [
    ((1, 1, LARGE), (1, 1, LARGE + 1), {}),
    ((DECODE_PIECE, DECODE_PIECE, 8), (DECODE_PIECE + 1, DECODE_PIECE + 1, 8), {}),
    ((64, 64, LARGE // 64), (65, 65, LARGE // 64), {}),
    ((10, 10 + COPIED // 128, 128), (10, 11 + COPIED // 128, 128), {}),
    ((10, 60, 1), (10, 61, 1), {"window": 60}),
    ((60, 60, 1), (61, 61, 1), {"window": 60, "each": 2}),
    ((9000, 9000, 1, DECODE_PIECE), (9000, 9000, 1, DECODE_PIECE + 1), {}),
])  # fmt: skip
def test_where_one_product_pays(most, more, settings):
    assert one_product_pays(*most, **settings) and not one_product_pays(*more, **settings)


def test_few_queries():
    assert few_queries(1, 99) and few_queries(FEW, 1) and few_queries(FEW // 4, 4)
    assert not few_queries(FEW + 1, 1) and not few_queries(FEW // 4 + 1, 4)


def test_neighbours():
    def found(rows, lengths, window=None, queries=None):
        return batches_in_place(rows, lengths, queries or [1] * len(rows), 8, window)

    assert found((4, 5, 6), (3, 3, 3)) == [[0, 1, 2]]
    assert found((6, 5, 4), (3, 3, 3)) == [[2, 1, 0]]
    assert found((0, 2, 3, 1, 9), (3, 3, 3, 3, 3)) == [[0, 3, 1, 2]]
    assert found((0, 1, 2, 3), (3, 999, 3, 3)) == [[2, 3]]
    assert found((0, 2, 4), (3, 3, 3)) == found((0,), (3,)) == []
    assert found((0, 1, 2, 3), (3, 3, 4, 4), 2) == [[0, 1], [2, 3]]
    assert found((0, 1, 2, 3), (3, 3, 3, 3), queries=[2, 2, 1, 1]) == [[0, 1], [2, 3]]
    x = np.arange(8)
    assert np.shares_memory(batch_rows(np, x, [1, 2, 3], range(9)), x)
    assert batch_rows(np, x, [3, 0, 4], range(9)).tolist() == [3, 0, 4]
    assert batch_rows(np, x, [2, 0], [0, 1, 6, 8]).tolist() == [6, 7, 0]


@pytest.mark.parametrize("given, kept", [(F32, np.float16), (np.float16, F32), (F32, np.float64)])
def test_results_have_the_dtype_of_the_queries(given, kept):
    k = normal(0, 3, 1, 4, 6).astype(kept)
    q = normal(1, 3, 2, 6).astype(given)
    settings = {"sinks": normal(2, 2)}
    lengths = [4, 2, 3]
    o, lse = attend_texts(q, k, k, lengths, np.array(lengths), return_lse=True, **settings)
    assert (o.dtype, lse.dtype) == (given, F32)
    for i, n in enumerate(lengths):
        alone = attend_causal(q[i : i + 1], k[i, :, :n], k[i, :, :n], return_lse=True, **settings)
        np.testing.assert_allclose(o[i : i + 1], alone[0], atol=2e-3 if given != F32 else 1e-6)
        np.testing.assert_allclose(lse[i : i + 1], alone[1], atol=1e-6)
