"""The checker of merged statistics: count, mean and sum of squares about the mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import expect_number, number
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.wording import apart


def moments(x: Any) -> tuple[int, float, float]:
    """(count, mean, sum of squares about the mean) of a part; (0, 0.0, 0.0) of nothing."""
    x = np.asarray(x, dtype=np.float64)
    if not x.size:
        return 0, 0.0, 0.0
    mean = float(x[0] + (x - x[0]).mean())
    return x.size, mean, float(((x - mean) ** 2).sum())


@checker
def check_merge_moments(merge_moments: Any) -> Iterator[str]:
    """merge_moments(a, b) -> (n, mean, m2) of both parts; a and b are such triples."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(40) + 3.0
    a, b, whole = moments(x[:10]), moments(x[10:]), moments(x)
    got = _triple(merge_moments(a, b))
    (n, mean, m2), (k, other, m2_other) = a, b
    wrong_means = {
        "this is the mean of the two means, in which 10 numbers count as much as 30": (mean + other)
        / 2,
        "the mean lies too close to the smaller part: the share of b is n_b / n": (
            k * mean + n * other
        )
        / 40,
    }
    expect_number(got[1], whole[1], "the mean", wrong_means, 1e-9)
    gap = (other - mean) ** 2
    wrong_sums = {
        "the sum of squares ignores that the parts have different means; their distance adds to "
        "it": (m2 + m2_other),
        "the squared distance of the means is added as it is; multiply it by n_a n_b / n": m2
        + m2_other
        + gap,
        "the distance of the means is not squared": m2 + m2_other + abs(other - mean) * n * k / 40,
        "this is a variance. Keep the sum of squares, or the next merge has to undo the division": (
            whole[2] / 40
        ),
    }
    expect_number(got[2], whole[2], "the sum of squares", wrong_sums, 1e-9)
    if got[0] != 40:
        raise Finding(f"The count is {got[0]:g}, needed 40.")
    yield "parts of 10 and 30 numbers give the same as all 40"
    for pair in ((a, moments([])), (moments([]), a)):
        _same(_triple(merge_moments(*pair)), a, "a part merged with nothing")
    nothing = _triple(merge_moments(moments([]), moments([])))
    if any(math.isnan(value) for value in nothing) or nothing[0] != 0:
        raise Finding(f"Two empty parts give {nothing}, needed a count of 0 and no NaN.")
    yield "an empty part changes nothing, on either side"
    parts = [moments(part) for part in np.split(x, [1, 2, 17])]
    left = _fold(merge_moments, parts)
    right = _fold(lambda p, q: merge_moments(q, p), parts[::-1])
    _same(left, whole, "four parts, from the left")
    _same(right, whole, "four parts, from the right")
    yield "four parts give the same in any order"
    far = rng.standard_normal(4096) + 1e8
    got = _fold(merge_moments, [moments(part) for part in np.split(far, 64)])
    if got[0] != 4096:
        raise Finding(f"The count of 64 parts of 64 numbers is {got[0]:g}, needed 4,096.")
    deviation, needed = math.sqrt(abs(got[2]) / 4096), math.sqrt(moments(far)[2] / 4096)
    if not math.isclose(deviation, needed, rel_tol=1e-6):
        said = apart(deviation, needed)
        raise Finding(
            f"With a mean of 1e8 the deviation is {said[0]}, needed {said[1]}. Sums of x² lose all "
            "digits there. Use the difference of the means."
        )
    yield "64 parts of a row with mean 1e8 keep their digits"


def _triple(result: Any) -> tuple[float, float, float]:
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise Finding(
            f"merge_moments returned {type(result).__name__}. Return three numbers: n, mean, m2."
        )
    n, mean, m2 = result
    return number(n, "n"), number(mean, "mean"), number(m2, "m2")


def _fold(merge: Any, parts: list[Any]) -> tuple[float, float, float]:
    state = parts[0]
    for part in parts[1:]:
        state = merge(state, part)
    return _triple(state)


def _same(got: Any, right: Any, what: str) -> None:
    for name, a, b in zip(("count", "mean", "sum of squares"), got, right, strict=True):
        if not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9):
            said = apart(a, b, ".6g")
            raise Finding(f"{what}: the {name} is {said[0]}, needed {said[1]}")
