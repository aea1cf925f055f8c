"""What the record of an exercise on recomputation can't say, and what the page lets a model say."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from notebook_code import BOOK, code_cells, smallest_margin
from notebook_code import read as read_notebook

import kvlib
from kvbook.exercises.naive import check_causal_attention, check_grouped_attention
from kvlib.reference.recall import recall_prompt


@pytest.mark.parametrize("check", [check_causal_attention, check_grouped_attention])
def test_the_right_answer_is_kvlibs(check: Any) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return kvlib.attend(q, k, v, np.arange(len(k) - len(q), len(k)), np.arange(len(k)))

    assert check(attention).passed


def test_a_maximum_over_hidden_scores_changes_last_bits_only() -> None:
    """Hidden scores leave with their weights, after they have been the maximum."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        t, s = q.shape[0], k.shape[0]
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(np.float32(q.shape[2]))
        p = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(t, s, s - t)
        p = (p / p.sum(-1, keepdims=True)).astype(np.float32)
        return np.einsum("hts,shd->thd", p, v)

    report = check_causal_attention(attention)
    assert report.status == "passed", report


def test_the_recalled_answer_wins_clearly() -> None:
    model = kvlib.load_reference_model(xp=np)
    prompt, answer = recall_prompt(random.Random(0), 40, names=2, lead=0)
    source = "\n".join(cell["source"] for cell in code_cells(read_notebook(BOOK / "naive.ipynb")))
    assert "recall_prompt(random.Random(0), gap, names=2, lead=0)" in source
    assert smallest_margin(model, prompt.decode(), answer.decode()) >= 0.02
