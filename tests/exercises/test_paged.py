"""Right answers on paging of other forms, and a wrong one that only fails when it is measured."""

from __future__ import annotations

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


def other_append(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
    """Copies token by token, and only those there are."""
    block, off = length // store.shape[1], length % store.shape[1]
    if off == 0:
        (table[block],) = pool.allocate(1)
    elif pool.ref_count(int(table[block])) > 1:
        old, new = int(table[block]), pool.allocate(1)[0]
        for i in range(off):
            store[new][i] = store[old][i]
        table[block] = new
        pool.free([old])
    store[table[block]][off] = k
    return np.int64(length + 1)


def online(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    """Online softmax, one block after another."""
    heads, size, dim = kb.shape[1:]
    rows = q.reshape(heads, -1, dim) / np.float32(dim**0.5)
    top = np.full((*rows.shape[:2], 1), -np.inf, np.float32)
    total, o = np.zeros_like(top), np.zeros_like(rows)
    for n, b in enumerate(table):
        here = min(size, length - n * size)
        s = rows @ kb[b, :, :here].mT
        new = np.maximum(top, s.max(-1, keepdims=True))
        p, shrink = np.exp(s - new), np.exp(top - new)
        total, o, top = total * shrink + p.sum(-1, keepdims=True), o * shrink, new
        o += p @ vb[b, :, :here]
    return (o / total).reshape(q.shape)


@pytest.mark.parametrize(
    "check, answer",
    [
        *((check_slot_mapping, answer) for answer in (by_request, searched, by_block)),
        (check_free_list, Flags),
        *((check_paged_decode, answer) for answer in (decode, in_heads, online)),
        (check_paged_decode, lambda *args: decode(*args, at_once=8)),
        (check_append, other_append),
    ],
)
def test_right_answers_of_other_forms(check: Any, answer: Any) -> None:
    assert check(answer)


def test_a_copy_is_seen_although_the_answer_was_asked_before() -> None:
    assert "the cache was copied" in check_paged_decode(remembers).finding
