"""Launch choices of prefill: tiles of query rows and of keys, and the shared memory they take."""

from __future__ import annotations

from typing import NamedTuple

THREADS = 128


class PrefillPlan(NamedTuple):
    """rows of queries and keys of a tile   shared: bytes a block   tensor: tensor cores or not"""

    rows: int
    keys: int
    shared: int
    tensor: bool

    def tiles(self, rows: int) -> int:
        """Blocks that so many rows of one kv head take."""
        return max(1, -(-rows // self.rows))


def plan_prefill(head_dim: int, itemsize: int) -> PrefillPlan:
    """How attention of many query tokens is launched.

    Tensor cores take 16-bit numbers: a warp has 16 rows, a block 64, and 64 keys at a time, or 32
    where a head of 256 numbers would not leave room for a second block on a multiprocessor. float32
    has no tensor core that keeps it exact: 32 rows by 32 keys, 16 for a head of 256. A row in
    shared memory is 16 bytes longer than its numbers: rows side by side meet no bank twice.
    """
    if itemsize == 2:
        rows, keys = 64, 32 if head_dim > 128 else 64
        return PrefillPlan(rows, keys, (rows + 2 * keys) * (head_dim + 8) * 2, True)
    rows, keys = 32, 16 if head_dim > 128 else 32
    return PrefillPlan(
        rows, keys, 4 * ((rows + 2 * keys) * (head_dim + 4) + rows * (keys + 1)), False
    )
