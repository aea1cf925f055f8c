"""The dense cache: a row of fixed length for each request, set aside in advance."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from kvlib.arrays import Array, itemsize, nbytes
from kvlib.attention import attend_causal
from kvlib.attention.batched import attend_rows, by_text, taken, together
from kvlib.caches.checks import check_layer, check_row, check_row_alone, get_open, is_integer
from kvlib.caches.protocol import Attention, Cache, Request
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step
from kvlib.codecs.base import PLAIN, TensorCodec
from kvlib.errors import CacheFull
from kvlib.meter import counting, report


class DenseCache(Cache):
    """Room for ``max_seqs`` requests of up to ``max_seq_len`` tokens each, allocated at once.

    Keys lie as (row, Hkv, max_seq_len, Dk) in each layer, values likewise: heads outside tokens,
    so that what a head reads lies together. A freed row is used again by the next request.
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
        dtype: Any = None,
        xp: Any = None,
        attention: Attention | None = None,
    ) -> None:
        super().__init__(layers, dtype=dtype, xp=xp, attention=attention)
        for name, n in (("max_seqs", max_seqs), ("max_seq_len", max_seq_len)):
            if not is_integer(n) or n < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {n!r}")
        self.max_seqs, self.max_seq_len = int(max_seqs), int(max_seq_len)
        self._free_rows = list(range(max_seqs))[::-1]
        self._k: list[Array] = []
        self._v: list[Array] = []
        for spec in self.layers:
            shape = (max_seqs, spec.num_kv_heads, max_seq_len)
            k = self.xp.empty((*shape, spec.head_dim), dtype=self.dtype)
            own = not spec.v_from_k
            v = self.xp.empty((*shape, spec.v_dim), dtype=self.dtype) if own else k
            self._k.append(k)
            self._v.append(v if own else k[..., : spec.v_dim])

    # Rows ---------------------------------------------------------------------------------------

    def _open(
        self, seq_id: Hashable, tokens: Sequence[int], extra: tuple[Hashable, ...]
    ) -> Request:
        return Request(self._take_row(seq_id))

    def _take_row(self, seq_id: Hashable) -> int:
        if not self._free_rows:
            raise CacheFull(
                f"no row for request {seq_id!r}: all {self.max_seqs} rows (max_seqs) are taken"
            )
        return self._free_rows.pop()

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> tuple[int, ...]:
        check_row(self._requests, requests, q_lens, self.max_seq_len)
        return tuple(r.place for r in requests)

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """CacheFull where a request of `length` tokens would outgrow its row."""
        check_row_alone(seq_id, length, self.max_seq_len)

    def pages(self, step: Step) -> list[Sequence[int]]:
        """One row a request."""
        return [[row] for row in step.places]

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        """Keys and values as they came, (max_seqs, Hkv, max_seq_len, D)."""
        keys, values = (PLAIN.keys, {"x": self._k[layer]}), (PLAIN.values, {"x": self._v[layer]})
        return (keys,) if self.layers[layer].v_from_k else (keys, values)

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        row, copied = self._take_row(seq_id), 0
        for x in self.storage():
            part = x[source.place, :, : source.length, :]
            x[row, :, : source.length, :] = part
            copied += nbytes(part)
        report("fork", copied=copied)
        return Request(row)

    def _release(self, request: Request) -> None:
        self._free_rows.append(request.place)

    # Keys and values ----------------------------------------------------------------------------

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Write each request's new keys and values behind those it has.

        k (T, Hkv, Dk)   v (T, Hkv, Dv), or None where the layer takes values from its keys.
        """
        self._check_append(layer, k, v, step)
        stored = ((self._k[layer], k),) if v is None else ((self._k[layer], k), (self._v[layer], v))
        for whole, new in stored:
            if new.dtype != self.dtype:
                new = self.xp.astype(new, self.dtype)
            for i, row in enumerate(step.places):
                a, b, end = step.qo_indptr[i], step.qo_indptr[i + 1], step.seq_lens[i]
                if b - a == 1:
                    whole[row, :, end - 1, :] = new[a, :, :]
                else:
                    whole[row, :, end - b + a : end, :] = self.xp.permute_dims(
                        new[a:b, :, :], (1, 0, 2)
                    )
            if counting():
                report("append", written=new.size * itemsize(self.xp, self.dtype))
        step.ticket.appended.add(layer)

    def attend(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Attend: q (T, Hq, Dk) → o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq).

        One request after the other, or several short ones in one product where each has one query.
        """
        spec = self.layers[layer]
        k, v = self._k[layer], self._v[layer]
        parts: dict[int, Any] = {}
        one_each = 1 < len(step.places) == step.qo_indptr[-1]
        for batch in self._batches(spec, step) if one_each else ():
            rows = slice(step.places[batch[0]], step.places[batch[-1]] + 1)
            found: Any = attend_rows(
                taken(self.xp, q, batch),
                k[rows, ...],
                v[rows, ...],
                [step.seq_lens[i] for i in batch],
                taken(self.xp, step.lengths, batch),
                return_lse=return_lse,
                **spec.settings,
            )
            if batch == list(range(len(step.places))):
                return found
            parts |= by_text(found, batch)
        for i, (row, end) in enumerate(zip(step.places, step.seq_lens, strict=True)):
            if i in parts:
                continue
            parts[i] = attend_causal(
                q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :],
                k[row, :, :end, :],
                v[row, :, :end, :],
                window=spec.window,
                sm_scale=spec.sm_scale,
                softcap=spec.softcap,
                sinks=spec.sinks,
                return_lse=return_lse,
            )
        return self._join([parts[i] for i in range(len(parts))], return_lse)

    def _batches(self, spec: LayerSpec, step: Step) -> list[list[int]]:
        """Which requests of a step of one query each attend in one product."""
        if self.dtype not in (self.xp.float32, self.xp.float64):
            return []  # a narrow cache is widened a piece at a time, never the whole of it
        numbers = spec.num_kv_heads * spec.v_dim
        return together(step.places, step.seq_lens, numbers, spec.window)

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Views of what a layer holds: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,)."""
        request = get_open(self._requests, seq_id)
        check_layer(self, layer)
        xp, s = self.xp, request.length
        k = xp.permute_dims(self._k[layer][request.place, :, :s, :], (1, 0, 2))
        v = xp.permute_dims(self._v[layer][request.place, :, :s, :], (1, 0, 2))
        return k, v, xp.arange(s, dtype=xp.int64)

    def storage(self) -> Iterator[Array]:
        """The key array of each layer, and the value array where it has one of its own."""
        for spec, k, v in zip(self.layers, self._k, self._v, strict=True):
            yield k
            if not spec.v_from_k:
                yield v

    def memory(self) -> Memory:
        """Bytes: payload of live tokens, the whole reservation, and what open requests waste."""
        reserved = sum(nbytes(x) for x in self.storage())
        a_token = reserved // (self.max_seqs * self.max_seq_len)
        payload = a_token * sum(r.length for r in self._requests.values())
        claimed = a_token * self.max_seq_len * len(self._requests)
        return Memory(payload=payload, metadata=0, reserved=reserved, wasted=claimed - payload)
