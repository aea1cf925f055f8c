"""Known wrong answers to the exercises on sampling: each refused in fitting words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.report import Report
from kvbook.exercises.sampling import check_chi_square, check_merge_rows, check_nucleus


def refused(report: Report, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


def stub(*args: Any) -> Any: ...


@pytest.mark.parametrize("check", [check_nucleus, check_merge_rows, check_chi_square])
def test_a_stub_is_not_done(check: Any) -> None:
    assert check(stub).status == "not done yet"
    refused(check(lambda *args: "x"), "got str, needed")


# ------------------------------------------------------------------------------ the nucleus


def nucleus(
    p: Any, top_p: float, *, closed: bool = True, scaled: bool = True, kind: str = "stable",
    at_least_one: bool = True, exact: bool = False, by_rank: bool = False, ids: bool = False,
) -> Any:  # fmt: skip
    order = np.arange(len(p)) if ids else np.argsort(-p, kind=kind)
    if kind == "backwards":
        order = np.argsort(p, kind="stable")[::-1]
    ranked = p[order]
    before = np.cumsum(ranked) - (ranked if closed else 0)
    keep = before <= top_p if exact else before < top_p
    keep[0] |= at_least_one
    out = np.zeros_like(p)
    out[np.arange(len(p))[keep] if by_rank else order[keep]] = ranked[keep]
    return out / out.sum() if scaled else out


WRONG_NUCLEI = [
    (lambda p, q: nucleus(p, q, closed=False), "belongs to the nucleus"),
    (lambda p, q: nucleus(p, q, scaled=False), "not scaled up"),
    (lambda p, q: nucleus(p, q, ids=True), "in order of their ids"),
    (lambda p, q: nucleus(p, q, by_rank=True), "in order of rank"),
    (lambda p, q: nucleus(p, q, exact=True), "an exact hit"),
    (lambda p, q: nucleus(p, q, closed=q > 0.5, at_least_one=False, scaled=q > 0.5), "no token"),
    (lambda p, q: np.where(p == p.max(), 1.0, 0) if q < 0.3 else (
        nucleus(p, q) if q != 0.5 or len(p) < 4 else nucleus(p[::-1], q)[::-1]
    ), "of equal probabilities those with the lower ids"),
    (lambda p, q: nucleus(p, min(q, 0.94)), "top_p 1"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), WRONG_NUCLEI)
def test_wrong_nuclei(wrong: Any, message: str) -> None:
    refused(check_nucleus(wrong), message)


def test_the_right_nucleus_passes() -> None:
    assert check_nucleus(nucleus).passed


# ------------------------------------------------------------------------------ merged parts


def merged(
    a: Any, b: Any, k: int, *, factor: Any = None, safe: bool = True, ties: str = "columns"
) -> Any:
    m = max(a[0], b[0])
    at = 0.0 if safe and m == -np.inf else m
    factor = factor or (lambda own, top: np.exp(own - top))
    with np.errstate(invalid="ignore", over="ignore"):
        total = a[1] * factor(a[0], at) + b[1] * factor(b[0], at)
    values, columns = (np.concatenate([a[i], b[i]]) for i in (2, 3))
    order = np.lexsort((columns, -values))
    if ties == "parts":
        order = np.argsort(-values, kind="stable")
    return m, total, values[order[:k]], columns[order[:k]]


def largest_of_each(a: Any, b: Any, k: int) -> Any:
    m, total, _, _ = merged(a, b, k)
    half = k // 2
    return m, total, np.append(a[2][: k - half], b[2][:half]), np.append(a[3], b[3])[:k]


WRONG_MERGES = [
    (lambda a, b, k: merged(a, b, k, factor=lambda own, top: 1.0), "as they are"),
    (lambda a, b, k: merged(a, b, k, factor=lambda own, top: np.exp(top - own)), "upside down"),
    (lambda a, b, k: merged(a, b, k, safe=False), "−inf − −inf"),
    (lambda a, b, k: merged(a, b, k, ties="parts"), "the lower columns win"),
    (lambda a, b, k: (a[0], *merged(a, b, k)[1:])
     if a[0] < b[0] else (b[0], *merged(a, b, k)[1:]), "the larger maximum"),
    (lambda a, b, k: merged(a, b, 2 * k), "values have shape"),
    (largest_of_each, "values: rank"),
    (lambda a, b, k: merged(a, b, k)[:3], "needed (m, total, values, columns)"),
    (lambda a, b, k: (*merged(a, b, k)[:3], merged(a, b, k)[3] + 1), "columns: got"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), WRONG_MERGES)
def test_wrong_merges(wrong: Any, message: str) -> None:
    refused(check_merge_rows(wrong), message)


def test_a_sum_that_overflows_is_refused() -> None:
    def through_zero(a: Any, b: Any, k: int) -> Any:
        m, _, values, columns = merged(a, b, k)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = a[1] * np.exp(a[0]) + b[1] * np.exp(b[0])
            return m, whole / np.exp(m), values, columns

    refused(check_merge_rows(through_zero), "total: got nan")


def test_the_right_merge_passes() -> None:
    assert check_merge_rows(merged).passed


# ------------------------------------------------------------------------------ chi-square


def chi_square(
    counts: Any, p: Any, least: float = 10, *, cells: str = "together", less: int = 1,
    shares: bool = False, square: bool = True, by: str = "needed", impossible: bool = True,
) -> Any:  # fmt: skip
    needed = counts.sum() * p
    if impossible and counts[p == 0].any():
        return np.inf, 1
    rare = needed < least
    if cells == "together":
        needed, counts = (np.append(x[~rare], x[rare].sum()) for x in (needed, counts))
    elif cells == "dropped":
        needed, counts = needed[~rare], counts[~rare]
    use = needed > 0
    needed, counts = needed[use], counts[use]
    n = counts.sum() if shares else 1
    gap = abs(counts - needed) / n
    below = {"needed": needed / n, "counts": counts / n, "nothing": np.ones_like(needed)}[by]
    return float((gap ** (2 if square else 1) / below).sum()), len(needed) - less


WRONG_STATISTICS = [
    (lambda c, p: chi_square(c, p, shares=True), "you compared shares"),
    (lambda c, p: chi_square(c, p, by="counts"), "by the counts that were drawn"),
    (lambda c, p: chi_square(c, p, square=False), "are not squared"),
    (lambda c, p: chi_square(c, p, by="nothing"), "are not divided"),
    (lambda c, p: (chi_square(c, p)[0] + 1, 2), "statistic: got"),
    (lambda c, p: chi_square(c, p, less=0), "3 counts have 2"),
    (lambda c, p: chi_square(c, p, less=2), "degrees: got 1, needed 2"),
    (lambda c, p: chi_square(c, p, cells="all"), "taken together"),
    (lambda c, p: chi_square(c, p, cells="dropped"), "thrown away"),
    (lambda c, p: (chi_square(c, p)[0] + (len(c) > 3), 2), "rare tokens together"),
    (lambda c, p: chi_square(c, p) if (p > 0).all() else (np.nan, 2), "is no cell"),
    (lambda c, p: chi_square(c, p, impossible=False), "must be inf"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_STATISTICS)
def test_wrong_statistics(wrong: Any, message: str) -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        refused(check_chi_square(wrong), message)


def test_the_right_statistic_passes() -> None:
    assert check_chi_square(chi_square).passed
