"""The checker of an append whose two bugs the reader mends: a block boundary, and a stale table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, bare, checker, expect_unchanged, guarded
from kvlib.caches import BlockPool

STALE = (
    "{} wrote after a fork and made a copy, but its table still names the block that both hold, "
    "so the token went where the other request reads"
)
UNCOPIED = (
    "{} wrote after a fork and no copy was made: the token went into a block that another "
    "request holds, too"
)
_HKV, _D, _ROOM, _BLOCKS = 1, 2, 16, 32


class _Request:
    """A padded block table as a kernel takes it, and the keys that should be found through it."""

    def __init__(self) -> None:
        self.table = np.zeros(_ROOM, dtype=np.int32)
        self.keys: list[np.ndarray] = []

    def used(self, size: int) -> int:
        return -(-len(self.keys) // size)


class _Server:
    """Requests over one store; all of them are checked after each token."""

    def __init__(self, append: Callable[..., Any], size: int) -> None:
        self.append = guarded(bare(append), may_modify=True)
        self.size, self.rng = size, np.random.default_rng(size)
        self.pool = BlockPool(_BLOCKS, size, log=True)
        self.store = np.full((_BLOCKS, size, _HKV, _D), np.nan, dtype=np.float32)
        self.requests: dict[str, _Request] = {}
        # The block of another request, written without the function under test. It is block 0, the
        # number that also stands in the unused entries of a table.
        other = self.requests["x"] = _Request()
        other.table[:1] = self.pool.allocate(1)
        other.keys = [self._key() for _ in range(size)]
        self.store[other.table[0]] = other.keys

    def _key(self) -> np.ndarray:
        return self.rng.standard_normal((_HKV, _D)).astype(np.float32)

    def grow(self, name: str) -> None:
        request = self.requests.setdefault(name, _Request())
        length, key = len(request.keys), self._key()
        shared = self._shared(request)
        given, stored = key.copy(), self.store.copy()
        before = len(self.pool.events or ())
        got = self.append(self.store, request.table, length, given, self.pool)
        expect_unchanged(given, key, "the new key, k,")
        request.keys.append(key)
        if whole(got, f"the length after the token at position {length}") != length + 1:
            raise Finding(
                f"the length was {length} and a token was added, but append returned {got!r}"
            )
        wrong = [b for b in request.table.tolist() if not 0 <= b < _BLOCKS]
        if wrong:
            raise Finding(
                f"the table of {name} names block {wrong[0]} now: the pool has blocks 0 to "
                f"{_BLOCKS - 1}"
            )
        taken = [e for e in (self.pool.events or ())[before:] if e.kind == "allocate"]
        self._look(name, (STALE if taken else UNCOPIED) if shared else "")
        same = (self.store == stored) | (np.isnan(self.store) & np.isnan(stored))
        for b in np.flatnonzero(~same.all(axis=(1, 2, 3))).tolist():
            if b not in request.table[: request.used(self.size)]:
                raise Finding(
                    f"block {b} changed when token {length} of {name} was added, but {name}'s "
                    "table does not name it. Write into no other block, not even a free one, "
                    "because a later request may use what it holds"
                )

    def _shared(self, request: _Request) -> bool:
        n, off = divmod(len(request.keys), self.size)
        return off > 0 and self.pool.references(int(request.table[n])) > 1

    def fork(self, name: str, other: str) -> None:
        source = self.requests[name]
        self.pool.touch(source.table[: source.used(self.size)].tolist())
        copy = self.requests[other] = _Request()
        copy.table[:], copy.keys = source.table, list(source.keys)

    def free(self, name: str) -> None:
        request = self.requests.pop(name)
        self.pool.free(request.table[: request.used(self.size)].tolist())

    def _look(self, grown: str, shared: str) -> None:
        """shared: what to say if the block written to was held by others, too, and still is."""
        for name, request in self.requests.items():
            for pos, key in enumerate(request.keys):
                n, off = divmod(pos, self.size)
                if not np.array_equal(self.store[request.table[n], off], key):
                    raise Finding(self._words(name, pos, grown, shared))
        for name, request in self.requests.items():
            used = request.used(self.size)
            if name == grown and used < _ROOM and request.table[used:].any():
                raise Finding(
                    f"{len(request.keys)} tokens in blocks of {self.size}, and entry {used} of the "
                    "table is set already: take a block for its first token, not before"
                )
        held = self._held()
        wrong = [b for b in range(_BLOCKS) if self.pool.references(b) != held.get(b, 0)]
        if wrong:
            b = wrong[0]
            if shared and any(block not in held for block in wrong):
                raise Finding(shared.format(grown))
            raise Finding(
                f"block {b} stands in {held.get(b, 0)} tables and is held "
                f"{self.pool.references(b)} times after {grown} grew to "
                f"{len(self.requests[grown].keys)} tokens: a request that leaves a block must "
                "free it exactly once"
            )

    def _held(self) -> dict[int, int]:
        held: dict[int, int] = {}
        for request in self.requests.values():
            for b in request.table[: request.used(self.size)].tolist():
                held[b] = held.get(b, 0) + 1
        return held

    def _words(self, name: str, pos: int, grown: str, shared: str) -> str:
        request, n = self.requests[grown], (len(self.requests[grown].keys) - 1) // self.size
        if name != grown and shared:
            return shared.format(grown)
        if name == "x" and request.table[n] == 0:
            return (
                f"token {pos} of another request, x, was overwritten by token "
                f"{len(request.keys) - 1} of {grown}, because entry {n} of {grown}'s table was "
                "never set. It is still 0, and block 0 belongs to x. A block is needed when "
                "length % block_size is 0"
            )
        if name == grown and shared and pos < len(request.keys) - 1:
            return (
                f"{grown} got a block of its own and lost token {pos}: copy what the old block "
                "held into the new one"
            )
        return (
            f"after token {len(request.keys) - 1} of {grown}, token {pos} of {name} is not where "
            "its table says"
        )


@checker
def check_append(append: Callable[..., Any]) -> Iterator[str]:
    """append(store (N, bs, Hkv, D), table (max_blocks,), length, k (Hkv, D), pool) → length + 1."""
    server = _Server(append, 4)
    for _ in range(10):
        server.grow("a")
    yield "ten tokens over two block boundaries, and no other request was touched"

    server.fork("a", "b")
    before = len(server.pool.events or ())
    server.grow("b")
    server.grow("b")
    server.grow("a")
    yield "after a fork, the first request to write gets a copy, and both keep their tokens"
    taken = [e for e in (server.pool.events or ())[before:] if e.kind == "allocate"]
    if len(taken) > 1:
        raise Finding(
            f"{len(taken)} blocks were taken where one copy was needed: a request that holds a "
            "block alone writes into it"
        )
    for name in "abx":
        server.free(name)
    yield "a request that holds a block alone writes in place, and no block is lost"

    for size in (1, 3):
        server = _Server(append, size)
        for name in "aaaaa":
            server.grow(name)
        server.fork("a", "b")
        for name in "ba":
            server.grow(name)
        server.fork("b", "c")
        for name in "abcabccba":
            server.grow(name)
    yield "blocks of one token and of three, with two forks"
