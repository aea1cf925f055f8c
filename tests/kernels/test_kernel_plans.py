"""How launches are planned: every key once, no slot idle for long, no more than a device holds."""

import time

import numpy as np
import pytest
from engines import HOSTS
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_attention import RAGGED, case

from kvlib import merge_states
from kvlib.kernels import decode_attention, engine, plans, prefill, product, tuning
from kvlib.kernels.decode import instantiations, keys_read, merge_launch
from kvlib.kernels.engine import watched
from kvlib.kernels.layernorm import plan_rows
from kvlib.kernels.plans_topk import (
    KEYS,
    LEAST_TILES,
    MOST_K,
    PER_SM,
    SHARED,
    VARIANTS,
    plan_topk,
    splits_for,
)
from kvlib.kernels.prefill import split_work
from kvlib.kernels.results import registers_of

SLOTS = 396  # 132 multiprocessors with three blocks each
BATCHES = {
    "one": (65_536,),
    "one long among short ones": (65_536, *63 * [500]),
    "one long among very many": (65_536, *255 * [500]),
    "64 alike": (4096,) * 64, "20 alike": (65_536,) * 20,
    "a server's": (14_021, 7848, 7642, 7298, 6479, *range(53, 3000, 70)),
}


def even(lens, blocks=8):
    """What the plan was before it looked at all lengths: by the longest, as many for each."""
    n = max(1, min(SLOTS // (len(lens) * blocks), plans.MOST_SPLITS, max(lens) // plans.LEAST_KEYS))
    return (n,) * len(lens)


@pytest.mark.parametrize("name", BATCHES)
def test_few_places_are_idle(name):
    lens = BATCHES[name]
    busiest, idle = plans.handed_out(lens, plans.balanced(lens, 8, SLOTS), 8, SLOTS)
    assert idle < 0.06, (busiest, idle)
    assert busiest <= plans.handed_out(lens, even(lens), 8, SLOTS)[0]
    assert plans.plan_decode(len(lens), 8, 4, 128, lens).splits == plans.balanced(lens, 8, SLOTS)


def test_the_longest_request_alone_no_longer_decides():
    """One request of 65,536 keys among 63 of 500 had one split, and 97 % of the SMs idled."""
    lens = BATCHES["one long among short ones"]
    splits = (even(lens), plans.balanced(lens, 8, SLOTS))
    before, after = (plans.handed_out(lens, s, 8, SLOTS) for s in splits)
    assert before[0] == 65_536 and before[1] > 0.97
    assert after[0] < 2_100 and after[1] < 0.04
    assert len({*plans.plan_decode(len(RAGGED), 2, 4, 64, RAGGED, choices=(8,)).splits}) >= 3


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=70).map(tuple),
    st.integers(1, 16), st.integers(1, 600),
)
def test_splits_are_at_least_one_and_never_tiny(lens, blocks, room):
    splits = plans.balanced(lens, blocks, room)
    assert len(splits) == len(lens) and min(splits) >= 1 and max(splits) <= plans.MOST_SPLITS
    for n, s in zip(lens, splits, strict=True):
        assert s == 1 or n > plans.LEAST_KEYS * (s - 1)
        bounds = plans.ranges(n, s)
        assert bounds[0][0] == 0 and bounds[-1][1] == n
        assert all(a[1] == b[0] for a, b in zip(bounds, bounds[1:], strict=False))
    items = sum(splits) * blocks
    first = max(1, -(-len(lens) * blocks // room))
    assert items <= (first + 3) * room or sum(splits) == len(lens)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=4), min_size=1, max_size=3))
def test_every_split_of_every_piece_has_a_part_of_its_own(pieces):
    work = plans.work_of(pieces, [[100 * b for b in range(4)] for _ in pieces])
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
    (items,) = plans.work_of([(1, 2, 4)], [(300, 900, 400)]).items
    assert items[:, 0].tolist() == [1, 1, 0, 2, 2, 2, 2]


def test_a_request_with_one_split_has_nothing_to_merge():
    inputs, _ = case(lengths=(700, 100, 90))
    with watched() as seen:
        decode_attention(*inputs.values(), run_on="processor")
    ((launch, traffic),) = seen
    assert launch.grid == (2, 6 + 1 + 1, 1)
    assert traffic.written[:3] == (3 * 8 * 64 * 4, 3 * 8 * 4, 6 * 8 * 64 * 4)  # parts of request 0
    assert not launch.args[4].any(), "counters are 0 again"


@pytest.mark.parametrize("run_on", HOSTS)
def test_a_part_that_saw_no_key_may_leave_its_numbers_unwritten(run_on):
    rng = np.random.default_rng(3)
    part, sums = rng.standard_normal((6, 2, 64)), rng.standard_normal((6, 2))
    sums[[0, 2, 3]], part[[0, 2, 3]] = -np.inf, np.nan  # request 1 saw no key at all
    part, sums = (np.asarray(x, np.float32) for x in (part, sums))
    o, lse = np.empty((3, 2, 64), np.float32), np.empty((3, 2), np.float32)
    engine.start(run_on, merge_launch(o, lse, part, sums, plans.Work((None,), None, 6, 2)))
    assert np.isfinite(o).all() and (o[1] == 0).all() and (lse[1] == -np.inf).all()
    whole = merge_states(*(x.reshape(3, 2, *x.shape[1:]).swapaxes(0, 1) for x in (part, sums)))
    np.testing.assert_allclose(o, whole[0], atol=1e-6)


def test_a_window_counts_what_is_read():
    assert keys_read((100, 100, 5), (0, 30, 90), 40) == (40, 10, 0)
    assert keys_read((100, 5), (3, 0), 0) == (100, 5)
    inputs, _ = case(groups=2, lengths=(700, 690, 650))
    with watched() as seen:
        decode_attention(*inputs.values(), window=100, run_on="processor")
    assert len(seen) == 1 and seen[0][0].grid == (2, 3, 1)  # 100 keys each: nothing is split


def test_planning_costs_less_than_a_layer_takes():
    lens = BATCHES["one long among short ones"]
    times = []
    for _ in range(5):
        plans.balanced.cache_clear()
        start = time.perf_counter()
        plans.work_of([plans.balanced(lens, 8, SLOTS)], [lens])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.02  # a tenth of a millisecond where nothing else runs


def test_keys_of_another_batch_are_refused():
    with pytest.raises(ValueError, match="keys must be of 2 requests, got 3"):
        plans.plan_decode(2, 8, 4, 128, (1, 2, 3))
    assert plans.balanced((), 8, SLOTS) == () and plans.handed_out((), (), 8, SLOTS) == (0, 0.0)
    assert np.array_equal(plans.work_of([(2, 2)]).items, (None,))


def test_tensor_cores_where_they_pay():
    """16-bit numbers that several query heads share, and codes; the plan follows the registers."""
    assert plans.suits_tensor_cores(4, 128, 16, True) and plans.suits_tensor_cores(1, 128, 8, False)
    assert not plans.suits_tensor_cores(4, 128, 32, True)
    assert not plans.suits_tensor_cores(1, 128, 16, True)
    assert plans.suits_tensor_cores(1, 96, 16, True)  # there is no other kernel
    assert [plans.blocks_that_fit(n, 16_640) for n in (255, 168, 162, 128, 64)] == [2, 3, 3, 4, 8]
    assert plans.blocks_that_fit(64, 100_000) == 2  # of shared memory
    known = {kernel.name: registers_of(kernel.name) for kernel in instantiations()}
    assert min(known.values()) > 0
    registers = known["decode_tensor<Numbers<BFloat16>, 128, 4>"]
    assert plans.blocks_that_fit(registers, 19_456, threads=256) == 2
    for registers, splits in ((None, 49), ({8: 255}, 33), ({8: 168}, 49), ({8: 100}, 66)):
        plan = plans.plan_decode(1, 8, 4, 128, 65_536, choices=(8,), registers=registers)
        assert (plan.splits, plan.rows, plan.tiles) == ((splits,), 8, 1)


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_eight_warps_fit_a_multiprocessor(dim, itemsize):
    small = plans.Device("of capability 8.9", 142, 99 * 1024)
    for rows in (64, 65):
        assert plans.plan_prefill(dim, itemsize, rows, small).shared <= small.shared
        plan = plans.plan_prefill(dim, itemsize, rows)
        assert plan.rows >= rows or rows > 64 or itemsize == 4
        assert plan.threads * plans.blocks_that_fit(128, plan.shared) >= 256
        assert plan.shared <= plans.H200.shared


def test_guesses_are_split_between_blocks_and_prompts_are_not():
    plan = plans.plan_prefill(128, 2, 64)
    for n, keys, splits in ((5, 65_536, 33), (16, 8_192, 33), (16, 1_024, 8), (32, 500, 2)):
        assert plans.splits_of_rows(plan, [n], [keys], 8, 4)[0] == splits, (n, keys)
    assert plans.splits_of_rows(plan, [4096, 1], [70_000, 70_000], 8, 4) == (1, 1)
    assert plans.splits_of_rows(plan, [], [], 8, 4) == ()
    batch = plans.splits_of_rows(plan, [5] * 64, [65_536, *63 * [500]], 8, 4)
    assert batch[0] > 40 and set(batch[1:]) == {1}
    assert split_work(np.zeros((3, 8, 64), np.float16), 2, [3], [120]) is None


def test_the_parts_of_tokens():
    work = plans.work_of_rows([3, 1, 2], [2, 4, 1], [900, 100, 700])
    items = {(b, split): part for b, split, _, part in work.items[0].tolist()}
    assert items[1, 0] == -1 and work.parts == 2 * 3 + 2 and work.most == 3
    assert work.first.tolist() == [0, 3, 6, 6, 6, 6, 6, 8]
    assert [items[0, i] for i in range(3)] == [0, 1, 2] and items[2, 1] == 7
    assert work.items[0][:, 0].tolist() == [2, 2, 0, 0, 0, 1]  # 350 keys, 300, 100


def test_plans_choose_what_was_measured_on_this_card(monkeypatch):
    measured = {"topk": {"few, 16 bits": {"vectors": 8, "blocks": 3}}}
    measured["product"] = {"1 rows of 16 bits, 2^23 bytes": {"depth": 2}}
    monkeypatch.setattr(tuning, "_here", lambda: measured)
    found = [plan_topk(rows, 128_000, 50, itemsize=2).variant for rows in (64, 1)]
    assert found == [(8, 3), (4, 4)]
    sizes = 1, 2048, 2048, np.float16
    assert product.tuned(*sizes) == product.plan_product(*sizes, depth=2)
    with tuning.trying("product", {"depth": 3}):
        assert product.tuned(*sizes, depth=6) == product.plan_product(*sizes, depth=6)
        assert product.tuned(*sizes).depth == 3
    k = np.ones((1, 2, 8, 64), np.float16)
    q, lens = k[0, :, 0].repeat(4, axis=0)[None], np.array([8], np.int32)
    variant = {"warps": 12, "blocks": 1, "keys": 32}
    with tuning.trying("decode_tensor", variant), watched() as seen:
        assert (decode_attention(q, k, k, lens, run_on="processor") == 1).all()
    assert seen[0][0].threads == 384
    assert seen[0][0].kernel.name == "decode_tensor<Numbers<Half>, 64, 4, 12, 1, 32>"
    with tuning.trying("prefill", {"bands": 1, "warps": 4, "keys": 32, "stages": 3}):
        assert prefill.tuned(64, 2, 9, plans.H200) == plans.tiled(64, 1, 4, 32, 3)
        assert prefill.tuned(64, 4, 9, plans.H200) == plans.plan_prefill(64, 4, 9)
    monkeypatch.setattr(tuning, "_here", dict)
    assert product.tuned(*sizes) == product.plan_product(*sizes)
    assert prefill.tuned(64, 2, 9, plans.H200) == plans.plan_prefill(64, 2, 9)


def test_rows_of_logits_are_split_where_they_are_few():
    assert plan_topk(2048, 128_000, 50)[:2] == (1, 128_000)
    few = plan_topk(64, 128_000, 50)
    assert few.splits == 4 and few.merges and 64 * few.splits <= 132 * PER_SM
    assert few.each == 32_000 and few.each % 8 == 0
    assert plan_topk(1, 128_000, 50).splits == 128_000 // (LEAST_TILES * 256 * few.items(4))
    assert plan_topk(1, 5000, 50).splits == 1
    assert splits_for(1, 1 << 18, MOST_K, 132, VARIANTS[0], 4) * MOST_K <= KEYS
    for variant in VARIANTS:  # a multiprocessor keeps 1 KiB a block
        assert variant.blocks * (SHARED + 1024) <= 227 * 1024
    assert plan_topk(0, 100, 3).splits == 1


@pytest.mark.parametrize(("rows", "width", "plan"), [
    (1, 8, (8, 32, 1)), (5000, 256, (8, 32, 1056)), (5000, 2048, (8, 256, 132)),
    (5000, 2056, (16, 160, 132)), (5000, 4096, (16, 256, 132)), (100, 8192, (32, 256, 100)),
])
def test_threads_of_a_row_of_a_norm(rows, width, plan):
    assert plan_rows(rows, width) == plan
    per, threads, _ = plan
    assert (
        per * threads >= width
        and threads % 32 == 0
        and plan_rows(rows, width).shared == threads // 4
    )
