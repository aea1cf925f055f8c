"""How decode's keys are dealt out to blocks: every key once, and no place idle for long."""

import time

import numpy as np
import pytest
from engines import HOSTS
from exact import expect, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernel_decode import case

from kvlib import merge_states
from kvlib.kernels import decode_attention, engine
from kvlib.kernels.decode import keys_read, merge_launch
from kvlib.kernels.engine import watched
from kvlib.kernels.plans import (
    LEAST_KEYS,
    MOST_SPLITS,
    Work,
    balanced,
    handed_out,
    plan_decode,
    ranges,
    work_of,
)

ROOM = 396  # 132 multiprocessors with three blocks each
BATCHES = {
    "one": (65_536,),
    "one long among short ones": (65_536, *63 * [500]),
    "one long among very many": (65_536, *255 * [500]),
    "64 alike": (4096,) * 64,
    "20 alike": (65_536,) * 20,
    "a server's": (14_021, 7848, 7642, 7298, 6479, *range(53, 3000, 70)),
}


def even(lens, blocks=8):
    """What the plan was before it looked at all lengths: by the longest, as many for each."""
    n = max(1, min(ROOM // (len(lens) * blocks), MOST_SPLITS, max(lens) // LEAST_KEYS))
    return (n,) * len(lens)


@pytest.mark.parametrize("name", BATCHES)
def test_few_places_are_idle(name):
    lens = BATCHES[name]
    busiest, idle = handed_out(lens, balanced(lens, 8, ROOM), 8, ROOM)
    assert idle < 0.06, (busiest, idle)
    assert busiest <= handed_out(lens, even(lens), 8, ROOM)[0]
    assert plan_decode(len(lens), 8, 4, 128, lens).splits == balanced(lens, 8, ROOM)


def test_the_longest_request_alone_no_longer_decides():
    """One request of 65,536 keys among 63 of 500 had one split, and 97 % of the places idled."""
    lens = BATCHES["one long among short ones"]
    before, after = (handed_out(lens, s, 8, ROOM) for s in (even(lens), balanced(lens, 8, ROOM)))
    assert before[0] == 65_536 and before[1] > 0.97
    assert after[0] < 2_100 and after[1] < 0.04


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=70).map(tuple),
    st.integers(1, 16),
    st.integers(1, 600),
)
def test_splits_are_at_least_one_and_never_tiny(lens, blocks, room):
    splits = balanced(lens, blocks, room)
    assert len(splits) == len(lens) and min(splits) >= 1 and max(splits) <= MOST_SPLITS
    for n, s in zip(lens, splits, strict=True):
        assert s == 1 or n > LEAST_KEYS * (s - 1)
        bounds = ranges(n, s)
        assert bounds[0][0] == 0 and bounds[-1][1] == n
        assert all(a[1] == b[0] for a, b in zip(bounds, bounds[1:], strict=False))
    items = sum(splits) * blocks
    first = max(1, -(-len(lens) * blocks // room))
    assert items <= (first + 3) * room or sum(splits) == len(lens)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=4), min_size=1, max_size=3))
def test_every_split_of_every_piece_has_a_part_of_its_own(pieces):
    work = work_of(pieces, [[100 * b for b in range(4)] for _ in pieces])
    if work.items[0] is None:
        assert len(pieces) == 1 and len(set(pieces[0])) == 1
        return
    parts = []
    for splits, items in zip(pieces, work.items, strict=True):
        found = {(r, s) for r, s, _, _ in items.tolist()}
        assert found == {(r, s) for r in range(4) for s in range(splits[r])}
        assert all(n == splits[r] for r, _, n, _ in items.tolist())
        parts += [(p, r) for r, _, _, p in items.tolist() if p >= 0]
    assert sorted(p for p, _ in parts) == list(range(work.parts)) == list(range(work.first[-1]))
    assert all(work.first[r] <= p < work.first[r + 1] for p, r in parts)
    alone = [r for r in range(4) if sum(s[r] for s in pieces) == 1]
    assert all(work.first[r] == work.first[r + 1] for r in alone)


def test_the_longest_splits_come_first():
    (items,) = work_of([(1, 2, 4)], [(300, 900, 400)]).items
    assert items[:, 0].tolist() == [1, 1, 0, 2, 2, 2, 2]


@pytest.mark.parametrize("run_on", HOSTS)
@pytest.mark.parametrize(("dtype", "groups"), [("float32", 4), ("float16", 4), ("float16", 1)])
def test_requests_with_other_numbers_of_splits(dtype, groups, run_on):
    """A batch of ragged lengths as the plan cuts it, a request without keys among them."""
    lens = (700, 3, 129, 0, 260, 16)
    q, k, v, given_lens, table = case(11, dtype, 64, groups, lens=lens)
    splits = plan_decode(len(lens), 2, groups, 64, lens, choices=(8,)).splits
    assert len(set(splits)) >= 3, splits
    o, lse = decode_attention(q, k, v, given_lens, table, return_lse=True, run_on=run_on)
    assert np.all(o[3] == 0) and np.all(lse[3] == -np.inf)
    for b, n in enumerate(lens):
        if n == 0:
            continue
        own = (rows_of(x, table[b], n) for x in (k, v))
        expect((o[b : b + 1], lse[b : b + 1]), q[b : b + 1], *own, [n - 1], run_on)


def test_a_plan_for_other_lengths_is_still_right():
    """A step that was recorded is replayed with later lengths: only the balance is of the old."""
    lens = (300, 40, 600)
    arrays = case(12, "float32", 64, 4, lens=lens)
    q, k, v, given_lens, table = arrays
    o = decode_attention(*arrays, lens=(600, 600, 129), run_on="processor")
    for b, n in enumerate(lens):
        own = (rows_of(x, table[b], n) for x in (k, v))
        expect((o[b : b + 1], None), q[b : b + 1], *own, [n - 1], "processor")


def test_a_request_with_one_split_has_nothing_to_merge():
    arrays = case(13, "float32", 64, 4, lens=(700, 100, 90))
    with watched() as seen:
        decode_attention(*arrays, run_on="processor")
    (decode, _), (merge, traffic) = seen
    assert decode.grid == (2, 6 + 1 + 1, 1) and merge.grid == (3 * 8, 1, 1)
    assert traffic.written[0] == 8 * 64 * 4  # only request 0: its 8 query heads


@pytest.mark.parametrize("run_on", HOSTS)
def test_a_part_that_saw_no_key_may_leave_its_numbers_unwritten(run_on):
    rng = np.random.default_rng(3)
    part, sums = rng.standard_normal((6, 2, 64)), rng.standard_normal((6, 2))
    sums[[0, 2, 3]], part[[0, 2, 3]] = -np.inf, np.nan  # request 1 saw no key at all
    part, sums = (np.asarray(x, np.float32) for x in (part, sums))
    o, lse = np.empty((3, 2, 64), np.float32), np.empty((3, 2), np.float32)
    engine.start(run_on, merge_launch(o, lse, part, sums, Work((None,), None, 6, 2)))
    assert np.isfinite(o).all() and (o[1] == 0).all() and (lse[1] == -np.inf).all()
    whole = merge_states(*(x.reshape(3, 2, *x.shape[1:]).swapaxes(0, 1) for x in (part, sums)))
    np.testing.assert_allclose(o, whole[0], atol=1e-6)


def test_a_window_counts_what_is_read():
    assert keys_read((100, 100, 5), (0, 30, 90), 40) == (40, 10, 0)
    assert keys_read((100, 5), (3, 0), 0) == (100, 5)
    arrays = case(14, "float32", 64, 2, lens=(700, 690, 650))
    with watched() as seen:
        decode_attention(*arrays, window=100, run_on="processor")
    assert len(seen) == 1 and seen[0][0].grid == (2, 3, 1)  # 100 keys each: nothing is split


def test_planning_costs_less_than_a_layer_takes():
    lens = BATCHES["one long among short ones"]
    times = []
    for _ in range(5):
        balanced.cache_clear()
        start = time.perf_counter()
        work_of([balanced(lens, 8, ROOM)], [lens])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.02  # a tenth of a millisecond where nothing else runs


def test_more_items_than_a_grid_holds_are_refused():
    arrays = case(15, "float32", 64, 1, lens=(40, 3))
    with pytest.raises(ValueError, match="make 80,000 work items.*use fewer splits"):
        decode_attention(*arrays, splits=40_000, run_on="processor")


def test_keys_of_another_batch_are_refused():
    with pytest.raises(ValueError, match="keys must be of 2 requests, got 3"):
        plan_decode(2, 8, 4, 128, (1, 2, 3))
    assert balanced((), 8, ROOM) == () and handed_out((), (), 8, ROOM) == (0, 0.0)
    assert np.array_equal(work_of([(2, 2)]).items, (None,))
