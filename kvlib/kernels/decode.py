"""Decode attention: one query token a request, over keys in blocks or in rows of a dense cache."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from kvlib.arrays import Array, to_numpy
from kvlib.kernels import checks, engine
from kvlib.kernels.device import H200, Device
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans import THREADS, DecodePlan, plan_decode
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import HEAD_DIMS, LOG2E, ctype


def decode_attention(
    q: Array,
    k: Array,
    v: Array,
    seq_lens: Array,
    block_table: Array | None = None,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    max_len: int | None = None,
    splits: int | None = None,
    return_lse: bool = False,
    run_on: str | None = None,
) -> Array | tuple[Array, Array]:
    """Attention of one query a request over its first `seq_lens` keys.

    q (B, Hq, D)   k, v (N, Hkv, P, D)   seq_lens (B,) int32   block_table (B, W) int32
    →   o (B, Hq, D), and with ``return_lse`` lse (B, Hq) float32, natural logarithm

    With a block table, k and v are N blocks of P positions (a power of two). Without one they are
    the rows of a dense cache, row b for request b. Numbers are float32, float16, or bfloat16 as
    uint16 bits; sums are float32. D is one of 64, 96, 128, 256. window counts the query itself.
    max_len: the longest of seq_lens where the caller knows it; else what the blocks could hold.
    splits: blocks that share a request's keys, chosen by :func:`kvlib.kernels.plans.plan_decode`.
    run_on: "device", "processor" or "twin" (kvlib.kernels.engine).

    A request without keys gives (0, −inf). Split keys and merged states are Flash-Decoding
    (arXiv:2311.01282); the online softmax is arXiv:2205.14135. Raises ValueError and TypeError for
    what does not fit, before anything is launched.
    """
    where = engine.chosen(run_on, q)
    table, size, shift, width = _checked(q, k, v, seq_lens, block_table)
    scale, cap, window = _settings(q, sm_scale, softcap, window)
    (batch, num_qo_heads, dim), num_kv_heads = q.shape, k.shape[1]
    keys = width * size if max_len is None else max_len
    plan = plan_decode(
        batch, num_kv_heads, num_qo_heads // num_kv_heads, dim, min(keys, window or keys),
        splits=splits, device=_device(where),
    )  # fmt: skip
    if where == "twin":
        from kvlib.kernels.twins.decode import decode

        o, lse = decode(q, k, v, seq_lens, table, shift, window, scale, cap, plan)
        return (o, lse) if return_lse else o
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    numbers = (width, size, shift, num_kv_heads, num_qo_heads // num_kv_heads, window)
    launches = launches_of(plan, o, lse, q, k, v, table, seq_lens, numbers, scale, cap)
    engine.start(where, *launches)
    return (o, lse) if return_lse else o


def launches_of(
    plan: DecodePlan,
    o: Array,
    lse: Array,
    q: Array,
    k: Array,
    v: Array,
    table: Array,
    seq_lens: Array,
    numbers: tuple[int, ...],
    scale: float,
    cap: float,
) -> list[Launch]:
    """The launches of one call: the blocks, and the merge where keys are split."""
    batch, num_qo_heads, dim = q.shape
    kind, num_kv_heads = ctype(q, "q"), k.shape[1]
    parts: tuple[Array | None, Array | None] = (None, None)
    if plan.merges:
        parts = (
            engine.empty(q, (plan.splits, batch, num_qo_heads, dim), np.float32),
            engine.empty(q, (plan.splits, batch, num_qo_heads), np.float32),
        )
    args = (
        o, lse, *parts, q, k, None, None, v, None, None, table, seq_lens,
        *(np.int32(n) for n in numbers), np.float32(scale), np.float32(cap),
    )  # fmt: skip
    grid = (plan.splits, num_kv_heads * plan.tiles, batch)
    name = f"decode<{kind}, Plain<{kind}>, {dim}, {plan.rows}>"
    launches = [Launch(Kernel("decode", name), grid, THREADS, plan.shared, args)]
    if plan.merges:
        merge = Kernel("decode", f"merge<{kind}, {dim}>")
        rows = (batch * num_qo_heads, 1, 1)
        launches.append(Launch(merge, rows, THREADS, 0, (o, lse, *parts, np.int32(plan.splits))))
    return launches


def _device(where: str) -> Device:
    if where == "device":
        from kvlib.kernels.device import here

        return here()
    return H200


def _checked(
    q: Array, k: Array, v: Array, seq_lens: Array, block_table: Array | None
) -> tuple[Array, int, int, int]:
    """(block table, block size, its shift, blocks a row) of arrays that fit each other."""
    xp = checks.check_together(q=q, k=k, v=v, seq_lens=seq_lens)
    sizes: checks.SIZES = {}
    checks.check_shape("q", q, "B Hq D", sizes)
    checks.check_shape("k", k, "N Hkv P D", sizes)
    checks.check_shape("v", v, "N Hkv P D", sizes)
    checks.check_shape("seq_lens", seq_lens, "B", sizes)
    kind = np.dtype(q.dtype).name
    ctype(q, "q")
    checks.check_dtype("k", k, kind)
    checks.check_dtype("v", v, kind)
    checks.check_dtype("seq_lens", seq_lens, "int32")
    if sizes["D"] not in HEAD_DIMS:
        raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {sizes['D']}")
    if sizes["Hq"] % sizes["Hkv"]:
        raise ValueError(
            f"query heads must be a multiple of kv heads, got {sizes['Hq']} and {sizes['Hkv']}"
        )
    size = sizes["P"]
    if block_table is None:
        if sizes["B"] > sizes["N"]:
            raise ValueError(f"a row of k for each request needed: {sizes['B']}, got {sizes['N']}")
        checks.check_range("seq_lens", seq_lens, 0, size)
        return xp.arange(sizes["B"], dtype=xp.int32)[:, None], size, 31, 1
    checks.check_together(q=q, block_table=block_table)
    checks.check_shape("block_table", block_table, "B W", sizes)
    checks.check_dtype("block_table", block_table, "int32")
    shift = checks.power_of_two("block_size", size)
    checks.check_range("seq_lens", seq_lens, 0, size * sizes["W"])
    check_table(block_table, seq_lens, size, sizes["N"])
    return block_table, size, shift, sizes["W"]


def check_table(block_table: Array, seq_lens: Array, size: int, num_blocks: int) -> None:
    """Blocks that a request's keys lie in are blocks of the pool; those behind are not read."""
    if not (isinstance(block_table, np.ndarray) or os.environ.get("KVLIB_CHECK")):
        return
    table, lens = to_numpy(block_table), to_numpy(seq_lens)
    used = np.arange(table.shape[1])[None, :] * size < lens[:, None]
    wrong = used & ((table < 0) | (table >= num_blocks))
    if wrong.any():
        b, i = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"block_table[{b}, {i}] must be one of {num_blocks} blocks, got {table[b, i]}"
        )


def _settings(
    q: Array, sm_scale: float | None, softcap: float | None, window: int | None
) -> tuple[float, float, int]:
    """Scale and softcap to base 2, and the window, 0 for none."""
    scale = q.shape[2] ** -0.5 if sm_scale is None else float(sm_scale)
    if not math.isfinite(scale):
        raise ValueError(f"sm_scale must be finite, got {sm_scale!r}")
    if softcap is not None and not (math.isfinite(softcap) and softcap > 0):
        raise ValueError(f"softcap must be above 0, got {softcap!r}")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1 token, got {window!r}")
    return scale * LOG2E, 0.0 if softcap is None else softcap * LOG2E, window or 0


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    from kvlib.kernels.plans import ROWS
    from kvlib.kernels.types import CTYPES

    found = [
        Kernel("decode", f"decode<{t}, Plain<{t}>, {dim}, {rows}>")
        for t in CTYPES.values() for dim in HEAD_DIMS for rows in ROWS
    ]  # fmt: skip
    return found + [
        Kernel("decode", f"merge<{t}, {dim}>") for t in CTYPES.values() for dim in HEAD_DIMS
    ]


__all__: list[Any] = ["decode_attention"]
