"""Quest reads the blocks that its definition says, computed in float64, and loses no token."""

from typing import Any

import array_api_strict
import numpy as np
import oracle
import pytest
from caches import poison_all
from schedules import close

from kvlib import BlockPool, DenseCache, LayerSpec, Meter, PagedCache
from kvlib.caches import KNorm, Quest, Scored, Sinks
from kvlib.caches.retention.quest import page_scores
from kvlib.caches.store import bounds_of
from kvlib.codecs import bfloat16, fp8, int8, kivi
from kvlib.errors import OutOfBlocks
from kvlib.testing.memory import poison_unused
from kvlib.testing.rounding import sum_bound

HEADS, GROUP, DIM = 2, 3, 16
SPEC = LayerSpec(HEADS, DIM)


def quest(budget: int = 8, size: int = 4, blocks: int = 60, **more: Any) -> PagedCache:
    """A cache full of NaN whose layers all choose."""
    layers = more.pop("layers", [SPEC])
    attention = Quest(budget, more.pop("dense_layers", 0))
    cache = PagedCache(layers, BlockPool(blocks, size), attention=attention, xp=np, **more)
    poison_all(cache)
    return cache


def chosen(cache: Any, layer: int, name: Any, q: np.ndarray) -> np.ndarray:
    """Which stored tokens each kv head reads for q (Hq, Dk), by the definition: (Hkv, n) int."""
    spec, size = cache.layers[layer], cache.block_size
    k = cache.read(layer, name)[0].astype(np.float64)
    state = cache._sequences[name].state
    gone = state.tables[cache.group_of[layer]].freed
    coded = state.num_paged - gone
    pages, found = -(-coded // size), []
    most = cache.attention.budget // size
    for head in range(spec.num_kv_heads):
        scores = np.empty(max(0, pages - 1))
        rows = q.reshape(spec.num_kv_heads, -1, q.shape[1])[head].astype(np.float64)
        for page in range(len(scores)):
            keys = k[page * size : (page + 1) * size, head]
            each = np.maximum(rows * keys.max(axis=0), rows * keys.min(axis=0)).sum(axis=1)
            scores[page] = each.mean()
        taken = sorted(np.argsort(-scores, kind="stable")[: most - 1]) if pages > most else []
        taken = [*taken, pages - 1] if pages > most else range(pages)
        read = [t for page in taken for t in range(page * size, min(coded, (page + 1) * size))]
        found.append([*read, *range(coded, len(k))])
    return np.array(found)


def check(cache: Any, layer: int, step: Any, rng: Any) -> int:
    """`run` against float64 over what each request should read; how many read a part alone."""
    spec, some = cache.layers[layer], 0
    q = rng.standard_normal((step.num_tokens, GROUP * spec.num_kv_heads, spec.head_dim))
    q = q.astype(np.float32)
    o, lse = cache.run(layer, q, step, return_lse=True)
    for i, name in enumerate(step.seq_ids):
        rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
        k, v, positions = cache.read(layer, name)
        dense = layer < cache.attention.dense_layers or spec.window is not None
        if step.appends and step.q_lens[i] == 1 and not dense:
            which = chosen(cache, layer, name, q[rows][0])
            some += which.shape[1] < k.shape[0]
            heads = np.arange(spec.num_kv_heads)[:, None]
            k, v = (x[which, heads].transpose(1, 0, 2) for x in (k, v))
            positions = np.zeros(which.shape[1], dtype=np.int64)
        needed = oracle.attention(q[rows], k, v, step.positions[rows], positions, **spec.settings)
        close(o[rows], needed[0], f"o of {name}")
        close(lse[rows], needed[1], f"lse of {name}")
    return some


def forward(cache: Any, names: list[Any], q_lens: list[int], rng: Any, tokens: Any = None) -> Any:
    step = cache.plan(names, q_lens, tokens)
    for layer, spec in enumerate(cache.layers):
        shape = (step.num_tokens, spec.num_kv_heads)
        k, v = (rng.standard_normal((*shape, d)) for d in (spec.head_dim, spec.v_dim))
        k, v = k.astype(np.float32), v.astype(np.float32)
        cache.append(layer, k, None if spec.v_from_k else v, step)
    return step


def test_no_key_of_a_page_scores_more_than_its_bound() -> None:
    rng = np.random.default_rng(0)
    for dim in (1, 8, 64):
        q = rng.standard_normal((2, 1, dim)) * rng.choice([0, 1, 3], (2, 1, dim))
        keys = rng.standard_normal((2, 5, 7, dim)) + rng.standard_normal(dim)
        bounds = bounds_of(keys).transpose(1, 0, 2)
        scores = np.einsum("hgd,hnsd->hns", q, keys)
        assert (page_scores(q, bounds)[:, :, None] >= scores - sum_bound(dim, 9.0, 2e-16)).all()
        one = bounds_of(keys[:, :, :1]).transpose(1, 0, 2)
        np.testing.assert_allclose(page_scores(q, one), scores[:, :, 0], rtol=0, atol=1e-12)
        wide = rng.standard_normal((2, 4, dim))  # several query heads: the mean of their bounds
        each = [page_scores(wide[:, g : g + 1], bounds) for g in range(4)]
        np.testing.assert_allclose(page_scores(wide, bounds), np.mean(each, axis=0), atol=1e-12)


CODECS = {"plain": None, "int8": int8(), "fp8": fp8(), "bf16": bfloat16(), "kivi": kivi(4, 4, 3)}


@pytest.mark.untraced
@pytest.mark.parametrize(("codec", "size", "rule"), [
    ("plain", 1, None), ("plain", 4, None), ("plain", 4, Sinks(2, 15)), ("int8", 4, None),
    ("int8", 64, None), ("fp8", 4, Sinks(1, 17, every=3)), ("bf16", 4, None), ("kivi", 4, None),
    ("kivi", 8, None),
])  # fmt: skip
def test_any_life(codec: str, size: int, rule: Any, effort: Any) -> None:
    found = 0
    for seed in effort.share("lives under Quest", range(12), usual=2, quick=2):
        rng = np.random.default_rng(seed)
        layers = [
            LayerSpec(HEADS, 8, 24),
            LayerSpec(1, 8, v_from_k=True, sm_scale=0.7, softcap=1.5),
            LayerSpec(HEADS, DIM, sinks=rng.standard_normal(HEADS * GROUP).astype(np.float32)),
            *([] if rule else [LayerSpec(HEADS, DIM, window=7)]),
        ]
        budget, blocks, dense = 2 * size + int(rng.integers(size)), 400 // size, int(seed % 2)
        cache = quest(budget, size, blocks, layers=layers, codec=CODECS[codec], retention=rule,
                      dense_layers=dense)  # fmt: skip
        texts, names = (
            [rng.integers(0, 9, 40 + 5 * size).tolist() for _ in range(2)],
            iter(range(99)),
        )
        known: dict[int, list[int]] = {}

        def begin(text: list[int], names: Any = names, known: Any = known, cache: Any = cache):
            name = next(names)
            cache.add(name, text)
            known[name] = text

        begin(texts[0])
        for _ in range(14):
            action = rng.integers(8)
            name = int(rng.choice(list(known)))
            if action == 0 and len(known) < 4:
                begin(texts[rng.integers(2)])
            elif action == 1 and len(known) < 4:
                other = next(names)
                cache.fork(name, other)
                known[other] = known[name]
            elif action == 2:
                length = int(rng.integers(cache.seq_len(name) + 1))
                try:
                    cache.truncate(name, length - length % 4)
                except ValueError:
                    assert rule is not None or codec == "kivi" or layers[-1].window
            elif action == 3 and len(known) > 1:
                cache.free(name)
                del known[name]
            poison_unused(cache)
            some = rng.permutation(list(known))[: rng.integers(1, len(known) + 1)].tolist()
            prefill = 3 * size if size > 8 else 20
            lens = [int(rng.choice([1, 1, 1, 3, prefill])) for _ in some]
            lens = [prefill if cache.seq_len(s) == 0 else n for s, n in zip(some, lens)]
            at = [(known[s], cache.seq_len(s), n) for s, n in zip(some, lens)]
            tokens = [t for text, a, n in at for t in text[a : a + n]]
            if len(tokens) < sum(lens):
                continue
            try:
                step = forward(cache, some, lens, rng, tokens)
            except OutOfBlocks:
                continue
            poison_unused(cache)
            for layer in range(len(layers)):
                found += check(cache, layer, step, rng)
            check(cache, 1, step.last(), rng)
            memory = cache.memory()
            assert memory.reserved == sum(x.nbytes for x in cache.storage())
            assert min(memory.wasted, memory.free) >= 0
        cache.pool.check()
    assert found, "every step read everything"


def at_work(cache: PagedCache, tokens: int, seed: int = 0, layers: Any = (0,)) -> Any:
    """A request "a" of so many tokens and one more, as a decode step; q (1, Hq, D) and the step."""
    rng = np.random.default_rng(seed)
    cache.add("a")
    forward(cache, ["a"], [tokens], rng)
    step = forward(cache, ["a"], [1], rng)
    return rng.standard_normal((1, HEADS * GROUP, DIM)).astype(np.float32), step


@pytest.mark.parametrize("size", [4, 64])
def test_with_a_budget_for_all_it_is_exact_attention(size: int) -> None:
    rng, caches = np.random.default_rng(1), []
    for attention in (Quest(6 * size, 0), None):
        cache = PagedCache([SPEC], BlockPool(40, size), attention=attention, xp=np)
        caches.append(cache)
        for name in "ab":
            cache.add(name)
    for q_lens in ([5 * size, 2], [1, 1], [1, 3], [size - 2, 1]):
        x = rng.standard_normal((3, sum(q_lens), HEADS * GROUP, DIM)).astype(np.float32)
        found = []
        for cache in caches:
            step = cache.plan(["a", "b"], q_lens)
            cache.append(0, x[0, :, :HEADS], x[1, :, :HEADS], step)
            found.append(cache.run(0, x[2], step, return_lse=True))
        for one, other in zip(*found, strict=True):
            assert (one == other).all()


def test_it_reads_a_part_of_the_bytes_and_loses_nothing() -> None:
    size, dim = 16, 64
    spec = LayerSpec(2, dim)
    cache = PagedCache([spec], BlockPool(70, size), attention=Quest(256, 0), xp=np)
    rng = np.random.default_rng(0)
    cache.add("a")
    step = forward(cache, ["a"], [1024], rng)
    q = rng.standard_normal((1024, 8, dim)).astype(np.float32)
    with Meter() as prefill:
        cache.run(0, q, step)
    step = forward(cache, ["a"], [1], rng)
    before = [x.copy() for x in cache.read(0, "a")]
    with Meter() as meter:
        cache.run(0, q[:1], step)
    token = 2 * 2 * dim * 4  # bytes: a key and a value of two heads
    assert meter.by_label["attention"].read == (256 - 16 + 1) * token
    assert meter.by_label["bounds"].read == 64 * token + 1 * 16 * token // 2  # and block 64's keys
    assert meter.by_label["bounds"].written == token
    assert prefill.by_label["bounds"].read == 63 * 16 * token // 2
    with Meter() as meter:
        cache.run(0, q[:1], step)
    assert meter.read == (64 + 241) * token and meter.copied == 0
    for was, now in zip(before, cache.read(0, "a"), strict=True):
        assert (was == now).all()
    memory = cache.memory()
    assert memory.metadata == 64 * token and memory.payload == 1025 * token


def test_bounds_are_those_of_the_keys_that_are_there_now() -> None:
    """After a truncate into a full block, in a block that another request had, and after a copy."""
    rng = np.random.default_rng(3)
    cache = quest(budget=12, size=4, blocks=14)
    cache.add("a")
    forward(cache, ["a"], [23], rng)
    for back in (21, 18, 10, 9, 6, 2, 1):  # each rewrites full blocks whose bounds were known
        assert check(cache, 0, forward(cache, ["a"], [1], rng), rng)
        cache.truncate("a", back)
        poison_unused(cache)
        for n in [23 - back] if back % 2 else [1] * (23 - back):
            forward(cache, ["a"], [n], rng)
    cache.fork("a", "b")
    cache.truncate("b", 18)  # in the middle of a block that a holds too
    for _ in range(3):
        step = forward(cache, ["a", "b"], [1, 1], rng)
        poison_unused(cache)
        assert check(cache, 0, step, rng) == 2
    cache.free("a")
    poison_unused(cache)
    cache.add("c")
    for n in (25, 1, 1):  # in the blocks that a had
        assert (check(cache, 0, forward(cache, ["c"], [n], rng), rng) == 1) == (n == 1)
    cache.pool.check()


def test_a_prefix_that_is_found_again_brings_its_bounds() -> None:
    rng, tokens = np.random.default_rng(4), list(range(40))
    cache = quest(budget=8, size=4)
    cache.add("a", tokens)
    cache.run(0, np.ones((40, 6, DIM), np.float32), forward(cache, ["a"], [40], rng, tokens))
    cache.free("a")
    poison_unused(cache)
    assert cache.add("b", tokens) == 36
    step = forward(cache, ["b"], [4], rng, tokens[36:])
    with Meter() as meter:
        check(cache, 0, step, rng)
    assert "bounds" not in meter.by_label
    assert check(cache, 0, forward(cache, ["b"], [1], rng, [7]), rng) == 1


def test_the_first_layers_and_those_with_a_window_read_all() -> None:
    layers = [SPEC, SPEC, LayerSpec(HEADS, DIM, window=30), SPEC]
    cache = PagedCache(layers, BlockPool(80, 4), attention=Quest(8), xp=np)
    q, step = at_work(cache, 40)
    read = []
    for layer in range(4):
        with Meter() as meter:
            cache.run(layer, q, step)
        read.append(meter.by_label["attention"].read // (2 * HEADS * DIM * 4))
    assert read[:2] == [41, 41] and 30 <= read[2] <= 33 and read[3] == 5


def test_what_cannot_be_combined_is_said() -> None:
    with pytest.raises(TypeError, match=r"blocks of a PagedCache, and a DenseCache has none"):
        DenseCache([SPEC], 1, 40, attention=Quest(64))
    pool = BlockPool(40, 16)
    with pytest.raises(
        ValueError, match=r"budget must hold a block, .* have 16 tokens here, got 9"
    ):
        PagedCache([SPEC], pool, attention=Quest(9))
    with pytest.raises(ValueError, match=r"Scored, which frees memory"):
        PagedCache([SPEC], pool, attention=Quest(32), retention=Scored(KNorm(), 32))
    PagedCache([SPEC], pool, attention=Quest(32))  # a refused cache leaves the pool free
    late = DenseCache([SPEC], 1, 40, xp=np)
    late.attention = Quest(64, 0)
    q, step = at_work(late, 5)
    with pytest.raises(TypeError, match="a DenseCache has none"):
        late.run(0, q, step)


def test_a_cache_that_attended_otherwise_before_may_begin_to_choose() -> None:
    cache = PagedCache([SPEC, SPEC], BlockPool(60, 4), xp=np)
    _, step = at_work(cache, 50)
    cache.attention = Quest(8, 1)
    reserved = cache.memory().reserved
    assert check(cache, 1, step, np.random.default_rng(0)) == 1
    assert cache.memory().reserved == reserved + 60 * 2 * HEADS * DIM * 4


def test_the_standard_alone() -> None:
    found = []
    for xp in (np, array_api_strict):
        cache = PagedCache([SPEC], BlockPool(30, 4), attention=Quest(12, 0), xp=xp)
        rng = np.random.default_rng(5)
        cache.add("a")
        for n in (21, 1, 2, 1):
            step = cache.plan(["a"], [n])
            x = rng.standard_normal((3, n, HEADS * GROUP, DIM)).astype(np.float32)
            q, k, v = x[0], x[1, :, :HEADS], x[2, :, :HEADS]
            cache.append(0, xp.asarray(k.copy()), xp.asarray(v.copy()), step)
            o = cache.run(0, xp.asarray(q.copy()), step)
        found.append(np.asarray(o))
    assert abs(found[0] - found[1]).max() < sum_bound(DIM + 12, 4.0)
