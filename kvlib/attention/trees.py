"""Attention of a tree of guesses: new tokens that see their ancestors and what is older, no others.

All guesses read the older keys once, together, as the queries of a chunk do. Only the new tokens
among themselves need a separate mask, and positions say what a window hides.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.causal import online_softmax
from kvlib.attention.partials import answer, by_head, by_token, divided, scaled
from kvlib.attention.pieces import Pieces

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
    """Attend from the last T of n new tokens to themselves and all older ones: o, and lse (T, Hq).

    pieces  `length` tokens, of which the last n are the new ones, in the order of the rows
    depths  (n,) of the new tokens, which are so many positions after the older ones
    seen    (T, n) bool: which new tokens each row sees
    """
    t, num_qo_heads, _ = q.shape
    rows, results = scaled(xp, q, sm_scale), []
    chunk = max(1, TREE_ROWS // max(1, num_qo_heads // pieces.num_kv_heads))
    for a in range(0, t, chunk):
        n = min(chunk, t - a)
        stacked = by_head(xp, rows[a : a + n, :, :], pieces.num_kv_heads)
        mask = _TreeMask(xp, length, depths, slice(a, a + n), seen, window)
        state = online_softmax(xp, stacked, n, pieces, mask.low, length, softcap, mask)
        partial = divided(xp, state, return_lse or sinks is not None)
        results.append([x if x is None else by_token(xp, x, n, num_qo_heads) for x in partial])
    o, lse = results[0]
    if len(results) > 1:
        o = xp.concat([x for x, _ in results], axis=0)
        lse = None if lse is None else xp.concat([x for _, x in results], axis=0)
    return answer(xp, o, lse, q.dtype, sinks, return_lse)


class _TreeMask:
    """Hides from some rows of a tree the tokens that they may not see, a piece at a time."""

    def __init__(
        self,
        xp: Any,
        length: int,
        depths: Sequence[int],
        rows: slice,
        seen: np.ndarray,
        window: int | None,
    ) -> None:
        self.xp, self.older = xp, length - len(depths)
        self.new = self.older + np.asarray(depths, dtype=np.int64)  # positions of new tokens
        self.seen, self.window = seen[rows], window
        self.at = self.new[len(depths) - len(seen) :][rows]  # positions of the rows
        self.low = 0 if window is None else max(0, int(self.at.min()) - window + 1)

    def __call__(self, scores: Array, a: int) -> bool:
        """Set to −inf what the rows may not see from key a on; whether one may see nothing."""
        xp, m = self.xp, scores.shape[-1]
        hidden = self.hidden(a, a + m)
        if hidden is None:
            return False
        mask = np.where(hidden, -math.inf, 0.0).astype(np.float32)
        mask = xp.asarray(mask, dtype=scores.dtype, device=scores.device)
        scores[..., m - hidden.shape[1] :] += mask
        return hidden.shape[1] == m

    def hidden(self, a: int, b: int) -> np.ndarray | None:
        """Which of the last m of tokens a ... b − 1 each row may not see: (T, m) bool; or None."""
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
