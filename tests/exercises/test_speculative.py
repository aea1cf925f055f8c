"""Known wrong answers on chains and residuals: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.hidden import redrawn
from kvbook.exercises.speculative import (
    check_accepted,
    check_residual,
    check_speculate,
    check_tree_mask,
)
from kvbook.exercises.speculative_residual import law, rest_of
from kvlib.speculation import accept

Wrong = dict[str, tuple[Callable[..., Any], str]]


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# --------------------------------------------------------------------------------------- chain


def judged_by(verdict: Callable[..., Any]) -> Callable[..., Any]:
    """An answer that keeps guesses while verdict(p row, q row, x, u) is true."""

    def accepted(p: Any, q: Any, draft: Any, u: Any) -> Any:
        for i, x in enumerate(draft):
            if not verdict(p[i], q[i], x, u[i]):
                return i
        return len(draft)

    return accepted


right_chain = judged_by(lambda p, q, x, u: u < p[x] / q[x])


def ratios(p: Any, q: Any, draft: Any, shift: int = 0) -> Any:
    i = np.arange(len(draft))
    return p[i + shift, draft] / q[i, draft]


def first_false(verdicts: Any) -> Any:
    return int(np.argmin([*verdicts, False]))


def last_not_judged(p: Any, q: Any, draft: Any, u: Any) -> Any:
    return right_chain(p, q, draft[:-1], u)


def kept_tokens(p: Any, q: Any, draft: Any, u: Any) -> Any:
    return draft[: right_chain(p, q, draft, u)]


WRONG_CHAINS: Wrong = {
    "counts all": (lambda p, q, d, u: int((u < ratios(p, q, d)).sum()), "ends the chain"),
    "one more": (lambda *a: right_chain(*a) + 1, "count the guesses alone"),
    "refused counts": (
        lambda p, q, d, u: min(right_chain(p, q, d, u) + 1, len(d)),
        "the refused guess was counted",
    ),
    "last not judged": (last_not_judged, "the last guess was not judged"),
    "turned round": (judged_by(lambda p, q, x, u: u >= p[x] / q[x]), "where u is above p / q"),
    "upside down": (judged_by(lambda p, q, x, u: u < q[x] / p[x]), "q was divided by p"),
    "p alone": (judged_by(lambda p, q, x, u: u < p[x]), "u was compared with p alone"),
    "at least q": (judged_by(lambda p, q, x, u: p[x] >= q[x]), "only if p is at least q"),
    "greedy": (judged_by(lambda p, q, x, u: p.argmax() == x), "for greedy decoding alone"),
    "next row": (
        lambda p, q, d, u: first_false(u < ratios(p, q, d, 1)),
        "the row of p after the guess",
    ),
    "one u": (lambda p, q, d, u: first_false(u[0] < ratios(p, q, d)), "one u, the first, decided"),
    "product": (
        lambda p, q, d, u: first_false(u < np.cumprod(ratios(p, q, d))),
        "the ratios were multiplied",
    ),
    "product of at most 1": (
        lambda p, q, d, u: first_false(u < np.cumprod(np.minimum(ratios(p, q, d), 1))),
        "the ratios, each at most 1, were multiplied",
    ),
    "difference": (judged_by(lambda p, q, x, u: u < p[x] - q[x]), "the difference p - q"),
    "first row": (
        lambda p, q, d, u: first_false(u < p[0, d] / q[np.arange(len(d)), d]),
        "the first row of p judged",
    ),
    "largest": (judged_by(lambda p, q, x, u: u < p.max() / q[x]), "the largest number of the row"),
    "all": (lambda p, q, d, u: len(d), "u itself was ignored"),
    "not strict": (judged_by(lambda p, q, x, u: u * q[x] <= p[x]), "accept only where u < p / q"),
    "tokens": (kept_tokens, "needed a whole number"),
    "verdicts": (lambda p, q, d, u: u < ratios(p, q, d), "needed a whole number"),
    "a float": (lambda *a: float(right_chain(*a)), "needed a whole number"),
    "the other end, all": (
        lambda p, q, d, u: int((1 - u < ratios(p, q, d)).sum()),
        "ends the chain",
    ),
    "negative": (lambda *a: right_chain(*a) - 1, "got 1 guess kept, needed 2"),
    "rows of V": (lambda p, q, d, u: first_false(u < p[d[0]] / q[d[0]]), "raised IndexError"),
}


RIGHT_CHAINS = {
    "the other end of u": judged_by(lambda p, q, x, u: 1 - u < p[x] / q[x]),
    "the other end, not strict": judged_by(lambda p, q, x, u: 1 - u <= p[x] / q[x]),
    "logarithms": judged_by(lambda p, q, x, u: np.log(u) < np.log(p[x]) - np.log(q[x])),
    "a product": judged_by(lambda p, q, x, u: u * q[x] < p[x]),
    "at most 1": judged_by(lambda p, q, x, u: not u >= min(1.0, p[x] / q[x])),
    "kvlib's own rule, in float32": judged_by(lambda p, q, x, u: u < np.float32(p[x]) / q[x]),
}


@pytest.mark.parametrize("name", RIGHT_CHAINS)
def test_right_chains_of_other_forms(name: str) -> None:
    for draw in range(8):
        with redrawn(draw):
            report = check_accepted(RIGHT_CHAINS[name])
        assert report.passed, report


def test_a_chain_must_not_change_its_rule_halfway() -> None:
    def either(p: Any, q: Any, draft: Any, u: Any) -> Any:
        return right_chain(p, q, draft, u if len(draft) % 2 else 1 - u)

    refused(check_accepted(either), "guess")


@pytest.mark.parametrize("name", WRONG_CHAINS)
def test_wrong_chains(name: str) -> None:
    wrong, message = WRONG_CHAINS[name]
    refused(check_accepted(wrong), message)


@pytest.mark.parametrize(
    "answer",
    [
        right_chain,
        judged_by(lambda p, q, x, u: u * q[x] < p[x]),
        judged_by(lambda p, q, x, u: not u >= min(1.0, p[x] / q[x])),
        lambda p, q, d, u: first_false(u < ratios(p, q, d)),
        lambda p, q, d, u: np.cumprod(u < ratios(p, q, d)).sum(),
        lambda p, q, d, u: len(accept(p, d, q, u, np.full(len(d) + 1, 0.5))) - 1,
    ],
)
def test_right_chains(answer: Any) -> None:
    report = check_accepted(answer)
    assert report.passed, report


def test_a_refusal_is_told_with_its_numbers() -> None:
    finding = check_accepted(lambda p, q, d, u: 3).finding
    assert finding.startswith(
        "the four guesses of the task: got 3 guesses kept, needed 2. Guess 2 (counted from 0) is "
        "token 2: p = 0.200, q = 0.800, so p / q = 0.250, and u = 0.300 is not below that, so the "
        "guess is refused"
    )


# ------------------------------------------------------------------------------------- residual


def residual(p: Any, q: Any) -> Any:
    rest = np.maximum(p - q, 0)
    return rest / rest.sum() if rest.any() else p


def scaled(weights: Callable[..., Any]) -> Callable[..., Any]:
    def answer(p: Any, q: Any) -> Any:
        found = weights(p, q)
        return found / found.sum() if not (p == q).all() else p

    return answer


def softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum()


def with_epsilon(p: Any, q: Any) -> Any:
    rest = np.maximum(p - q, 0)
    return rest / (rest.sum() + 1e-8) if rest.any() else p


def clipped_late(p: Any, q: Any) -> Any:
    return np.maximum((p - q) / np.abs(p - q).sum(), 0)


WRONG_RESIDUALS: Wrong = {
    "not clipped": (lambda p, q: (p - q) / (p - q).sum(), "keep only its positive part"),
    "clipped late": (clipped_late, "sums to 0.5, needed a sum of 1"),
    "not scaled": (lambda p, q: np.maximum(p - q, 0), "divide by the sum"),
    "raw difference": (lambda p, q: p - q, "no probability is below 0"),
    "exchanged": (scaled(lambda p, q: np.maximum(q - p, 0)), "p and q are exchanged"),
    "p": (lambda p, q: p, "must not be drawn a second time"),
    "q": (lambda p, q: q, "from which the refused guess came"),
    "absolute": (scaled(lambda p, q: np.abs(p - q)), "The absolute difference was taken"),
    "whole p": (scaled(lambda p, q: np.where(p > q, p, 0)), "but with their whole p"),
    "uniform": (scaled(lambda p, q: 1.0 * (p > q)), "All tokens with p above q get the same"),
    "argmax": (lambda p, q: np.eye(len(p))[(p - q).argmax()], "with the largest difference"),
    "likeliest": (lambda p, q: np.eye(len(p))[p.argmax()], "right for greedy decoding alone"),
    "minimum": (scaled(np.minimum), "is the part that is accepted already"),
    "minimum not scaled": (np.minimum, "the part of p above q is missing"),
    "softmax": (lambda p, q: softmax(p - q), "went through a softmax"),
    "softmax of the rest": (
        lambda p, q: softmax(np.maximum(p - q, 0)),
        "The positive differences went through a softmax",
    ),
    "squares": (scaled(lambda p, q: np.maximum(p - q, 0) ** 2), "were squared"),
    "by p": (
        scaled(lambda p, q: np.where(p > 0, np.maximum(1 - q / np.where(p > 0, p, 1), 0), 0)),
        "The difference was divided by p",
    ),
    "by q": (scaled(lambda p, q: np.maximum(p - q, 0) / q), "The difference was divided by q"),
    "half": (lambda p, q: (p + residual(p, q)) / 2, "the mean of p and the right result"),
    "epsilon": (with_epsilon, "with nothing added to it"),
    "not a number": (
        lambda p, q: np.maximum(p - q, 0) / np.maximum(p - q, 0).sum(),
        "0 / 0 is not a number",
    ),
    "zeros": (
        lambda p, q: residual(p, q) if (p != q).any() else 0 * p,
        "because rounding may refuse a guess even then",
    ),
    "list": (lambda p, q: [residual(p, q).tolist(), [1.0]], "got list, needed a NumPy array"),
    "row": (lambda p, q: residual(p, q)[None], "has shape (1, 3), needed (3,)"),
    "one token": (lambda p, q: int(residual(p, q).argmax()), "needed a NumPy array"),
    "in place": (lambda p, q: np.maximum(np.subtract(p, q, out=p), 0), "was changed in place"),
}


@pytest.mark.parametrize("name", WRONG_RESIDUALS)
def test_wrong_residuals(name: str) -> None:
    wrong, message = WRONG_RESIDUALS[name]
    refused(check_residual(wrong), message)


def by_what_is_kept(p: Any, q: Any) -> Any:
    kept = np.minimum(p, q)
    return (p - kept) / (1 - kept.sum()) if kept.sum() < 1 - 1e-9 else p


def by_ratio(p: Any, q: Any) -> Any:
    rest = p - q * np.minimum(1, np.divide(p, q, out=np.ones_like(p), where=q > 0))
    return rest / rest.sum() if (p != q).any() else p


def by_loop(p: Any, q: Any) -> Any:
    rest = [max(float(a) - float(b), 0.0) for a, b in zip(p, q, strict=True)]
    return np.array([x / sum(rest) for x in rest] if sum(rest) else p)


@pytest.mark.parametrize("answer", [residual, by_what_is_kept, by_ratio, by_loop, scaled(rest_of)])
def test_right_residuals(answer: Any) -> None:
    report = check_residual(answer)
    assert report.passed, report


def test_the_law_is_the_models_own_in_fractions() -> None:
    p, q = ([Fraction(n, 64) for n in counts] for counts in ((5, 30, 8, 21), (20, 9, 11, 24)))
    rest = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    rest = [x / sum(rest) for x in rest]
    comes = [Fraction(0)] * 4
    for x in range(4):  # the guess, and what replaces it if it is refused
        kept = min(Fraction(1), p[x] / q[x])
        comes[x] += q[x] * kept
        for y in range(4):
            comes[y] += q[x] * (1 - kept) * rest[y]
    assert comes == p
    as_floats = (np.array([float(a) for a in x]) for x in (p, q, rest))
    assert np.allclose(law(*as_floats), [float(a) for a in p], rtol=1e-15)


# ------------------------------------------------------------------------------ not written yet


@pytest.mark.parametrize("check", [check_accepted, check_residual, check_tree_mask])
def test_nothing_written_yet(check: Any) -> None:
    assert check(lambda *a: None).status == "not done yet"


def test_no_loop_written_yet() -> None:
    assert check_speculate(lambda *a: None).status == "not done yet"
