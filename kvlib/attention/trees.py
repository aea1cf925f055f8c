"""Attention of a tree of guesses: new tokens that see their ancestors and what is older, no others.

All guesses read the older keys once, together, as the queries of a chunk do. Only the new tokens
among themselves need a mask of their own, and positions say what a window hides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.pieces import Pieces, report_piece
from kvlib.attention.states import (
    answer,
    by_head,
    by_token,
    cap,
    divided,
    join,
    scaled,
    softmax_parts,
    softmax_seen,
)
from kvlib.blas import rows_together
from kvlib.meter import OPEN

TREE_ROWS = 4096  # query rows per kv head in one product, whose scores take 16 MB at most


def attend_tree(
    q: Array,
    pieces: Pieces,
    length: int,
    xp: Any,
    depths: Sequence[int],
    seen: np.ndarray,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Attention of the last T of n new tokens over themselves and all older tokens.

    q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq)

    pieces  `length` tokens, of which the last n are the new ones, in the order of the rows
    depths  (n,) of the new tokens, which are so many positions after the older ones
    seen    (T, n) bool: which new tokens each row sees
    """
    (t, num_qo_heads, _), heads, given = q.shape, pieces.num_kv_heads, q.dtype
    q, found, below = scaled(xp, q, sm_scale), [], np.asarray(depths, dtype=np.int64)
    chunk = max(1, TREE_ROWS // max(1, num_qo_heads // heads))
    for a in range(0, t, chunk):
        b = min(a + chunk, t)
        some = q[a:b, :, :]
        shown = _Shown(length - len(below), below, slice(a, b), seen, window)
        parts = _extend(xp, some, pieces, length, shown, softcap)
        o, lse = divided(xp, parts, return_lse or sinks is not None)
        rows = some.shape[0], num_qo_heads
        lse = None if lse is None else by_token(xp, lse, *rows)
        found.append((by_token(xp, o, *rows), lse))
    o, lse = found[0]
    if len(found) > 1:
        o = xp.concat([x for x, _ in found], axis=0)
        lse = None if lse is None else xp.concat([x for _, x in found], axis=0)
    return answer(xp, o, lse, given, sinks, return_lse)


class _Shown:
    """What some rows of a tree may see of any run of tokens."""

    def __init__(
        self, older: int, depths: np.ndarray, rows: slice, seen: np.ndarray, window: int | None
    ) -> None:
        self.older, self.new, self.seen, self.window = older, older + depths, seen[rows], window
        self.at = self.new[len(depths) - len(seen) :][rows]  # positions of the rows
        self.low = 0
        if window is not None:
            self.low = max(0, int(self.at.min()) - window + 1)

    def hidden(self, a: int, b: int) -> np.ndarray | None:
        """Which of the last m tokens of a ... b − 1 each row may not see: (T, m) bool.

        All rows see the tokens before these. None where they see all.
        """
        if self.window is not None and a <= int(self.at.max()) - self.window:
            first = a
        elif b > self.older:
            first = max(a, self.older)
        else:
            return None
        older = np.arange(first, max(first, min(b, self.older)), dtype=np.int64)
        new = slice(max(first, self.older) - self.older, max(b, self.older) - self.older)
        unseen = np.zeros((len(self.at), b - first), dtype=bool)
        unseen[:, len(older) :] = ~self.seen[:, new]
        if self.window is not None:
            positions = np.concatenate([older, self.new[new]])
            unseen |= self.at[:, None] - positions >= self.window
        return unseen


def _extend(
    xp: Any, q: Array, pieces: Pieces, length: int, shown: _Shown, softcap: float | None
) -> Any:
    """The parts (o, top, total) of rows q (T, Hq, Dk), scaled, over all pieces: (Hkv, G · T, ...).

    By online softmax, as `kvlib.attention.causal.attend_chunk`, with a mask in place of an order.
    """
    t, heads, parts = q.shape[0], pieces.num_kv_heads, None
    rows = by_head(xp, q, heads)
    for i in pieces.seen(shown.low, length):
        a, b = pieces.spans[i]
        s = pieces.scores(i, rows)
        if softcap is not None:
            s = cap(xp, s, softcap)
        if OPEN:
            report_piece(pieces, i, rows)
        s, hidden = rows_together(xp, s), shown.hidden(a, b)
        may_see_none = hidden is not None and hidden.shape[1] == b - a
        if hidden is not None:
            s = xp.reshape(s, (heads, s.shape[1] // t, t, b - a))
            mask = np.where(hidden, -math.inf, 0.0).astype(np.float32)
            s[..., b - a - hidden.shape[1] :] += xp.asarray(mask, dtype=s.dtype, device=s.device)
            s = xp.reshape(s, (heads, -1, b - a))
        p, top, total = (softmax_parts if may_see_none else softmax_seen)(xp, s)
        new = pieces.weigh(i, p), top, total
        parts = new if parts is None else join(xp, parts, new)
    return parts
