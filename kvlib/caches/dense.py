"""The caches of rows: a row of fixed length for each request, set aside in advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.caches.protocol import Attention
from kvlib.caches.retention import Rules
from kvlib.caches.rows import Rows
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import StoredCache
from kvlib.codecs.base import Codec


class DenseCache(StoredCache):
    """Room for ``max_seqs`` requests of up to ``max_seq_len`` tokens each, allocated at once.

    Keys lie as (row, Hkv, max_seq_len, Dk) in each layer, values likewise: heads outside tokens,
    so that what a head reads lies together. A freed row is used again by the next request. A layer
    with a window has rows of the window and a quarter more, and what falls out of it is overwritten
    (`Rows`). codec: how keys and values are written (as they are, unless given), a codec or its
    name. retention: what layers keep, each its own window unless given.
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
        codec: Codec | str | None = None,
        retention: Rules = None,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        rows = Rows(max_seqs, max_seq_len)
        self.max_seqs, self.max_seq_len = rows.max_seqs, rows.size
        super().__init__(
            layers,
            rows,
            codec=codec,
            retention=retention,
            dtype=dtype,
            xp=xp,
            attention=attention,
        )


class QuantizedCache(DenseCache):
    """A DenseCache whose keys and values are written by ``codec``.

    codec: one of `kvlib.codecs` or of your own, or a name of ``kvlib.codecs.NAMES``. settings: the
    keyword arguments of `DenseCache`. Codes are read a piece at a time; no row is ever decoded
    whole. ``max_seq_len`` must be a multiple of what the codec encodes together.

    >>> import numpy as np
    >>> from kvlib import LayerSpec
    >>> layers = [LayerSpec(num_kv_heads=2, head_dim=64)]
    >>> QuantizedCache(layers, "int8", 1, 128, xp=np).memory().reserved  # 68 bytes a vector
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
