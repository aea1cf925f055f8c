"""Right answers on speculation of other forms, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.hidden import redrawn
from kvbook.exercises.speculative import (
    EXAMPLE,
    accepted,
    check_accepted,
    check_residual,
    check_speculate,
    check_tree_mask,
    tree_mask,
)
from kvlib.caches import DenseCache, LayerSpec
from kvlib.speculation import accept

f32 = np.float32


def judged_by(verdict: Callable[..., Any]) -> Callable[..., Any]:
    """An answer that keeps guesses while verdict(p row, q row, x, u) is true."""

    def answer(p: Any, q: Any, draft: Any, u: Any) -> Any:
        kept = [verdict(p[i], q[i], x, u[i]) for i, x in enumerate(draft)]
        return int(np.argmin([*kept, False]))

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        judged_by(lambda p, q, x, u: 1 - u < p[x] / q[x]),
        judged_by(lambda p, q, x, u: 1 - u <= p[x] / q[x]),
        judged_by(lambda p, q, x, u: np.log(u) < np.log(p[x]) - np.log(q[x])),
        judged_by(lambda p, q, x, u: not u >= min(1.0, p[x] / q[x])),
        judged_by(lambda p, q, x, u: u < f32(p[x]) / q[x]),
        lambda p, q, d, u: len(accept(p, d, q, u, np.full(len(d) + 1, 0.5))) - 1,
    ],
)
def test_right_chains(answer: Any) -> None:
    for draw in range(4):
        with redrawn(draw):
            report = check_accepted(answer)
        assert report.passed, report


def test_a_chain_must_not_change_its_rule_halfway() -> None:
    report = check_accepted(lambda p, q, d, u: accepted(p, q, d, u if len(d) % 2 else 1 - u))
    assert "needed" in report.finding


def by_what_is_kept(p: Any, q: Any) -> Any:
    kept = np.minimum(p, q)
    return (p - kept) / (1 - kept.sum()) if kept.sum() < 1 - 1e-9 else p


def by_walking(parents: Any, length: int) -> Any:
    mask = np.zeros((len(parents), len(parents)), bool)
    for j, at in enumerate(range(len(parents))):
        while at >= 0:
            mask[j, at], at = True, parents[at]
    return mask, (length - 1 + mask.sum(axis=1)).tolist()


def prompt_in_pieces(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Reads the prompt one by one; the drafter reads its last guess, too, and the end is cut."""
    for i in range(len(prompt) - 1):
        target(prompt[i : i + 1], i)
    text, t, d = list(prompt), len(prompt) - 1, 0
    while len(text) < len(prompt) + n:
        guesses: list[int] = []
        for _ in range(gamma + 1):
            written = np.array(text + guesses)
            guesses.append(drafter(written[d:], np.int64(d))[-1])
            d = len(written)
        choices = target([text[-1], *guesses[:-1]], t)
        t += 1 + int(np.cumprod([g == c for g, c in zip(guesses[:-1], choices)]).sum())
        d, text = t, [*text, *choices][: len(text)] + choices[: t + 1 - len(text)]
    return text[len(prompt) :][:n]


@pytest.mark.parametrize(
    "check, answer",
    [
        (check_residual, by_what_is_kept),
        (check_tree_mask, by_walking),
        (check_speculate, prompt_in_pieces),
    ],
)
def test_right_answers_of_other_forms(check: Any, answer: Any) -> None:
    report = check(answer)
    assert report.passed, report


@pytest.mark.parametrize("parents", [EXAMPLE, (-1, -1, 0, 1, 2), (-1, 0, 1, 2, 0, 4, 1)])
def test_the_mask_and_the_positions_are_those_of_a_step(parents: tuple[int, ...]) -> None:
    cache = DenseCache([LayerSpec(1, 2)], 1, 20, xp=np)
    cache.add("a")
    x = np.zeros((4, 1, 2), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [4]))
    step = cache.plan(["a"], [len(parents)], parents=[parents])
    mask, positions = tree_mask(parents, 4)
    assert (step.ancestors(0) == mask).all() and (step.positions == positions).all()
