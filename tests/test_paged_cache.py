"""Sharing in the paged cache: keys that depend on the whole text before them, as real ones do, so
that a block handed to the wrong prompt shows; with copy on write, eviction and failed passes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
from caches import snapshot
from schedules import TOLERANCE

from kvlib import DenseCache, LayerSpec, Meter, OutOfBlocks
from kvlib.caches import BlockPool, HashIndex, PagedCache, RadixIndex, layer_groups
from kvlib.codecs import Codec, fp8, int8, kivi
from kvlib.testing.memory import poison_unused

LAYERS = (LayerSpec(1, 2), LayerSpec(2, 4, 3))
WINDOWS = (LayerSpec(2, 4, 3), LayerSpec(2, 4, 3, window=5))  # they draw blocks from one memory
INDEXES = {
    "hash": HashIndex,
    "hash that always collides": lambda: HashIndex(lambda before, tokens, extra: b"same"),
    "radix": RadixIndex,
}


WIDE = (LayerSpec(1, 8), LayerSpec(2, 16, 8))  # what codecs can divide
WIDE_WINDOWS = (LayerSpec(1, 8, window=9), LayerSpec(2, 16, 8, window=4))
CODECS = {
    f"{c.name}, residual {c.residual}": c
    for c in (int8(), int8(3), fp8("e4m3"), kivi(4, 4, 3), kivi(2, 2, 0))
}


@cache
def key_of(text: tuple, layer: int, layers: tuple = LAYERS) -> tuple[np.ndarray, np.ndarray]:
    """The key and value of a text's last token: another beginning, other numbers."""
    spec = layers[layer]
    rng = np.random.default_rng(zlib.crc32(repr((layer, text)).encode()))
    k = rng.standard_normal((1, spec.num_kv_heads, spec.head_dim)).astype(np.float32)
    v = rng.standard_normal((1, spec.num_kv_heads, spec.v_dim)).astype(np.float32)
    return k, v


class Life:
    """A small pool, few tokens, many requests: everything that can be shared will be."""

    def __init__(self, seed: int, index: str, codec: Codec | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.codec = codec
        kinds = (LAYERS, WINDOWS) if codec is None else (WIDE, WIDE_WINDOWS)
        self.layers = kinds[self.rng.integers(2)]
        self.size = int(self.rng.integers(1, 5))
        if codec is not None:
            self.size = codec.group * int(self.rng.integers(1, 3))
        blocks = int(self.rng.integers(4, 20)) * len(layer_groups(self.layers))
        pool = BlockPool(blocks, self.size, index=INDEXES[index]())
        self.cache = PagedCache(self.layers, pool, codec=codec, xp=np)
        for x in self.cache.storage():
            if x.dtype.kind == "f":
                x[...] = math.nan
        self.texts: dict[int, tuple[tuple, list[int]]] = {}
        self.names = iter(range(10**6))
        self.known: dict[tuple, list[np.ndarray]] = {}  # what texts give, once it is computed
        self.computed = self.found = self.refused = 0

    def play(self, operations: int) -> None:
        for _ in range(operations):
            action = self.rng.integers(10)
            if action < 3 or not self.texts:
                self.open()
            elif action < 6:
                self.grow()
            else:
                (self.fork, self.cut, self.close, self.close)[action - 6]()
            if self.rng.integers(8) == 0:
                poison_unused(self.cache)
            self.compare()
            if self.rng.integers(3) == 0:
                self.compare_published()

    def open(self) -> None:
        name, extra = next(self.names), ((), ("tenant",))[self.rng.integers(2)]
        tokens = self.rng.integers(0, 2, int(self.rng.integers(1, 14))).tolist()
        if self.codec is not None:  # longer blocks: longer texts, and more of them alike
            tokens = (self.rng.random(int(self.rng.integers(1, 26))) < 0.05).astype(int).tolist()
        held = self.cache.add(name, tokens, extra=extra)
        assert held % self.size == 0 and held < len(tokens)
        self.found += held
        self.texts[name] = (extra, tokens[:held])
        self.run(name, tokens[held:])

    def grow(self) -> None:
        self.run(self.some(), self.rng.integers(0, 2, int(self.rng.integers(1, 4))).tolist())

    def run(self, name: int, tokens: list[int]) -> None:
        """A pass over new tokens, or over some layers only, and then taken back."""
        extra, before = self.texts[name]
        try:
            step = self.cache.plan([name], [len(tokens)], tokens)
        except OutOfBlocks as error:
            assert f"request {name!r}" in str(error)
            self.refused += 1
            return
        text = before + tokens
        stop = int(self.rng.integers(3)) if self.rng.integers(6) == 0 else 2
        for layer in range(stop):
            at = range(len(before), len(text))
            rows = [key_of((extra, *text[: i + 1]), layer, self.layers) for i in at]
            k, v = (np.concatenate(parts) for parts in zip(*rows))
            self.cache.append(layer, k, v, step)
            self.attend(layer, step, name, extra, text)
        if stop < 2:
            self.end_unfinished(name, len(before))
        else:
            self.texts[name] = (extra, text)
            self.computed += len(tokens)

    def end_unfinished(self, name: int, before: int) -> None:
        """A pass that stopped halfway is taken back; or, worse, forked first, or just given up."""
        how = self.rng.integers(4)
        if how == 0:
            fork = next(self.names)
            self.cache.fork(name, fork)
            self.cache.free(fork)
        if how == 1:
            self.cache.free(name)
            del self.texts[name]
        else:
            self.cache.truncate(name, before)

    def attend(self, layer: int, step, name: int, extra: tuple, text: list[int]) -> None:
        spec = self.layers[layer]
        shape = (step.num_tokens, 2 * spec.num_kv_heads, spec.head_dim)
        q = self.rng.standard_normal(shape).astype(np.float32)
        k, v = self.expected(layer, name, extra, text)
        positions = np.arange(len(text))
        q_pos = positions[len(text) - step.num_tokens :]
        o64, lse64 = oracle.attention(q.astype(float), k, v, q_pos, positions, **spec.settings)
        o, lse = self.cache.run(layer, q, step, return_lse=True)
        np.testing.assert_allclose(o, o64, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(lse, lse64, rtol=TOLERANCE, atol=TOLERANCE)

    def fork(self) -> None:
        name, new = self.some(), next(self.names)
        self.cache.fork(name, new)
        extra, tokens = self.texts[name]
        self.texts[new] = (extra, list(tokens))

    def cut(self) -> None:
        name = self.some()
        extra, tokens = self.texts[name]
        length = int(self.rng.integers(len(tokens) + 1))
        try:
            self.cache.truncate(name, length)
        except ValueError as error:
            if "given" in str(error):  # a window has passed by
                length = 0
            else:  # into a group of codes
                assert self.codec is not None and length % self.codec.group, error
                length -= length % self.codec.group
            try:
                self.cache.truncate(name, length)
            except ValueError:
                length = 0
                self.cache.truncate(name, length)
        self.texts[name] = (extra, tokens[:length])

    def close(self) -> None:
        name = self.some()
        self.cache.free(name)
        del self.texts[name]

    def compare(self) -> None:
        self.cache.pool.check()
        size, references = self.size, [0] * self.cache.pool.num_blocks
        for name, (extra, tokens) in self.texts.items():
            assert self.cache.seq_len(name) == len(tokens)
            for group, table in zip(self.cache.groups, self.cache._sequences[name].state.tables):
                gone, window = table.freed, self.layers[group.layers[0]].window
                assert gone % size == 0 and gone <= max(0, len(tokens) - (window or 99) + 1)
                held = -(-(len(tokens) - gone) // size)
                assert len(table.pages) == held, "more blocks than the tokens need"
                for block in table.pages:
                    references[block] += 1
            layer = int(self.rng.integers(2))
            k, v, positions = self.cache.read(layer, name)
            needed = [x[positions] for x in self.expected(layer, name, extra, tokens)]
            assert positions.tolist() == list(range(len(tokens)))[len(tokens) - len(positions) :]
            assert (k == needed[0]).all() and (v == needed[1]).all(), f"keys of {name} changed"
        assert references == [self.cache.pool.ref_count(b) for b in range(len(references))]
        memory = self.cache.memory()
        parts = (memory.payload, memory.metadata, memory.wasted, memory.free)
        assert sum(parts) == memory.reserved and min(parts) >= 0
        assert memory.reserved == sum(x.nbytes for x in self.cache.storage())

    def compare_published(self) -> None:
        """Every block that could be found holds what its tokens, behind all before them, give."""
        pool, codec, nodes = self.cache.pool, self.cache.codec, self.cache.pool.index
        for block in range(pool.num_blocks):
            tokens: list[int] = []
            at, group = nodes._node_of.get(block, (None, 0))
            extra: tuple = ()
            while at is not None:
                at, part, extra = nodes.index._content[at]
                tokens = [*part, *tokens]
            ends = range(max(1, len(tokens) - self.size + 1), len(tokens) + 1)
            for layer in self.cache.groups[group].layers if tokens else ():
                store = self.cache.stores[layer]
                rows = [key_of((extra[1:], *tokens[:end]), layer, self.layers) for end in ends]
                for fields, part, tensors in zip(
                    store.both, (codec.keys, codec.values), zip(*rows)
                ):
                    needed = part.encode(np.concatenate(tensors).transpose(1, 0, 2))
                    for field, x in needed.items():
                        assert (fields.arrays[field][block] == x).all(), "another text's block"

    def expected(self, layer: int, name: int, extra: tuple, text: list[int]) -> list[np.ndarray]:
        """What the cache must hold: one-shot codes, decoded, and the newest tokens as they came."""
        coded = self.cache._sequences[name].state.num_encoded
        what = (layer, extra, tuple(text), coded)
        if what not in self.known:
            self.known[what] = self.computed_anew(*what)
        return self.known[what]

    def computed_anew(
        self, layer: int, extra: tuple, text: tuple[int, ...], coded: int
    ) -> list[np.ndarray]:
        spec, found = self.layers[layer], []
        rows = [key_of((extra, *text[: i + 1]), layer, self.layers) for i in range(len(text))]
        for n, dim in enumerate((spec.head_dim, spec.v_dim)):
            x = np.empty((len(text), spec.num_kv_heads, dim), np.float32)
            for i, row in enumerate(rows):
                x[i] = row[n]
            if self.codec is not None:
                end = coded if self.codec.waits else len(text)
                codec = (self.codec.keys, self.codec.values)[n]
                fields = codec.encode(x[:end].transpose(1, 0, 2))
                x[:end] = codec.decode(fields, np.float32).transpose(1, 0, 2)
            found.append(x.astype(float))
        return found

    def some(self) -> int:
        return list(self.texts)[self.rng.integers(len(self.texts))]


@pytest.mark.untraced
@pytest.mark.parametrize("index", INDEXES)
def test_shared_blocks_hold_what_each_request_would_have_computed(index: str, effort: Any) -> None:
    seeds = effort.share("lives of shared blocks", range(35), usual=14, quick=5)
    lives = [Life(seed, index) for seed in seeds]
    for life in lives:
        life.play(100)
    assert sum(life.found for life in lives) > 5 * len(lives), "hardly anything was shared"
    assert sum(life.refused for life in lives) > 2 * len(lives), "the pools hardly ever ran out"


@pytest.mark.untraced
@pytest.mark.parametrize("name", CODECS)
def test_shared_blocks_of_codes(name: str, effort: Any) -> None:
    seeds = effort.share("lives of shared codes", range(8), usual=4, quick=2)
    lives = [Life(seed, "hash", CODECS[name]) for seed in seeds]
    for life in lives:
        life.play(60)
    assert sum(life.found for life in lives) > 2 * len(lives), "hardly anything was shared"


def fill(cache: PagedCache, name: Hashable, tokens: list[int], extra: tuple = ()) -> int:
    """Open a request on a prompt and run what is not held; returns how many were held."""
    held = cache.add(name, tokens, extra=extra)
    step = cache.plan([name], [len(tokens) - held], tokens[held:])
    for layer in range(len(LAYERS)):
        rows = [key_of((extra, *tokens[: i + 1]), layer) for i in range(held, len(tokens))]
        k, v = (np.concatenate(parts) for parts in zip(*rows))
        cache.append(layer, k, v, step)
    return held


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_a_fully_cached_prompt_still_computes_a_token(length: int) -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 4), xp=np)
    prompt = list(range(length))
    assert fill(cache, "a", prompt) == 0
    cache.free("a")
    held = fill(cache, "b", prompt)
    assert held == (length - 1) // 4 * 4 < length
    assert cache.seq_len("b") == length


def test_a_block_is_published_only_when_its_step_cannot_be_taken_back() -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 2), xp=np)
    fill(cache, "a", [1, 2, 3, 4, 5])
    assert cache.pool.num_published == 0, "the step may still be truncated"
    fill_more(cache, "a", [1, 2, 3, 4, 5], [6])
    assert cache.pool.num_published == 2
    cache.free("a")
    assert cache.pool.num_published == 3


def fill_more(cache: PagedCache, name: Hashable, before: list[int], tokens: list[int]) -> None:
    step, text = cache.plan([name], [len(tokens)], tokens), before + tokens
    for layer in range(len(LAYERS)):
        rows = [key_of(((), *text[: i + 1]), layer) for i in range(len(before), len(text))]
        k, v = (np.concatenate(parts) for parts in zip(*rows))
        cache.append(layer, k, v, step)


def test_an_unfinished_pass_is_never_published() -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 2), xp=np)
    cache.add("a", [1, 2, 3, 4])
    cache.plan(["a"], [4], [1, 2, 3, 4])  # no layer appends
    cache.free("a")
    assert cache.pool.num_published == 0
    assert cache.add("b", [1, 2, 3, 4]) == 0


def test_fork_copies_nothing_until_somebody_writes() -> None:
    cache = PagedCache(LAYERS, BlockPool(8, 4), xp=np)
    fill(cache, "a", [1, 2, 3, 4, 5, 6])
    with Meter() as meter:
        cache.fork("a", "b")
        cache.fork("a", "c")
    assert meter.copied == 0 and cache.blocks("a") == cache.blocks("b") == cache.blocks("c")
    assert cache.pool.num_free == 6
    with Meter() as meter:
        fill_more(cache, "b", [1, 2, 3, 4, 5, 6], [9])
    two_tokens = 2 * sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in LAYERS)
    assert meter.by_label["copy on write"].copied == two_tokens
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
    assert meter.by_label["copy on write"].copied == 2 * meter_of_tokens(3)
    assert cache.blocks("c") == block and cache.pool.num_free == 0
    assert len({cache.blocks(name) for name in "abc"}) == 3


def meter_of_tokens(n: int) -> int:
    return n * sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in LAYERS)


def test_forks_of_a_published_block_all_copy() -> None:
    cache = PagedCache(LAYERS, BlockPool(4, 4), xp=np)
    fill(cache, "a", [1, 2, 3, 4])
    fill_more(cache, "a", [1, 2, 3, 4], [5])
    cache.truncate("a", 3)
    cache.fork("a", "b")
    (block,) = cache.blocks("a")
    cache.plan(["b", "a"], [1, 1], [6, 7])
    assert block not in {*cache.blocks("a"), *cache.blocks("b")}
    cache.truncate("a", 0)
    cache.truncate("b", 0)
    assert cache.add("c", [1, 2, 3, 4, 5]) == 4
    assert cache.blocks("c") == (block,)


@pytest.mark.parametrize("appended", [0, 1])
@pytest.mark.parametrize("after", ["free", "fork", "truncate", "plan"])
def test_what_an_unfinished_pass_left_is_never_found(appended: int, after: str) -> None:
    cache = PagedCache(LAYERS, BlockPool(16, 2), xp=np)
    cache.add("a")
    step = cache.plan(["a"], [4], [1, 2, 3, 4])
    for layer in range(appended):
        k, v = (np.repeat(x, 4, axis=0) for x in key_of((1,), layer))
        cache.append(layer, k, v, step)
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
    before = snapshot(cache)
    with pytest.raises(ValueError, match="cannot go back to 10 tokens"):
        cache.truncate("a", 10)
    assert snapshot(cache) == before
    cache.truncate("a", 4)
    step = cache.plan(["a"], [76], text[4:])
    for layer in range(2):
        cache.append(layer, ones, ones, step)
    cache.settle("a")
    assert cache.pool.num_published == 10


def test_a_pool_serves_one_cache() -> None:
    pool = BlockPool(4, 4)
    PagedCache(LAYERS, pool, xp=np)
    with pytest.raises(ValueError, match="pool must be unused, .*make one for each cache"):
        PagedCache(LAYERS, pool, xp=np)


def test_tenants_that_python_takes_for_equal_share_nothing() -> None:
    for index in INDEXES.values():
        cache = PagedCache(LAYERS, BlockPool(16, 2, index=index()), xp=np)
        for i, extra in enumerate([(1,), (True,), (1.0,), ("1",), ((1,),), ((True,),), ()]):
            assert fill(cache, i, [1, 2, 3], extra=extra) == 0
            cache.free(i)
            assert cache.add(i, [1, 2, 3], extra=extra) == 2


def test_what_is_no_token_or_no_tuple_is_refused() -> None:
    cache = PagedCache(LAYERS, BlockPool(4, 2), xp=np)
    with pytest.raises(TypeError, match="token ids, whole numbers, got 1.5"):
        cache.add("a", [1, 1.5])
    with pytest.raises(TypeError, match=r"tuple of keys, such as \('tenant',\), got 'tenant'"):
        cache.add("a", [1], extra="tenant")
    cache.add("a", [np.int32(1), 2, 3])
    with pytest.raises(TypeError, match="got '3'"):
        cache.plan(["a"], [3], [1, 2, "3"])
    assert cache.seq_len("a") == 0 and cache.pool.num_free == 4


def test_out_of_blocks_names_request_and_shortage_and_changes_nothing() -> None:
    cache = PagedCache(LAYERS, BlockPool(3, 4), xp=np)
    fill(cache, "a", [1, 2, 3, 4])
    cache.add("b", [5])
    before = (cache.blocks("a"), cache.blocks("b"), cache.pool.num_free)
    words = r"request 'b' holds 0 tokens and 9 more .* lacks 2 blocks of 4 tokens \(2 of 3"
    with pytest.raises(OutOfBlocks, match=words):
        cache.plan(["a", "b"], [1, 9])
    assert (cache.blocks("a"), cache.blocks("b"), cache.pool.num_free) == before
    assert cache.seq_len("a") == 4


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


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: PagedCache(LAYERS, 16), TypeError, "pool must be a BlockPool, got an int"),
        (lambda: used_twice(), ValueError, "pool must be unused"),
    ],
)
def test_bad_pools_are_refused(make, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        make()


def used_twice() -> PagedCache:
    pool = BlockPool(4, 4)
    fill(PagedCache(LAYERS, pool, xp=np), "a", [1])
    return PagedCache(LAYERS, pool, xp=np)
