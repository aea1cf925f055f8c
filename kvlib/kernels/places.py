"""Checks that the kernels over stored keys share: where keys lie, what attention is asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvlib.arrays import Array, namespace, to_numpy
from kvlib.attention import checks as attention
from kvlib.kernels import checks
from kvlib.kernels.types import HEAD_DIMS, LOG2E

MOST_KEYS = 2**30  # of a request: kernels count them in 32 bits


class Places(NamedTuple):
    """The block table (B, width) of keys in blocks of `size`; shift is log2 of it, 31 for rows."""

    table: Array
    size: int
    shift: int
    width: int


def check_places(
    sizes: checks.SIZES, seq_lens: Array, block_table: Array | None, per_head: int
) -> Places:
    """Places of keys (N, Hkv, P, D) for B requests; `sizes` holds those letters and Hq.

    per_head: requests that a row of a dense cache must be there for. Raises ValueError, TypeError.
    """
    xp = namespace(seq_lens)
    checks.check_shape("seq_lens", seq_lens, "B", sizes)
    checks.check_dtype("seq_lens", seq_lens, "int32")
    if sizes["D"] not in HEAD_DIMS:
        raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {sizes['D']}")
    if sizes["Hq"] % sizes["Hkv"]:
        raise ValueError(
            f"query heads must be a multiple of kv heads, got {sizes['Hq']} and {sizes['Hkv']}"
        )
    size = sizes["P"]
    if block_table is None:
        if per_head > sizes["N"]:
            raise ValueError(
                f"k must have a row for each of {per_head} requests, got {sizes['N']} rows"
            )
        checks.check_range("seq_lens", seq_lens, 0, size)
        return Places(xp.arange(per_head, dtype=xp.int32)[:, None], size, 31, 1)
    checks.check_together(seq_lens=seq_lens, block_table=block_table)
    checks.check_shape("block_table", block_table, "B W", sizes)
    checks.check_dtype("block_table", block_table, "int32")
    # One block a request needs no splitting of positions: a row of a dense cache, of any length.
    shift = 31 if sizes["W"] == 1 else checks.power_of_two("block_size", size)
    checks.check_range("seq_lens", seq_lens, 0, size * sizes["W"])
    check_table(block_table, seq_lens, size, sizes["N"])
    return Places(block_table, size, shift, sizes["W"])


def check_table(block_table: Array, seq_lens: Array, size: int, num_blocks: int) -> None:
    """Blocks that a request's keys lie in are blocks of the pool; those behind are not read.

    Looked at on the host, and on a device where KVLIB_CHECK is set (it copies the table back).
    """
    if not checks.looks(block_table):
        return
    table, lens = to_numpy(block_table), to_numpy(seq_lens)
    used = np.arange(table.shape[1])[None, :] * size < lens[:, None]
    wrong = used & ((table < 0) | (table >= num_blocks))
    if wrong.any():
        b, i = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"block_table[{b}, {i}] must be one of {num_blocks} blocks, got {table[b, i]}"
        )


def check_settings(
    dim: int, sm_scale: float | None, softcap: float | None, window: int | None
) -> tuple[float, float, int]:
    """Scale and softcap to base 2, and the window, 0 for none. Raises ValueError."""
    window, sm_scale, softcap = attention.check_settings(window, sm_scale, softcap)
    scale = dim**-0.5 if sm_scale is None else sm_scale
    seen = 0 if window is None else min(window, MOST_KEYS)
    return scale * LOG2E, 0.0 if softcap is None else softcap * LOG2E, seen
