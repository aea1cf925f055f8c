"""What a cache notes of the queries that a policy scores tokens by (see `policies`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array, namespace
from kvlib.caches.retention.seen import Seen
from kvlib.caches.spec import LayerSpec

if TYPE_CHECKING:  # policies and scores are loaded with the first rule that has them
    from kvlib.caches.retention.policies import Policy


class Watched:
    """What a cache notes of one request in one layer for its policy.

    notes: those of the policy, or None; if they are `by_token`, (Hkv, S, ...) on the tokens stored
    at the last plan.
    folding: the same with the last step in them, computed by a plan that is under way.
    q (T, Hq, D), lse (T, Hq): of the last step, not yet folded in. at: the position of
    its first row. length: that of the request when notes were folded in last.
    """

    __slots__ = ("at", "by_token", "folding", "length", "lse", "notes", "q")

    def __init__(self, by_token: bool = True) -> None:
        self.by_token = by_token
        self.notes: Any = None
        self.folding: Any = None
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
        if notes is not None and stay is not None and self.by_token:
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

    def folded(self, policy: Policy, spec: LayerSpec, k: Array, gone: int) -> Any:
        """The notes with the last step in them, for the stored keys k (Hkv, S, D); pure.

        gone: how many slots the newest tokens lie before their positions.
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
        notes = policy.look(notes, Seen(q, lse, k, at, at - gone, spec))
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
