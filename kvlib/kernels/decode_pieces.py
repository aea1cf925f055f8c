"""Decode attention over several pieces of a request's keys, merged: its launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace
from kvlib.kernels import engine
from kvlib.kernels.device import H200, Device
from kvlib.kernels.launch import Launch
from kvlib.kernels.pieces import Piece, Settings
from kvlib.kernels.plans import THREADS, WARPS
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, ctype
from kvlib.kernels.work import Work, work_of

MOST_ITEMS = 65_535  # the second number of CUDA's grid


def attend(
    q: Array,
    pieces: Sequence[Piece],
    settings: Settings,
    where: str,
    known: dict[Any, Work] | None = None,
) -> tuple[Array, Array]:
    """q (B, Hq, D) → o (B, Hq, D) of q's dtype, lse (B, Hq) float32, over all pieces together.

    known: work items that were made before, by their splits; new ones are added.
    """
    if where == "twin":
        from kvlib.kernels.twins.decode import decode

        return decode(q, pieces, settings)
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    if q.shape[0]:
        engine.start(where, *launches_of(o, lse, q, pieces, settings, known))
    return o, lse


def launches_of(
    o: Array,
    lse: Array,
    q: Array,
    pieces: Sequence[Piece],
    settings: Settings,
    known: dict[Any, Work] | None = None,
) -> list[Launch]:
    """The launches of one call: each piece's blocks, and the merge where there is one."""
    work = _work(q, pieces, known)
    kind = np.int32(list(CTYPES.values()).index(ctype(q, "q")))
    (_, num_qo_heads, dim), part, sums = q.shape, None, None
    if work.parts:
        part = engine.empty(q, (work.parts, num_qo_heads, dim), np.float32)
        sums = engine.empty(q, (work.parts, num_qo_heads), np.float32)
    launches = [
        _launch(o, lse, part, sums, q, piece, items, settings, kind)
        for piece, items in zip(pieces, work.items, strict=True)
    ]
    if not work.parts:
        return launches
    return [*launches, merge_launch(o, lse, part, sums, work)]


def merge_launch(
    o: Array, lse: Array, part: Array | None, sums: Array | None, work: Work
) -> Launch:
    """The merge of each row's parts, as `work` counts them: o (rows, Hq, D), lse (rows, Hq)."""
    rows, num_qo_heads, dim = o.shape
    kind = np.int32(list(CTYPES.values()).index(ctype(o, "o")))
    numbers = (work.most, work.most, num_qo_heads, dim)
    args = (o, lse, part, sums, work.first, *(np.int32(n) for n in numbers), kind)
    shared = 4 * (work.most + 2 * WARPS)  # a weight a part, a maximum and a sum of each warp
    return Launch(Kernel("decode", "merge"), (rows * num_qo_heads, 1, 1), THREADS, shared, args)


def _work(q: Array, pieces: Sequence[Piece], known: dict[Any, Work] | None) -> Work:
    """The work items, where the arrays live; made and sent once for all layers of a step."""
    plans = [piece.plan for piece in pieces]
    key = tuple(plan.splits for plan in plans)
    if known is not None and key in known:
        return known[key]
    lens = [plan.lens for plan in plans]
    work = work_of(key, [x for x in lens if x is not None] if None not in lens else ())
    xp = namespace(q)
    work = work._replace(
        items=tuple(None if x is None else xp.asarray(x) for x in work.items),
        first=None if work.first is None else xp.asarray(work.first),
    )
    if known is not None:
        known[key] = work
    return work


def _launch(
    o: Array,
    lse: Array,
    part: Array | None,
    sums: Array | None,
    q: Array,
    piece: Piece,
    items: Array | None,
    settings: Settings,
    kind: np.int32,
) -> Launch:
    kept, plan = piece.written, piece.plan
    if sum(plan.splits) > MOST_ITEMS:
        raise ValueError(
            f"requests and splits make {sum(plan.splits):,} work items, but a launch takes at most "
            f"{MOST_ITEMS:,}; use fewer splits or smaller batches"
        )
    (_, num_qo_heads, dim), num_kv_heads = q.shape, kept.k[0].shape[1]
    numbers = (
        piece.table.shape[1], piece.size, piece.shift, num_kv_heads,
        num_qo_heads // num_kv_heads, settings.window,
        kept.k_group.bit_length() - 1, kept.v_group.bit_length() - 1, kind, plan.splits[0],
    )  # fmt: skip
    args = (
        o, lse, part, sums, q, *kept.k, *kept.v, piece.table, piece.seq_lens, piece.behind, items,
        *(np.int32(n) for n in numbers), np.float32(settings.scale), np.float32(settings.softcap),
    )  # fmt: skip
    grid = (num_kv_heads * plan.tiles, sum(plan.splits), 1)
    kernel = kept.kernel(piece.tensor, dim, plan.rows)
    return Launch(kernel, grid, THREADS, plan.shared, args)


def device_of(where: str) -> Device:
    """What plans go by: the device at hand, or the H200 where the kernel runs elsewhere."""
    if where == "device":
        from kvlib.kernels.device import here

        return here()
    return H200
