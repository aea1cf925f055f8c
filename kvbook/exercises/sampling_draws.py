"""The checker of the chi-square exercise: do draws follow a distribution?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import number
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.wording import apart


@checker
def check_chi_square(chi_square: Any) -> Iterator[str]:
    """chi_square(counts, p, least=10) -> (statistic, degrees); rare cells are taken together."""
    counts, p = np.asarray([48, 35, 17]), np.asarray([0.5, 0.3, 0.2])
    got = _pair(chi_square(counts.copy(), p.copy()))
    n = counts.sum()
    right = float(((counts - n * p) ** 2 / (n * p)).sum())
    share = counts / n
    suspects = {
        "you compared shares, but the statistic compares counts": float(
            ((share - p) ** 2 / p).sum()
        ),
        "the squares are divided by the counts that were drawn, not by the expected counts": float(
            ((counts - n * p) ** 2 / counts).sum()
        ),
        "the differences are not squared": float((abs(counts - n * p) / (n * p)).sum()),
        "the squares are not divided by the expected counts": float(((counts - n * p) ** 2).sum()),
    }
    for words, value in suspects.items():
        if np.isclose(got[0], value):
            raise Finding(f"statistic: {words}")
    if not np.isclose(got[0], right):
        said = apart(got[0], right, ".6g")
        raise Finding(f"statistic: got {said[0]}, needed {said[1]} for counts 48, 35, 17")
    yield "the statistic of three common tokens"
    if got[1] == 3:
        raise Finding("degrees: 3 counts have 2 degrees of freedom, because they add up to n")
    if got[1] != 2:
        raise Finding(f"degrees: got {got[1]:g}, needed 2")
    yield "one degree of freedom less than there are cells"
    counts = np.asarray([520, 460, 9, 6, 5])
    p = np.asarray([0.5, 0.48, 0.008, 0.006, 0.006])
    got = _pair(chi_square(counts.copy(), p.copy()))
    if got[1] == 4:
        raise Finding(
            "degrees: tokens that should be drawn fewer than 10 times must be taken together as "
            "one cell; their counts are not near a normal distribution"
        )
    if got[1] == 1:
        raise Finding("degrees: the rare tokens were thrown away; together they are a cell")
    needed = np.asarray([500.0, 480, 20])
    right = float(((np.asarray([520, 460, 20]) - needed) ** 2 / needed).sum())
    if got[1] != 2 or not np.isclose(got[0], right):
        said = apart(got[0], right, ".6g")
        raise Finding(f"rare tokens together: got {said[0]} and {got[1]:g}, needed {said[1]} and 2")
    counts = np.asarray([500, 470, 12, 9, 9])
    got = _pair(chi_square(counts.copy(), np.asarray([0.5, 0.476, 0.008, 0.008, 0.008])))
    if got[1] == 3:
        raise Finding(
            "degrees: whether a token is rare depends on its expected count, not on how often it "
            "came. The token that came 12 times is rare, because 8 were expected"
        )
    if got[1] != 2:
        raise Finding(f"degrees: got {got[1]:g}, needed 2 for three rare tokens of five")
    yield "rare tokens share one cell"
    rng = np.random.default_rng(0)
    for _ in range(4):
        counts, p = _drawn(rng)
        got = _pair(chi_square(counts.copy(), p.copy()))
        needed = np.append(1000 * p[:4], 1000 * p[4:].sum())
        cells = np.append(counts[:4], counts[4:].sum())
        right = float(((cells - needed) ** 2 / needed).sum())
        if got[1] != 4 or not np.isclose(got[0], right):
            said = apart(got[0], right, ".6g")
            raise Finding(
                f"counts {counts.tolist()}, of which the last two are rare: got {said[0]} and "
                f"{got[1]:g}, needed {said[1]} and 4"
            )
    got = _pair(chi_square(np.asarray([60, 40, 0]), np.asarray([0.6, 0.4, 0.0])))
    if not abs(got[0]) < 1e-9 or got[1] != 1:
        raise Finding(
            f"a token of probability 0 that was never drawn is no cell: got {got[0]:g} and "
            f"{got[1]:g}, needed 0 and 1"
        )
    yield "a token of probability 0 that was never drawn forms no cell"
    got = _pair(chi_square(np.asarray([60, 39, 1]), np.asarray([0.6, 0.4, 0.0])))
    if np.isfinite(got[0]):
        raise Finding(
            f"a token of probability 0 was drawn, and the statistic is {got[0]:.4g}; the "
            "distribution can never give such a draw, so the statistic must be inf"
        )
    counts, p = np.asarray([50, 32, 8, 10]), np.asarray([0.5, 0.32, 0.08, 0.1])
    for least, found in ((5, 4), (8, 4), (9, 4), (10, 4), (11, 3)):
        got = _pair(chi_square(counts.copy(), p.copy(), least))
        if got[1] != found - 1:
            raise Finding(
                f"least={least} and expected counts of 50, 32, 8 and 10: got {got[1]:g} degrees of "
                f"freedom, needed {found - 1}. A token is rare if fewer than `least` are expected"
            )
    yield "one draw of a token of probability 0 makes the statistic infinite"


def _drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Counts (6,) of 1,000 draws and their probabilities: four common tokens and two rare ones."""
    rare = rng.uniform(0.006, 0.009, 2)
    common = 0.05 + rng.dirichlet(np.ones(4))
    p = np.concatenate([common / common.sum() * (1 - rare.sum()), rare])
    return rng.multinomial(1000, p), p


def _pair(result: Any) -> tuple[float, float]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Finding(f"got {type(result).__name__}, needed two numbers: statistic, degrees")
    return number(result[0], "statistic"), number(result[1], "degrees")
