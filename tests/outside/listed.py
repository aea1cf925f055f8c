"""A cache from scratch: for each request and layer, a Python list with one entry per token."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib import Cache, Memory
from kvlib.caches import CachedSequence


class ListCache(Cache):
    """Grows without end, and is as slow as it is short."""

    def _open(self, seq_id: Any, tokens: Any, extra: Any) -> CachedSequence:
        return CachedSequence([[] for _ in self.layers])

    def _copy(self, source: CachedSequence, seq_id: Any) -> CachedSequence:
        return CachedSequence([list(layer) for layer in source.state])

    def _truncate(self, seq: CachedSequence, length: int) -> None:
        for layer in seq.state:
            del layer[length:]

    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        self._check_append(layer, k, v, step)
        for i, seq_id in enumerate(step.seq_ids):
            for row in range(step.qo_indptr[i], step.qo_indptr[i + 1]):
                self._sequences[seq_id].state[layer].append((k[row].copy(), v[row].copy()))
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Any) -> tuple[Any, Any, Any]:
        held, spec = self._sequences[seq_id].state[layer], self.layers[layer]
        k = np.zeros((len(held), spec.num_kv_heads, spec.head_dim), self.dtype)
        v = np.zeros((len(held), spec.num_kv_heads, spec.v_dim), self.dtype)
        for row, pair in enumerate(held):
            k[row], v[row] = pair
        return k, v, np.arange(len(held))

    def storage(self) -> Iterator[Any]:
        for seq in self._sequences.values():
            for layer in seq.state:
                for pair in layer:
                    yield from pair

    def memory(self) -> Memory:
        held = sum(x.nbytes for x in self.storage())
        return Memory(payload=held, metadata=0, reserved=held, wasted=0)
