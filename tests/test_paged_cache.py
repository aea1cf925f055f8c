"""Sharing in the paged cache, with keys that depend on the whole text, as real ones do."""

from typing import Any

import numpy as np
import pytest
from caches import refused
from killers_lives import CODED, FULL, SHAPES, Life, paged
from killers_shared import INDEXES, fill, fill_more, rows

from kvlib import DenseCache, LayerSpec, Meter, OutOfBlocks
from kvlib.caches import BlockPool, Blocks, PagedCache, Rows, StoredCache
from kvlib.codecs import fp8, int8, kivi

LAYERS = FULL
CODECS = {
    f"{c.name}, residual {c.residual}": c
    for c in (int8(), int8(3), fp8("e4m3"), kivi(4, 4, 3), kivi(2, 2, 0))
}


@pytest.mark.untraced
@pytest.mark.parametrize("index", INDEXES)
def test_shared_blocks_hold_what_each_request_would_have_computed(index: str, effort: Any) -> None:
    seeds = effort.share("lives of shared blocks", range(35), usual=14, quick=5)
    lives = [Life(s, paged(s, (FULL, SHAPES)[s % 2], INDEXES[index])) for s in seeds]
    for life in lives:
        life.play(100)
    assert sum(life.found for life in lives) > 5 * len(lives), "hardly anything was shared"
    assert sum(life.refused for life in lives) > 2 * len(lives), "the pools hardly ever ran out"


@pytest.mark.untraced
@pytest.mark.parametrize("name", CODECS)
def test_shared_blocks_of_codes(name: str, effort: Any) -> None:
    seeds = effort.share("lives of shared codes", range(8), usual=4, quick=2)
    lives = [Life(seed, paged(seed, CODED, INDEXES["hash"], CODECS[name])) for seed in seeds]
    for life in lives:
        life.play(60)
    assert sum(life.found for life in lives) > 2 * len(lives), "hardly anything was shared"


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_a_fully_cached_prompt_still_computes_a_token(length: int) -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 4), xp=np)
    prompt = list(range(length))
    assert fill(cache, "a", prompt) == 0
    cache.free("a")
    held = fill(cache, "b", prompt)
    assert held == (length - 1) // 4 * 4 < length
    assert cache.seq_len("b") == length


def bytes_of(tokens: int) -> int:
    return tokens * sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in LAYERS)


def test_fork_copies_nothing_until_a_write() -> None:
    cache = PagedCache(LAYERS, BlockPool(8, 4), xp=np)
    fill(cache, "a", [1, 2, 3, 4, 5, 6])
    with Meter() as meter:
        cache.fork("a", "b")
        cache.fork("a", "c")
    assert meter.copied == 0 and cache.blocks("a") == cache.blocks("b") == cache.blocks("c")
    assert cache.pool.num_free == 6
    with Meter() as meter:
        fill_more(cache, "b", [1, 2, 3, 4, 5, 6], [9])
    assert meter.by_label["copy on write"].copied == bytes_of(2)
    assert cache.blocks("b")[0] == cache.blocks("a")[0]
    assert cache.blocks("b")[1] != cache.blocks("a")[1] == cache.blocks("c")[1]
    fill_more(cache, "a", [1, 2, 3, 4, 5, 6], [7])
    with Meter() as meter:
        fill_more(cache, "c", [1, 2, 3, 4, 5, 6], [8])  # the last one writes where it is
    assert meter.copied == 0


def test_the_last_of_several_forks_needs_no_copy() -> None:
    cache = PagedCache(LAYERS, BlockPool(3, 4), xp=np)
    fill(cache, "a", [1, 2, 3])
    cache.fork("a", "b")
    cache.fork("a", "c")
    block = cache.blocks("a")
    with Meter() as meter:
        cache.plan(["a", "b", "c"], [1, 1, 1])  # two free blocks are enough
    assert meter.by_label["copy on write"].copied == 2 * bytes_of(3)
    assert cache.blocks("c") == block and cache.pool.num_free == 0
    assert len({cache.blocks(name) for name in "abc"}) == 3


@pytest.mark.parametrize("appended", [0, 1])
@pytest.mark.parametrize("after", ["free", "fork", "truncate", "plan"])
def test_blocks_of_an_unfinished_pass_are_never_found(appended: int, after: str) -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 2), xp=np)
    cache.add("a")
    step = cache.plan(["a"], [4], [1, 2, 3, 4])
    for layer in range(appended):
        cache.append(layer, *rows(cache, layer, [1, 2, 3, 4], 0), step)
    if after == "fork":
        cache.fork("a", "b")
        cache.free("b")
    if after == "truncate":
        cache.truncate("a", 4)
    if after == "plan":
        cache.plan(["a"], [1], [5])
    cache.free("a")
    assert cache.pool.num_published == 0
    assert cache.add("c", [1, 2, 3, 4, 5, 6]) == 0


def test_a_truncation_that_is_refused_forgets_no_token() -> None:
    cache = PagedCache(
        [LayerSpec(1, 8)] * 2, BlockPool(16, 8), codec=kivi(4, group=8, residual=0), xp=np
    )
    cache.add("a")
    ones, text = np.ones((76, 1, 8), np.float32), list(range(80))  # too long for a step of guesses
    step = cache.plan(["a"], [4], text[:4])
    for layer in range(2):
        cache.append(layer, ones[:4], ones[:4], step)
    step = cache.plan(["a"], [76], text[4:])
    cache.append(0, ones, ones, step)  # and then the pass fails
    refused(cache, ValueError, "cannot be truncated to 10 tokens", lambda: cache.truncate("a", 10))
    cache.truncate("a", 4)
    step = cache.plan(["a"], [76], text[4:])
    for layer in range(2):
        cache.append(layer, ones, ones, step)
    cache.settle("a")
    assert cache.pool.num_published == 10


def test_tenants_that_python_takes_for_equal_share_nothing() -> None:
    for index in INDEXES.values():
        cache = PagedCache(LAYERS, BlockPool(16, 2, index=index()), xp=np)
        for i, extra in enumerate([(1,), (True,), (1.0,), ("1",), ((1,),), ((True,),), ()]):
            assert fill(cache, i, [1, 2, 3], extra=extra) == 0
            cache.free(i)
            assert cache.add(i, [1, 2, 3], extra=extra) == 2


def test_out_of_blocks_names_request_and_shortage_and_changes_nothing() -> None:
    cache = PagedCache(LAYERS, BlockPool(3, 4), xp=np)
    fill(cache, "a", [1, 2, 3, 4])
    cache.add("b", [5])
    words = r"request 'b' holds 0 tokens and 9 more .* lacks 2 blocks of 4 tokens \(2 of 3"
    refused(cache, OutOfBlocks, words, lambda: cache.plan(["a", "b"], [1, 9]))


def test_waste_is_less_than_a_block_a_request() -> None:
    rng = np.random.default_rng(5)
    spec = [LayerSpec(2, 8)] * 2
    lengths = rng.integers(1, 60, 12).tolist()
    dense = DenseCache(spec, 12, 64, xp=np)
    paged = PagedCache(spec, BlockPool(64, 16), xp=np)
    for name, length in enumerate(lengths):
        for kind in (dense, paged):
            kind.add(name)
            kind.plan([name], [length])
    a_token = 2 * 2 * 2 * 8 * 4
    waste = [-length % 16 for length in lengths]
    assert paged.memory().wasted == a_token * sum(waste)
    assert max(waste) <= 15
    assert dense.memory().wasted == a_token * sum(64 - n for n in lengths)
    assert paged.memory().payload == dense.memory().payload


def test_a_pool_is_a_block_pool_of_one_cache() -> None:
    with pytest.raises(TypeError, match="pool must be a BlockPool, got an int"):
        PagedCache(LAYERS, 16)
    pool = BlockPool(4, 4)
    cache = PagedCache(LAYERS, pool, xp=np)
    for _ in range(2):
        with pytest.raises(ValueError, match="pool must be unused, .*make one for each cache"):
            PagedCache(LAYERS, pool, xp=np)
        fill(cache, "a", [1])
        cache.free("a")


@pytest.mark.parametrize("make", [lambda: Rows(2, 64), lambda: Blocks(BlockPool(4, 16))])
def test_an_allocator_serves_one_cache(make: Any) -> None:
    allocator = make()
    cache = StoredCache(LAYERS, allocator, xp=np)
    groups = allocator.groups
    with pytest.raises(ValueError, match="allocator must serve no other cache: make one for each"):
        StoredCache([LayerSpec(2, 8, window=8)], allocator, xp=np)
    assert allocator.groups is groups
    fill(cache, "a", [1, 2])


def test_a_cache_that_is_refused_leaves_its_pool_unused() -> None:
    pool = BlockPool(4, 32)
    with pytest.raises(ValueError, match="do not fill whole bytes"):
        PagedCache([LayerSpec(1, 7)], pool, codec="int4", xp=np)
    assert PagedCache([LayerSpec(1, 7)], pool, codec="int8", xp=np).add("a") == 0
