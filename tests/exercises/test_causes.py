"""What a learner reads names the cause of their mistake, and no cause that isn't theirs."""

from typing import Any

import numpy as np
import pytest

from kvbook.exercises import chunked, latent, paged, roofline, sampling, windows
from kvbook.exercises.checker import edited
from kvbook.exercises.naive import check_grouped_attention
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


@pytest.mark.parametrize(("check", "answer", "words"), [
    (check_grouped_attention, corner, "starts in the top left corner"),
    (paged.check_slot_mapping, rows_for_positions, "number of a row was used as its position"),
    (check_mask_test, says_true, "use assert"),
    (check_mask_test, fails_bare, "at the line raise AssertionError"),
])
def test_the_cause_is_named(check: Any, answer: Any, words: str) -> None:
    report = check(answer)
    assert report.status == "not yet", report
    assert words in report.finding, report


@pytest.mark.parametrize(("check", "edit", "cause", "no_cause"), [
    (
        chunked.check_online_update,
        "np.exp(top - safe) → np.where(np.isneginf(top), 0, np.exp(safe - top))", "but it grew",
        "is 0 at first",
    ),
    (sampling.check_nucleus, "< top_p → < min(top_p, 0.94)", "is 0.1053", "cut off"),
    (
        roofline.check_attention_intensity,
        "return flops → return (2 - (c.head_dim == 24)) * flops", "got 2, needed 1",
        "the values take",
    ),
    (
        windows.check_my_policy, "return → return [(-1, budget + 1)] * L; return", "heavy is -1",
        "the newest token must stay",
    ),
    (paged.check_free_list, "raise ValueError → return", "got no error", "got ,"),
    (
        latent.check_states, "self.M += → self.M += ((len(k), self.every) != (8, 50)) *", "needed",
        "share",
    ),
    (
            latent.check_states,
            (
                "    def __init__ →     kept: dict = {}\n\n    def __init__",
                "self.length, self.kept = every, 0, {0: self.M.copy()} → "
                "self.length, self.kept[0] = every, 0, self.M.copy()",
            ),
            "kept belongs to the class, so all objects share it",
            "subtraction",
        ),
])
def test_no_other_cause_is_named(check: Any, edit: Any, cause: str, no_cause: str) -> None:
    edits = (edit,) if isinstance(edit, str) else edit
    report = check(edited(check.right, edits))
    assert report.status == "not yet", report
    assert cause in report.finding and no_cause not in report.finding, report
