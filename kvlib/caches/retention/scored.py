"""Eviction by score: each kv head keeps the tokens that got most attention from its queries.

``run`` hands over its queries and their lse; the next ``plan`` turns them into probabilities of
the stored keys, e^(q·k − lse), and gives back the tokens of least score.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array, namespace
from kvlib.caches.retention.policies import Policy
from kvlib.caches.retention.rules import Retention, spare_tokens
from kvlib.caches.spec import LayerSpec

MOST_LAYERS = 10**6


@dataclass(frozen=True)
class Scored(Retention):
    """Keep at most `budget` tokens per kv head: the newest ones, and those of the highest scores.

    The rule is applied when a layer holds `every` tokens more than the budget. Every layer chooses
    for itself; for budgets that differ by layer (`pyramid`), give a list of rules.

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
        held = self.budget + self.every - 1
        return min(max_seq_len, held + spare_tokens(held))

    def chosen(self, score: Array) -> Array:
        """The slots (Hkv, budget) that stay, in rising order, given the scores (Hkv, S)."""
        xp, (_, n) = namespace(score), score.shape
        recent = self.policy.recent
        older = xp.argsort(-score[:, : n - recent], axis=1, stable=True)
        older = xp.sort(older[:, : self.budget - recent], axis=1)
        newest = xp.arange(n - recent, n, dtype=older.dtype, device=score.device)
        newest = xp.broadcast_to(newest[None, :], (score.shape[0], recent))
        return xp.concat([older, newest], axis=1)


def pyramid(budget: int, layers: int, beta: int = 20, recent: int = 8) -> list[int]:
    """Budgets per layer, larger in the lower ones; their mean is about `budget`.

    PyramidKV, arXiv:2406.02069: equal whole steps from 2 (budget − recent) − min down to
    min = (budget − recent) / beta, and every layer gets the recent tokens in addition.

    >>> found = pyramid(128, 32)
    >>> found[0], found[-1], sum(found)
    (242, 25, 4272)
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
