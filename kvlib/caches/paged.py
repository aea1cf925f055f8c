"""The cache whose requests grow in blocks, which they may share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kvlib.caches.allocation.blocks import Blocks
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.checks import check_layer, get_open
from kvlib.caches.protocol import Attention
from kvlib.caches.retention.groups import Rules
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import StoredCache
from kvlib.codecs.base import Codec


class PagedCache(StoredCache):
    """Requests in blocks of ``pool.block_size`` tokens; a request takes another as it grows.

    ``fork`` copies nothing until one of the two writes. Requests whose prompts begin alike share
    blocks if ``add`` and ``plan`` are given the tokens; others find the blocks of a step once the
    request's next ``plan``, or ``settle``, has made it final. PagedAttention, arXiv:2309.06180.

    Raises MemoryError, naming the bytes, if the arrays cannot be allocated; OutOfBlocks, having
    changed nothing, if the pool has too few free blocks.

    >>> from kvlib import BlockPool, LayerSpec
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), codec="int8")
    >>> held, step = cache.add("a"), cache.plan(["a"], [6])
    >>> len(cache.blocks("a"))  # six tokens in blocks of four
    2
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        pool: BlockPool,
        *,
        codec: Codec | str | None = None,
        retention: Rules = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        blocks = Blocks(pool)
        self.pool, self.block_size = pool, pool.block_size
        super().__init__(
            layers,
            blocks,
            codec=codec,
            retention=retention,
            dtype=dtype,
            xp=xp,
            attention=attention,
        )

    def blocks(self, seq_id: Hashable, layer: int = 0) -> tuple[int, ...]:
        """The blocks of a request's tokens in a layer, in order, without those given back."""
        check_layer(self, layer)
        state = get_open(self._sequences, seq_id).state
        return tuple(state.tables[self.group_of[layer]].pages)
