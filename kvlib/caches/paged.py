"""The paged cache: requests hold blocks of a pool, as many as they fill."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from kvlib.arrays import Array, itemsize, nbytes
from kvlib.attention.pieces import attend_pieces
from kvlib.caches.blocks import BlockPool
from kvlib.caches.checks import check_layer, known
from kvlib.caches.gather import BlockPieces
from kvlib.caches.prefixes import Extra
from kvlib.caches.protocol import Cache, Request
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step
from kvlib.errors import OutOfBlocks
from kvlib.meter import counting, report


class Pages:
    """The block table of a request, and what is known of its tokens."""

    __slots__ = ("blocks", "extra", "published", "start", "tokens")

    def __init__(self, blocks: list[int], tokens: list[int], extra: Extra) -> None:
        self.blocks = blocks
        self.tokens = tokens  # from position 0 on, as far as the cache was told
        self.published = len(blocks)  # leading blocks that need no publishing (any more)
        self.extra = extra
        self.start = 0  # of the last step


class PagedCache(Cache):
    """Requests in blocks of ``pool.block_size`` tokens, taken as they grow.

    Keys lie as (block, Hkv, block_size, Dk) in each layer, values likewise; a request has one block
    table for all layers. It wastes less than one block; ``fork`` copies nothing until one of the
    two writes; requests whose prompts begin alike share blocks, if ``add`` and ``plan`` are told
    the tokens. PagedAttention, arXiv:2309.06180.

    Raises OutOfBlocks, having changed nothing, where the pool has too few free blocks.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        pool: BlockPool,
        *,
        dtype: Any = None,
        xp: Any = None,
    ) -> None:
        super().__init__(layers, dtype=dtype, xp=xp)
        if not isinstance(pool, BlockPool):
            raise TypeError(f"pool must be a BlockPool, got a {type(pool).__name__}")
        if pool.num_free < pool.num_blocks or pool.num_published:
            raise ValueError(f"pool must be unused, got {pool!r}")
        self.pool, self.block_size = pool, pool.block_size
        self._k: list[Array] = []
        self._v: list[Array] = []
        for spec in self.layers:
            shape = (pool.num_blocks, spec.num_kv_heads, pool.block_size)
            k = self.xp.empty((*shape, spec.head_dim), dtype=self.dtype)
            own = not spec.v_from_k
            v = self.xp.empty((*shape, spec.v_dim), dtype=self.dtype) if own else k
            self._k.append(k)
            self._v.append(v if own else k[..., : spec.v_dim])

    # Requests -----------------------------------------------------------------------------------

    def _open(
        self, seq_id: Hashable, tokens: Sequence[int], extra: tuple[Hashable, ...]
    ) -> Request:
        tokens = [int(t) for t in tokens]
        # Never the last token: somebody wants its logits.
        found = self.pool.lookup(tokens[:-1], extra)
        self.pool.touch(found)
        held = len(found) * self.block_size
        request = Request(Pages(found, tokens[:held], extra))
        request.length = held
        return request

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> list[list[int]]:
        free, wanted = self.pool.num_free, []
        for request, n in zip(requests, q_lens, strict=True):
            copy = self._must_copy(request)
            more = -(-(request.length + n) // self.block_size) - len(request.place.blocks)
            wanted.append((more, copy))
            free -= more + copy
            if free < 0:
                name = next(s for s, r in self._requests.items() if r is request)
                raise OutOfBlocks(
                    f"request {name!r} holds {request.length} tokens and {n} more were asked for: "
                    f"{-free} blocks of {self.block_size} too few ({self.pool.num_free} of "
                    f"{self.pool.num_blocks} are free)"
                )
        at = 0
        for request, n, (more, copy) in zip(requests, q_lens, wanted, strict=True):
            pages = request.place
            self._settle(request)
            if copy:
                self._copy_last(request)
            pages.blocks.extend(self.pool.allocate(more))
            if tokens is not None and len(pages.tokens) == request.length:
                pages.tokens.extend(int(t) for t in tokens[at : at + n])
            pages.start, at = request.length, at + n
        return [list(request.place.blocks) for request in requests]

    def _must_copy(self, request: Request) -> bool:
        """Whether the next token falls into a block that others hold, or may find."""
        if request.length % self.block_size == 0:
            return False
        return not self.pool.writable(request.place.blocks[request.length // self.block_size])

    def _copy_last(self, request: Request) -> None:
        blocks, used = request.place.blocks, request.length % self.block_size
        old, copied = blocks[-1], 0
        (new,) = self.pool.allocate(1)
        for x in self.storage():
            x[new, :, :used, :] = x[old, :, :used, :]
            copied += nbytes(x[old, :, :used, :])
        blocks[-1] = new
        self.pool.free([old])
        request.place.published = min(request.place.published, len(blocks) - 1)
        report("copy on write", copied=copied)

    def _settle(self, request: Request) -> None:
        """Publish the blocks that the last step has filled, now that nobody can take it back."""
        pages, ticket = request.place, request.ticket
        if ticket is not None and len(ticket.appended) < len(self.layers):
            # A pass that stopped halfway and was not taken back: its slots hold nothing known.
            del pages.tokens[pages.start :]
        while (pages.published + 1) * self.block_size <= min(len(pages.tokens), request.length):
            n = pages.published
            block, parent = pages.blocks[n], pages.blocks[n - 1] if n else None
            if block not in self.pool.index:
                if parent is not None and parent not in self.pool.index:
                    return  # a twin of the parent was published first: this branch stays private
                part = pages.tokens[n * self.block_size : (n + 1) * self.block_size]
                self.pool.publish(block, parent, part, pages.extra)
            pages.published += 1

    def _truncate(self, request: Request, length: int) -> None:
        pages, keep = request.place, -(-length // self.block_size)
        self.pool.free(pages.blocks[keep:])
        del pages.blocks[keep:]
        del pages.tokens[length:]
        pages.published = min(pages.published, length // self.block_size)

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        pages = source.place
        self.pool.touch(pages.blocks)
        copy = Pages(list(pages.blocks), list(pages.tokens), pages.extra)
        copy.published = pages.published
        return Request(copy)

    def _release(self, request: Request) -> None:
        self._settle(request)
        self.pool.free(request.place.blocks)

    # Keys and values ----------------------------------------------------------------------------

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Write the step's keys and values into their blocks.

        k (T, Hkv, Dk)   v (T, Hkv, Dv), or None where the layer takes values from its keys.
        """
        self._check_append(layer, k, v, step)
        size = self.block_size
        stored = ((self._k[layer], k),) if v is None else ((self._k[layer], k), (self._v[layer], v))
        for whole, new in stored:
            if new.dtype != self.dtype:
                new = self.xp.astype(new, self.dtype)
            for i, blocks in enumerate(step.places):
                row, at, end = (
                    step.qo_indptr[i],
                    step.seq_lens[i] - step.q_lens[i],
                    step.seq_lens[i],
                )
                while at < end:
                    slot, n = at % size, min(size - at % size, end - at)
                    part = self.xp.permute_dims(new[row : row + n, :, :], (1, 0, 2))
                    whole[blocks[at // size], :, slot : slot + n, :] = part
                    row, at = row + n, at + n
            if counting():
                report("append", written=new.size * itemsize(self.xp, self.dtype))
        step.ticket.appended.add(layer)

    def run(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Attend, one request after the other: q (T, Hq, Dk) → o (T, Hq, Dv) [, lse (T, Hq)]."""
        spec = self._check_run(layer, q, step)
        parts = []
        for i, (blocks, end) in enumerate(zip(step.places, step.seq_lens, strict=True)):
            rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
            first = 0 if spec.window is None else max(0, end - rows.shape[0] - spec.window + 1)
            pieces = BlockPieces(
                self.xp, self._k[layer], self._v[layer], spec, blocks, first, end, q.dtype
            )
            parts.append(
                attend_pieces(rows, pieces, end, self.xp, return_lse=return_lse, **spec.settings)
            )
        return self._join(parts, return_lse)

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Copies of what a layer holds: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,)."""
        request = known(self._requests, seq_id)
        check_layer(self, layer)
        xp, s = self.xp, request.length
        index = xp.asarray(request.place.blocks, dtype=xp.int64)
        found = []
        for x in (self._k[layer], self._v[layer]):
            x = xp.permute_dims(xp.take(x, index, axis=0), (0, 2, 1, 3))
            found.append(xp.reshape(x, (-1, *x.shape[2:]))[:s, ...])
        return found[0], found[1], xp.arange(s, dtype=xp.int64)

    def storage(self) -> Iterator[Array]:
        """The key array of each layer, and the value array where it has one of its own."""
        for spec, k, v in zip(self.layers, self._k, self._v, strict=True):
            yield k
            if not spec.v_from_k:
                yield v

    def blocks(self, seq_id: Hashable) -> tuple[int, ...]:
        """The block table of a request: which blocks hold its tokens, in order."""
        return tuple(known(self._requests, seq_id).place.blocks)

    def memory(self) -> Memory:
        """Bytes: payload of live tokens (shared ones once), the whole pool, and unfilled slots."""
        reserved = sum(nbytes(x) for x in self.storage())
        a_token = reserved // (self.pool.num_blocks * self.block_size)
        filled: dict[int, int] = {}
        for request in self._requests.values():
            for n, block in enumerate(request.place.blocks):
                here = min(self.block_size, request.length - n * self.block_size)
                filled[block] = max(filled.get(block, 0), here)
        payload = a_token * sum(filled.values())
        claimed = a_token * self.block_size * len(filled)
        return Memory(payload=payload, metadata=0, reserved=reserved, wasted=claimed - payload)
