"""Attention over trees of new tokens, and over few new tokens with keys split, against float64.

A new token sees the older keys, its ancestors and itself: a chain. So each row is compared with
attention over the keys of its own path. What nobody may read is NaN.
"""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, given, in_orders
from exact import expect_tree, rows_of
from test_kernel_prefill import case

from kvlib.caches.trees import ancestors
from kvlib.kernels import prefill_attention
from kvlib.kernels.engine import watched
from kvlib.kernels.plans import plan_prefill, splits_of_rows, work_of_rows
from kvlib.kernels.prefill import split_work
from kvlib.kernels.trees import MOST_NODES, tree_of

TREES = {
    "one token": [-1],
    "roots": [-1, -1, -1, 1],
    "comb": [-1, 0, 0, 2, 2, 4, 4, 6, 6],
    "two words": [max(-1, j - 1 - (5 * j * j + 3 * j) % 7) for j in range(37)],
}


def agrees(arrays, parents, run_on, splits=None, last=None, **settings):
    """Rows of a step whose request b has the tree parents[b]; only its last[b] rows, if given."""
    q, k, v, indptr, lens, table = arrays
    new = np.diff(indptr).tolist()
    rows = new if last is None else last
    kept = np.concatenate([np.arange(e - n, e) for e, n in zip(indptr[1:], rows, strict=True)])
    ends = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    work = splits and split_work(q[kept], k.shape[1], rows, lens.tolist(), splits=splits)
    tree = None if all(own is None for own in parents) else tree_of(parents)
    o, lse = back(
        prefill_attention(
            *given(run_on, (q[kept], k, v, ends, lens, table)), tree=given(run_on, tree),
            work=given(run_on, work), return_lse=True, run_on=run_on, **settings,
        )
    )  # fmt: skip
    for b, n in enumerate(new):
        own = slice(ends[b], ends[b + 1])
        seen = ancestors(range(-1, n - 1) if parents[b] is None else parents[b])[n - rows[b] :]
        keys, values = (rows_of(x, table[b], lens[b]) for x in (k, v))
        found = o[own], lse[own]
        expect_tree(found, q[kept[own]], keys, values, seen, run_on, **settings)
    assert o.dtype == q.dtype and lse.dtype == np.float32


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("splits", [None, 3])
def test_trees_and_chains_in_one_step(splits, dtype, run_on):
    parents = [TREES["comb"], None, TREES["two words"], TREES["roots"]]
    new = tuple(5 if own is None else len(own) for own in parents)
    agrees(case(1, dtype, 64, 2, new, held=(70, 33, 5, 0)), parents, run_on, splits)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [1, 3, 32, 66])
def test_a_window_counts_positions(window, dtype, run_on):
    """Not slots: a late token of a tree may follow the older ones at once."""
    parents = [TREES["two words"], TREES["roots"]]
    arrays = case(window, dtype, 64, 2, (37, 4), held=(90, 6))
    agrees(arrays, parents, run_on, splits=None if window % 2 else 2, window=window)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_last_rows_of_a_step(dtype, run_on):
    parents = [TREES["two words"], None, TREES["comb"]]
    arrays = case(3, dtype, 64, 3, (37, 6, 9), held=(20, 40, 33))
    agrees(arrays, parents, run_on, splits=2, last=[4, 2, 9], softcap=1.5, sm_scale=0.4)


def test_random_trees(effort):
    """Batches of trees and chains with any window, number of splits and of last rows."""
    for seed in effort.share("random trees in the kernels", range(60), usual=6):
        rng = np.random.default_rng(seed)
        new, parents = rng.integers(1, 45, size=rng.integers(1, 4)).tolist(), []
        for n in new:
            shape = [-1, *(int(rng.integers(-1, j)) for j in range(1, n))]
            parents.append(None if rng.random() < 0.3 else shape)
        held = tuple(int(n) for n in rng.integers(0, 150, size=len(new)))
        dtype, groups = ("float32", "float16")[seed % 2], int(rng.integers(1, 4))
        arrays = case(seed, dtype, 64, groups, tuple(new), held, heads=1)
        splits = [None, 1, 2, 5][rng.integers(4)]
        window = [None, 1, int(rng.integers(2, 12)), int(rng.integers(12, 150))][rng.integers(4)]
        last = [int(rng.integers(1, n + 1)) for n in new] if rng.random() < 0.3 else None
        for run_on in HOSTS:
            agrees(arrays, parents, run_on, splits, last, window=window)


@pytest.mark.untraced
@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint16"])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_every_type_and_head_dim(dtype, dim, run_on):
    arrays = case(dim, dtype, dim, 2, (9, 1), held=(71, 20))
    agrees(arrays, [TREES["comb"], None], run_on, splits=2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_order_of_threads_does_not_matter(dtype):
    arrays, tree = case(2, dtype, 64, 2, (9, 4), held=(40, 70)), tree_of([TREES["comb"], None])
    seen = in_orders(lambda: prefill_attention(*arrays, tree=tree, run_on="processor"))
    assert np.array_equal(seen[0], seen[1]) and np.array_equal(seen[0], seen[2])


@pytest.mark.parametrize("splits", [None, 3])
def test_keys_are_read_once_for_a_whole_tree(splits):
    """16 tokens of four query heads are 64 rows: as many bytes as for one token."""
    parents = [[-1, *(j // 2 for j in range(15))]]
    q, k, v, *_ = arrays = case(3, "float16", 64, 4, new=(16,), held=(176,))
    work = splits and split_work(q, 2, [16], [192], splits=splits)
    with watched() as seen:
        prefill_attention(*arrays, tree=tree_of(parents), work=work, run_on="processor")
    (launch, traffic), *merge = seen
    assert launch.grid == (1, 2, splits or 1) and len(merge) == (splits is not None)
    handed = [x for x in launch.args if isinstance(x, np.ndarray)]
    read = [n for x, n in zip(handed, traffic.read, strict=True) if x is k or x is v]
    assert read == [192 * 2 * 64 * 2] * 2


def test_guesses_are_split_between_blocks_and_prompts_are_not():
    plan = plan_prefill(128, 2)
    for n, keys, splits in ((5, 65_536, 49), (16, 65_536, 49), (16, 500, 1), (16, 8_192, 16)):
        assert splits_of_rows(plan, [n], [keys], 8, 4, registers=160)[0] == splits, (n, keys)
    assert splits_of_rows(plan, [4096, 1], [70_000, 70_000], 8, 4) == (1, 1)
    assert splits_of_rows(plan, [], [], 8, 4) == ()
    batch = splits_of_rows(plan, [5] * 64, [65_536, *63 * [500]], 8, 4, registers=160)
    assert batch[0] > 40 and set(batch[1:]) == {1}
    assert split_work(np.zeros((3, 8, 64), np.float16), 2, [3], [120]) is None


def test_the_parts_of_tokens():
    work = work_of_rows([3, 1, 2], [2, 4, 1], [900, 100, 700])
    items = {(b, split): part for b, split, _, part in work.items[0].tolist()}
    assert items[1, 0] == -1 and work.parts == 2 * 3 + 2 and work.most == 3
    assert work.first.tolist() == [0, 3, 6, 6, 6, 6, 6, 8]
    assert [items[0, i] for i in range(3)] == [0, 1, 2] and items[2, 1] == 7
    assert work.items[0][:, 0].tolist() == [2, 2, 0, 0, 0, 1]  # 350 keys, 300, 100


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"bits": lambda x: x[:, 0]}, ValueError, r"bits must be \(N, words\)"),
        ({"bits": lambda x: x.astype(np.int64)}, TypeError, "bits must be uint32"),
        ({"bits": lambda x: x | np.uint32(8)}, ValueError, "itself and tokens before it"),
        ({"bits": lambda x: x & ~np.uint32(1)}, ValueError, "itself and tokens before it"),
        ({"depths": lambda x: x + np.int32(4)}, ValueError, r"depths must lie in 0 \.\.\. 3"),
        ({"trees": lambda x: x[:1]}, ValueError, "trees must be"),
        ({"trees": lambda x: x + np.int32([0, 1])}, ValueError, "each of 5 new tokens"),
        (
            {"trees": lambda x: x - np.int32([0, 2])},
            ValueError,
            "between 4 and 10 new tokens, got 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, error, words):
    tree = tree_of([TREES["roots"], None])
    wrong = tree._replace(**{name: make(getattr(tree, name)) for name, make in change.items()})
    arrays = case(4, "float32", 64, 2, (4, 3), held=(6, 6))
    for run_on in HOSTS:
        with pytest.raises(error, match=words):
            prefill_attention(*arrays, tree=wrong, run_on=run_on)


def test_parents_and_lengths_that_do_not_fit_are_refused():
    assert tree_of([None, None]).bits.shape == (0, 1)
    assert tree_of([[-1, *range(MOST_NODES - 1)]]).bits[-1].tolist() == [2**32 - 1] * 32
    for parents, words in (
        ([[-1] * (MOST_NODES + 1)], "at most 1,024 new tokens, got 1,025"),
        ([[-1, 1]], r"parents\[0\]\[1\] must be .*, got 1"),
        ([None, [0]], r"parents\[1\]\[0\] must be .*, got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            tree_of(parents)
    q, *rest = case(5, "float32", 64, 2, (3,), held=(6,))
    work = split_work(q[:2], 2, [2], [9], splits=2)
    with pytest.raises(ValueError, match=r"work.first must be \(T\+1\) with T\+1=4"):
        prefill_attention(q, *rest, work=work)
    with pytest.raises(ValueError, match="with 3 new tokens together, got 1 and 1 numbers and 2"):
        split_work(q, 2, [2], [9])
