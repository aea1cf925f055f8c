"""The dense cache with a codec: rows of codes, the newest tokens as they came."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kvlib.caches.checks import check_row, check_row_alone, is_integer
from kvlib.caches.protocol import Attention, Request
from kvlib.caches.spec import LayerSpec
from kvlib.caches.stored import Place, StoredCache
from kvlib.codecs.base import Codec
from kvlib.errors import CacheFull
from kvlib.meter import report


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

    size_name = "max_seq_len"

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        codec: Codec | str,
        max_seqs: int = 8,
        max_seq_len: int = 2048,
        *,
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        for name, n in (("max_seqs", max_seqs), ("max_seq_len", max_seq_len)):
            if not is_integer(n) or n < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {n!r}")
        self.max_seqs, self.max_seq_len = int(max_seqs), int(max_seq_len)
        super().__init__(layers, self.max_seqs, self.max_seq_len, codec, dtype, xp, attention)
        self._free_rows = list(range(self.max_seqs))[::-1]

    def _open(
        self, seq_id: Hashable, tokens: Sequence[int], extra: tuple[Hashable, ...]
    ) -> Request:
        return Request(Place([self._take_row(seq_id)], self._tails()))

    def _take_row(self, seq_id: Hashable) -> int:
        if not self._free_rows:
            raise CacheFull(
                f"no row for request {seq_id!r}: all {self.max_seqs} rows (max_seqs) are taken"
            )
        return self._free_rows.pop()

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[Place]:
        check_row(self._requests, requests, q_lens, self.max_seq_len)
        for request, n in zip(requests, q_lens, strict=True):
            self._begin(request, n)
        return [request.place for request in requests]

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """CacheFull where a request of `length` tokens would outgrow its row."""
        check_row_alone(seq_id, length, self.max_seq_len)

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        row, old, copied = self._take_row(seq_id), source.place, 0
        for store in self.stores:
            copied += sum(fields.copy(old.pages[0], row, old.coded) for fields in store.both)
        new = Place([row], self._tails(old), old.coded)
        new.start = source.length
        report("fork", copied=copied)
        return Request(new)

    def _release(self, request: Request) -> None:
        self._free_rows.append(request.place.pages[0])
