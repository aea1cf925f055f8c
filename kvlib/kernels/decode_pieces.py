"""Decode attention over several pieces of a request's keys, merged: its launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlib.arrays import Array
from kvlib.kernels import engine
from kvlib.kernels.device import H200, Device
from kvlib.kernels.launch import Launch
from kvlib.kernels.pieces import Piece, Settings
from kvlib.kernels.plans import THREADS, WARPS
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, ctype


def attend(
    q: Array, pieces: Sequence[Piece], settings: Settings, where: str
) -> tuple[Array, Array]:
    """q (B, Hq, D) → o (B, Hq, D) of q's dtype, lse (B, Hq) float32, over all pieces together."""
    if where == "twin":
        from kvlib.kernels.twins.decode import decode

        return decode(q, pieces, settings)
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    if q.shape[0]:
        engine.start(where, *launches_of(o, lse, q, pieces, settings))
    return o, lse


def launches_of(
    o: Array, lse: Array, q: Array, pieces: Sequence[Piece], settings: Settings
) -> list[Launch]:
    """The launches of one call: each piece's blocks, and the merge where there is more than one."""
    splits = sum(piece.plan.splits for piece in pieces)
    kind, launches, at = np.int32(list(CTYPES.values()).index(ctype(q, "q"))), list[Launch](), 0
    if splits == 1:
        return [_launch(o, lse, None, None, q, pieces[0], settings, kind)]
    parts = engine.empty(q, (splits, *q.shape), np.float32)
    sums = engine.empty(q, (splits, *q.shape[:2]), np.float32)
    for piece in pieces:
        end = at + piece.plan.splits
        own = (None, None, parts[at:end], sums[at:end])
        launches.append(_launch(*own, q, piece, settings, kind))
        at = end
    args = (o, lse, parts, sums, np.int32(splits), np.int32(q.shape[2]), kind)
    rows = q.shape[0] * q.shape[1]
    shared = 4 * (splits + 2 * WARPS)  # a weight a part, a maximum and a sum of each warp
    return [*launches, Launch(Kernel("decode", "merge"), (rows, 1, 1), THREADS, shared, args)]


def _launch(
    o: Array | None,
    lse: Array | None,
    part: Array | None,
    sums: Array | None,
    q: Array,
    piece: Piece,
    settings: Settings,
    kind: np.int32,
) -> Launch:
    kept, plan = piece.written, piece.plan
    (batch, num_qo_heads, dim), num_kv_heads = q.shape, kept.k[0].shape[1]
    numbers = (
        piece.table.shape[1], piece.size, piece.shift, num_kv_heads,
        num_qo_heads // num_kv_heads, settings.window,
        kept.k_group.bit_length() - 1, kept.v_group.bit_length() - 1, kind,
    )  # fmt: skip
    args = (
        o, lse, part, sums, q, *kept.k, *kept.v, piece.table, piece.seq_lens, piece.behind,
        *(np.int32(n) for n in numbers), np.float32(settings.scale), np.float32(settings.softcap),
    )  # fmt: skip
    grid = (plan.splits, num_kv_heads * plan.tiles, batch)
    kernel = kept.kernel(piece.tensor, dim, plan.rows)
    return Launch(kernel, grid, THREADS, plan.shared, args)


def device_of(where: str) -> Device:
    """What plans go by: the device at hand, or the H200 where the kernel runs elsewhere."""
    if where == "device":
        from kvlib.kernels.device import here

        return here()
    return H200
