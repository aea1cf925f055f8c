"""Attention of many queries over keys that all of them see, such as a prefix that comes before."""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array
from kvlib.attention.causal import CHUNK_ROWS, Pieces, attend_pieces
from kvlib.attention.states import by_head, by_token


def attend_before(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    *,
    sm_scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array]:
    """All queries over all of `length` keys: q (T, Hq, Dk) → o (T, Hq, Dv), lse (T, Hq).

    Nothing is hidden from any query, so T queries of Hq heads are one query of T · Hq heads.
    """
    (t, num_qo_heads, dim), heads = q.shape, pieces.num_kv_heads
    groups = num_qo_heads // heads
    rows, parts = max(1, CHUNK_ROWS // groups), []
    settings: dict[str, Any] = {"sm_scale": sm_scale, "softcap": softcap, "return_lse": True}
    for a in range(0, t, rows):
        n = min(rows, t - a)
        some = xp.reshape(by_head(xp, q[a : a + n, :, :], heads), (1, heads * groups * n, dim))
        found = attend_pieces(some, pieces, length, xp, **settings)
        o, lse = (xp.reshape(x, (heads, groups * n, -1)) for x in found)
        lse = by_token(xp, lse, n, num_qo_heads)[..., 0]
        parts.append((by_token(xp, o, n, num_qo_heads), lse))
    if len(parts) == 1:
        return parts[0]
    return xp.concat([o for o, _ in parts], axis=0), xp.concat([lse for _, lse in parts], axis=0)
