"""The small launches of a compiled decode step: embedding, RoPE with append, and the next token.

Each is made once, over arrays that never move. R is the number of rows of a step; one whose length
is 0 has no request, and nothing is written to the cache for it. Nothing is checked here, but for
sizes that the kernels do not take.
"""

from __future__ import annotations

import numpy as np

from kvlib.arrays import Array
from kvlib.kernels import engine
from kvlib.kernels.checks import BlockTable
from kvlib.kernels.codes import Stored
from kvlib.kernels.launch import Launch
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, ctype

THREADS = 256
WARPS = 4  # of a block of `append`, a head each
EACH = 1024  # logits of a block of `best`: a load of 16 bytes per thread
MOST_PARTS = 256  # of a row
MOST_ROWS = 16


def embed_launch(x: Array, table: Array, ids: Array) -> Launch:
    """x (R, hidden) float32 = rows `ids` (R,) int32 of table (V, hidden) of one of three types."""
    (rows, hidden), kind = x.shape, ctype(table, "table")
    count = 16 // table.dtype.itemsize
    if hidden % count:
        raise ValueError(f"rows of the table must be a multiple of {count} numbers, got {hidden}")
    grid = (-(-hidden // count // THREADS), rows, 1)
    args = (x, table, ids, np.int32(hidden))
    return Launch(Kernel("token", f"embed<{kind}>"), grid, THREADS, 0, args, early=True)


def append_launch(
    q: Array,
    stored: Stored,
    qkv: Array,
    cos: Array | None,
    sin: Array | None,
    positions: Array,
    lens: Array,
    table: BlockTable,
    *,
    q_norm: Array | None = None,
    k_norm: Array | None = None,
    eps: float = 0.0,
    warps: int = WARPS,
) -> Launch:
    """q (R, Hq, D) float32, and the newest keys and values in the cache, from qkv.

    qkv (R, (Hq + 2 Hkv) · D) float32   stored: the cache's arrays, plain, int8 or fp8
    cos, sin (P, rotary) float32 as `kvlib.model.rope.tables` makes them; None: no RoPE
    positions, lens (R,) int32: of the new token, and tokens stored with it
    q_norm, k_norm (D,) float32: RMSNorm of each head before RoPE; None: no norm
    """
    (rows, num_qo_heads, dim), num_kv_heads = q.shape, stored.k[0].shape[1]
    rotary = 0 if cos is None else cos.shape[1]
    if dim % 4 or dim > THREADS or rotary % 8:
        words = "heads must have 4 to 256 numbers, a multiple of 4, of which 8, 16 ... are rotated"
        raise ValueError(f"{words}; got {dim} and {rotary}")
    codec = f"Plain<{stored.number}>" if stored.plain else stored.family
    numbers = (table.width, table.size, table.shift, num_qo_heads, num_kv_heads, dim, rotary)
    args = (
        q, *stored.k[:2], *stored.v[:2], qkv, q_norm, k_norm, cos, sin, positions, lens,
        table.blocks, *map(np.int32, numbers), np.float32(eps),
    )  # fmt: skip
    grid = (-(-(num_qo_heads + 2 * num_kv_heads) // warps), rows, 1)
    return Launch(Kernel("token", f"append<{codec}>"), grid, 32 * warps, 0, args, early=True)


def choice_launches(
    ids: Array,
    positions: Array,
    lens: Array,
    history: Array,
    counter: Array,
    refused: Array,
    logits: Array,
    each: int | None = None,
) -> list[Launch]:
    """Write the likeliest token of each row, the lowest id among equals; prepare the next step.

    logits (R, V) float32, V up to 2^18   ids, positions, refused (R,)   lens (groups, R)
    history (R, n)   counter (1,), all int32. In rows with lens > 0, the token goes to `ids` and to
    history[:, counter % n], positions and every group's lens grow by 1, and refused becomes 1 if
    the largest logit is not finite (NaN counts as largest). The counter grows by 1.
    """
    rows, vocabulary = logits.shape
    if rows > MOST_ROWS:
        raise ValueError(f"a step has at most {MOST_ROWS} rows, got {rows}")
    if each is None:
        each = max(EACH, -(-vocabulary // (MOST_PARTS * EACH)) * EACH)
    num_parts = -(-vocabulary // each)
    parts = engine.empty(logits, (rows, num_parts), np.uint64)
    best_args = (parts, logits, np.int32(vocabulary), np.int32(each))
    numbers = (num_parts, len(lens), history.shape[1])
    args = (ids, positions, refused, lens, history, counter, parts, *map(np.int32, numbers))
    grid, shared = (num_parts, rows, 1), 8 * (THREADS // 32)
    return [
        Launch(Kernel("token", "best"), grid, THREADS, shared, best_args, early=True),
        Launch(Kernel("token", "advance"), (1, 1, 1), 32 * rows, 0, args, early=True),
    ]


def instantiations() -> list[Kernel]:
    codecs = (*(f"Plain<{t}>" for t in CTYPES.values()), "Int8", "E4M3", "E5M2")
    names = [f"embed<{t}>" for t in CTYPES.values()] + [f"append<{c}>" for c in codecs]
    return [Kernel("token", name) for name in (*names, "best", "advance")]
