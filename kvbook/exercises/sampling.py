"""Checkers of the chapter on sampling: the nucleus, partial results that merge, and whether draws
follow a distribution (the last is in `sampling_draws`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import number, numbers
from kvbook.exercises.report import Finding, checker, diagnose, expect_close, expect_shape
from kvbook.exercises.sampling_draws import check_chi_square
from kvbook.exercises.wording import apart

__all__ = ["check_chi_square", "check_merge_rows", "check_nucleus"]


@checker
def check_nucleus(nucleus: Any) -> Iterator[str]:
    """nucleus(p, top_p) -> probabilities (V,) that sum to 1, zero outside the nucleus."""

    def ask(p: np.ndarray, top_p: float) -> np.ndarray:
        return numbers(nucleus(p, top_p), "the probabilities")

    p = np.asarray([0.1, 0.4, 0.05, 0.3, 0.15])
    got = ask(p.copy(), 0.8)
    expect_shape(got, (5,), "the probabilities", letters="V")
    right = np.asarray([0, 0.4, 0, 0.3, 0.15]) / 0.85
    diagnose(
        got,
        {
            "the token that reaches top_p is cut off: 0.4 and 0.3 are only 0.7, so a third one "
            "belongs to the nucleus": np.asarray([0, 0.4, 0, 0.3, 0]) / 0.7,
            "the kept probabilities are not scaled up: they must sum to 1": right * 0.85,
            "tokens were kept in order of their ids, not of their probabilities": (
                np.asarray([0.1, 0.4, 0.05, 0.3, 0]) / 0.85
            ),
            "the result is in order of rank: put each probability back in the place of its "
            "token": np.asarray([0.4, 0.3, 0.15, 0, 0]) / 0.85,
        },
    )
    expect_close(got, right, "the probabilities", axes=("token",))
    yield "the smallest set of likeliest tokens that reaches top_p, each in its own place"
    got = ask(p.copy(), 0.2)
    expect_shape(got, (5,), "top_p 0.2", letters="V")
    if not np.any(got):
        raise Finding("top_p 0.2 leaves no token: the likeliest always stays")
    expect_close(got, np.asarray([0.0, 1, 0, 0, 0]), "top_p 0.2", axes=("token",))
    yield "one token may be more than enough"
    half = np.asarray([0.25, 0.5, 0.25])
    why = "0.5 reaches 0.5, so nothing more is needed"
    expect_close(ask(half.copy(), 0.5), np.asarray([0.0, 1, 0]), "an exact hit", why=why)
    same = np.full(4, 0.25)
    why = "of equal probabilities those with the lower ids stay: sort with kind='stable'"
    got = ask(same.copy(), 0.5)
    expect_close(got, np.asarray([0.5, 0.5, 0, 0]), "equal tokens", axes=("token",), why=why)
    many = np.tile([1.0, 2.0], 300) / 900  # 300 tokens of each probability
    right = np.zeros(600)
    right[1:300:2] = 1 / 150  # the first 150 of the likelier ones are a third
    got = ask(many.copy(), 149.5 * 2 / 900)
    expect_close(got, right, "300 equal tokens", axes=("token",), why=why)
    yield "the token that reaches top_p exactly is the last to stay; among equals, lower ids stay"
    rng = np.random.default_rng(1)
    for _ in range(8):
        q, top_p = rng.dirichlet(np.ones(12)), float(rng.uniform(0.1, 0.95))
        order = np.argsort(-q)
        kept = order[: int(np.searchsorted(np.cumsum(q[order]), top_p)) + 1]
        right = np.zeros(12)
        right[kept] = q[kept] / q[kept].sum()
        expect_close(ask(q.copy(), top_p), right, f"top_p {top_p:.2f}", axes=("token",))
    expect_close(ask(p.copy(), 1.0), p, "top_p 1", axes=("token",))
    yield "top_p 1 changes nothing"


Part = tuple[float, float, np.ndarray, np.ndarray]


def part_of(x: np.ndarray, first: int, k: int) -> Part:
    """(maximum, sum, values, columns) of logits x (n,) that begin in column `first`."""
    order = np.argsort(-x, kind="stable")[:k]
    top = float(x.max())
    total = float(np.exp(x - (top if np.isfinite(top) else 0.0)).sum())
    return top, total, x[order], order + first


@checker
def check_merge_rows(merge_rows: Any) -> Iterator[str]:
    """merge_rows(a, b, k): parts (m, total, values, columns) of one row, a's columns first."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40) * 3
    a, b, want = part_of(x[:25], 0, 5), part_of(x[25:], 25, 5), part_of(x, 0, 5)
    got = _part(merge_rows(a, b, 5))
    _same(got, want, _suspects(a, b))
    yield "maximum, sum, and the best of both parts"
    got = _part(merge_rows(b, a, 5))
    _same(got, want, {})
    yield "the order of the parts does not matter"
    ties = np.asarray([1.0, 2, 2, 0, 2, 2, 1])
    want = part_of(ties, 0, 3)
    for first, second in (((0, 4), (4, 7)), ((4, 7), (0, 4))):
        a, b = (part_of(ties[i:j], i, 3) for i, j in (first, second))
        got = _part(merge_rows(a, b, 3))
        if got[3].tolist() != want[3].tolist():
            raise Finding(
                f"of equal logits the lower columns win: got columns {got[3].tolist()}, needed "
                f"{want[3].tolist()} (also where the later part is handed over first)"
            )
    yield "of equal logits the lower column stays, whichever part comes first"
    large = x + 2000.0
    got = _part(merge_rows(part_of(large[:9], 0, 4), part_of(large[9:], 9, 4), 4))
    _same(got, part_of(large, 0, 4), {})
    yield "logits of 2,000: no exponential overflows"
    nothing = np.full(3, -np.inf)
    got = _part(merge_rows(part_of(nothing, 0, 2), part_of(nothing, 3, 2), 2))
    if np.isnan(got[1]):
        raise Finding(
            "two parts of −inf alone: the sum is NaN, because −inf − −inf is not a number"
        )
    if got[0] != -np.inf or got[1] != 0:
        raise Finding(f"two parts of −inf alone: got {got[:2]}, needed (−inf, 0)")
    yield "two parts that hold only −inf merge to a sum of 0"


def _part(result: Any) -> Part:
    if not isinstance(result, tuple | list) or len(result) != 4:
        raise Finding(f"got {type(result).__name__}, needed (m, total, values, columns)")
    m, total, values, columns = result
    values, columns = numbers(values, "values"), numbers(columns, "columns")
    return number(m, "m"), number(total, "total"), values, columns


def _same(got: Part, want: Part, suspects: dict[str, float]) -> None:
    if not np.isclose(got[0], want[0]):
        said = apart(got[0], want[0], ".6g")
        raise Finding(f"m: got {said[0]}, needed the larger maximum, {said[1]}")
    for words, total in suspects.items():
        if np.isclose(got[1], total) and not np.isclose(total, want[1]):
            raise Finding(f"total: {words}")
    if not np.isclose(got[1], want[1]):
        said = apart(got[1], want[1], ".6g")
        raise Finding(f"total: got {said[0]}, needed {said[1]}")
    expect_shape(got[2], want[2].shape, "values", letters="k")
    diagnose(got[2], {"values: the best must stand first, but these ascend": want[2][::-1]})
    expect_close(got[2], want[2], "values", axes=("rank",))
    if got[3].tolist() != want[3].tolist():
        raise Finding(f"columns: got {got[3].tolist()}, needed {want[3].tolist()}")


def _suspects(a: Part, b: Part) -> dict[str, float]:
    top = max(a[0], b[0])
    scaled = np.exp(top - a[0]) * a[1] + np.exp(top - b[0]) * b[1]
    return {
        "the sums are added as they are, though each belongs to a maximum of its own": a[1] + b[1],
        "the factor is upside down: exp(own maximum − common maximum) is at most 1": float(scaled),
    }
