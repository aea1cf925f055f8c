"""Mistakes of readers whose cause a checker names, beside those of the chapters' own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.naive import check_grouped_attention
from kvbook.exercises.paged import check_slot_mapping
from kvbook.museum import check_mask_test


def corner(q: Any, k: Any, v: Any) -> Any:
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    s = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[2])
    s = np.where(np.tri(len(q), len(k), dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hts,shd->thd", p, v).astype(np.float32)


def rows_for_positions(table: Any, indptr: Any, positions: Any, size: int) -> Any:
    owner, rows = np.repeat(np.arange(len(table)), np.diff(indptr)), np.arange(len(positions))
    return table[owner, rows // size] * size + rows % size


def says_true() -> bool:
    return np.allclose(np.ones(3), 1)


def fails_bare() -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (check_grouped_attention, corner, "starts in the top left corner"),
        (check_slot_mapping, rows_for_positions, "the number of a row was used as its position"),
        (check_mask_test, says_true, "mask_test"),
        (check_mask_test, fails_bare, "at the line raise AssertionError"),
    ],
)
def test_the_cause_is_named(check: Any, answer: Any, words: str) -> None:
    report = check(answer)
    assert report.status == "not yet", report
    assert (words if words != "mask_test" else "use assert") in report.finding, report
