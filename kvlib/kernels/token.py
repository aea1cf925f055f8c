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
EACH = 1024  # logits of a block of `choose`: a load of 16 bytes per thread
MOST_ROWS = 16
UNFIT = (0.0, -np.inf, np.inf, np.nan)  # largest logits that name no token, by their number


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


def choice_launch(
    ids: Array, positions: Array, lens: Array, words: Array, counter: Array, logits: Array,
    each: int = EACH,
) -> Launch:  # fmt: skip
    """Find the likeliest token of each row, the lowest id among equals; prepare the next step.

    logits (R, V) float32, V < 2^30   ids, positions (R,)   lens (groups, R)   counter (1,), all
    int32   words (n, R) uint64, which the host reads
    In rows with lens > 0, the token goes to `ids`, and positions and every group's lens grow by 1.
    The counter grows by 1; words[counter % n] become counter + 1 (32 bits), 0 or which of UNFIT the
    largest logit is (2 bits), and the token (30 bits).
    """
    rows, vocabulary = logits.shape
    if rows > MOST_ROWS:
        raise ValueError(f"a step has at most {MOST_ROWS} rows, got {rows}")
    tops, finished = engine.zeros(logits, (rows,), np.uint64), engine.zeros(logits, (1,), np.int32)
    numbers = (vocabulary, each, len(lens), len(words))
    args = (ids, positions, lens, words, counter, tops, finished, logits, *map(np.int32, numbers))
    grid, shared = (-(-vocabulary // each), rows, 1), 8 * (THREADS // 32)
    return Launch(Kernel("token", "choose"), grid, THREADS, shared, args, early=True)


def instantiations() -> list[Kernel]:
    codecs = (*(f"Plain<{t}>" for t in CTYPES.values()), "Int8", "E4M3", "E5M2")
    names = [f"embed<{t}>" for t in CTYPES.values()] + [f"append<{c}>" for c in codecs]
    return [Kernel("token", name) for name in (*names, "choose")]
