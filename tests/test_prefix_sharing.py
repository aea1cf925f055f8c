"""Who shares which blocks, and what it costs to find out."""

import numpy as np
import pytest
from killers_lives import FULL as LAYERS
from killers_shared import INDEXES, check_content, fill_more

from kvlib import LayerSpec, Meter
from kvlib.caches import BlockPool, KNorm, PagedCache, RadixIndex, Scored, Sinks
from kvlib.codecs import int8


class Counted(int):
    """A token that counts how many times it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other


def test_a_child_is_found_without_a_look_at_its_siblings() -> None:
    pool, size, found = BlockPool(600, 4, index=RadixIndex()), 4, {}
    for siblings in (2, 500):
        while pool.num_published < siblings:
            (block,) = pool.allocate(1)
            assert pool.publish(block, None, [0, block, 7, 7])
        for token in (1, siblings - 1, siblings + 50):
            Counted.compared = 0
            known = pool.lookup([Counted(t) for t in (0, token, 7, 7)])
            assert len(known) == (token < siblings)
            found[siblings, len(known)] = Counted.compared
    assert found[500, 1] <= found[2, 1] + size and found[500, 0] <= found[2, 0] + size


def test_siblings_leave_one_by_one() -> None:
    pool = BlockPool(4, 2, index=RadixIndex())
    blocks = pool.allocate(4)
    for token, block in enumerate(blocks):
        assert pool.publish(block, None, [0, token])
    pool.free(blocks)
    for gone, block in enumerate(reversed(blocks)):  # the last of them goes first
        assert pool.allocate(1) == [block]
        left = [pool.lookup([0, token]) for token in range(4)]
        assert left == [[b] for b in blocks[: 3 - gone]] + [[]] * (gone + 1)
    assert pool.index._children == {}


def test_hashes_of_blocks_that_are_gone_are_not_kept() -> None:
    pool = BlockPool(4, 2)
    for token in range(20):
        (block,) = pool.allocate(1)
        assert pool.publish(block, None, [7, token])
        pool.free([block])
    assert len(pool.index._blocks) == len(pool.index) == 4


def together(cache: PagedCache, texts: dict[str, list[int]]) -> None:
    """Open all before any is computed, as requests do that arrive at once; then one pass each."""
    for name, tokens in texts.items():
        assert cache.add(name, tokens) == 0
    for name, tokens in texts.items():
        compute(cache, name, tokens)


def compute(cache: PagedCache, name: str, text: list[int]) -> None:
    """Feed what is missing of a text."""
    held = cache.seq_len(name)
    fill_more(cache, name, text[:held], text[held:])


COMMON = list(range(32))
A, B = [*COMMON, *range(40, 64)], [*COMMON, *range(70, 94)]  # 56 tokens each


@pytest.mark.parametrize("index", INDEXES)
def test_the_later_blocks_of_a_twin_are_found(index: str) -> None:
    cache = PagedCache(LAYERS, BlockPool(32, 8, index=INDEXES[index]()), xp=np)
    together(cache, {"a": A, "b": B})
    for name in "ab":
        cache.free(name)
        cache.pool.check()
    for name, text in (("a", A), ("b", B)):
        assert cache.add(name, [*text, 99]) == 56
        check_content(cache, name, text)
    assert cache.blocks("a")[:4] == cache.blocks("b")[:4]


def test_a_twin_takes_the_block_that_can_be_found_and_gives_its_own_back() -> None:
    cache = PagedCache(LAYERS, BlockPool(32, 8), xp=np)
    together(cache, {"a": A, "b": B})
    assert cache.pool.num_free == 32 - 14 and not {*cache.blocks("a")} & {*cache.blocks("b")}
    compute(cache, "a", [*A, 1])
    compute(cache, "b", [*B, 1])
    cache.pool.check()
    assert cache.blocks("a")[:4] == cache.blocks("b")[:4]
    assert cache.pool.num_free == 32 - 4 - 4 - 4  # the common ones once, four of each alone
    for name, text in (("a", A), ("b", B)):
        check_content(cache, name, [*text, 1])
    cache.free("a")  # what b's blocks hang below stays, as b holds it
    assert len(cache.pool.allocate(cache.pool.num_free)) == 32 - 8
    check_content(cache, "b", [*B, 1])
    assert len(cache.pool.lookup(B)) == 7


def test_a_twin_that_a_fork_holds_stays_and_what_is_behind_it_is_found() -> None:
    """Blocks change hands for one holder alone: a fork must not lose those that it shares."""
    cache = PagedCache(LAYERS, BlockPool(40, 8), xp=np)
    together(cache, {"a": A, "b": B})
    cache.fork("b", "c")
    compute(cache, "a", [*A, 1])
    cache.free("a")
    compute(cache, "b", [*B, 1])
    cache.pool.check()
    assert cache.blocks("b")[:7] == cache.blocks("c")
    assert len(cache.pool.lookup(B)) == 7, "four blocks of a, and three of b behind them"
    cache.pool.allocate(cache.pool.num_free)  # the published twins are evicted
    for name in "bc":
        check_content(cache, name, B if name == "c" else [*B, 1])
    cache.free("c")
    cache.free("b")
    cache.pool.check()
    assert len(cache.pool.lookup(B)) == 7


@pytest.mark.parametrize("codec", [None, int8(), int8(3)], ids=["plain", "int8", "3 wait"])
@pytest.mark.parametrize("back", ["a pass that failed", "a part of a pass", "all of a pass"])
def test_what_is_taken_back_and_given_again_can_be_found(codec, back: str) -> None:
    text, x = list(range(12)), np.ones((12, 1, 8), np.float32)
    cache = PagedCache([LayerSpec(1, 8)], BlockPool(16, 2), codec=codec, xp=np)
    cache.add("a", text)

    def give(n: int) -> None:
        at = cache.seq_len("a")
        cache.append(0, x[:n], x[:n], cache.plan(["a"], [n], text[at : at + n]))

    give(6)
    if back == "a pass that failed":
        cache.plan(["a"], [3], [96, 97, 98])  # no layer appends
        cache.truncate("a", 6)
    elif back == "a part of a pass":
        cache.truncate("a", 5)
    else:
        give(2)
        cache.truncate("a", 6)
    give(12 - cache.seq_len("a"))
    cache.free("a")
    waiting = 3 if codec is not None and codec.waits else 0
    assert len(cache.pool.lookup(text)) == (12 - waiting) // 2


def test_a_write_to_a_shared_block_copies_the_codes_it_has() -> None:
    """Of tokens that wait in full precision there is nothing in the block to be copied."""
    codec, x = int8(3), np.ones((14, 1, 8), np.float32)
    cache = PagedCache([LayerSpec(1, 8)], BlockPool(8, 8), codec=codec, xp=np)
    cache.add("a")
    cache.append(0, x, x, cache.plan(["a"], [14]))  # 11 codes, 3 of them in the second block
    cache.fork("a", "b")
    with Meter() as meter:
        cache.plan(["b"], [1])
    assert meter.by_label["copy on write"].copied == 3 * 2 * (8 + 4)  # codes and a scale


def test_a_fork_publishes_the_blocks_whose_tokens_still_waited() -> None:
    text, x = list(range(20)), np.ones((20, 1, 8), np.float32)
    cache = PagedCache([LayerSpec(1, 8)], BlockPool(16, 2), codec=int8(5), xp=np)
    cache.add("a", text)
    cache.append(0, x[:13], x[:13], cache.plan(["a"], [13], text[:13]))  # 8 codes in 7 blocks
    cache.fork("a", "b")
    cache.append(0, x[13:], x[13:], cache.plan(["b"], [7], text[13:]))  # its last one is copied
    for name in "ba":
        cache.free(name)
    assert len(cache.pool.lookup(text)) == (20 - 5) // 2


@pytest.mark.parametrize("rule", [Sinks(2, 6), Scored(KNorm(), 8)])
def test_blocks_with_holes_cannot_be_found_so_an_index_for_them_is_refused(rule):
    """Without an index the pool publishes nothing; with one, somebody expects hits."""
    pool = BlockPool(8, 2, index=RadixIndex())
    with pytest.raises(ValueError, match=r"RadixIndex.*no longer hold.*leave index out"):
        PagedCache(LAYERS, pool, retention=rule, xp=np)
    cache = PagedCache(LAYERS, pool, xp=np)  # and the pool is as it was
    assert cache.add("a", [1, 2, 3]) == 0
    quiet = PagedCache(LAYERS, BlockPool(16, 2), retention=rule, xp=np)
    assert quiet.add("a", [1, 2, 3]) == 0
