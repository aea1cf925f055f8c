"""What a policy is shown of the last step, and what a cache notes of its queries until then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array, namespace
from kvlib.attention.states import as_dtype, by_head, cap, scaled, visible
from kvlib.caches.spec import LayerSpec


@dataclass(frozen=True, eq=False)
class Seen:
    """The queries of one request's last step in one layer, all of them or the last few.

    q (T, Hq, Dk): the queries. lse (T, Hq): what `run` returned for them. k (Hkv, S, Dk): the
    stored keys, those of the step included. at: the position of the first query. slot: where the
    token of the first query is stored. spec: the layer.

    >>> q = k = np.eye(2, dtype=np.float32)[:, None, :]  # two tokens, one head
    >>> lse = np.array([[0.707], [1.108]], np.float32)
    >>> Seen(q, lse, k.transpose(1, 0, 2), 0, 0, LayerSpec(1, 2)).probabilities()[0, 0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]], dtype=float32)
    """

    q: Array
    lse: Array
    k: Array
    at: int
    slot: int
    spec: LayerSpec

    def probabilities(self) -> Array:
        """What each query gave each stored token: (Hkv, G, T, S)."""
        return probabilities(self.q, self.lse, self.k, self.slot, self.spec)


def probabilities(q: Array, lse: Array, k: Array, first: int, spec: LayerSpec) -> Array:
    """q (T, Hq, D), lse (T, Hq), k (Hkv, S, D) → (Hkv, G, T, S); first: slot of the first query."""
    xp, (heads, n, _), (rows, num_qo_heads, _) = namespace(k), k.shape, q.shape
    queries = by_head(xp, scaled(xp, q, spec.sm_scale), heads)
    s = cap(xp, queries @ as_dtype(xp, k, queries.dtype).mT, spec.softcap)
    p = xp.exp(s - xp.astype(by_head(xp, lse[..., None], heads), s.dtype))
    p = xp.reshape(p, (heads, num_qo_heads // heads, rows, n))
    own = first + xp.arange(rows, dtype=xp.int64, device=k.device)
    slots = xp.arange(n, dtype=xp.int64, device=k.device)
    return xp.where(visible(own, slots, None), p, xp.zeros_like(p))


class PolicyState:
    """What a cache notes of one request in one layer for its policy.

    notes: the policy's; folding: the same with the last step in them, computed by a plan under way.
    q (T, Hq, D), lse (T, Hq): of the last step, not yet folded in, from position `at` on. length:
    that of the request when notes were folded in last.
    """

    __slots__ = ("at", "by_token", "folding", "length", "lse", "notes", "q")

    def __init__(self, by_token: bool = True) -> None:
        self.by_token = by_token
        self.notes: Any = None
        self.folding: Any = None
        self.q: Array | None = None
        self.lse: Array | None = None
        self.at = self.length = 0

    def copy(self) -> PolicyState:
        """For a fork: arrays are shared, because they are replaced and never written."""
        new = PolicyState()
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        return new

    def record(self, q: Array, lse: Array, at: int) -> None:
        """Note a step's queries. A layer that runs twice in a step notes the same again."""
        self.q, self.lse, self.at = q, lse, at

    def commit(self, length: int, kept_slots: np.ndarray | None = None) -> None:
        """Take over the notes of this plan, for the slots (Hkv, n) that kept_slots (None: all)."""
        notes = self.folding
        if notes is not None and kept_slots is not None and self.by_token:
            xp, n = namespace(notes), notes.shape[1]
            index = kept_slots + n * np.arange(kept_slots.shape[0], dtype=np.int64)[:, None]
            flat = xp.asarray(index.reshape(-1), device=notes.device)
            rest = notes.shape[2:]
            notes = xp.take(xp.reshape(notes, (-1, *rest)), flat, axis=0)
            notes = xp.reshape(notes, (*kept_slots.shape, *rest))
        self.notes, self.folding, self.q, self.lse, self.length = notes, None, None, None, length

    def truncate(self, length: int) -> None:
        """Forget the queries from position `length` on."""
        rows = length - self.at
        if self.q is None or self.lse is None or rows >= self.q.shape[0]:
            return
        self.q, self.lse = (x[: max(0, rows), ...] for x in (self.q, self.lse))
        if rows <= 0:
            self.q = self.lse = None
        if not length:
            self.notes, self.length = None, 0

    def folded(self, policy: Any, spec: LayerSpec, k: Array, freed: int) -> Any:
        """The notes with the last step in them, for the stored keys k (Hkv, S, D); pure.

        freed: how many slots the newest tokens lie before their positions.
        """
        xp, (heads, n, _) = namespace(k), k.shape
        notes = self.notes
        if notes is not None and self.by_token and notes.shape[1] < n:
            more = xp.zeros((heads, n - notes.shape[1], *notes.shape[2:]), dtype=notes.dtype)
            notes = xp.concat([notes, more], axis=1)
        if self.q is None or self.lse is None:
            return notes
        q, lse, at = self.q, self.lse, self.at
        if policy.queries is not None:
            left = max(0, q.shape[0] - policy.queries)
            q, lse, at = q[left:, ...], lse[left:, ...], at + left
        notes = policy.look(notes, Seen(q, lse, k, at, at - freed, spec))
        if self.by_token and getattr(notes, "shape", ())[:2] != (heads, n):
            raise ValueError(
                f"notes of {policy!r} must have an entry for each of {n} tokens in each of {heads} "
                f"kv heads, got {describe(notes)}"
            )
        return notes


def positions_of(which: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """positions (n,) or (Hkv, n) at slots which (m,) or (Hkv, m)."""
    if which.ndim == positions.ndim == 1:
        return positions[which]
    heads = which.shape[0] if which.ndim == 2 else positions.shape[0]
    positions, which = (np.broadcast_to(x, (heads, x.shape[-1])) for x in (positions, which))
    return np.take_along_axis(positions, which, axis=1)
