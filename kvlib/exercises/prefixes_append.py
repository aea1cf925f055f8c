"""The checker of copy-on-write: append a key to a request that shares its last block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvlib.exercises.report import Finding, checker, expect_equal, expect_unchanged, guarded

SIZE = 4


class _Pool:
    """Seven blocks of four keys (D = 2). Requests a and b share blocks 3 and 1; b has 5 alone."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.keys = rng.standard_normal((7, SIZE, 2)).astype(np.float32)
        self.references = [1, 2, 0, 2, 0, 0, 1]
        self.tables = {"a": [3, 1], "b": [3, 1], "c": [6, 0]}
        self.lengths = {"a": 6, "b": 6, "c": 8}

    def text(self, name: str) -> np.ndarray:
        """The keys that a request holds, in order."""
        whole = self.keys[self.tables[name]].reshape(-1, 2)
        return whole[: self.lengths[name]].copy()


@checker
def check_append_key(append_key: Callable[..., Any]) -> Iterator[str]:
    """append_key(keys (N, block_size, D), references, table, length, key (D,)) → length + 1; the
    first three change in place."""
    append = guarded(getattr(append_key, "__wrapped__", append_key), may_modify=True)

    pool = _Pool()
    before = {name: pool.text(name) for name in pool.tables}
    _append(append, pool, "a", "a shares its last block with b")
    _others(pool, before, "a")
    if pool.tables["a"] == [3, 1]:
        raise Finding("a's block table still ends in block 1: after the copy it must name the copy")
    if len(pool.tables["a"]) != 2:
        raise Finding(
            f"a's block table is {pool.tables['a']}: the copy takes the place of block 1, a "
            "request of 7 keys needs two blocks of 4"
        )
    yield "a block that somebody else holds is copied, and the copy written to"

    _counts(pool)
    yield "the copy is held once, and the shared block once less"

    held = list(pool.references)
    table = list(pool.tables["b"])
    _append(append, pool, "b", "b is the last to hold block 1")
    if pool.tables["b"] != table or pool.references != held:
        raise Finding(
            "b copied block 1 although nobody else holds it any more: the last holder writes in "
            "place"
        )
    yield "the last holder writes where it is"

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
    yield "a full block is left alone, and a new one begun"

    pool = _Pool()
    pool.tables["d"], pool.lengths["d"] = [3], 4  # a fork that was taken back to one full block
    pool.references[3] = 3
    before = {name: pool.text(name) for name in pool.tables}
    _append(append, pool, "d", "d's only block is full, and shared")
    _others(pool, before, "d")
    if pool.tables["d"][0] != 3:
        raise Finding("d's full block 3 was copied: nothing is written into it, so it stays shared")
    _counts(pool)
    yield "a full block stays shared"


def _append(append: Callable[..., Any], pool: _Pool, name: str, where: str) -> None:
    """One append to a request, and what it must read afterwards."""
    old, key = pool.text(name), np.array([50.0, 60.0], dtype=np.float32)
    length = pool.lengths[name]
    free = [b for b, n in enumerate(pool.references) if n == 0]
    mine = list(pool.tables[name])
    result = append(pool.keys, pool.references, pool.tables[name], length, key)
    expect_equal(result, length + 1, "the new length")
    pool.lengths[name] = length + 1
    table = pool.tables[name]
    if any(not 0 <= b < len(pool.references) for b in table):
        raise Finding(f"{where}: its block table is {table}, but blocks are 0 to 6")
    if len(table) * SIZE <= length:
        raise Finding(f"{where}: {length + 1} keys do not fit into {len(table)} blocks of 4")
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
            f"{where}: its key at position {first} has changed. The keys that are already in "
            "the block have to be copied along"
        )


def _others(pool: _Pool, before: dict[str, np.ndarray], name: str) -> None:
    """Nobody else's keys may change."""
    for other, keys in before.items():
        if other == name:
            continue
        n = min(len(keys), pool.lengths[other])
        expect_unchanged(pool.text(other)[:n], keys[:n], f"the keys of request {other}")
        whole = pool.keys[pool.tables[other]].reshape(-1, 2)
        if (whole == np.array([50.0, 60.0])).all(axis=1).any():
            raise Finding(
                f"the new key of {name} stands in a block that {other} holds, too: {other}'s next "
                "token would overwrite it. Copy the block first"
            )


def _counts(pool: _Pool) -> None:
    """References are what the tables say."""
    for block, count in enumerate(pool.references):
        held = sum(table.count(block) for table in pool.tables.values())
        if count != held:
            why = "raise it with the block" if count < held else "lower it when you leave it"
            raise Finding(
                f"block {block} stands in {held} block tables and has {count} references: {why}"
            )
