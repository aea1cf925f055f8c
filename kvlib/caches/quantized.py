"""The dense cache with a codec: rows of codes, the newest tokens as they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.caches.protocol import Attention
from kvlib.caches.retention import Rules
from kvlib.caches.rows import Rows
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import StoredCache
from kvlib.codecs.base import Codec


class QuantizedCache(StoredCache):
    """Room for ``max_seqs`` requests of ``max_seq_len`` tokens, written by ``codec``.

    codec: one of `kvlib.codecs` or of your own, or a name of ``kvlib.codecs.NAMES``.

    A DenseCache in all else: a row for each request, set aside in advance. Codes are read a piece
    at a time; no row is ever decoded whole. ``max_seq_len`` must be a multiple of what the codec
    encodes together.

    Raises CacheFull when every row is taken or a request would outgrow its row.

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
        *,
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
