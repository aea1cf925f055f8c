"""Launch choices of prefill: tiles of query rows and of keys, and the shared memory they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvlib.kernels.device import H200, Device
from kvlib.kernels.plans import THREADS, blocks_that_fit
from kvlib.kernels.work import LEAST_KEYS, balanced

FEW_TILES = 4  # of rows of one kv head: with more, a step makes blocks enough without splits


__all__ = ["THREADS", "PrefillPlan", "plan_prefill", "splits_of_rows"]


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


def splits_of_rows(
    plan: PrefillPlan,
    q_lens: Sequence[int],
    lens: Sequence[int],
    num_kv_heads: int,
    groups: int,
    *,
    registers: int | None = None,
    device: Device = H200,
) -> tuple[int, ...]:
    """Splits (B,) of each request's keys in a step of few new tokens; one each in any other step.

    q_lens, lens (B,): new tokens, and keys that are read   groups: query heads of a kv head
    registers: a thread of the kernel takes

    Guesses make few rows, and a block per tile of rows and kv head would leave most of a device
    idle. A split writes and reads a float32 result for each row, so it takes enough keys that these
    bytes are at most a quarter of theirs: with 16-bit numbers 8 keys per row.

    >>> plan = plan_prefill(128, 2)
    >>> splits_of_rows(plan, [16], [65_536], 8, 4)  # a tree of 16 tokens: 64 rows of 8 kv heads
    (33,)
    >>> splits_of_rows(plan, [4096], [65_536], 8, 4)  # a chunk of a prompt: 2,048 blocks
    (1,)
    """
    rows = max(q_lens, default=0) * groups
    if rows > FEW_TILES * plan.rows:
        return (1,) * len(q_lens)
    room = device.sms * blocks_that_fit(registers or 255, plan.shared, device)
    least = max(LEAST_KEYS, 16 * rows // (2 if plan.tensor else 4))
    return balanced(tuple(lens), num_kv_heads * plan.tiles(rows), room, least)
