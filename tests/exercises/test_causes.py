"""Mistakes of readers whose cause a checker names, beside those of the chapters' own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.naive import check_grouped_attention
from kvbook.exercises.paged import check_slot_mapping
from kvbook.exercises.sampling import check_chi_square, check_merge_rows
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


def rare_by_what_came(counts: Any, p: Any, least: int = 10) -> Any:
    needed = counts.sum() * p
    rare = counts < least
    cells, wanted = (np.append(x[~rare], x[rare].sum()) for x in (counts, needed))
    if counts[p == 0].any():
        return np.inf, 1
    cells, wanted = cells[wanted > 0], wanted[wanted > 0]
    return ((cells - wanted) ** 2 / wanted).sum(), len(cells) - 1


def ascending(a: Any, b: Any, k: int) -> Any:
    m = max(a[0], b[0])
    safe = m if m > -np.inf else 0.0
    total = a[1] * np.exp(a[0] - safe) + b[1] * np.exp(b[0] - safe)
    values, columns = np.concatenate([a[2], b[2]]), np.concatenate([a[3], b[3]])
    order = np.lexsort((columns, -values))[:k][::-1]
    return [m, total, values[order], columns[order]]


def says_true() -> bool:
    return np.allclose(np.ones(3), 1)


def fails_bare() -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        (check_grouped_attention, corner, "starts in the top left corner"),
        (check_slot_mapping, rows_for_positions, "the number of a row was used as its position"),
        (check_chi_square, rare_by_what_came, "not on how often it came"),
        (check_merge_rows, ascending, "the best must stand first, but these ascend"),
        (check_mask_test, says_true, "mask_test"),
        (check_mask_test, fails_bare, "at the line raise AssertionError"),
    ],
)
def test_the_cause_is_named(check: Any, answer: Any, words: str) -> None:
    report = check(answer)
    assert report.status == "not yet", report
    assert (words if words != "mask_test" else "use assert") in report.finding, report
