"""What a cache notes of the queries that a policy scores tokens by (kvlib.caches.policies)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvlib.arrays import Array, namespace
from kvlib.attention.direct import as_dtype, by_head, cap, scaled, visible
from kvlib.caches.spec import LayerSpec

if TYPE_CHECKING:  # policies and scores are loaded with the first rule that has them
    from kvlib.caches.policies import Policy


class Watched:
    """What a cache notes of one request in one layer for its policy.

    notes: those of the policy (Hkv, S, ...), on the tokens stored at the last plan, or None.
    folding: the same with the last step in them, computed by a plan that is under way.
    q (T, Hq, D), lse (T, Hq): of the last step, not yet folded in. at: the position of
    its first row. length: that of the request when notes were folded in last.
    """

    __slots__ = ("at", "folding", "length", "lse", "notes", "q")

    def __init__(self) -> None:
        self.notes: Array | None = None
        self.folding: Array | None = None
        self.q: Array | None = None
        self.lse: Array | None = None
        self.at = self.length = 0

    def copy(self) -> Watched:
        """For a fork: arrays are shared, because they are replaced and never written."""
        new = Watched()
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        return new

    def see(self, q: Array, lse: Array, at: int) -> None:
        """Note a step's queries. A layer that runs twice in a step notes the same again."""
        self.q, self.lse, self.at = q, lse, at

    def settle(self, length: int, stay: np.ndarray | None = None) -> None:
        """Take over the notes of this plan, for the slots (Hkv, n) that stay (None: all)."""
        notes = self.folding
        if notes is not None and stay is not None:
            xp, n = namespace(notes), notes.shape[1]
            index = stay + n * np.arange(stay.shape[0], dtype=np.int64)[:, None]
            flat = xp.asarray(index.reshape(-1), device=notes.device)
            rest = notes.shape[2:]
            notes = xp.take(xp.reshape(notes, (-1, *rest)), flat, axis=0)
            notes = xp.reshape(notes, (*stay.shape, *rest))
        self.notes, self.folding, self.q, self.lse, self.length = notes, None, None, None, length

    def go_back(self, length: int) -> None:
        """Forget the queries from position `length` on."""
        rows = length - self.at
        if self.q is None or self.lse is None or rows >= self.q.shape[0]:
            return
        self.q, self.lse = (x[: max(0, rows), ...] for x in (self.q, self.lse))
        if rows <= 0:
            self.q = self.lse = None
        if not length:
            self.notes, self.length = None, 0

    def folded(self, policy: Policy, spec: LayerSpec, k: Array, gone: int) -> Array | None:
        """The notes with the last step in them, for the stored keys k (Hkv, S, D); pure.

        gone: how many slots the newest tokens lie before their positions.
        """
        xp, (heads, n, _) = namespace(k), k.shape
        notes = self.notes
        if notes is not None and notes.shape[1] < n:
            more = xp.zeros((heads, n - notes.shape[1], *notes.shape[2:]), dtype=notes.dtype)
            notes = xp.concat([notes, more], axis=1)
        if self.q is None or self.lse is None:
            return notes
        q, lse, first = self.q, self.lse, self.at - gone
        if policy.queries is not None:
            left = max(0, q.shape[0] - policy.queries)
            q, lse, first = q[left:, ...], lse[left:, ...], first + left
        return policy.fold(notes, probabilities(q, lse, k, first, spec))


def probabilities(q: Array, lse: Array, k: Array, first: int, spec: LayerSpec) -> Array:
    """What queries gave the stored keys: q (T, Hq, D), lse (T, Hq), k (Hkv, S, D) → (Hkv, G, T, S).

    first: the slot of the first query's own token. A token after a query's own has 0. A learned
    sink's share is in lse, so the rest then adds up to less than 1.
    """
    xp, (heads, n, _), (rows, num_qo_heads, _) = namespace(k), k.shape, q.shape
    queries = by_head(xp, scaled(xp, q, spec.sm_scale), heads)
    s = cap(xp, queries @ as_dtype(xp, k, queries.dtype).mT, spec.softcap)
    p = xp.exp(s - xp.astype(by_head(xp, lse[..., None], heads), s.dtype))
    p = xp.reshape(p, (heads, num_qo_heads // heads, rows, n))
    own = first + xp.arange(rows, dtype=xp.int64, device=k.device)
    slots = xp.arange(n, dtype=xp.int64, device=k.device)
    return xp.where(visible(own, slots, None), p, xp.zeros_like(p))


def positions_of(which: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """positions (n,) or (Hkv, n) at slots which (m,) or (Hkv, m)."""
    if which.ndim == positions.ndim == 1:
        return positions[which]
    heads = which.shape[0] if which.ndim == 2 else positions.shape[0]
    positions, which = (np.broadcast_to(x, (heads, x.shape[-1])) for x in (positions, which))
    return np.take_along_axis(positions, which, axis=1)
