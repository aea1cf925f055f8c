"""Attention of many queries over keys that all of them see, such as a shared prefix."""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array
from kvlib.attention.causal import CHUNK_ROWS, attend_pieces
from kvlib.attention.partials import by_head, by_token
from kvlib.attention.pieces import Pieces


def attend_before(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    *,
    sm_scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array]:
    """All queries over all of `length` keys: q (T, Hq, Dk) → o (T, Hq, Dv), lse (T, Hq)."""
    (t, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    heads_per_kv = num_qo_heads // heads
    chunk, results = max(1, CHUNK_ROWS // heads_per_kv), []
    settings: dict[str, Any] = {"sm_scale": sm_scale, "softcap": softcap, "return_lse": True}
    for a in range(0, t, chunk):
        n = min(chunk, t - a)
        rows = by_head(xp, q[a : a + n, :, :], heads)
        one_query = xp.reshape(rows, (1, num_qo_heads * n, dim))
        partial = attend_pieces(one_query, pieces, length, xp, **settings)
        o, lse = (xp.reshape(x, (heads, heads_per_kv * n, -1)) for x in partial)
        lse = by_token(xp, lse, n, num_qo_heads)[..., 0]
        results.append((by_token(xp, o, n, num_qo_heads), lse))
    if len(results) == 1:
        return results[0]
    return tuple(xp.concat(x, axis=0) for x in zip(*results))  # type: ignore[return-value]
