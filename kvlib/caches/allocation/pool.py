"""A pool of fixed-size blocks with reference counts, as in PagedAttention (arXiv:2309.06180).

As in vLLM, a free block that is published by its tokens keeps its content until it is allocated.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvlib.arguments import check_flag, check_index, check_integer, check_list, describe, listed
from kvlib.caches.allocation.prefixes import HashIndex, PrefixIndex, PrefixSharing, sealed
from kvlib.caches.allocation.table import Extra
from kvlib.caches.checks import token_ids
from kvlib.errors import OutOfBlocks


class BlockEvent(NamedTuple):
    """What happened to some blocks; figures replay a list of these."""

    kind: str  # allocate, touch, free, publish, evict
    blocks: tuple[int, ...]


class BlockPool:
    """The `num_blocks` blocks of a cache: how many requests hold each, and which are free.

    index: where published blocks are found again (HashIndex unless given). log: record every
    BlockEvent in `events`. Unpublished free blocks are allocated first, then the least recently
    used, and of a freed request the last block first.

    >>> pool = BlockPool(num_blocks=4, block_size=16)
    >>> blocks = pool.allocate(3)
    >>> pool.num_free
    1
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        index: PrefixIndex | None = None,
        log: bool = False,
    ) -> None:
        self.num_blocks = check_integer("num_blocks", num_blocks)
        self.block_size = check_integer("block_size", block_size)
        if index is not None and (isinstance(index, type) or not hasattr(index, "find")):
            raise TypeError(f"index must be one such as HashIndex(), got {describe(index)}")
        self.index: PrefixIndex | PrefixSharing = HashIndex() if index is None else index
        if len(self.index):
            raise ValueError(f"index must be empty, got {self.index!r}: blocks of another pool")
        self.custom_index = index is not None  # so the caller expects blocks to be found again
        self._claimed = False
        self.events: list[BlockEvent] | None = [] if check_flag("log", log) else None
        # Blocks from number `_next_unused` on have never been allocated, and are allocated first.
        # So a pool takes no memory for blocks that nobody has used.
        self._next_unused = 0
        self._ref_counts: defaultdict[int, int] = defaultdict(int)
        # Least useful first. Both are queues from which any member can be removed at once.
        self._free_blank: OrderedDict[int, None] = OrderedDict()
        self._free_published: OrderedDict[int, None] = OrderedDict()

    def claim(self) -> None:
        """Make this the pool of one cache. ValueError if it was claimed or used before."""
        if self._claimed or self.num_free < self.num_blocks or self.num_published:
            raise ValueError(f"pool must be unused, got {self!r}: make one for each cache")
        self._claimed = True

    @property
    def num_free(self) -> int:
        """How many blocks no request holds, published ones included."""
        return (
            self.num_blocks - self._next_unused + len(self._free_blank) + len(self._free_published)
        )

    @property
    def num_published(self) -> int:
        """How many blocks a lookup can find, in use or free."""
        return len(self.index)

    def ref_count(self, block: int) -> int:
        """Return how many requests hold a block."""
        return self._ref_counts[self._known(block)]

    def writable(self, block: int) -> bool:
        """Return whether a block may be written into: unpublished, and used by one request."""
        return self.ref_count(block) == 1 and block not in self.index

    def allocate(self, count: int) -> list[int]:
        """Return `count` free blocks, published ones last; OutOfBlocks if too few are."""
        if type(count) is not int or not 0 <= count <= self.num_blocks:
            count = check_integer("count", count, least=0)
        if count > self.num_free:
            raise OutOfBlocks(
                f"{count} blocks needed, {self.num_free} of {self.num_blocks} are free: "
                f"{count - self.num_free} too few"
            )
        allocated, evicted = [], []
        for _ in range(count):
            if self._next_unused < self.num_blocks:
                block, self._next_unused = self._next_unused, self._next_unused + 1
            elif self._free_blank:
                block, _ = self._free_blank.popitem(last=False)
            else:
                block, _ = self._free_published.popitem(last=False)
                self.index.remove(block)
                evicted.append(block)
            self._ref_counts[block] = 1
            allocated.append(block)
        self.record("evict", evicted)
        self.record("allocate", allocated)
        return allocated

    def touch(self, blocks: Sequence[int]) -> None:
        """Hold blocks once more: those that a lookup returned, or those of a forked request."""
        blocks = [self._known(block, "blocks") for block in check_list("blocks", blocks, "blocks")]
        for block in blocks:
            if self._ref_counts[block] == 0 and block not in self.index:
                raise ValueError(f"block {block} is free and holds nothing: allocate it")
        for block in blocks:
            if self._ref_counts[block] == 0:
                del self._free_published[block]
            self._ref_counts[block] += 1
        self.record("touch", blocks)

    def free(self, blocks: Sequence[int]) -> None:
        """Hold blocks once less, given in the order of their tokens; the last is evicted first."""
        blocks = [self._known(block, "blocks") for block in check_list("blocks", blocks, "blocks")]
        for block, count in Counter(blocks).items():
            if count > self._ref_counts[block]:
                raise ValueError(
                    f"block {block} is freed {count} times and held {self._ref_counts[block]} times"
                )
        for block in reversed(blocks):
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                (self._free_published if block in self.index else self._free_blank)[block] = None
        self.record("free", blocks)

    def lookup(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        """Return the published blocks of the longest known beginning of `tokens`; `touch` them."""
        tokens = listed("tokens", tokens, "token ids")
        # A subclass of int is compared as it is, because it can count its comparisons.
        pairs = zip(tokens, token_ids(tokens), strict=True)
        keys = [token if isinstance(token, int) else plain for token, plain in pairs]
        return self.index.find(keys, self.block_size, sealed(extra))

    def publish(
        self, block: int, parent: int | None, tokens: Sequence[int], extra: Extra = ()
    ) -> bool:
        """Let lookups find a full block by its tokens, which follow the published block `parent`.

        parent is None for the first block of a text; its `extra` applies to all that follow. False
        if another block with this content is published already.
        """
        block = self._known(block)
        parent = None if parent is None else self._known(parent, "parent")
        ids = tuple(token_ids(tokens))
        if self.ref_count(block) == 0:
            raise ValueError(f"block {block} is free: only its holder knows what is in it")
        if block in self.index:
            raise ValueError(f"block {block} is published already")
        if len(ids) != self.block_size:
            raise ValueError(
                f"a published block is full: {self.block_size} tokens needed, got {len(ids)}"
            )
        if parent is not None and (self.ref_count(parent) == 0 or parent not in self.index):
            raise ValueError(f"parent {parent} of block {block} must be held and published")
        if not self.index.add(block, parent, ids, sealed(extra) if parent is None else ()):
            return False
        self.record("publish", (block,))
        return True

    def check(self) -> None:
        """Raise AssertionError unless every count and queue agrees with every other."""
        free = {*self._free_blank, *self._free_published}
        unused = self.num_blocks - self._next_unused
        assert len(free) == self.num_free - unused, "a block waits in two queues"
        assert all(block < self._next_unused for block in free), "a block is free twice"
        for block in range(self._next_unused):
            held, published = self._ref_counts[block] > 0, block in self.index
            assert held != (block in free), f"block {block} is held and free, or neither"
            assert held or published == (block in self._free_published), (
                f"block {block} waits in the wrong queue"
            )
            parent = self.index.parent(block) if published else None
            assert parent is None or parent in self.index, (
                f"block {block} cannot be reached: parent {parent}"
            )

    def _known(self, block: int, name: str = "block") -> int:
        if type(block) is int and 0 <= block < self.num_blocks:
            return block
        return check_index(name, block, self.num_blocks)

    def record(self, kind: str, blocks: Iterable[int]) -> None:
        """Record an event if the pool keeps a log."""
        if self.events is not None and (blocks := tuple(blocks)):
            self.events.append(BlockEvent(kind, blocks))

    def __repr__(self) -> str:
        return (
            f"BlockPool({self.num_blocks} blocks of {self.block_size} tokens, "
            f"{self.num_free} free, {self.num_published} published)"
        )
