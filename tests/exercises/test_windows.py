"""Right answers on windows of other forms, and the policy that a reader can find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.windows import (
    BUDGETS,
    bits_per_byte,
    check_keep_sinks,
    check_ring_positions,
    check_snapkv_slots,
    equal_shares,
    my_policy,
    recalled,
    turn,
)
from kvlib.caches import SnapKV


def by_writing(W: int, C: int, n: int) -> Any:
    slots = np.full(W - 1 + C, -1, np.int32)
    for p in range(max(0, n - 1000), n):
        slots[p % len(slots)] = p
    return slots


def in_lists(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
    row = [i for i in range(len(keys)) if i < sinks or i >= len(keys) - recent]
    turned = [turn(keys[j : j + 1], [i - positions[j]])[0] for i, j in enumerate(row)]
    return np.array(turned, np.float32).reshape(-1, keys.shape[1]), list(range(len(row)))


def by_kvlib(p: Any, window: int, kernel: int, budget: int) -> Any:
    """By the scores of kvlib's policy."""
    policy = SnapKV(window=window, kernel=kernel)
    seen = policy.fold(None, p[:, :, -window:])
    scores = policy.score(seen, seen[..., None], seen[..., None])
    scores[:, -window:] = np.inf
    return np.sort(np.argsort(-scores, axis=1)[:, :budget], axis=1)


@pytest.mark.parametrize(
    "check, answer",
    [
        (check_ring_positions, by_writing),
        (check_keep_sinks, in_lists),
        (check_snapkv_slots, by_kvlib),
    ],
)
def test_right_answers_of_other_forms(check: Any, answer: Any) -> None:
    report = check(answer)
    assert report.passed, report


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_solution_wins_by_a_margin_that_no_processor_moves(budget: int) -> None:
    mine, rival = tuple(my_policy(5, budget)), equal_shares(5, budget)
    assert sum(recalled(mine)) == 5 and sum(recalled(rival)) == 0
    assert bits_per_byte(mine) < 0.985 * bits_per_byte(rival)
