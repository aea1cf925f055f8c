"""The dense cache: a row of fixed length for each request, set aside in advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.caches.protocol import Attention
from kvlib.caches.retention import Rules
from kvlib.caches.rows import Rows
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import StoredCache


class DenseCache(StoredCache):
    """Room for ``max_seqs`` requests of up to ``max_seq_len`` tokens each, allocated at once.

    Keys lie as (row, Hkv, max_seq_len, Dk) in each layer, values likewise: heads outside tokens,
    so that what a head reads lies together. A freed row is used again by the next request. A layer
    with a window has rows of the window and a quarter more, and what falls out of it is overwritten
    (`Rows`). retention: what layers keep, each its own window unless given.
    Simple, fast, and wasteful: a request pays for ``max_seq_len`` tokens whatever its length.

    Raises CacheFull when every row is taken or a request would outgrow its row.

    >>> import numpy as np
    >>> from kvlib import LayerSpec
    >>> cache = DenseCache([LayerSpec(2, 4)], max_seqs=2, max_seq_len=16, xp=np)
    >>> cache.add("a")
    0
    >>> step = cache.plan(["a"], [3])  # three tokens of request a
    >>> q, k, v = np.ones((3, 4, 4)), np.ones((3, 2, 4)), np.ones((3, 2, 4))
    >>> cache.append(0, k.astype(np.float32), v.astype(np.float32), step)
    >>> cache.run(0, q.astype(np.float32), step).shape  # layer 0: (T, Hq, D)
    (3, 4, 4)
    >>> cache.seq_len("a")
    3
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        max_seqs: int = 8,
        max_seq_len: int = 2048,
        *,
        retention: Rules = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        rows = Rows(max_seqs, max_seq_len)
        self.max_seqs, self.max_seq_len = rows.max_seqs, rows.size
        super().__init__(layers, rows, retention=retention, dtype=dtype, xp=xp, attention=attention)
