"""Who shares which blocks, and what it costs to find out."""

from __future__ import annotations

import numpy as np
import pytest
from test_paged_cache import INDEXES, LAYERS, fill

from kvlib.caches import BlockPool, PagedCache, RadixIndex

# Extra keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", INDEXES)
def test_an_extra_key_that_cannot_be_hashed_is_refused_at_once(index: str) -> None:
    cache = PagedCache(LAYERS, BlockPool(8, 2, index=INDEXES[index]()), xp=np)
    for prompt in ([1], [1, 2, 3, 4, 5]):
        with pytest.raises(TypeError, match=r"extra must hold hashable keys, got \(\['x'\],\)"):
            cache.add("a", prompt, extra=(["x"],))
    assert cache.seq_ids == () and cache.pool.num_free == 8
    assert fill(cache, "a", [1, 2, 3, 4, 5], extra=("x",)) == 0
    with pytest.raises(TypeError, match="extra must hold hashable keys"):
        cache.pool.lookup([1, 2], ({},))


# A tree of many children --------------------------------------------------------------------------


class Counted(int):
    """A token that counts how often it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other


def test_a_child_is_found_without_a_look_at_its_siblings() -> None:
    """Every prompt begins with the same token, so that all first blocks do."""
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
