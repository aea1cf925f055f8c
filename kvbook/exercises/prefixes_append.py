"""The checker of copy-on-write: append a key to a request that shares its last block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, bare, checker, expect_equal, expect_unchanged, guarded


class _Pool:
    """Seven blocks of four keys (D = 2). Requests a and b share blocks 3 and 1."""

    def __init__(self, size: int = 4, num_blocks: int = 7) -> None:
        self.size, self.rng = size, np.random.default_rng(0)
        self.keys = self.rng.standard_normal((num_blocks, size, 2)).astype(np.float32)
        self.references = [1, 2, 0, 2, 0, 0, 1]
        self.tables = {"a": [3, 1], "b": [3, 1], "c": [6, 0]}
        self.lengths = {"a": 6, "b": 6, "c": 8}
        self.new = np.array([50.0, 60.0], dtype=np.float32)  # the key appended last

    def text(self, name: str) -> np.ndarray:
        """The keys that a request holds, in order."""
        held = np.array(self.tables[name], dtype=int)
        return self.keys[held].reshape(-1, 2)[: self.lengths[name]].copy()


@checker
def check_append_key(append_key: Callable[..., Any]) -> Iterator[str]:
    """append_key(keys (N, block_size, D), references, table, length, key (D,)) → length + 1; the
    first three change in place."""
    append = guarded(bare(append_key), may_modify=True)

    pool = _Pool()
    before = {name: pool.text(name) for name in pool.tables}
    _append(append, pool, "a", "a shares its last block with b")
    _others(pool, before, "a")
    if pool.tables["a"] == [3, 1]:
        raise Finding("a's block table still ends in block 1: after the copy it must name the copy")
    if pool.tables["a"][:1] != [3]:
        raise Finding(
            f"a's block table is {pool.tables['a']}: its block 3 is full, so nothing is written "
            "into it and it stays shared"
        )
    if len(pool.tables["a"]) != 2:
        raise Finding(
            f"a's block table is {pool.tables['a']}: the copy replaces block 1, because "
            "a request of 7 keys needs two blocks of 4"
        )
    yield "a block that another request holds is copied, and the copy is written to"

    _counts(pool)
    yield "the copy has one holder, and the shared block has one holder less"

    held = list(pool.references)
    table = list(pool.tables["b"])
    _append(append, pool, "b", "b is the last to hold block 1")
    if pool.tables["b"] != table or pool.references != held:
        raise Finding(
            "b copied block 1 although no other request holds it any more: the last holder writes "
            "in place"
        )
    yield "the last holder writes in place"

    pool = _Pool()
    before = {name: pool.text(name) for name in pool.tables}
    _append(append, pool, "c", "c's last block is full")
    _others(pool, before, "c")
    if pool.tables["c"][:2] != [6, 0]:
        raise Finding(
            f"c's block table is {pool.tables['c']}: its two blocks are full, so a third is "
            "appended and none is replaced"
        )
    expect_equal(len(pool.tables["c"]), 3, "blocks of c")
    _counts(pool)
    yield "a full block is left alone, and a new one is begun"

    pool = _Pool()
    pool.tables["d"], pool.lengths["d"] = [3], 4  # a fork that was taken back to one full block
    pool.references[3] = 3
    before = {name: pool.text(name) for name in pool.tables}
    _append(append, pool, "d", "d's only block is full, and shared")
    _others(pool, before, "d")
    if pool.tables["d"][0] != 3:
        raise Finding(
            "d's full block 3 was copied, but nothing is written into it, so it stays shared"
        )
    _counts(pool)
    yield "a full block stays shared"

    pool = _Pool()
    pool.tables["d"], pool.lengths["d"] = [3, 1], 6
    pool.references[3] = pool.references[1] = 3
    for name in "adb":
        before = {other: pool.text(other) for other in pool.tables}
        _append(append, pool, name, f"{pool.references[1]} requests hold block 1, {name} appends")
        _others(pool, before, name)
        _counts(pool)
    if pool.tables["b"] != [3, 1]:
        raise Finding("b was the last of three to hold block 1, but it copied the block")
    for size in (1, 3, 4):
        _life(append, size)
    yield "three holders of a block, then random appends, forks and ends: no text changes"


def _life(append: Callable[..., Any], size: int) -> None:
    """Up to four requests that begin with nothing, grow, fork and end."""
    pool = _Pool(size, 40)
    pool.references, pool.tables, pool.lengths = [0] * 40, {"r0": []}, {"r0": 0}
    for i in range(1, 61):
        name = str(pool.rng.choice(list(pool.tables)))
        chance = pool.rng.random()
        if chance < 0.2 and len(pool.tables) < 4:
            pool.tables[f"r{i}"], pool.lengths[f"r{i}"] = (
                list(pool.tables[name]),
                pool.lengths[name],
            )
            for block in pool.tables[name]:
                pool.references[block] += 1
        elif (chance < 0.28 and len(pool.tables) > 1) or pool.lengths[name] >= 3 * size:
            for block in pool.tables.pop(name):
                pool.references[block] -= 1
            del pool.lengths[name]
            if not pool.tables:
                pool.tables[f"r{i}"], pool.lengths[f"r{i}"] = [], 0
        else:
            before = {other: pool.text(other) for other in pool.tables}
            length, where = pool.lengths[name], f"blocks of {size}"
            shared = length % size > 0 and pool.references[pool.tables[name][-1]] > 1
            table = list(pool.tables[name])
            _append(append, pool, name, f"{where}, {name} holds {length}")
            _others(pool, before, name)
            _counts(pool)
            kept = len(table) - shared
            if pool.tables[name][:kept] != table[:kept]:
                raise Finding(
                    f"{where}: the table was {table} and became {pool.tables[name]}, but only a "
                    "last block that is shared and not full has to be copied"
                )


def _append(append: Callable[..., Any], pool: _Pool, name: str, where: str) -> None:
    """One append to a request, and what it must read afterwards."""
    old, key = pool.text(name), pool.new + np.float32(1)  # no two alike in a pool's life
    given, stored = key.copy(), pool.keys.copy()
    length = pool.lengths[name]
    free = [b for b, n in enumerate(pool.references) if n == 0]
    mine = list(pool.tables[name])
    result = append(pool.keys, pool.references, pool.tables[name], length, given)
    expect_unchanged(given, key, "the new key, argument 5,")
    expect_equal(whole(result, "the new length"), length + 1, "the new length")
    pool.new, pool.lengths[name] = key, length + 1
    table, count = pool.tables[name], len(pool.keys)
    if len(pool.references) != count:
        raise Finding(
            f"{where}: references has {len(pool.references)} entries now: it needs one for each "
            f"of the {count} blocks"
        )
    for b, held in enumerate(pool.references):
        pool.references[b] = whole(held, f"{where}: references[{b}]")
    if any(not 0 <= whole(b, f"{where}: its block table") < count for b in table):
        raise Finding(f"{where}: its block table is {table}, but blocks are 0 to {count - 1}")
    if len(table) * pool.size <= length:
        raise Finding(
            f"{where}: {length + 1} keys do not fit into {len(table)} blocks of {pool.size}"
        )
    for block in table:
        if block not in mine and block not in free:
            raise Finding(
                f"{where}: it took block {block}, which another request holds; a free block has "
                "0 references"
            )
    now = pool.text(name)
    if not np.array_equal(now[-1], key):
        raise Finding(f"{where}: position {length} does not hold the new key")
    if not np.array_equal(now[:-1], old):
        first = int(np.argmax((now[:-1] != old).any(axis=1)))
        raise Finding(
            f"{where}: its key at position {first} has changed. Copy the keys that are already "
            "in the block, too"
        )
    for block in np.flatnonzero((pool.keys != stored).any(axis=(1, 2))).tolist():
        if block not in table and pool.references[block] == 0:
            raise Finding(f"{where}: block {block} was written to, although it is not in its table")


def _others(pool: _Pool, before: dict[str, np.ndarray], name: str) -> None:
    """The keys of the other requests may not change."""
    for other, keys in before.items():
        if other == name:
            continue
        n = min(len(keys), pool.lengths[other])
        expect_unchanged(pool.text(other)[:n], keys[:n], f"the keys of request {other}")
        stored = pool.keys[pool.tables[other]].reshape(-1, 2)
        if (stored == pool.new).all(axis=1).any():
            raise Finding(
                f"the new key of {name} stands in a block that {other} holds, too: {other}'s next "
                "token would overwrite it. Copy the block first"
            )


def _counts(pool: _Pool) -> None:
    """References are what the tables say."""
    for block, count in enumerate(pool.references):
        held = sum(table.count(block) for table in pool.tables.values())
        if count != held:
            why = (
                "raise it when you take a block" if count < held else "lower it when you leave one"
            )
            raise Finding(
                f"block {block} stands in {held} block tables and has {count} references: {why}"
            )
