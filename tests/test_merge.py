"""Partial results merge to the whole, in any grouping and any order."""

import math

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import close
from test_attention import draw

from kvlib import attend, merge_state, merge_states
from kvlib.attention.partials import with_sink

pytestmark = pytest.mark.filterwarnings("error")


def parts(seed, n, shape=(3, 2), dim=4, empty=0.3):
    """n states of scale 1 whose lse differ widely; some rows see no key."""
    rng = np.random.default_rng(seed)
    o = rng.standard_normal((n, *shape, dim)).astype(np.float32)
    lse = (10 * rng.standard_normal((n, *shape))).astype(np.float32)
    none = rng.random((n, *shape)) < empty
    o[none], lse[none] = 0.0, -math.inf
    return o, lse


def same(a, b):
    close(a[0], b[0], "o", 1e-5)
    close(a[1], b[1], "lse", 1e-5)


@given(st.integers(0, 10**6))
def test_associative_commutative_neutral(seed):
    o, lse = parts(seed, 3)
    a, b, c = zip(o, lse)
    same(merge_state(*a, *b), merge_state(*b, *a))
    same(merge_state(*merge_state(*a, *b), *c), merge_state(*a, *merge_state(*b, *c)))
    same(merge_states(o, lse), merge_state(*merge_state(*a, *b), *c))
    same(merge_states(o[::-1], lse[::-1]), merge_states(o, lse))
    nothing = np.zeros_like(o[0]), np.full_like(lse[0], -math.inf)
    for merged in (merge_state(*a, *nothing), merge_state(*nothing, *a)):
        assert (merged[0] == a[0]).all() and (merged[1] == a[1]).all()
        assert merged[0].dtype == merged[1].dtype == np.float32


def test_nothing_and_nothing_is_nothing():
    nothing = np.zeros((2, 1, 3), dtype=np.float32), np.full((2, 1), -math.inf, dtype=np.float32)
    for o, lse in (
        merge_state(*nothing, *nothing),
        merge_states(*(np.stack([x] * 3) for x in nothing)),
    ):
        assert (o == 0).all() and (lse == -math.inf).all()


@pytest.mark.parametrize("left", (np.nan, np.inf, -np.inf))
@given(seed=st.integers(0, 10**6))
def test_what_saw_no_key_may_leave_its_o_unwritten(seed, left):
    o, lse = parts(seed, 4)
    dirty = np.where((lse == -math.inf)[..., None], np.float32(left), o)
    needed, whole = merge_states(o, lse), merge_states(dirty, lse)
    assert all((x == y).all() for x, y in zip(whole, needed, strict=True))
    for a, b in ((0, 1), (1, 0), (2, 2)):
        merged = merge_state(dirty[a], lse[a], dirty[b], lse[b])
        right = merge_state(o[a], lse[a], o[b], lse[b])
        assert all((x == y).all() for x, y in zip(merged, right, strict=True))
    for sinks in (np.zeros(2, np.float32), np.full(2, -math.inf, np.float32)):
        with_sinks = [with_sink(np, x[0], lse[0], sinks) for x in (dirty, o)]
        assert all((x == y).all() for x, y in zip(*with_sinks, strict=True))


def test_nan_of_a_part_that_saw_keys_is_not_hidden():
    o, lse = parts(2, 2, empty=0)
    o[1, 0, 0, 0] = np.nan
    for merged, _ in (merge_states(o, lse), merge_state(o[0], lse[0], o[1], lse[1])):
        assert np.isnan(merged).sum() == np.isnan(merged[0, 0, 0]) == 1


def test_states_of_a_single_query():
    """o (N, D) and lse (N,): what one query and one head give."""
    o, lse = parts(5, 4, shape=())
    needed = merge_states(o[:, None, None], lse[:, None, None])
    for found, x in zip(merge_states(o, lse), needed):
        assert (found == x[0, 0]).all()


def test_lse_far_apart_and_huge():
    o = np.asarray([[[1.0]], [[3.0]]], dtype=np.float32)
    lse = np.asarray([[1e4], [-1e4]], dtype=np.float32)
    for a, b in ((0, 1), (1, 0)):
        merged = merge_state(o[a], lse[a], o[b], lse[b])
        assert merged[0].item() == 1.0 and merged[1].item() == 1e4
        merged = merge_states(o[[a, b]], lse[[a, b]])
        assert merged[0].item() == 1.0 and merged[1].item() == 1e4
    lse[:] = 1e4
    merged = merge_states(o, lse)
    assert merged[0].item() == 2.0 and merged[1].item() == pytest.approx(1e4 + math.log(2))


@given(st.data())
def test_any_split_of_the_keys_merges_to_the_whole(data):
    t, s, seed = (data.draw(st.integers(a, b)) for a, b in ((1, 4), (1, 12), (0, 99)))
    q, k, v, q_pos, kv_pos = draw(seed, min(t, s), s)
    window = data.draw(st.none() | st.integers(1, 12))
    n = data.draw(st.integers(1, 5))
    owner = np.asarray(data.draw(st.lists(st.integers(0, n - 1), min_size=s, max_size=s)))
    states = [
        attend(
            q, k[owner == i], v[owner == i], q_pos, kv_pos[owner == i],
            window=window, return_lse=True,
        )
        for i in range(n)
    ]  # fmt: skip
    whole = oracle.attention(q, k, v, q_pos, kv_pos, window=window)
    same(merge_states(*(np.stack(x) for x in zip(*states))), whole)
    left = states[0]
    for state in states[1:]:
        left = merge_state(*left, *state)
    same(left, whole)


def test_refused():
    o, lse = parts(3, 2)
    with pytest.raises(ValueError, match=r"lse_a .*needed \(3, 2\), got \(3,\)"):
        merge_state(o[0], lse[0][:, 0], o[1], lse[1])
    with pytest.raises(ValueError, match=r"at least one state .*got shape \(3,\)"):
        merge_states(np.zeros(3, np.float32), np.zeros((), np.float32))
    with pytest.raises(ValueError, match=r"lse_b .*needed \(3, 2\), got \(3,\)"):
        merge_state(o[0], lse[0], o[1], lse[1][:, 0])
    with pytest.raises(ValueError, match=r"got \(3, 2, 4\) and \(2, 2, 4\)"):
        merge_state(o[0], lse[0], o[1][:2], lse[1][:2])
    with pytest.raises(ValueError, match=r"at least one state .*got shape \(0, 3, 2, 4\)"):
        merge_states(o[:0], lse[:0])
    with pytest.raises(ValueError, match=r"lse .*needed \(2, 3, 2\), got \(2, 3\)"):
        merge_states(o, lse[..., 0])
    with pytest.raises(TypeError, match="one library"):
        merge_state(o[0], lse[0], o[1].tolist(), lse[1])
