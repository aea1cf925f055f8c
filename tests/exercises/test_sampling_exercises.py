"""The right answers on sampling, beside what their definitions give."""

from __future__ import annotations

import numpy as np
import pytest

from kvbook.exercises.sampling import chi_square, merge_rows, part_of


@pytest.mark.parametrize("at", [1, 25, 39])
def test_merged_parts_are_those_of_the_whole_row(at: int) -> None:
    x = np.random.default_rng(0).standard_normal(40) * 3
    for got, needed in zip(
        merge_rows(part_of(x[:at], 0, 5), part_of(x[at:], at, 5), 5), part_of(x, 0, 5), strict=True
    ):
        np.testing.assert_allclose(got, needed, rtol=1e-12)


def test_the_statistic_of_three_counts() -> None:
    statistic, degrees = chi_square(np.array([48, 35, 17]), np.array([0.5, 0.3, 0.2]))
    assert statistic == pytest.approx(4 / 50 + 25 / 30 + 9 / 20) and degrees == 2
