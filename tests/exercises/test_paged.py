"""Known wrong answers to the exercises on paging, each refused in the words that fit it."""

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
from kvlib.attention import attend
from kvlib.errors import OutOfBlocks

# slot_mapping -------------------------------------------------------------------------------------


def slots(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.repeat(np.arange(len(table)), np.diff(indptr))
    return table[owner, pos // size] * size + pos % size


def owner_of(table: Any, indptr: Any) -> Any:
    return np.repeat(np.arange(len(table)), np.diff(indptr))


WRONG_SLOTS: list[tuple[Callable[..., Any], str]] = [
    (lambda t, i, p, n: p.copy(), "the table was not used"),
    (lambda t, i, p, n: t[0, p // n] * n + p % n, "looked up in the table of request 0"),
    (lambda t, i, p, n: t[owner_of(t, i), p // n], "these are blocks, not slots"),
    (lambda t, i, p, n: t[owner_of(t, i), p // n] + p % n, "block + offset"),
    (lambda t, i, p, n: t[owner_of(t, i), p // n] * n, "add the offset"),
    (lambda t, i, p, n: slots(t, i, p, n) + 1, "one too far"),
    (
        lambda t, i, p, n: t[owner_of(t, i), np.minimum(p % n, 2)] * n + p // n,
        "// and % are exchanged",
    ),
    (lambda t, i, p, n: slots(t, i, p, n).astype(float), "needed integers"),
    (lambda t, i, p, n: slots(t, i, p, n)[:, None], "have shape (8, 1)"),
    (lambda t, i, p, n: slots(t, i, p, 4), "slots, blocks of 1"),
    (
        lambda t, i, p, n: p // n * n + p % n + owner_of(t, i) * t.shape[1] * n,
        "position // 4 was used as the block",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_SLOTS)
def test_wrong_slot_mappings(wrong: Callable[..., Any], message: str) -> None:
    report = check_slot_mapping(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_slot_mapping() -> None:
    assert check_slot_mapping(slots)


# FreeList -----------------------------------------------------------------------------------------


class Right:
    first = 0

    def __init__(self, num_blocks: int) -> None:
        self.left = list(range(self.first, num_blocks + self.first))

    def allocate(self, count: int) -> list[int]:
        if count > len(self.left):
            raise OutOfBlocks(f"{count} needed, {len(self.left)} free")
        return [self.left.pop() for _ in range(count)]

    def free(self, blocks: list[int]) -> None:
        if set(blocks) & set(self.left) or len(set(blocks)) < len(blocks):
            raise ValueError("freed twice")
        self.left.extend(blocks)


class PopsUntilEmpty(Right):
    def allocate(self, count: int) -> list[int]:
        return [self.left.pop() for _ in range(count)]


class TakesAndThenRefuses(Right):
    def allocate(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            if not self.left:
                raise OutOfBlocks("none left")
            taken.append(self.left.pop())
        return taken


class GivesFewer(Right):
    def allocate(self, count: int) -> list[int]:
        return [self.left.pop() for _ in range(min(count, len(self.left)))]


class GivesNone(Right):
    def allocate(self, count: int) -> Any:
        return None if count > len(self.left) else super().allocate(count)


class ForgetsToTake(Right):
    def allocate(self, count: int) -> list[int]:
        return self.left[:count]


class NeverTakesBack(Right):
    def free(self, blocks: list[int]) -> None:
        """Nothing comes back."""


class TakesTwice(Right):
    def free(self, blocks: list[int]) -> None:
        self.left.extend(blocks)


class TakesOneTwiceInACall(Right):
    def free(self, blocks: list[int]) -> None:
        if set(blocks) & set(self.left):
            raise ValueError("freed twice")
        self.left.extend(blocks)


class TakesUntilItRefuses(Right):
    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            if block in self.left:
                raise ValueError("freed twice")
            self.left.append(block)


class KeepsOneBack(Right):
    def allocate(self, count: int) -> list[int]:
        if count >= len(self.left) > 0:
            raise OutOfBlocks("none left")
        return super().allocate(count)


class DoesNotImport(Right):
    def allocate(self, count: int) -> list[int]:
        if count > len(self.left):
            raise OutOfBlock("none left")  # noqa: F821
        return super().allocate(count)


class FromOne(Right):
    first = 1


class OneTooMany(Right):
    def allocate(self, count: int) -> list[int]:
        return super().allocate(count + 1)


class NoFree:
    def __init__(self, num_blocks: int) -> None:
        self.left = list(range(num_blocks))

    def allocate(self, count: int) -> list[int]:
        return [self.left.pop() for _ in range(count)]


class GivesASet(Right):
    def allocate(self, count: int) -> Any:
        return set(super().allocate(count))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PopsUntilEmpty, "raised IndexError: raise OutOfBlocks"),
        (TakesAndThenRefuses, "a request that is refused must change nothing"),
        (GivesFewer, "has nowhere to write the rest"),
        (GivesNone, "gave None: raise OutOfBlocks"),
        (ForgetsToTake, "a block now has two owners"),
        (NeverTakesBack, "could not be allocated any more"),
        (TakesTwice, "stands in the list twice"),
        (TakesOneTwiceInACall, "free([5, 5]): one block twice in one call"),
        (TakesUntilItRefuses, "check the whole list before you free any"),
        (KeepsOneBack, "raised OutOfBlocks although enough were free"),
        (DoesNotImport, "NameError (name 'OutOfBlock' is not defined)"),
        (FromOne, "a pool of 6 has blocks 0 to 5"),
        (OneTooMany, "allocate(2) gave 3 blocks"),
        (NoFree, "has no method free"),
        (GivesASet, "returned set, needed a list"),
        (lambda n: Right(n), "hand over the class"),
    ],
)
def test_wrong_free_lists(wrong: Any, message: str) -> None:
    report = check_free_list(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_free_list() -> None:
    assert check_free_list(Right)


# paged_decode -------------------------------------------------------------------------------------


def flat(x: Any, blocks: Any) -> Any:
    """(S, Hkv, D) of some blocks."""
    found = x[list(blocks)].swapaxes(1, 2)
    return found.reshape(-1, *found.shape[2:])


def over(q: Any, k: Any, v: Any, **settings: Any) -> Any:
    s = np.arange(len(k))
    return np.asarray(attend(q[None], k, v, s[-1:], s, **settings))[0]


def decode(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
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


def copies(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return over(q, flat(kb, table)[:length], flat(vb, table)[:length])


def joins(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    k, v = (np.concatenate([x[b] for b in table], axis=1)[:, :length] for x in (kb, vb))
    return over(q, k.swapaxes(0, 1), v.swapaxes(0, 1))


def logical(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    n = range(len(table))
    return over(q, flat(kb, n)[:length], flat(vb, n)[:length])


def whole_last(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return over(q, flat(kb, table), flat(vb, table))


def no_last(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    n = max(1, length // kb.shape[2])
    return copies(q, kb, vb, table[:n], min(length, n * kb.shape[2]))


def no_first_block_of_one(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return np.zeros_like(q) if length == 1 else decode(q, kb, vb, table, length)


def unscaled(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    k, v = flat(kb, table)[:length], flat(vb, table)[:length]
    return over(q, k, v, sm_scale=1.0)


def tiled(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    heads, dim = kb.shape[1], q.shape[1]
    rows = q.reshape(-1, heads, dim).swapaxes(0, 1).reshape(q.shape)
    o = copies(rows, kb, vb, table, length)
    return o.reshape(heads, -1, dim).swapaxes(0, 1).reshape(q.shape)


def averaged(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    parts = [over(q, flat(kb, [b]), flat(vb, [b])) for b in table]
    return np.mean(parts, axis=0)


def added(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return len(table) * averaged(q, kb, vb, table, length)


def last_only(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return over(q, flat(kb, table[-1:]), flat(vb, table[-1:]))


def first_only(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return over(q, flat(kb, table[:1]), flat(vb, table[:1]))


def doubles(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    return decode(q, kb, vb, table, length).astype(np.float64)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (copies, "the cache was copied"),
        (joins, "the cache was copied"),
        (logical, "a block that is not in the table was read"),
        (whole_last, "slots after the last token were read"),
        (no_last, "the last block is missing"),
        (no_first_block_of_one, "no block was read"),
        (unscaled, "divide them by sqrt(D)"),
        (tiled, "head h uses key/value head h // G"),
        (averaged, "the results were averaged"),
        (added, "the results were added"),
        (last_only, "only the last block"),
        (first_only, "only the first block"),
        (doubles, "o is float64, needed float32"),
        (lambda q, k, v, t, n: decode(q, k, v, t, n)[None], "o has shape (1, 6, 8)"),
    ],
)
def test_wrong_decodes(wrong: Callable[..., Any], message: str) -> None:
    report = check_paged_decode(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_decode() -> None:
    assert check_paged_decode(decode)


# append -------------------------------------------------------------------------------------------


def append(
    store: Any,
    table: Any,
    length: int,
    k: Any,
    pool: Any,
    *,
    begins: Callable[[int, int], bool] = lambda length, size: length % size == 0,
    content: bool = True,
    frees: bool = True,
    points: bool = True,
    always: bool = False,
) -> int:
    """The mended append, or one in which something is left as it was."""
    size = store.shape[1]
    block, off = divmod(length, size)
    new_block = begins(length, size)
    if new_block:
        table[block] = pool.allocate(1)[0]
    old = int(table[block])
    if not pool.writable(old) or (always and off and length > 9):
        new = pool.allocate(1)[0]
        if content:
            store[new] = store[old]
        if frees:
            pool.free([old])
        if points:
            table[block] = new
    store[int(table[block]), off] = k
    return length + 1


def variant(**how: Any) -> Callable[..., Any]:
    return lambda store, table, length, k, pool: append(store, table, length, k, pool, **how)


def late(length: int, size: int) -> bool:
    return (length - 1) % size == 0


def early(store: Any, table: Any, length: int, k: Any, pool: Any) -> int:
    after = append(store, table, length, k, pool)
    if after % store.shape[1] == 0:
        table[after // store.shape[1]] = pool.allocate(1)[0]
    return after


def length_as_it_was(*args: Any) -> int:
    return append(*args) - 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (variant(begins=late, points=False), "token 0 of another request, x, was overwritten"),
        (variant(begins=late), "A block is needed when length % block_size is 0"),
        (variant(points=False), "its table still names the block"),
        (variant(points=False, frees=False), "its table still names the block"),
        (variant(content=False), "lost token 8"),
        (variant(frees=False), "a request that leaves a block must free it"),
        (variant(always=True), "a request that holds a block alone writes into it"),
        (early, "take a block for its first token, not before"),
        (length_as_it_was, "but append returned 0"),
    ],
)
def test_wrong_appends(wrong: Callable[..., Any], message: str) -> None:
    report = check_append(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_append() -> None:
    assert check_append(variant())
