"""The paged cache: requests hold blocks of a pool, as many as they fill."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from kvlib.caches.blocks import BlockPool
from kvlib.caches.checks import get_open
from kvlib.caches.prefixes import Extra
from kvlib.caches.protocol import Attention, Request
from kvlib.caches.spec import LayerSpec
from kvlib.caches.store import Tail
from kvlib.caches.stored import Place, StoredCache
from kvlib.codecs.base import Codec
from kvlib.errors import OutOfBlocks
from kvlib.meter import report


class Pages(Place):
    """The block table of a request, and what is known of its tokens."""

    __slots__ = ("extra", "published", "tokens")

    def __init__(
        self,
        blocks: list[int],
        tails: list[Tail | None],
        coded: int,
        tokens: list[int],
        extra: Extra,
    ) -> None:
        super().__init__(blocks, tails, coded)
        self.tokens = tokens  # from position 0 on, as far as the cache was told
        self.published = len(blocks)  # leading blocks that need no publishing (any more)
        self.extra = extra


class PagedCache(StoredCache):
    """Requests in blocks of ``pool.block_size`` tokens, taken as they grow.

    codec: how keys and values are written (as they are, unless given), a codec or its name:
    ``codec="int8"``. A request has one block table for all layers. It wastes less than one block;
    ``fork`` copies nothing until one of the two writes; requests whose prompts begin alike share
    blocks, if ``add`` and ``plan`` are told the tokens. PagedAttention, arXiv:2309.06180.

    Raises OutOfBlocks, having changed nothing, where the pool has too few free blocks.

    >>> import numpy as np
    >>> from kvlib import BlockPool, LayerSpec
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), xp=np)
    >>> cache.add("a")
    0
    >>> step = cache.plan(["a"], [6])
    >>> len(cache.blocks("a"))  # six tokens in blocks of four
    2
    """

    size_name = "block_size"

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        pool: BlockPool,
        *,
        codec: Codec | str | None = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        if not isinstance(pool, BlockPool):
            raise TypeError(f"pool must be a BlockPool, got a {type(pool).__name__}")
        self.pool, self.block_size = pool, pool.block_size
        super().__init__(layers, pool.num_blocks, pool.block_size, codec, dtype, xp, attention)
        pool.claim()

    def blocks(self, seq_id: Hashable) -> tuple[int, ...]:
        """The block table of a request: which blocks hold its tokens, in order."""
        return tuple(get_open(self._requests, seq_id).place.pages)

    def settle(self, seq_id: Hashable) -> None:
        """Make the last step of a request final, as its next ``plan`` would.

        Lookups find the blocks that the step has filled from now on.
        """
        super().settle(seq_id)
        self._publish(get_open(self._requests, seq_id))

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """OutOfBlocks where the whole pool has too few blocks for a request of `length` tokens."""
        room = self.pool.num_blocks * self.block_size
        if length > room:
            raise OutOfBlocks(
                f"request {seq_id!r} may grow to {length} tokens, and the cache has room for "
                f"{room}: {self.pool.num_blocks} blocks"
            )

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether another request is filling a block that this prompt begins with, too.

        As soon as that block is full, a lookup finds it; the prompt should be opened then.
        """
        size = self.block_size
        for name, other in others:
            end = (self.seq_len(name) // size + 1) * size  # of the block that comes next
            if end >= len(tokens) or end > len(other):  # a prompt's last token is always computed
                continue
            if tokens[end - size : end] == other[end - size : end] and tokens[:end] == other[:end]:
                return True
        return False

    def _open(
        self, seq_id: Hashable, tokens: Sequence[int], extra: tuple[Hashable, ...]
    ) -> Request:
        # Never the last token: somebody wants its logits.
        found = self.pool.lookup(tokens[:-1], extra)
        self.pool.touch(found)
        held = len(found) * self.block_size
        request = Request(Pages(found, self._tails(), held, list(tokens[:held]), extra))
        request.length = held
        return request

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[Place]:
        wanted = self._wanted(requests, q_lens)
        at = 0
        for request, n, (more, copy) in zip(requests, q_lens, wanted, strict=True):
            pages = request.place
            self._publish(request)
            if copy:
                self._copy_last(request)
            pages.pages.extend(self.pool.allocate(more))
            if tokens is not None and len(pages.tokens) == request.length:
                pages.tokens.extend(tokens[at : at + n])
            self._begin(request, n)
            at += n
        self._send_tables(requests)
        return [request.place for request in requests]

    def _wanted(self, requests: list[Request], q_lens: Sequence[int]) -> list[tuple[int, bool]]:
        """New blocks of each request, and whether its last block has to be copied first."""
        free, wanted, left = self.pool.num_free, [], dict[int, int]()
        for request, n in zip(requests, q_lens, strict=True):
            copy = self._must_copy(request, left)
            more = -(-(request.length + n) // self.block_size) - len(request.place.pages)
            wanted.append((more, copy))
            free -= more + copy
            if free < 0:
                name = next(s for s, r in self._requests.items() if r is request)
                raise OutOfBlocks(
                    f"request {name!r} holds {request.length} tokens and {n} more were asked for: "
                    f"{-free} blocks of {self.block_size} too few ({self.pool.num_free} of "
                    f"{self.pool.num_blocks} are free)"
                )
        return wanted

    def _must_copy(self, request: Request, left: dict[int, int]) -> bool:
        """Whether the next token would be written into a block that somebody else relies on.

        That is a block which another request holds too, or which a lookup can find; it is copied
        first. Of several requests that hold one block and write in the same plan, the last needs no
        copy: `left` counts, for each block, how many before it have been given theirs.
        """
        if request.length % self.block_size == 0:
            return False
        block = request.place.pages[request.length // self.block_size]
        holders = self.pool.references(block) - left.get(block, 0)
        if holders == 1 and block not in self.pool.index:
            return False
        left[block] = left.get(block, 0) + 1
        return True

    def _copy_last(self, request: Request) -> None:
        pages, copied = request.place.pages, 0
        old, (new,) = pages[-1], self.pool.allocate(1)
        held = request.place.coded if self.codec.waits else request.length
        used = max(0, held - (len(pages) - 1) * self.block_size)
        for store in self.stores:
            copied += sum(fields.copy(old, new, used) for fields in store.both)
        pages[-1] = new
        self.pool.free([old])
        request.place.published = min(request.place.published, len(pages) - 1)
        report("copy on write", copied=copied)

    def _publish(self, request: Request) -> None:
        """Publish the blocks that the last step has filled, now that nobody can take it back."""
        pages, size = request.place, self.block_size
        held = self._stored(request)
        if self._unfinished(request):
            del pages.tokens[held:]
        while (pages.published + 1) * size <= min(len(pages.tokens), held):
            n = pages.published
            block, parent = pages.pages[n], pages.pages[n - 1] if n else None
            if block not in self.pool.index:
                part = pages.tokens[n * size : (n + 1) * size]
                done = self.pool.publish(block, parent, part, pages.extra)
                if not done and not self._take_twin(pages, n):
                    return
            pages.published += 1

    def _take_twin(self, pages: Pages, n: int) -> bool:
        """Hold the published twin of block n in its place; False while a fork holds the block too.

        Who holds a block holds all before it: else its parent could go first, and its number be
        given to another text. So what comes after a twin is published once the twin is taken.
        """
        own, end = pages.pages[n], (n + 1) * self.block_size
        if self.pool.references(own) > 1:
            return False
        pages.pages[n] = self.pool.lookup(pages.tokens[:end], pages.extra)[n]
        self.pool.touch([pages.pages[n]])
        self.pool.free([own])
        return True

    def _unfinished(self, request: Request) -> bool:
        """Whether its last pass stopped halfway and was not taken back."""
        ticket = request.ticket
        return ticket is not None and len(ticket.appended) < len(self.layers)

    def _stored(self, request: Request) -> int:
        """How many of its first tokens surely lie in its blocks, in all layers.

        Not those of a pass that stopped halfway, nor the older ones that it should have encoded.
        """
        place = request.place
        if self._unfinished(request):
            return min(place.start, place.before)
        return place.coded if self.codec.waits else request.length

    def _truncate(self, request: Request, length: int) -> None:
        pages, keep = request.place, -(-length // self.block_size)
        stays_unfinished = self._unfinished(request) and length > pages.start
        stored = self._stored(request)
        super()._truncate(request, length)
        if stays_unfinished:
            del pages.tokens[stored:]
        self.pool.free(pages.pages[keep:])
        del pages.pages[keep:]
        del pages.tokens[length:]
        pages.published = min(pages.published, length // self.block_size)

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        old = source.place
        sure = self._stored(source) if self._unfinished(source) else len(old.tokens)
        self.pool.touch(old.pages)
        new = Pages(list(old.pages), self._tails(old), old.coded, old.tokens[:sure], old.extra)
        new.published = old.published
        new.start, new.before = source.length, old.coded
        return Request(new)

    def _release(self, request: Request) -> None:
        self._publish(request)
        self.pool.free(request.place.pages)
