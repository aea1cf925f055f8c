"""Eviction by score: each kv head keeps the tokens that its policy finds most useful.

``run`` passes on its queries and their lse; the next ``plan`` turns them into probabilities of
the stored keys, e^(q·k − lse), and frees the tokens of the lowest scores.
"""

from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array, namespace
from kvlib.attention.partials import as_dtype, by_head, cap, scaled, visible
from kvlib.caches.retention.base import Retention, with_spare_room
from kvlib.caches.spec import LayerSpec

MOST_LAYERS = 10**6


@dataclass(frozen=True, eq=False)
class Seen:
    """What a policy sees of one request's last step in one layer: all queries or the last few.

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
        """Return what each query gave each stored token: (Hkv, G, T, S)."""
        k, spec, (rows, num_qo_heads, _) = self.k, self.spec, self.q.shape
        xp, (heads, n, _) = namespace(k), k.shape
        queries = by_head(xp, scaled(xp, self.q, spec.sm_scale), heads)
        s = cap(xp, queries @ as_dtype(xp, k, queries.dtype).mT, spec.softcap)
        p = xp.exp(s - xp.astype(by_head(xp, self.lse[..., None], heads), s.dtype))
        p = xp.reshape(p, (heads, num_qo_heads // heads, rows, n))
        query_slots = self.slot + xp.arange(rows, dtype=xp.int64, device=k.device)
        slots = xp.arange(n, dtype=xp.int64, device=k.device)
        return xp.where(visible(query_slots, slots, None), p, xp.zeros_like(p))


class Policy:
    """Gives each stored token a score; tokens with a higher score stay longer.

    queries: how many of a step's last queries `fold` needs; None for all of them. recent: how many
    of the newest tokens stay whatever their score. by_token: whether the notes have an entry for
    each stored token. Write `score`, and `fold` if scores depend on the probabilities that queries
    gave the tokens, or `look` if on the queries themselves. Make it a frozen dataclass.

    >>> from kvlib.caches import Scored
    >>> class LargeValues(Policy):
    ...     def score(self, notes, k, v):
    ...         return namespace(v).sum(v * v, axis=-1)
    >>> Scored(LargeValues(), budget=100).budget
    100
    """

    queries: int | None = 0
    recent: int = 0
    by_token: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("recent", "queries"):
            value = vars(self).get(name, 0)  # those that are fields of this policy
            if name in vars(self) and (value is not None or name == "recent"):
                object.__setattr__(self, name, check_integer(name, value, 0))

    def fold(self, notes: Array | None, p: Array) -> Array:
        """Return the notes (Hkv, S, ...) on a request in one layer with one more step in them.
        notes: 0 for the tokens of this step, None in the first. p (Hkv, G, T, S): probabilities."""
        raise TypeError(f"{type(self).__name__} looks at queries and has no fold")

    def look(self, notes: Any, seen: Seen) -> Any:
        """Return the notes with a step's queries; by default, `fold` their probabilities."""
        return self.fold(notes, seen.probabilities())

    def check(self, spec: LayerSpec) -> None:
        """Refuse a layer that the policy cannot score, when the cache is built."""

    def score(self, notes: Any, k: Array, v: Array) -> Array:
        """Return the score of each stored token (Hkv, S), from the notes and k, v (Hkv, S, D)."""
        raise TypeError(f"{type(self).__name__} has no score")


@dataclass(slots=True, eq=False)
class PolicyState:
    """What a cache records for the policy of one layer, about one request.

    notes   the policy's notes, without the last step; pending: with it, while a plan is under way
    q, lse  the last step's queries (T, Hq, D), from position `at` on, and their lse (T, Hq)
    length  that of the request when the notes were last brought up to date
    """

    policy: Policy
    notes: Any = None
    pending: Any = field(default=None, repr=False)  # the next plan computes it again
    q: Array | None = None
    lse: Array | None = None
    at: int = 0
    length: int = 0

    def copy(self) -> "PolicyState":
        """Return the state for a fork, which shares the arrays: they are never written."""
        return copy(self)

    def record(self, q: Array, lse: Array, at: int) -> None:
        """Record a step's queries. A layer that runs twice in a step records the same again."""
        self.q, self.lse, self.at = q, lse, at

    def updated(self, spec: LayerSpec, k: Array, freed: int) -> Any:
        """Return notes with the last step, for keys k (Hkv, S, D) without `freed` tokens."""
        xp, (heads, n, _), policy, notes = namespace(k), k.shape, self.policy, self.notes
        if notes is not None and policy.by_token and notes.shape[1] < n:
            zeros = xp.zeros((heads, n - notes.shape[1], *notes.shape[2:]), dtype=notes.dtype)
            notes = xp.concat([notes, zeros], axis=1)
        if self.q is None or self.lse is None:
            return notes
        skipped = 0 if policy.queries is None else max(0, self.q.shape[0] - policy.queries)
        q, lse, at = self.q[skipped:, ...], self.lse[skipped:, ...], self.at + skipped
        notes = policy.look(notes, Seen(q, lse, k, at, at - freed, spec))
        if policy.by_token and getattr(notes, "shape", ())[:2] != (heads, n):
            raise ValueError(
                f"notes of {policy!r} must have an entry for each of {n} tokens in each of {heads} "
                f"kv heads, got {describe(notes)}"
            )
        return notes

    def commit(self, length: int, kept_ranks: np.ndarray | None = None) -> None:
        """Take over the pending notes, for the ranks (Hkv, n) that stay (None: all)."""
        notes = self.pending
        if notes is not None and kept_ranks is not None and self.policy.by_token:
            xp, n = namespace(notes), notes.shape[1]
            index = kept_ranks + n * np.arange(kept_ranks.shape[0], dtype=np.int64)[:, None]
            flat = xp.asarray(index.reshape(-1), device=notes.device)
            rest = notes.shape[2:]
            notes = xp.take(xp.reshape(notes, (-1, *rest)), flat, axis=0)
            notes = xp.reshape(notes, (*kept_ranks.shape, *rest))
        self.notes, self.pending, self.q, self.lse, self.length = notes, None, None, None, length

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


@dataclass(frozen=True)
class Scored(Retention):
    """Keep at most `budget` tokens per kv head: the newest ones, and those of the highest scores.

    The rule is applied when a layer holds `every` tokens more than the budget. Each layer chooses
    its own tokens; for budgets that differ by layer (`pyramid`), give a list of rules.

    >>> from kvlib.caches import KNorm
    >>> Scored(KNorm(recent=4), budget=64)
    Scored(policy=KNorm(recent=4), budget=64, every=1)
    """

    policy: Policy
    budget: int
    every: int = 1
    holes = True  # (not a field)
    per_layer = True

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Policy):
            raise TypeError(f"policy must be a Policy such as KNorm(), got {describe(self.policy)}")
        for name in ("budget", "every"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name)))
        if check_integer("recent of the policy", self.policy.recent, 0) > self.budget:
            raise ValueError(
                f"budget is {self.budget} tokens, and {self.policy!r} keeps the newest "
                f"{self.policy.recent} alone; make budget larger or recent smaller"
            )

    def check(self, spec: LayerSpec) -> None:
        self.policy.check(spec)

    def room(self, max_seq_len: int) -> int:
        return min(max_seq_len, with_spare_room(self.budget + self.every - 1))

    def chosen(self, score: Array) -> Array:
        """Return the ranks (Hkv, budget) that stay, rising, from the scores (Hkv, S)."""
        xp, (_, n) = namespace(score), score.shape
        recent = self.policy.recent
        older = xp.argsort(-score[:, : n - recent], axis=1, stable=True)
        older = xp.sort(older[:, : self.budget - recent], axis=1)
        newest = xp.arange(n - recent, n, dtype=older.dtype, device=score.device)
        newest = xp.broadcast_to(newest[None, :], (score.shape[0], recent))
        return xp.concat([older, newest], axis=1)


def pyramid(budget: int, layers: int, beta: int = 20, recent: int = 8) -> list[int]:
    """Return budgets per layer, larger in the lower ones; their mean is about `budget`.

    PyramidKV, arXiv:2406.02069: equal whole steps from 2 (budget − recent) − min down to
    min = (budget − recent) / beta, and every layer gets the recent tokens in addition.

    >>> pyramid(128, 4)
    [242, 166, 90, 14]
    """
    budget = check_integer("budget", budget)
    layers = check_integer("layers", layers, 1, MOST_LAYERS)
    beta, recent = check_integer("beta", beta), check_integer("recent", recent, 0)
    if budget <= recent:
        raise ValueError(f"budget must be more than the {recent} recent tokens, got {budget}")
    low = (budget - recent) // beta
    high = 2 * (budget - recent) - low
    step = (high - low) // max(1, layers - 1)
    return [high - layer * step + recent for layer in range(layers)]
