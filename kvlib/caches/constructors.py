"""The caches that users make: a StoredCache in rows, in rows of codes, or in blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kvlib.caches.allocation.blocks import Blocks
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.rows import Rows
from kvlib.caches.checks import check_layer, get_open
from kvlib.caches.protocol import Attention
from kvlib.caches.retention.rules import Rules
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import StoredCache
from kvlib.codecs.base import Codec


class DenseCache(StoredCache):
    """Room for ``max_seqs`` requests of up to ``max_seq_len`` tokens each, allocated at once.

    Keys are (row, Hkv, size, Dk) in each layer, values likewise; `Rows` says how long rows are.
    codec: one or its name. retention: which tokens layers keep, their own windows unless given.

    Raises MemoryError, naming the bytes, if the arrays cannot be allocated; CacheFull if every row
    is taken or a request would outgrow its row.

    >>> import numpy as np
    >>> from kvlib import LayerSpec
    >>> cache = DenseCache([LayerSpec(2, 4)], max_seqs=2, max_seq_len=16, xp=np)
    >>> held, step = cache.add("a"), cache.plan(["a"], [3])  # three tokens of request a
    >>> q = k = v = np.ones((3, 2, 4), np.float32)
    >>> cache.append(0, k, v, step)
    >>> cache.run(0, q, step).shape  # layer 0: (T, Hq, D)
    (3, 2, 4)
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        max_seqs: int = 8,
        max_seq_len: int = 2048,
        *,
        codec: Codec | str | None = None,
        retention: Rules = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        rows = Rows(max_seqs, max_seq_len)
        self.max_seqs, self.max_seq_len = rows.max_seqs, rows.size
        super().__init__(
            layers, rows, codec=codec, retention=retention, dtype=dtype, xp=xp, attention=attention
        )


class QuantizedCache(DenseCache):
    """A DenseCache whose keys and values are written by ``codec``, and decoded piece by piece.

    codec: from `kvlib.codecs`, or a name; ``max_seq_len`` must be a multiple of the tokens that it
    encodes together. settings: the keyword arguments of `DenseCache`.

    >>> from kvlib import LayerSpec
    >>> QuantizedCache([LayerSpec(2, 64)], "int8", 1, 128).memory().reserved  # 68 bytes per vector
    34816
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        codec: Codec | str,
        max_seqs: int = 8,
        max_seq_len: int = 2048,
        **settings: Any,
    ) -> None:
        super().__init__(layers, max_seqs, max_seq_len, codec=codec, **settings)


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
        alloc = Blocks(pool)
        self.pool, self.block_size = pool, pool.block_size
        super().__init__(
            layers, alloc, codec=codec, retention=retention, dtype=dtype, xp=xp, attention=attention
        )

    def blocks(self, seq_id: Hashable, layer: int = 0) -> tuple[int, ...]:
        """Return the blocks of a request in a layer, in order; freed blocks are left out."""
        check_layer(self, layer)
        state = get_open(self._sequences, seq_id).state
        return tuple(state.tables[self.group_of[layer]].pages)
