"""Exercises of the chapter on sampling."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, parts


def nucleus(p: Any, top_p: float) -> Any:
    """nucleus(p, top_p) -> probabilities (V,) that sum to 1, zero outside the nucleus."""
    order = np.argsort(-p, kind="stable")
    ranked = p[order]
    keep = np.cumsum(ranked) - ranked < top_p
    out = np.zeros_like(p)
    out[order[keep]] = ranked[keep]
    return out / out.sum()


def _ties(nucleus: Any) -> Iterator[Seen]:
    yield "nucleus of 0.25, 0.5, 0.25, top_p 0.5", nucleus(np.array([0.25, 0.5, 0.25]), 0.5)
    why = "of equal probabilities those with the lower ids stay: sort with kind='stable'"
    yield "four equal tokens, top_p 0.5", nucleus(np.full(4, 0.25), 0.5), why
    many = np.tile([1.0, 2.0], 300) / 900  # the first 150 of the likelier ones are a third
    yield "300 equal tokens of 600, top_p a third", nucleus(many, 149.5 * 2 / 900), why


def _random_nuclei(nucleus: Any) -> Iterator[Seen]:
    yield "top_p 1", nucleus(_P.copy(), 1.0)
    rng = np.random.default_rng(1)
    for _ in range(8):
        p, top_p = rng.dirichlet(np.ones(12)), float(rng.uniform(0.1, 0.95))
        yield f"12 tokens, top_p {top_p:.2f}", nucleus(p, top_p)


_P = np.array([0.1, 0.4, 0.05, 0.3, 0.15])
check_nucleus = Checker(
    nucleus,
    letters="V",
    stages={
        "the smallest set of likeliest tokens that reaches top_p, each at its own id": [(_P, 0.8)],
        "one token may be more than enough": [(_P, 0.2)],
        "the token that reaches top_p exactly is the last to stay; among equals, lower ids stay": (
            _ties
        ),
        "top_p 1 changes nothing": _random_nuclei,
    },
    mistakes={
        "the token that reaches top_p is cut off: 0.4 and 0.3 are only 0.7, so a third one "
        "belongs to the nucleus": "- ranked < top_p → < top_p",
        "the kept probabilities are not scaled up: they must sum to 1": "/ out.sum() → ",
        "tokens were kept in order of their ids, not of their probabilities": (
            'np.argsort(-p, kind="stable") → np.arange(len(p))'
        ),
        "the result is in order of rank: put each probability at the id of its token": (
            "out[order[keep]] → out[np.flatnonzero(keep)]"
        ),
        "no token is left: the likeliest always stays": [
            (f"- ranked < → - ranked * (top_p > 0.5) <{more}", "/ out.sum() → / (out.sum() or 1)")
            for more in ("", " 1 *")
        ],
        "0.5 reaches 0.5, so nothing more is needed": "< top_p → <= top_p",
    },
    refused={
        "of equal probabilities those with the lower ids stay": (
            'np.argsort(-p, kind="stable") → np.argsort(p, kind="stable")[::-1]'
        ),
        "top_p 1: ": "< top_p → < min(top_p, 0.94)",
    },
)


def merge_rows(a: Any, b: Any, k: int) -> Any:
    """merge_rows(a, b, k): parts (m, total, values, columns) of one row, a's columns first."""
    m = max(a[0], b[0])
    safe = m if m > -np.inf else 0.0
    total = a[1] * np.exp(a[0] - safe) + b[1] * np.exp(b[0] - safe)
    values, columns = np.concatenate([a[2], b[2]]), np.concatenate([a[3], b[3]])
    order = np.lexsort((columns, -values))[:k]
    return m, total, values[order], columns[order]


def part_of(x: np.ndarray, first: int, k: int) -> tuple[float, float, np.ndarray, np.ndarray]:
    """(maximum, sum, values, columns) of logits x (n,) that begin in column `first`."""
    order = np.argsort(-x, kind="stable")[:k]
    top = float(x.max())
    total = float(np.exp(x - (top if np.isfinite(top) else 0.0)).sum())
    return top, total, x[order], order + first


def _rows(x: Any, at: int, k: int, *, turned: bool = False) -> Any:
    """The logits that x(rng) gives, cut before column `at`; `turned` has the later part first."""

    def probe(merge_rows: Any) -> Iterator[Seen]:
        row = x(np.random.default_rng(0))
        two = [part_of(row[:at], 0, k), part_of(row[at:], at, k)]
        yield "the merged rows", merge_rows(*two[:: -1 if turned else 1], k)

    return probe


def _drawn(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(40) * 3


def _equal(rng: np.random.Generator) -> np.ndarray:
    return np.array([1.0, 2, 2, 0, 2, 2, 1])


check_merge_rows = Checker(
    merge_rows,
    names=("m", "total", "values", "columns"),
    letters="rank",
    stages={
        "maximum, sum, and the best of both parts": _rows(_drawn, 25, 5),
        "the order of the parts does not matter": _rows(_drawn, 25, 5, turned=True),
        "of equal logits the lower column stays": _rows(_equal, 4, 3),
        "also where the later part comes first": _rows(_equal, 4, 3, turned=True),
        "logits of 2,000: no exponential overflows": _rows(lambda rng: _drawn(rng) + 2000, 9, 4),
        "two parts with only −inf merge to a sum of 0": (
            _rows(lambda rng: np.full(6, -np.inf), 3, 2)
        ),
    },
    mistakes={
        "this is the smaller maximum: m is the larger": "m = max → m = min",
        "the sums are added as they are, though each belongs to a different maximum": (
            "total = a[1] * np.exp(a[0] - safe) + b[1] * np.exp(b[0] - safe) → total = a[1] + b[1]"
        ),
        "the factor is upside down: exp(own maximum − common maximum) is at most 1": (
            "a[0] - safe → safe - a[0]",
            "b[0] - safe → safe - b[0]",
        ),
        "these ascend, but the best must come first": "[:k] → [:k][::-1]",
        "of equal logits the lower columns win": (
            'np.lexsort((columns, -values)) → np.argsort(-values, kind="stable")'
        ),
        "an exponential of logits of 2,000 overflows: subtract a maximum first": (
            "return m → total = (a[1] * np.exp(a[0]) + b[1] * np.exp(b[0])) / np.exp(m); return m"
        ),
        "the sum of −inf alone is NaN, because −inf − −inf is not a number": (
            "m if m > -np.inf else 0.0 → m"
        ),
    },
    refused={
        "values: rank 0": "order = np.lexsort((columns, -values))[:k] → order = np.r_[:3, 5:7]",
        "columns: rank 0 is": "columns[order] → columns[order] + 1",
    },
)


def chi_square(counts: Any, p: Any, least: float = 10) -> Any:
    """chi_square(counts, p, least=10) -> (statistic, degrees); rare cells are taken together."""
    if counts[p == 0].any():
        return np.inf, 1
    needed = counts.sum() * p
    rare = needed < least
    cells, wanted = (np.append(x[~rare], x[rare].sum()) for x in (counts, needed))
    use = wanted > 0
    gaps = (cells[use] - wanted[use]) ** 2 / wanted[use]
    return gaps.sum(), sum(use) - 1


def _tested(*rows: tuple[Any, ...], only: str = "", why: str = "") -> Any:
    """Counts and probabilities, and `least` if it isn't 10."""

    def probe(chi_square: Any) -> Iterator[Seen]:
        for counts, p, *least in rows:
            what = f"counts {counts}, probabilities {p}" + "".join(f", least {x}" for x in least)
            names = ("statistic", "degrees")
            result = parts(chi_square(np.array(counts), np.array(p), *least), what, names)
            for name, got in zip(names[::-1], result[::-1], strict=True):
                if only in name:
                    yield f"{what}: {name}", got, why

    return probe


def _zero(chi_square: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(0)
    for _ in range(4):  # four common tokens and two rare ones
        rare, common = rng.uniform(0.006, 0.009, 2), 0.05 + rng.dirichlet(np.ones(4))
        p = np.concatenate([common / common.sum() * (1 - rare.sum()), rare])
        yield from _tested((rng.multinomial(1000, p).tolist(), p.tolist()))(chi_square)
    why = "a token of probability 0 that was never drawn is no cell"
    yield from _tested(([61, 39, 0], [0.6, 0.4, 0.0]), why=why)(chi_square)


def _impossible(chi_square: Any) -> Iterator[Seen]:
    yield from _tested(([60, 39, 1], [0.6, 0.4, 0.0]), only="statistic")(chi_square)
    counts, p = [50, 32, 8, 10], [0.5, 0.32, 0.08, 0.1]
    why = "a token is rare if fewer than `least` are expected"
    rows = [(counts, p, least) for least in (5, 8, 9, 10, 11)]
    yield from _tested(*rows, only="degrees", why=why)(chi_square)


_COMMON = ([48, 35, 17], [0.5, 0.3, 0.2])
check_chi_square = Checker(
    chi_square,
    stages={
        "the statistic of three common tokens": _tested(_COMMON, only="statistic"),
        "one degree of freedom less than there are cells": _tested(_COMMON, only="degrees"),
        "rare tokens share one cell": _tested(
            ([520, 460, 9, 6, 5], [0.5, 0.48, 0.008, 0.006, 0.006]),
            ([500, 470, 12, 9, 9], [0.5, 0.476, 0.008, 0.008, 0.008]),
        ),
        "a token of probability 0 that was never drawn forms no cell": _zero,
        "one draw of a token of probability 0 makes the statistic infinite": _impossible,
    },
    mistakes={
        "you compared shares, but the statistic compares counts": (
            "return gaps.sum() → return gaps.sum() / counts.sum()"
        ),
        "the squares are divided by the counts that were drawn, not by the expected counts": (
            "** 2 / wanted[use] → ** 2 / cells[use]"
        ),
        "the differences are not squared": (
            "(cells[use] - wanted[use]) ** 2 → abs(cells[use] - wanted[use])"
        ),
        "the squares are not divided by the expected counts": "** 2 / wanted[use] → ** 2",
        "3 counts have 2 degrees of freedom, because they add up to n": "sum(use) - 1 → sum(use)",
        "tokens that should be drawn fewer than 10 times must be taken together as one cell; their "
        "counts are not near a normal distribution": "needed < least → needed < 0",
        "the limit is the argument `least`, not always 10": "needed < least → needed < 10",
        "the rare tokens were thrown away; together they are a cell": (
            "np.append(x[~rare], x[rare].sum()) → x[~rare]"
        ),
        "whether a token is rare depends on its expected count, not on how many times it was "
        "drawn. The token that was drawn 12 times is rare, because 8 were expected": (
            "needed < least → counts < least"
        ),
        "the distribution can never give such a draw, so the statistic must be inf": (
            "if counts[p == 0].any() → if False"
        ),
    },
    refused={
        "statistic: got 2.36333": "return gaps.sum() → return 1 + gaps.sum()",
        "got 1, needed 2": "sum(use) - 1 → sum(use) - 2",
        "statistic: got 2.63333": "return gaps.sum() → return (len(p) > 3) + gaps.sum()",
        "that was never drawn is no cell": "return gaps → use = [*use, *(p == 0)]; return gaps",
        "if fewer than `least` are expected": "< least → <= least",
    },
)
