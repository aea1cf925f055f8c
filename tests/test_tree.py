"""Trees of guesses: one step for several guesses per position equals its paths run apart."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from caches import snapshot
from outside.listed import ListCache

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, Meter, PagedCache, blas
from kvlib.attention import pieces, trees
from kvlib.caches import KNorm, Quest, Scored, Sinks, SnapKV, layer_groups, run_alone, run_cascade
from kvlib.caches.layouts import slot_mapping, to_dense
from kvlib.caches.trees import ancestors, chained, depths
from kvlib.codecs import fp8, int8, int8_per_channel, kivi
from kvlib.testing import check_cache
from kvlib.testing.memory import poison_all, poison_unused
from kvlib.testing.rounding import sum_bound
from kvlib.testing.schedule import any_tree, draw_path, line_of

MAX_SEQS, MAX_SEQ_LEN, HEADS, DIM = 3, 48, 4, 8
BOUND = sum_bound(2 * DIM + MAX_SEQ_LEN, 4.0)


def layers_of(**more):
    """A plain layer, and one with grouped queries."""
    return [LayerSpec(2, DIM, **more), LayerSpec(1, DIM, **more)]


WINDOWS = [LayerSpec(2, DIM, window=5), LayerSpec(2, DIM)]
SINKS = [
    LayerSpec(2, DIM, sinks=np.array([0.5, -0.5, 1.0, 0.0], np.float32), softcap=3.0),
    LayerSpec(2, DIM, v_head_dim=6, v_from_k=True),
]
PARENTS = [-1, 0, 0, 1, 1, 2, -1]  # two children of a root, their children, and a second root


def rows(layers=None, **settings):
    """A cache of rows."""
    return lambda: DenseCache(layers or layers_of(), MAX_SEQS, MAX_SEQ_LEN, **settings)


def blocks(size, layers=None, *, pool=None, **settings):
    """A cache of blocks, by default enough of them for all."""

    def make():
        specs = layers or layers_of()
        enough = (MAX_SEQS * -(-MAX_SEQ_LEN // size) + 2) * len(layer_groups(specs))
        return PagedCache(specs, BlockPool(pool or enough, size), **settings)

    return make


CACHES = {
    "rows": rows(), "blocks of 1": blocks(1), "blocks of 4": blocks(4), "blocks of 64": blocks(64),
    "rows, windows": rows(WINDOWS), "blocks, windows": blocks(4, WINDOWS),
    "rows, learned sinks": rows(SINKS), "blocks, learned sinks": blocks(4, SINKS),
    "int8 in rows": rows(codec="int8"), "int8 in blocks": blocks(4, codec="int8"),
    "int8, residual 5": blocks(8, codec=int8(residual=5)),
    "int8, residual 5, rows": rows(codec=int8(residual=5)),
    "int8 per channel": blocks(8, codec=int8_per_channel(4)),
    "int4, residual 3": blocks(8, codec=kivi(4, group=8, residual=3)),
    "int4, residual 3, rows": rows(codec=kivi(4, group=8, residual=3)),
    "int2, residual 8": rows(codec=kivi(2, group=4, residual=8)),
    "fp8": blocks(8, codec=fp8("e4m3")),
    "int4, windows": rows(WINDOWS, codec=kivi(4, group=8, residual=3)),
    "int4, windows, blocks": blocks(8, WINDOWS, codec=kivi(4, group=8, residual=3)),
    "first tokens stay": rows(retention=Sinks(2, 5)),
    "first tokens stay, blocks": blocks(4, retention=Sinks(2, 5)),
    "scored by keys": blocks(4, retention=Scored(KNorm(recent=3), 12)),
    "cascade": blocks(4, attention=run_cascade),
    "one after the other": blocks(4, attention=run_alone),
    "Quest": blocks(4, attention=Quest(1000, dense_layers=0)),
    "16 bits in rows": rows(dtype=np.float16),
    "16 bits in blocks": blocks(4, WINDOWS, dtype=np.float16),
    "one's own": lambda: Kept(layers_of()),
}
# Where a tree takes room that its path does not, rows move or drop tokens earlier.
EARLIER = {"rows, windows", "int4, windows", "first tokens stay"}


class Kept(ListCache):
    """A custom cache with the one method that trees need."""

    def _keep(self, seq, path):
        index = [*range(seq.start), *(seq.start + j for j in path)]
        seq.state = [[tokens[i] for i in index] for tokens in seq.state]

    def _release(self, seq):
        assert all(len(tokens) == seq.length for tokens in seq.state)


@pytest.mark.untraced
@pytest.mark.parametrize("name", CACHES)
def test_a_kept_path_leaves_what_it_would_leave_alone(name, effort):
    """Random trees and paths, of two requests per step: the same bytes, and the same answers."""
    for seed in effort.share("texts with trees", range(30), usual=6, quick=3):
        play(name, seed)


def play(name, seed):
    rng = np.random.default_rng(seed)
    tree, alone = (filled(CACHES[name], names="ab") for _ in range(2))
    for _ in range(6):
        sizes = rng.integers(1, 7, 2).tolist()
        parents = [any_tree(rng, n) for n in sizes]
        paths = [draw_path(rng, one) or [0] for one in parents]
        kept = [*paths[0], *(sizes[0] + j for j in paths[1])]
        tokens = rng.integers(0, 9, sum(sizes))
        x = rng.standard_normal((3, sum(sizes), HEADS, DIM), dtype=np.float32)
        found = run(tree, sizes, tokens, x, parents)
        needed = run(alone, [len(path) for path in paths], tokens[kept], x[:, kept])
        for o, chain in zip(found, needed, strict=True):
            if not getattr(tree.codec, "waits", False):  # a chain shows more of it as codes
                np.testing.assert_allclose(o[kept], chain, atol=BOUND, rtol=BOUND)
        for request, path in zip("ab", paths, strict=True):
            tree.keep(request, path)
        for cache in (tree, alone):
            cache.settle("a")
            cache.settle("b")
            poison_unused(cache)
        for request in "ab":
            look(tree, alone, request, exact=name not in EARLIER)


def run(cache, lengths, tokens, x, parents=None):
    """Append a step of requests a and b to all layers; returns what each layer answers."""
    step = cache.plan(["a", "b"], lengths, tokens.tolist(), parents=parents)
    answers = []
    for layer, spec in enumerate(cache.layers):
        k, v = (y[:, : spec.num_kv_heads] for y in x[:2])
        cache.append(layer, k, None if spec.v_from_k else v[..., : spec.v_dim], step)
        answers.append(cache.run(layer, x[2], step))
    return answers


def look(tree, alone, request, exact):
    """Both caches hold the same of a request; if not `exact`, one may have dropped more of it."""
    for layer in range(len(tree.layers)):
        one, two = (cache.read(layer, request) for cache in (tree, alone))
        n = min(len(one[0]), len(two[0]))
        assert len(one[0]) == len(two[0]) or not exact
        for x, y in zip(one[:2], two[:2], strict=True):
            assert x[-n:].tobytes() == y[-n:].tobytes(), f"layer {layer}"
        assert one[2][..., -n:].tobytes() == two[2][..., -n:].tobytes()
    states = [cache._sequences[request].state for cache in (tree, alone)]
    if tree.groups:
        assert states[0].tokens == states[1].tokens
        assert states[0].num_paged == states[1].num_paged
        pages = [[len(table.pages) for table in state.tables] for state in states]
        assert pages[0] == pages[1] or not exact
    if exact and not getattr(tree.codec, "waits", False):
        assert tree.memory().payload == alone.memory().payload


@pytest.mark.untraced
@pytest.mark.parametrize("name", ("rows", "blocks of 4", "int4, residual 3"))
def test_trees_are_read_in_pieces(name):
    with (
        patch.object(pieces, "STORED_PIECE", 4),
        patch.object(pieces, "VIEWED", 8),
        patch.object(blas, "CHUNK_PIECE", 2),
        patch.object(trees, "TREE_ROWS", 6),
    ):
        lives(name, schedules=6)


def lives(name, schedules=12):
    """Random lives by the kit, with layers of all kinds."""
    makes = {
        "rows": lambda layers: DenseCache(layers, 4, 40),
        "blocks of 4": lambda layers: PagedCache(layers, BlockPool(160, 4)),
        "int4, residual 3": lambda layers: PagedCache(
            layers, BlockPool(80, 8), codec=kivi(4, group=8, residual=3)
        ),
        "cascade": lambda layers: PagedCache(layers, BlockPool(160, 4), attention=run_cascade),
    }
    trial = check_cache(makes[name], schedules=schedules, xp=np)
    assert trial, trial


def test_ancestors_and_depths():
    rng = np.random.default_rng(0)
    for n in range(1, 20):
        tree = any_tree(rng, n)
        lines = [line_of(tree, j) for j in range(n)]
        assert depths(tree) == [len(line) - 1 for line in lines]
        assert [np.flatnonzero(row).tolist() for row in ancestors(tree)] == lines
        assert chained(tree) == next((j for j in range(n) if tree[j] != j - 1), n)


# A step, by hand ----------------------------------------------------------------------------------


def filled(make, tokens=7, names="a"):
    """A cache with so many tokens of each request in all layers, and NaN elsewhere."""
    cache, rng = make(), np.random.default_rng(1)
    poison_all(cache)
    for name in names:
        cache.add(name)
        feed(cache, cache.plan([name], [tokens], rng.integers(0, 9, tokens).tolist()), rng)
    return cache


def feed(cache, step, rng):
    """Random keys and values for all layers of a step."""
    for layer, spec in enumerate(cache.layers):
        shape = (step.num_tokens, spec.num_kv_heads, spec.head_dim)
        k, v = rng.standard_normal((2, *shape), dtype=np.float32)
        cache.append(layer, k, None if spec.v_from_k else v[..., : spec.v_dim], step)


def test_what_a_step_says_of_its_trees():
    cache = filled(rows(), names="ab")
    step = cache.plan(["a", "b"], [7, 2], parents=[np.array(PARENTS), None])
    assert step.parents == (tuple(PARENTS), None) and step.starts == [7, 7]
    assert step.positions.tolist() == [7, 8, 8, 9, 9, 9, 7, 7, 8] and step.longest == 10
    assert step.seq_lens == (14, 9) and step.ancestors(1) is None
    seen = step.ancestors(0)
    assert seen.dtype == bool and seen.astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0], [1, 0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0, 1],
    ]
    last = step.last([3, 1])
    assert last.positions.tolist() == [9, 9, 7, 8] and last.parents is step.parents
    assert (last.ancestors(0) == seen[4:]).all() and last.ancestors(1) is None
    with pytest.raises(ValueError, match=r"i must be 0 \.\.\. 1, got 2"):
        step.ancestors(2)
    with pytest.raises(ValueError, match="tokens of request 'b' are a chain"):
        step.tree(1)


@pytest.mark.parametrize("parents", (None, [None], [[-1, 0, 1]], [(-1, 0, 1)], [range(-1, 2)]))
def test_a_chain_is_a_plain_step(parents):
    cache = filled(rows())
    step = cache.plan(["a"], [3], parents=parents)
    assert step.parents is None and step.positions.tolist() == [7, 8, 9]
    cache.keep("a", range(2))
    assert cache.seq_len("a") == 9
    with pytest.raises(ValueError, match="request 'a' has no step of which tokens could be kept"):
        cache.keep("a", [0])


GROUPED = (int8_per_channel(8), kivi(4, group=8, residual=3))


@pytest.mark.parametrize("codec", GROUPED)
def test_a_chain_is_cut_after_any_guess(codec):
    """Though the guesses filled a group, which was encoded."""
    for n in range(1, 13):
        for a in range(n + 1):
            one, two = (filled(rows(codec=codec)) for _ in range(2))
            rng = np.random.default_rng(2)
            k, v = rng.standard_normal((2, n, 2, DIM), dtype=np.float32)
            for cache, m in ((one, n), (two, a)):
                step = cache.plan(["a"], [m]) if m else None
                for layer, spec in enumerate(cache.layers if step else ()):
                    cache.append(layer, *(x[:m, : spec.num_kv_heads] for x in (k, v)), step)
            one.truncate("a", 7 + a)
            two.settle("a")
            same = zip(one.read(0, "a"), two.read(0, "a"), strict=True)
            assert all(x.tobytes() == y.tobytes() for x, y in same)
            assert one.memory() == two.memory()


def test_a_long_tree_leaves_no_long_residual():
    """A tree of 20 guesses waits in a residual that has room for 11; then the room is as before."""
    for length in (0, 5, 7):
        one, two = (filled(CACHES["int4, residual 3"]) for _ in range(2))
        feed(one, one.plan(["a"], [20], parents=[[-1] * 20]), np.random.default_rng(2))
        assert one.memory().reserved > two.memory().reserved
        for cache in (one, two):
            cache.truncate("a", length)
        assert one.memory() == two.memory()
        same = zip(one.read(1, "a"), two.read(1, "a"), strict=True)
        assert all(x.tobytes() == y.tobytes() for x, y in same)


def test_a_tree_reads_what_is_older_once():
    tree, rng = [-1, 0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 9, 9, 10], np.random.default_rng(3)
    for make in (rows(), blocks(4), rows(codec="int8"), blocks(16, codec=kivi(4, 8, 3))):
        cache = filled(make, tokens=30)
        step = cache.plan(["a"], [16], parents=[tree])
        feed(cache, step, rng)
        q = rng.standard_normal((16, HEADS, DIM), dtype=np.float32)
        with Meter() as all_nodes:
            cache.run(0, q, step)
        with Meter() as one_node:
            cache.run(0, q[-1:], step.last())
        read = [meter.by_label["attention"].read for meter in (all_nodes, one_node)]
        assert read[0] == read[1] > 0, "16 nodes read as many bytes as one"
        assert all_nodes.flops == 16 * one_node.flops


def test_bounds_are_those_of_the_path():
    """Quest judges a block by its keys: those of wrong guesses may not count."""
    one, two = (filled(blocks(4, attention=Quest(8, dense_layers=0)), 14) for _ in range(2))
    tree, path, rng = [-1, 0, 0, 1, 2, 3, 4, 4, 7, 8], [0, 2, 4, 7, 8, 9], np.random.default_rng(5)
    tree.append(len(tree) - 1)
    for begin in range(3):
        k, v = rng.standard_normal((2, len(tree), 2, DIM), dtype=np.float32)
        q = rng.standard_normal((1, HEADS, DIM), dtype=np.float32)
        k[1] = 99.0  # a wrong guess that would draw all queries to its block
        for cache, nodes, parents in ((one, range(len(tree)), [tree]), (two, path, None)):
            step = cache.plan(["a"], [len(nodes)], parents=parents)
            for layer, spec in enumerate(cache.layers):
                cache.append(layer, *(x[nodes, : spec.num_kv_heads] for x in (k, v)), step)
                cache.run(layer, np.repeat(q, len(nodes), axis=0), step)
        one.keep("a", path)
        found = []
        for cache in (one, two):
            step = cache.plan(["a"], [1])
            for layer, spec in enumerate(cache.layers):
                cache.append(layer, *(x[:1, : spec.num_kv_heads] for x in (k, v)), step)
            found.append(cache.run(0, q, step))
            bounds, pages = cache.stores[0].keys.bounds, list(cache.blocks("a"))[:-1]
            found.append(bounds.array[pages])
        assert found[0].tobytes() == found[2].tobytes(), f"step {begin}"
        assert found[1].tobytes() == found[3].tobytes()


# What is refused ----------------------------------------------------------------------------------

BAD_PARENTS = {
    "'ab'": ("ab", TypeError, "parents must be a list of one entry per request, got 'ab'"),
    "one too few": ([[-1, 0, 0]], ValueError, "one entry per request of the plan, 2, got 1"),
    "no list": (
        [5, None], TypeError,
        "parents of request 'a' must be a list of the numbers of new tokens, got 5",
    ),
    "too short": ([[-1, 0], None], ValueError, "of request 'a' must be 3 numbers, one per new tok"),
    "itself": ([[-1, 0, 2], None], ValueError, r"token 2 must follow -1, what the request cached"),
    "a later one": ([[1, -1, 0], None], ValueError, "new token 0 must follow -1, what the request"),
    "before -1": ([[-1, -2, 0], None], ValueError, r"a new token before it, 0 \.\.\. 0; got -2"),
    "of the second": ([None, [0]], ValueError, "parents of request 'b': new token 0 must follow"),
}


@pytest.mark.parametrize("name", ("rows", "blocks of 4", "int4, residual 3"))
@pytest.mark.parametrize("what", BAD_PARENTS)
def test_bad_parents_change_nothing(name, what):
    parents, error, words = BAD_PARENTS[what]
    cache = filled(CACHES[name], names="ab")
    before = snapshot(cache)
    with pytest.raises(error, match=words):
        cache.plan(["a", "b"], [3, 1], parents=parents)
    assert snapshot(cache) == before


BAD_PATHS = {
    "too high": ([0, 7], ValueError, r"0 \.\.\. 6, got 7"),
    "no root": ([1], ValueError, "from parent to child, and new token 1 follows 0, not -1"),
    "a leap": ([0, 3], ValueError, "new token 3 follows 1, not 0"),
    "two roots": ([0, 6], ValueError, "new token 6 follows -1, not 0"),
    "twice": ([0, 0], ValueError, "new token 0 follows -1, not 0"),
}


@pytest.mark.parametrize("name", ("rows", "blocks of 4", "int4, residual 3"))
@pytest.mark.parametrize("what", BAD_PATHS)
def test_bad_paths_change_nothing(name, what):
    path, error, words = BAD_PATHS[what]
    cache = filled(CACHES[name])
    feed(cache, cache.plan(["a"], [7], parents=[PARENTS]), np.random.default_rng(2))
    before = snapshot(cache)
    with pytest.raises(error, match=words):
        cache.keep("a", path)
    assert snapshot(cache) == before
    cache.keep("a", np.array([0, 2, 5]))
    assert cache.seq_len("a") == 10


WAITING = "request 'a' holds a tree of 7 guesses after its first 7 tokens: keep\\('a', path\\)"


@pytest.mark.parametrize("name", ("rows", "blocks of 4", "int4, residual 3", "one's own"))
def test_a_tree_is_kept_before_anything_else(name):
    cache = filled(CACHES[name])
    feed(cache, cache.plan(["a"], [7], parents=[PARENTS]), np.random.default_rng(2))
    before = snapshot(cache)
    model = SimpleNamespace(layer_specs=cache.layers)  # its weights are not asked for
    for call in (
        lambda: cache.plan(["a"], [1]), lambda: cache.fork("a", "b"), lambda: cache.settle("a"),
        lambda: to_dense(cache, 0, ["a"]),
        lambda: kvlib.remove_span(model, cache, "a", 0, 1),
        lambda: kvlib.caches.cross_step(cache, ["a"], [1]),
    ):
        with pytest.raises(ValueError, match=WAITING):
            call()
    for length in (10, 14):
        with pytest.raises(
            ValueError, match=r"no chain: it can be truncated to a length of 0 \.\.\. 9"
        ):
            cache.truncate("a", length)
    assert snapshot(cache) == before
    cache.truncate("a", 9)  # token 1 follows token 0
    assert cache.seq_len("a") == 9
    feed(cache, cache.plan(["a"], [1]), np.random.default_rng(2))
    cache.free("a")


def test_an_unfinished_tree_is_not_kept():
    cache = filled(blocks(4))
    step = cache.plan(["a"], [3], parents=[[-1, 0, 0]])
    k = np.ones((3, 2, DIM), np.float32)
    cache.append(0, k, k, step)
    with pytest.raises(
        ValueError, match="layer 1 has not appended them; .* truncate the request to 7"
    ):
        cache.keep("a", [0, 2])
    cache.keep("a", [])
    assert cache.seq_len("a") == 7


def by_positions(cache, layer, q, step, return_lse=False):
    return cache.attend(layer, q, step, return_lse)


@pytest.mark.parametrize(("make", "words"), [
    (rows(attention=by_positions), "attends by positions alone, by which the guesses of a tree"),
    (blocks(4, retention=Scored(SnapKV(window=2), 12)), "queries of wrong guesses would count"),
    (lambda: ListCache(layers_of()), "ListCache has no method _keep, so it cannot give back"),
])
def test_who_cannot_hold_a_tree_says_why(make, words):
    cache = filled(make)
    before = snapshot(cache)
    with pytest.raises(ValueError, match=words):
        cache.plan(["a"], [3], parents=[[-1, 0, 0]])
    assert snapshot(cache) == before
    cache.plan(["a"], [3], parents=[[-1, 0, 1]])


def test_no_room_for_a_tree_changes_nothing():
    for make, error in ((rows(), kvlib.CacheFull), (blocks(4, pool=3), kvlib.OutOfBlocks)):
        cache = filled(make)
        before = snapshot(cache)
        with pytest.raises(error):
            cache.plan(["a"], [60], parents=[[-1] * 60])
        assert snapshot(cache) == before and cache._sequences["a"].tree is None


# What others find -----------------------------------------------------------------------------


def test_nothing_of_a_tree_is_found_before_it_is_kept():
    cache, rng = blocks(4)(), np.random.default_rng(5)
    cache.add("a", [1, 2, 3])
    feed(cache, cache.plan(["a"], [3], [1, 2, 3]), rng)
    tokens, tree = [4, 5, 50, 6, 60, 7, 8], [-1, 0, 0, 2, 1, 3, 5]
    feed(cache, cache.plan(["a"], [7], tokens, parents=[tree]), rng)
    assert cache.pool.num_published == 0
    cache.keep("a", [0, 2, 3, 5, 6])
    assert cache.pool.num_published == 0
    cache.settle("a")
    assert cache.add("b", [1, 2, 3, 4, 50, 6, 7, 8, 9]) == 8
    assert cache.add("c", [1, 2, 3, 4, 5, 50, 6, 60, 7]) == 4
    feed(cache, cache.plan(["c"], [4], [5, 50, 6, 60], parents=[[-1, -1, 0, 0]]), rng)
    cache.free("c")  # with the tree in it
    assert cache.add("d", [1, 2, 3, 4, 5, 50, 6, 60, 7]) == 4


def test_slots_of_any_tree():
    cache = filled(blocks(4))
    step = cache.plan(["a"], [3], parents=[[-1, 0, 0]])
    assert slot_mapping(cache, step).tolist() == [7, 8, 9], "three tokens at two positions"
