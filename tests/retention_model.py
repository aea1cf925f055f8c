"""What a layer holds of a request, computed from each rule's definition, in float64.

A `Held` follows one request in one layer; it is told of each plan, of the queries that were run,
and of what was undone. Where two scores are too near for float32, it takes the cache's choice.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from kvlib import LayerSpec, caches

NEAR = 2e-5  # relative: scores of float32 sums over at most 60 keys, with exponents of up to 20


class Held:
    """The tokens of one request that one layer must hold.

    positions: for each kv head, in order. since, folded: the lengths at which tokens were given
    back last, and at which queries were counted last. notes: for each head, position → what queries
    gave it, and how many saw it. seen: the last step's queries (T, Hq, D), and the position of
    the first. queries (n, Hq, D), end: all queries before rotation, and the position after them.
    """

    def __init__(self, spec: LayerSpec, rule: Any, groups: int) -> None:
        self.spec, self.rule, self.groups = spec, rule, groups
        self.positions = [list[int]() for _ in range(spec.num_kv_heads)]
        self.since = self.folded = 0
        self.notes: list[dict[int, tuple[float, int]]] = [{} for _ in self.positions]
        self.seen: tuple[np.ndarray, int] | None = None
        self.queries, self.end = np.empty((0, 1, 1)), 0

    @property
    def _scale(self) -> float:
        return (
            1 / math.sqrt(self.spec.head_dim) if self.spec.sm_scale is None else self.spec.sm_scale
        )

    def copy(self) -> Held:
        """For a fork."""
        new = copy.copy(self)
        new.positions = [list(own) for own in self.positions]
        new.notes = [dict(own) for own in self.notes]
        return new

    @property
    def exact(self) -> bool:
        """Whether the rule says to the token what stays; a window's tokens may stay longer."""
        return not isinstance(self.rule, caches.Window | caches.KeepAll)

    # What happens to it -------------------------------------------------------------------------

    def plan(self, length, n, keys, values, found) -> int:
        """Plan n tokens at `length`; return how many scores were too near to tell.

        keys(), values(): those (S, Hkv, D) of the whole text. found (Hkv, m): what the cache holds.
        """
        close = 0
        if isinstance(self.rule, caches.Sinks):
            stays = [
                p
                for p in self.positions[0]
                if p < self.rule.first_tokens or p > length - self.rule.recent
            ]
            if len(self.positions[0]) - len(stays) >= self.rule.every:
                self.positions, self.since = [list(stays) for _ in self.positions], length
        if isinstance(self.rule, caches.Scored):
            if self.seen is not None:
                self._fold(keys())
                self.folded = length
            if len(self.positions[0]) >= self.rule.budget + self.rule.every:
                close, self.since = self._evict(keys(), values(), found), length
        for own in self.positions:
            own.extend(range(length, length + n))
        return close

    def run(self, q: np.ndarray, at: int) -> None:
        """Queries (T, Hq, D) of the step, the first of them at position `at`."""
        if isinstance(self.rule, caches.Scored) and self.rule.policy.queries != 0:
            self.seen = q, at

    def refuses(self, length: int, first: int) -> bool:
        """Whether truncating to it is too late. first: the first cached position."""
        if isinstance(self.rule, caches.Window):
            return length > 0 and first > max(0, length - self.rule.size + 1)
        return 0 < length < max(self.since, self.folded)

    def truncate(self, length: int) -> None:
        for own in self.positions:
            del own[sum(p < length for p in own) :]
        if self.seen is not None:
            q, at = self.seen
            self.seen = (q[: length - at], at) if length > at else None
        if not length:
            self.__init__(self.spec, self.rule, self.groups)  # type: ignore[misc]

    # Eviction by score --------------------------------------------------------------------------

    def _fold(self, keys: np.ndarray) -> None:
        assert self.seen is not None
        (q, at), policy = self.seen, self.rule.policy
        self.seen = None
        if isinstance(policy, caches.ExpectedAttention):
            back = turned_back(policy, q, at)[max(0, policy.sinks - at) :]
            self.queries = np.concatenate([self.queries.reshape(-1, *q.shape[1:]), back])
            self.end = at + len(q)
            return
        if isinstance(policy, caches.SnapKV):
            late = max(0, len(q) - policy.window)
            q, at = q[late:], at + late
        if isinstance(policy, caches.Tova):
            q, at = q[-1:], at + len(q) - 1
        given = [self._probabilities(h, q, at, keys) for h in range(len(self.positions))]
        for head, (own, p) in enumerate(zip(self.positions, given, strict=True)):
            old = self.notes[head]
            if isinstance(policy, caches.Tova):  # one and the same for all heads
                mean = np.mean([x.mean(axis=0)[-1] for x in given], axis=0)
                self.notes[head] = {x: (mean[i], 1) for i, x in enumerate(own)}
            elif isinstance(policy, caches.SnapKV):
                mean = p.mean(axis=(0, 1))
                self.notes[head] = {x: (mean[i], 1) for i, x in enumerate(own)}
            elif isinstance(policy, caches.H2O):
                total, new = p.mean(axis=0).sum(axis=0), {}
                for i, x in enumerate(own):
                    before, queries = old.get(x, (0.0, 0))
                    new[x] = before + total[i], queries + sum(at + t >= x for t in range(len(q)))
                self.notes[head] = new

    def _probabilities(self, head: int, q: np.ndarray, at: int, keys: np.ndarray) -> np.ndarray:
        """(G, T, S): what the queries gave the tokens that the head holds."""
        held, spec, g = np.array(self.positions[head]), self.spec, self.groups
        mine = slice(head * g, (head + 1) * g)
        s = self._scale * np.einsum("tgd,sd->gts", q[:, mine].astype(np.float64), keys[held, head])
        if spec.softcap is not None:
            s = spec.softcap * np.tanh(s / spec.softcap)
        s[:, held[None, :] > at + np.arange(len(q))[:, None]] = -np.inf
        e = np.exp(s)
        sink = 0.0
        if spec.sinks is not None:
            sink = np.exp(np.asarray(spec.sinks, np.float64)[mine])[:, None, None]
        return e / (e.sum(axis=-1, keepdims=True) + sink)

    def _evict(self, keys: np.ndarray, values: np.ndarray, found: np.ndarray) -> int:
        policy, close = self.rule.policy, 0
        recent, budget = policy.recent, self.rule.budget
        for head, own in enumerate(self.positions):
            older, newest = own[: len(own) - recent], own[len(own) - recent :]
            score = self._scores(policy, head, own, keys, values)
            assert len(found[head]) >= budget, f"head {head} holds {found[head]}, needed {budget}"
            chosen = [p for p in found[head].tolist()[:budget] if p in score]
            stay = sorted(older, key=lambda p: -score[p])[: budget - recent]
            mine = chosen[: budget - recent]
            if sorted(stay) != mine and set(mine) <= set(older) and len(mine) == len(stay):
                least, size = min(score[p] for p in stay), max(abs(x) for x in score.values())
                near = NEAR * max(abs(least), size * 1e-2)
                if all(score[p] >= least - near for p in mine):
                    stay, close = mine, close + 1
            self.positions[head] = sorted(stay) + newest
        return close

    def _scores(self, policy, head, own, keys, values) -> dict[int, float]:
        if isinstance(policy, caches.KNorm):
            return {p: -float(np.sum(keys[p, head] ** 2)) for p in own}
        if isinstance(policy, caches.ExpectedAttention):
            q = self.queries[:, head * self.groups : (head + 1) * self.groups]
            k, v, scale = keys[own, head], values[own, head], self._scale
            return dict(zip(own, expected(policy, own, q, k, v, self.end, scale), strict=True))
        notes = [self.notes[head].get(p, (0.0, 0)) for p in own]
        if isinstance(policy, caches.SnapKV):
            older, half = max(0, len(own) - policy.window), policy.kernel // 2
            x = [0.0] * half + [n for n, _ in notes[:older]] + [0.0] * half
            near = [x[i : i + policy.kernel] for i in range(older)]
            pooled = [math.fsum(some) / policy.kernel for some in near]
            if policy.pooling == "max":
                pooled = [max(some) for some in near]
            return dict(zip(own, [*pooled, *[0.0] * (len(own) - older)], strict=True))
        if isinstance(policy, caches.H2O) and policy.mean:
            return {p: total / max(1, n) for p, (total, n) in zip(own, notes, strict=True)}
        return {p: total for p, (total, _) in zip(own, notes, strict=True)}


def rotation(policy: caches.ExpectedAttention, at: int) -> np.ndarray:
    """(D, D): what RoPE does to a column at a position."""
    angles = at * np.array(policy.frequencies)
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[cos, -sin], [sin, cos]])


def turned_back(policy: caches.ExpectedAttention, q: np.ndarray, at: int) -> np.ndarray:
    """Queries (T, H, D) from position `at` on, as they were before rotation."""
    back = [x.astype(np.float64) @ rotation(policy, at + i) for i, x in enumerate(q)]
    return np.array(back).reshape(q.shape)


def expected(policy, held, q, k, v, end, scale) -> list[float]:
    """The scores of one kv head: q (n, G, D) before rotation, k and v (S, D) of cached tokens."""
    k, v = k.astype(np.float64), v.astype(np.float64)
    old = np.array([p >= policy.sinks for p in held])
    worth = np.zeros(len(held))
    if len(q) and old.any():
        turn = np.mean([rotation(policy, end + i) for i in range(policy.future)], axis=0)
        for group in range(q.shape[1]):
            s = scale * k[old] @ turn @ q[:, group].mean(axis=0)
            if policy.covariance:
                both = turn @ np.cov(q[:, group].T, bias=True) @ turn.T
                s += scale**2 * np.einsum("sd,de,se->s", k[old], both, k[old]) / 2
            p = np.exp(s - s.max())
            worth[old] += p / p.sum() / q.shape[1]
        worth *= np.linalg.norm(v, axis=1)
    worth[~old] = worth.max(initial=0.0) + 1.0  # those always stay
    return worth.tolist()
