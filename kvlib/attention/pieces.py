"""Attention over keys that lie in pieces: blocks of a pool, or codes that are decoded as they go.

A cache hands over Pieces in place of two arrays. Each piece scores the queries against its keys and
weighs its values, so that no piece but the one at hand is ever gathered or decoded.
"""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array
from kvlib.attention.causal import decode, extend
from kvlib.attention.checks import check_settings, check_sinks
from kvlib.attention.direct import answer, scaled
from kvlib.attention.slices import Pieces


def attend_pieces(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Attention of the last T of `length` positions over all of them, piece by piece.

    q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)

    The same function as :func:`kvlib.attend_causal`. One query reads the pieces twice, keys and
    then values, with a plain softmax between; more are taken CHUNK_ROWS rows a kv head at a time
    through the online softmax (arXiv:2205.14135), so that scores take O(CHUNK_ROWS · piece).
    """
    check_sinks(q, sinks)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)

    def seen(low: int, high: int) -> list[int]:
        return [i for i, (a, b) in enumerate(pieces.spans) if b > low and a < high]

    rows, lse = scaled(xp, q, sm_scale), return_lse or sinks is not None
    form = decode if q.shape[0] == 1 else extend
    found = form(xp, rows, pieces, seen, length, window, softcap, lse)
    return answer(xp, *found, q.dtype, sinks, return_lse)
