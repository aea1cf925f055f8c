"""Answers on paging that passed once and must not, and right ones of other forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.paged import (
    check_append,
    check_free_list,
    check_paged_decode,
    check_slot_mapping,
)
from kvlib.errors import OutOfBlocks

f32 = np.float32


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet" and message in report.finding, report


# slot_mapping -------------------------------------------------------------------------------------


def by_request(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    out = np.empty(len(pos), dtype=np.int32)
    for row, a, b in zip(table, indptr, indptr[1:], strict=False):
        out[a:b] = row[pos[a:b] // size] * size + pos[a:b] % size
    return out


def searched(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.searchsorted(indptr, np.arange(len(pos)), side="right") - 1
    block, offset = np.divmod(pos, size)
    return table[owner, block].astype(np.uint64) * np.uint64(size) + offset.astype(np.uint64)


def by_block(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    """A loop over requests and their blocks."""
    out = np.zeros(len(pos), dtype=np.int64)
    for row, a, b in zip(table, indptr, indptr[1:], strict=False):
        first, last = int(pos[a]), int(pos[b - 1])
        for n in range(first // size, last // size + 1):
            start, stop = max(first, n * size), min(last + 1, (n + 1) * size)
            slots = np.arange(start - n * size, stop - n * size) + int(row[n]) * size
            out[a + start - first : a + stop - first] = slots
    return out


def over_tokens(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.repeat(np.arange(len(table)), np.diff(indptr))
    return np.array([table[o, p // size] * size + p % size for o, p in zip(owner, pos)])


def vectorized(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.repeat(np.arange(len(table)), np.diff(indptr))
    one = np.vectorize(lambda o, p: table[o, p // size] * size + p % size)
    return one(owner, pos)


def by_jumps(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.concatenate([[0], np.cumsum(np.diff(pos) != 1)])
    return table[np.minimum(owner, len(table) - 1), pos // size] * size + pos % size


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (over_tokens, "a loop goes over the tokens"),
        (vectorized, "a function is called for each"),
        (by_jumps, "qo_indptr says which request owns a row"),
        (lambda *a: by_request(*a).astype(np.int16), "ends at 32,767"),
        (lambda *a: by_request(*a).astype(object), "dtype object, needed one of numbers"),
    ],
)
def test_slot_mappings_that_passed(wrong: Callable[..., Any], message: str) -> None:
    refused(check_slot_mapping(wrong), message)


@pytest.mark.parametrize("right", [by_request, searched, by_block])
def test_slot_mappings_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_slot_mapping(right)


# FreeList -----------------------------------------------------------------------------------------


class Left:
    def __init__(self, num_blocks: int) -> None:
        self.left = list(range(num_blocks))

    def allocate(self, count: int) -> Any:
        if count > len(self.left):
            raise OutOfBlocks("too few")
        return [self.left.pop() for _ in range(count)]

    def free(self, blocks: list[int]) -> None:
        if len(set(blocks)) < len(blocks) or set(blocks) & set(self.left):
            raise ValueError("twice")
        self.left.extend(blocks)


class OnTheClass(Left):
    left: list[int] = []

    def __init__(self, num_blocks: int) -> None:
        self.left[:] = range(num_blocks)


class KeepsTheCallersList(Left):
    def free(self, blocks: list[int]) -> None:
        if self.left:
            super().free(blocks)
        elif len(set(blocks)) < len(blocks):
            raise ValueError("twice")
        else:
            self.left = blocks


class EmptiesTheCallersList(Left):
    def free(self, blocks: list[int]) -> None:
        super().free(blocks)
        blocks.clear()


class OneListForAll(Left):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.out: list[int] = []

    def allocate(self, count: int) -> Any:
        self.out[:] = super().allocate(count)
        return self.out


class Gives(Left):
    make: Any = staticmethod(float)

    def allocate(self, count: int) -> Any:
        return [self.make(b) for b in super().allocate(count)]


class Texts(Gives):
    make = staticmethod(lambda b: f"b{b}")


class Nothings(Gives):
    make = staticmethod(lambda b: None)


class Nested(Gives):
    make = staticmethod(lambda b: [b])


class Breaks(Left):
    def allocate(self, count: int) -> Any:
        raise RuntimeError("not mine")


class TakesBackOne(Left):
    def free(self, blocks: list[int]) -> None:
        super().free(blocks[:1])


class RefusesWhatWasFreedBefore(Left):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.seen: set[int] = set()

    def free(self, blocks: list[int]) -> None:
        if self.seen & set(blocks):
            raise ValueError("twice")
        self.seen |= set(blocks)
        super().free(blocks)


class Asserts(Left):
    def free(self, blocks: list[int]) -> None:
        assert not set(blocks) & set(self.left)
        super().free(blocks)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (OnTheClass, "Each keeps its own list"),
        (KeepsTheCallersList, "block -1 was handed out: free kept the caller's own list"),
        (EmptiesTheCallersList, "changed the list that it was given"),
        (OneListForAll, "hand out a new list each time"),
        (Gives, "got 5.0 (float), needed a whole number"),
        (Texts, "got 'b5' (str), needed a whole number"),
        (Nothings, "got None, needed a whole number"),
        (Nested, "got [5] (list), needed a whole number"),
        (Breaks, "allocate raised RuntimeError: not mine"),
        (TakesBackOne, "did free take back all of the list?"),
        (RefusesWhatWasFreedBefore, "refuse only a block that is free already"),
        (Asserts, "raised AssertionError: raise ValueError"),
    ],
)
def test_free_lists_that_passed_or_broke_the_checker(wrong: Any, message: str) -> None:
    refused(check_free_list(wrong), message)


class Flags:
    def __init__(self, num_blocks: int) -> None:
        self.is_free = np.ones(num_blocks, bool)

    def allocate(self, count: int) -> Any:
        blocks = np.flatnonzero(self.is_free)[:count]
        if len(blocks) < count:
            raise OutOfBlocks("too few")
        self.is_free[blocks] = False
        return tuple(blocks)

    def free(self, blocks: list[int]) -> bool:
        if self.is_free[blocks].any() or len(set(blocks)) < len(blocks):
            raise ValueError("twice")
        self.is_free[blocks] = True
        return True


def test_a_free_list_of_another_form() -> None:
    assert check_free_list(Flags)


# paged_decode -------------------------------------------------------------------------------------


def decode(
    q: Any, kb: Any, vb: Any, table: Any, length: int, top: Any = None, at_once: int = 1
) -> Any:
    """Some blocks at a time are gathered; the scores of all are kept."""
    heads, size, dim = kb.shape[1:]
    rows = q.reshape(heads, -1, dim) / f32(dim**0.5)

    def piece(x: Any, a: int) -> Any:
        found = x[table[a : a + at_once]].swapaxes(0, 1).reshape(heads, -1, dim)
        return found[:, : length - a * size]

    starts = range(0, len(table), at_once)
    s = np.concatenate([rows @ piece(kb, a).mT for a in starts], axis=-1)
    p = np.exp(s - (s.max(-1, keepdims=True) if top is None else top(s)))
    p /= p.sum(-1, keepdims=True)
    o = sum(p[..., a * size : (a + at_once) * size] @ piece(vb, a) for a in starts)
    return np.asarray(o).reshape(q.shape)


def in_heads(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    """A loop over heads and blocks."""
    groups, size, out = len(q) // kb.shape[1], kb.shape[2], np.zeros_like(q)
    for h in range(len(q)):
        left, scores = length, []
        for b in table:
            scores += (kb[b, h // groups, : min(size, left)] @ q[h]).tolist()
            left -= size
        p = np.exp((np.array(scores, f32) - max(scores)) / f32(q.shape[1] ** 0.5))
        for i, b in enumerate(table):
            share = p[i * size : (i + 1) * size] / p.sum()
            out[h] += share @ vb[b, h // groups, : len(share)]
    return out


def remembers(q: Any, kb: Any, vb: Any, table: Any, length: int, known: Any = {}) -> Any:  # noqa: B006
    """Copies the cache the first time a question is asked."""
    key = q.tobytes()
    if key not in known:
        known[key] = decode(q, kb, vb, table, length, at_once=len(table))
    return known[key]


def shifted(q: Any, kb: Any, vb: Any, table: Any, length: int, running: bool) -> Any:
    """One pass; each block subtracts its own top, or the running one, and nothing is shrunk."""
    heads, size, dim = kb.shape[1:]
    rows = q.reshape(heads, -1, dim) / f32(dim**0.5)
    total, o, top = 0.0, np.zeros_like(rows), np.full((*rows.shape[:2], 1), -np.inf, f32)
    for n, b in enumerate(table):
        s = rows @ kb[b, :, : min(size, length - n * size)].mT
        own = s.max(-1, keepdims=True)
        top = np.maximum(top, own) if running else own
        p = np.exp(s - top)
        total, o = total + p.sum(-1, keepdims=True), o + p @ vb[b, :, : p.shape[-1]]
    return (o / total).reshape(q.shape)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: decode(*a, top=lambda s: 0), "e^score overflows"),
        (lambda *a: decode(*a, top=np.max), "each head's own largest score before e^score"),
        (remembers, "the cache was copied"),
        (lambda *a: decode(*a, at_once=len(a[3])), "the cache was copied"),
        (lambda *a: shifted(*a, running=False), "each block had its own largest score"),
        (lambda *a: shifted(*a, running=True), "multiply them by e^(old top - new top)"),
        (lambda q, k, v, t, n: decode(q, k[:, :1], v[:, :1], t, n), "uses key/value head 0"),
        (lambda q, k, v, t, n: decode(q, v, k, t, n), "keys and values changed places"),
        (lambda q, *a: np.full(q.shape, None), "dtype object, needed one of numbers"),
    ],
)
def test_decodes_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_paged_decode(wrong), message)


@pytest.mark.parametrize("right", [decode, lambda *a: decode(*a, at_once=8), in_heads])
def test_decodes_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_paged_decode(right)


# append -------------------------------------------------------------------------------------------


def append(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
    """Copies token by token, and only those there are."""
    block, off = length // store.shape[1], length % store.shape[1]
    if off == 0:
        (table[block],) = pool.allocate(1)
    elif pool.references(int(table[block])) > 1:
        old, new = int(table[block]), pool.allocate(1)[0]
        for i in range(off):
            store[new][i] = store[old][i]
        table[block] = new
        pool.free([old])
    store[table[block]][off] = k
    return np.int64(length + 1)


def never_copies(store: Any, table: Any, length: int, k: Any, pool: Any) -> int:
    block, off = divmod(length, store.shape[1])
    if off == 0:
        table[block] = pool.allocate(1)[0]
    store[table[block], off] = k
    return length + 1


def clears_a_free_block(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
    after = append(store, table, length, k, pool)
    store[next(b for b in range(len(store)) if not pool.references(b))] = 0
    return after


def forgets_k(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
    after = append(store, table, length, k, pool)
    k[:] = 0
    return after


def names(block: int) -> Callable[..., Any]:
    def wrong(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
        after = append(store, table, length, k, pool)
        table[length // store.shape[1]] = block
        return after

    return wrong


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (never_copies, "no copy was made"),
        (clears_a_free_block, "a later request may use what it holds"),
        (forgets_k, "the new key, k, was changed in place"),
        (names(77), "names block 77 now: the pool has blocks 0 to 31"),
        (names(-1), "names block -1 now"),
        (lambda *a: np.array([append(*a)] * 2), "needed a whole number"),
        (lambda *a: str(append(*a)), "got '1' (str), needed a whole number"),
    ],
)
def test_appends_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_append(wrong), message)


def test_an_append_of_another_form() -> None:
    assert check_append(append)
