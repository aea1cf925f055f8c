"""Known wrong answers to SnapKV's choice, and policies that lose: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.windows import check_my_policy, check_snapkv_slots
from kvbook.exercises.windows_policy import BUDGETS, bits_per_byte, equal_shares, recalled
from kvlib.caches import SnapKV

Wrong = dict[str, tuple[Callable[..., Any], str]]


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# -------------------------------------------------------------------------------------- SnapKV


def weights(p: Any, window: int) -> Any:
    return p[:, :, -window:].mean(axis=(1, 2))


def neighbours(x: Any, kernel: int, **how: Any) -> Any:
    wide = np.pad(x, ((0, 0), (kernel // 2, kernel // 2)), **how)
    return np.stack([wide[:, i : i + x.shape[1]] for i in range(kernel)], axis=-1)


def older(p: Any, window: int) -> int:
    return max(0, p.shape[3] - window)


def pooled(p: Any, window: int, kernel: int) -> Any:
    return neighbours(weights(p, window)[:, : older(p, window)], kernel).mean(axis=-1)


def choose(score: Callable[..., Any] = pooled, form: Any = None) -> Callable[..., Any]:
    """An answer that scores the older tokens in its own way."""

    def slots(p: Any, window: int, kernel: int, budget: int) -> Any:
        S = p.shape[3]
        if budget >= S:
            return np.tile(np.arange(S), (len(p), 1))
        best = np.argsort(-score(p, window, kernel), axis=1)[:, : budget - window]
        newest = np.tile(np.arange(S - window, S), (len(p), 1))
        best = best if form == "unsorted" else np.sort(best, axis=1)
        return np.concatenate([best, newest], axis=1)

    return slots


def of_weights(x: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """Pooled like the right answer, but of other weights x(p, window), or with another edge."""

    def score(p: Any, window: int, kernel: int) -> Any:
        return neighbours(x(p, window)[:, : older(p, window)], kernel, **how).mean(axis=-1)

    return choose(score)


def counted(p: Any, window: int, kernel: int) -> Any:
    there = neighbours(np.ones((1, older(p, window))), kernel).mean(axis=-1)
    return pooled(p, window, kernel) / there


def leaking(p: Any, window: int, kernel: int) -> Any:
    return neighbours(weights(p, window), kernel).mean(axis=-1)[:, : older(p, window)]


def lagging(p: Any, window: int, kernel: int) -> Any:
    x, half = weights(p, window)[:, : older(p, window)], kernel // 2
    wide = np.pad(x, ((0, 0), (2 * half, 0)))
    return np.stack([wide[:, i : i + x.shape[1]] for i in range(kernel)], axis=-1).mean(axis=-1)


def together(p: Any, window: int, kernel: int) -> Any:
    scores = pooled(p, window, kernel)
    return np.tile(scores.mean(axis=0), (len(p), 1))


def newest_not_kept(p: Any, window: int, kernel: int, budget: int) -> Any:
    scores = neighbours(weights(p, window), kernel).mean(axis=-1)
    return np.sort(np.argsort(-scores, axis=1)[:, :budget], axis=1)


def counted_apart(p: Any, window: int, kernel: int, budget: int) -> Any:
    return choose()(p, window, kernel, budget + window)


def from_the_back(p: Any, window: int, kernel: int, budget: int) -> Any:
    S = p.shape[3]
    if budget >= S:
        return np.tile(np.arange(S), (len(p), 1))
    best = np.argsort(pooled(p, window, kernel), axis=1)[:, -(budget - window) :]
    newest = np.tile(np.arange(S - window, S), (len(p), 1))
    return np.concatenate([np.sort(best, axis=1), newest], axis=1)


def blind(p: Any, window: int, kernel: int, budget: int) -> Any:
    """Does not look whether the budget is larger than the text."""
    best = np.argsort(-pooled(p, window, kernel), axis=1)[:, : budget - window]
    newest = np.tile(np.arange(p.shape[3] - window, p.shape[3]), (len(p), 1))
    return np.concatenate([np.sort(best, axis=1), newest], axis=1)[:, : min(4, p.shape[3])]


right = choose()
WRONG_SLOTS: Wrong = {
    "not pooled": (choose(lambda p, w, c: weights(p, w)[:, : older(p, w)]), "are not pooled"),
    "largest": (
        choose(lambda p, w, c: neighbours(weights(p, w)[:, : older(p, w)], c).max(axis=-1)),
        "pooled by the largest",
    ),
    "fewer at the ends": (choose(counted), "divide by `kernel` everywhere"),
    "leak": (choose(leaking), "pool the older tokens alone"),
    "repeated": (of_weights(weights, mode="edge"), "the last weight is repeated"),
    "round": (of_weights(weights, mode="wrap"), "np.roll"),
    "lag": (choose(lagging), "neighbours on both sides count"),
    "H2O": (of_weights(lambda p, w: p.mean(axis=(1, 2))), "as in H2O"),
    "TOVA": (of_weights(lambda p, w: p[:, :, -1].mean(axis=1)), "as in TOVA"),
    "first queries": (of_weights(lambda p, w: p[:, :, :w].mean(axis=(1, 2))), "first queries"),
    "largest head": (
        of_weights(lambda p, w: p[:, :, -w:].max(axis=1).mean(axis=1)),
        "the largest weight of a query head",
    ),
    "first head": (of_weights(lambda p, w: p[:, 0, -w:].mean(axis=1)), "chooses alone; take"),
    "largest query": (
        of_weights(lambda p, w: p[:, :, -w:].mean(axis=1).max(axis=1)),
        "the largest weight of the last queries",
    ),
    "one set": (choose(together), "each chooses for itself"),
    "least": (choose(lambda p, w, c: -pooled(p, w, c)), "of least weight stay"),
    "unsorted": (choose(form="unsorted"), "are not in order"),
    "newest go": (newest_not_kept, "these stay whatever their weight"),
    "apart": (counted_apart, "are a part of the budget"),
    "older alone": (lambda *a: right(*a)[:, : -a[1]], "the newest tokens are missing"),
    "per query head": (
        lambda p, w, c, b: np.repeat(right(p, w, c, b), p.shape[1], axis=0),
        "one set per kv head",
    ),
    "with an axis": (
        lambda p, w, c, b: np.repeat(right(p, w, c, b)[:, None], p.shape[1], axis=1),
        "must agree, because it stores one set",
    ),
    "one head": (lambda *a: right(*a)[0], "each kv head chooses for itself"),
    "from the back": (from_the_back, "a slice such as [-0:] takes all"),
    "beyond": (lambda *a: right(*a) + 1, "slot 24 is not there"),
    "floats": (lambda *a: right(*a) * 1.0, "needed integers"),
    "mask": (lambda *a: right(*a) > 3, "needed integers"),
    "twice": (lambda *a: np.concatenate([right(*a)[:, :1], right(*a)[:, :-1]], 1), "twice"),
}


def test_snapkv_slots() -> None:
    report = check_snapkv_slots(right)
    assert report.passed, report


def test_the_exercise_scores_as_kvlib_does() -> None:
    p = np.random.default_rng(0).random((2, 3, 9, 20))
    policy = SnapKV(window=4, kernel=5)
    noted = policy.fold(None, p[:, :, -4:])
    scores = policy.score(noted, noted[..., None], noted[..., None])
    assert np.allclose(scores[:, :16], pooled(p, 4, 5), rtol=1e-12)


@pytest.mark.parametrize("name", WRONG_SLOTS)
def test_wrong_slots(name: str) -> None:
    wrong, message = WRONG_SLOTS[name]
    refused(check_snapkv_slots(wrong), message)


# -------------------------------------------------------------------------------------- policy


def policy(L: int, budget: int, at: int = 2, heavy: int = 8, near: int = 40) -> Any:
    pairs = [(heavy, near - heavy)] * L
    pairs[at] = (0, L * budget - (L - 1) * near)
    return pairs


def winning(L: int, budget: int) -> Any:
    """Layer 2 gets what the distance needs, and the others share what is left."""
    near = (L * budget - 264) // (L - 1)
    return [(0, 264) if i == 2 else (near // 4, near - near // 4) for i in range(L)]


def by_sums(L: int, budget: int) -> Any:
    return [(240, 60) if i == 2 and L * budget > 460 else (8, 32) for i in range(L)]


WRONG_POLICIES: Wrong = {
    "equal": (equal_shares, "All layers keep the same, as with H2O"),
    "windows": (lambda L, b: [(0, b)] * L, "All layers keep the same"),
    "pyramid": (lambda L, b: [(0, b + 2 * (2 - i) * 8) for i in range(L)], "No layer reaches back"),
    "another layer": (lambda L, b: policy(L, b, at=0), "Layer 0 reaches back 480 tokens, but it"),
    "by sums": (by_sums, "has a small sum, so it is evicted"),
    "for 128 alone": (policy, "with 64 tokens per layer, 2 of the first 2 strings were lost. No"),
    "few recent": (
        lambda L, b: [(0, 264) if i == 2 else (13, 1) for i in range(L)],
        "Layer 2 is the layer in which this model finds a string, and it reaches back",
    ),
    "few recent, and a layer that reaches further": (
        lambda L, b: [(36, 1)] * 2 + [(0, 264), (36, 1), (0, 265)] if b > 125 else winning(L, b),
        "Layer 2 is the layer in which this model finds a string, and it reaches back",
    ),
    "windows alone": (
        lambda L, b: [(0, r) for _, r in winning(L, b)],
        "5 layers keep no heavy token",
    ),
    "too few": (lambda L, b: policy(L, b, heavy=0, near=2), "too few even to see the name"),
    "few": (lambda L, b: policy(L, b, heavy=0, near=5), "Layers that keep very few tokens"),
    "over": (lambda L, b: [(b // 2, b)] * L, "are a part of the budget"),
    "all of it": (lambda L, b: [(8, 32)] * 2 + [(0, L * b)] + [(8, 32)] * 2, "one layer has all"),
    "more": (lambda L, b: [(8, 32)] * 4 + [(0, L * b - 100)], "the others must get fewer"),
    "one pair": (lambda L, b: (b // 2, b // 2), "one pair for each layer, not one for all"),
    "numbers": (lambda L, b: [b] * L, "needed a pair (heavy, recent)"),
    "dicts": (lambda L, b: dict.fromkeys(range(L), (0, b)), "needed a list of pairs"),
    "no newest": (lambda L, b: [(b, 0)] * L, "recent is at least 1"),
    "negative": (lambda L, b: [(-1, b)] * L, "keeps -1 heavy tokens"),
    "fractions": (lambda L, b: [(b / 4, b / 2)] * L, "needed a whole number"),
    "four layers": (lambda L, b: [(0, b)] * 4, "got a list of 4, needed 5 pairs"),
}


@pytest.mark.parametrize("name", WRONG_POLICIES)
def test_wrong_policies(name: str) -> None:
    wrong, message = WRONG_POLICIES[name]
    refused(check_my_policy(wrong), message)


def test_my_policy() -> None:
    report = check_my_policy(winning)
    assert report.passed, report


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_solution_wins_by_a_margin_that_no_processor_moves(budget: int) -> None:
    mine, rival = tuple(winning(5, budget)), equal_shares(5, budget)
    assert sum(recalled(mine)) == 5 and sum(recalled(rival)) == 0
    assert bits_per_byte(mine) < 0.985 * bits_per_byte(rival)
