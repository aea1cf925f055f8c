"""Known wrong answers to the exercises of the chapter on recomputation: each refused in fitting
words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from notebook_code import BOOK, code_cells, smallest_margin
from notebook_code import read as read_notebook

import kvlib
from kvbook.exercises.naive import (
    check_causal_attention,
    check_grouped_attention,
    check_token_passes,
    check_window_mask,
)
from kvlib.reference.recall import recall_prompt


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    p = np.exp(x - x.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.einsum("thd,shd->hts", q, k) / np.float32(math.sqrt(q.shape[-1]))


def hide(x: np.ndarray, offset: int | None = None) -> np.ndarray:
    t, s = x.shape[-2:]
    seen = np.tri(t, s, k=s - t if offset is None else offset, dtype=bool)
    return np.where(seen, x, np.float32(-np.inf))


def read(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.einsum("hts,shd->thd", p, v)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return read(softmax(hide(scores(q, k))), v)


# -------------------------------------------------------------------------------- causal_attention


def past(x: np.ndarray) -> np.ndarray:
    t, s = x.shape[-2:]
    return np.tri(t, s, k=s - t, dtype=np.float32)


def in_place(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q /= np.float32(math.sqrt(q.shape[-1]))
    return read(softmax(hide(np.einsum("thd,shd->hts", q, k))), v)


def no_max(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = np.exp(hide(scores(q, k)))
    return read(p / p.sum(-1, keepdims=True), v)


def exponentials(q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = hide(scores(q, k))
    p = np.exp(x - x.max(-1, keepdims=True))
    return p, p.sum(-1, keepdims=True)


def normalised_twice(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    p, total = exponentials(q, k)
    return read(p / total / total, v)


def not_normalised(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return read(exponentials(q, k)[0], v)


def sees_one_ahead(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = len(k)
    return read(softmax(hide(scores(q, k), s - len(q) + 1)), v)


def everything_when_decoding(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return attention(q, k, v) if len(q) == len(k) else read(softmax(scores(q, k)), v)


def root(q: np.ndarray) -> np.float32:
    return np.float32(math.sqrt(q.shape[-1]))


WRONG_ATTENTION: dict[str, tuple[Callable[..., Any], str]] = {
    "no mask": (
        lambda q, k, v: read(softmax(scores(q, k)), v),
        "position 0 changed when token 5 changed: there is no mask",
    ),
    "mask added as 0 and 1": (
        lambda q, k, v: read(softmax(scores(q, k) + past(scores(q, k))), v),
        "the mask is added as 0 and 1",
    ),
    "mask added as 1 where hidden": (
        lambda q, k, v: read(softmax(scores(q, k) + 1 - past(scores(q, k))), v),
        "the mask is added as 0 and 1",
    ),
    "mask multiplies scores": (
        lambda q, k, v: read(softmax(scores(q, k) * past(scores(q, k))), v),
        "a score of 0 is not a weight of 0",
    ),
    "mask after the softmax": (
        lambda q, k, v: read(softmax(scores(q, k)) * past(scores(q, k)), v),
        "hides weights after the softmax",
    ),
    "mask turned round": (
        lambda q, k, v: read(
            softmax(np.where(np.tri(len(k), len(q), dtype=bool).T, scores(q, k), -np.inf)), v
        ).astype(np.float32),
        "the mask is reversed",
    ),
    "one key ahead": (
        sees_one_ahead,
        "position 4 changed when token 5 changed: your mask lets the past see the future",
    ),
    "not itself": (
        lambda q, k, v: read(softmax(hide(scores(q, k), len(k) - len(q) - 1)), v),
        "query 0 sees nothing, not even itself",
    ),
    "top-left mask": (
        lambda q, k, v: read(softmax(hide(scores(q, k), 0)), v),
        "query 0 of 1 stands at position 6 of 7 and sees key 0 alone",
    ),
    "no mask when decoding": (
        everything_when_decoding,
        "the 2 queries over 7 keys see everything",
    ),
    "no scale": (
        lambda q, k, v: read(softmax(hide(scores(q * root(q), k))), v),
        "the scores are not scaled",
    ),
    "scale by D": (
        lambda q, k, v: read(softmax(hide(scores(q / root(q), k))), v),
        "divided by D = 4: √D = 2 was needed",
    ),
    "scale upside down": (
        lambda q, k, v: read(softmax(hide(scores(q * root(q) ** 2, k))), v),
        "multiplied by √D",
    ),
    "softmax over queries": (
        lambda q, k, v: read(softmax(hide(scores(q, k)), axis=1), v),
        "the softmax runs over the queries",
    ),
    "normalised twice": (normalised_twice, "the softmax is normalised twice"),
    "softmax of softmax": (
        lambda q, k, v: read(softmax(hide(softmax(hide(scores(q, k))))), v),
        "the softmax is normalised twice",
    ),
    "not normalised": (not_normalised, "they are not divided by their sum"),
    "no largest score": (no_max, "Subtract the row's largest score"),
    "float64": (
        lambda q, k, v: attention(q.astype(float), k, v),
        "o is float64, needed float32: twice the bytes",
    ),
    "in place": (in_place, "argument 1 of in_place was changed in place"),
    "heads first": (
        lambda q, k, v: attention(q, k, v).transpose(1, 0, 2),
        "an axis is in the wrong place",
    ),
}


def test_attention() -> None:
    assert check_causal_attention(attention).passed


@pytest.mark.parametrize("name", WRONG_ATTENTION)
def test_wrong_attention(name: str) -> None:
    wrong, message = WRONG_ATTENTION[name]
    refused(check_causal_attention(wrong), message)


# ------------------------------------------------------------------------------- grouped_attention


def grouped(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    g = q.shape[1] // k.shape[1]
    return attention(q, np.repeat(k, g, axis=1), np.repeat(v, g, axis=1))


def tiled(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.tile(x, (1, q.shape[1] // x.shape[1], 1))


def repeated(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def broadcast(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, (len(x), q.shape[1], x.shape[2]))


WRONG_GROUPS: dict[str, tuple[Callable[..., Any], str]] = {
    "tile": (
        lambda q, k, v: attention(q, tiled(k, q), tiled(v, q)),
        "changing key head 0 changed query heads [0, 2, 4], needed [0, 1, 2]: np.tile",
    ),
    "values tiled": (
        lambda q, k, v: attention(q, repeated(k, q), tiled(v, q)),
        "changing value head 0 changed query heads [0, 2, 4], needed [0, 1, 2]: np.tile",
    ),
    "first head for all": (
        lambda q, k, v: attention(q, broadcast(k[:, :1], q), broadcast(v[:, :1], q)),
        "changing key head 0 changed query heads [0, 1, 2, 3, 4, 5], needed [0, 1, 2]: every",
    ),
    "mean of the heads": (
        lambda q, k, v: attention(
            q, broadcast(k.mean(1, keepdims=True), q), broadcast(v.mean(1, keepdims=True), q)
        ),
        "only the query heads of its group may",
    ),
    "only as many heads as keys": (
        lambda q, k, v: attention(q[:, : k.shape[1]], k, v),
        "o has shape (5, 2, 4), needed (5, 6, 4)",
    ),
    "no mask": (
        lambda q, k, v: read(softmax(scores(q, repeated(k, q))), repeated(v, q)),
        "there is no mask, so the past sees the future",
    ),
    "scaled by the number of heads": (
        lambda q, k, v: grouped(q * root(q) / np.float32(math.sqrt(q.shape[1])), k, v),
        "the scores are divided by √Hq",
    ),
    "values not grouped": (
        lambda q, k, v: attention(q, repeated(k, q), v),
        "raised ValueError",
    ),
}


def test_groups() -> None:
    assert check_grouped_attention(grouped).passed


@pytest.mark.parametrize("name", WRONG_GROUPS)
def test_wrong_groups(name: str) -> None:
    wrong, message = WRONG_GROUPS[name]
    refused(check_grouped_attention(wrong), message)


# ------------------------------------------------------------------------------------ token_passes


def again(prompt: int, new: int) -> int:
    return sum(prompt + i for i in range(new))


WRONG_COUNTS: dict[str, tuple[Callable[..., Any], str]] = {
    "final length for every step": (
        lambda p, n: (n * (p + n - 1), p + n - 1),
        "every step is counted at the final length",
    ),
    "without the prompt": (
        lambda p, n: (p if n == 1 else n * (n + 1) // 2, p + n - 1),
        "the prompt is missing",
    ),
    "the prompt alone": (lambda p, n: (p * n, p + n - 1), "counted with the prompt alone"),
    "last token again": (
        lambda p, n: (again(p, n + 1) if n > 1 else p, p + n - 1),
        "the last new token is sent through the layers as well",
    ),
    "a step missing": (
        lambda p, n: (again(p, n - 1) if n > 1 else p, p + n - 1),
        "a step is missing",
    ),
    "last token cached": (
        lambda p, n: (again(p, n), p + n),
        "the last new token is only returned",
    ),
    "only the new tokens": (lambda p, n: (again(p, n), p if n == 1 else n), "the prompt once"),
    "one number": (lambda p, n: again(p, n), "needed (again, once)"),
    "a closed form for one prompt": (
        lambda p, n: (26 if n == 4 else 7, p + n - 1),
        "from scratch, 1 after 1",
    ),
}


def test_counts() -> None:
    assert check_token_passes(lambda p, n: (again(p, n), p + n - 1)).passed


@pytest.mark.parametrize("name", WRONG_COUNTS)
def test_wrong_counts(name: str) -> None:
    wrong, message = WRONG_COUNTS[name]
    refused(check_token_passes(wrong), message)


# ------------------------------------------------------------------------------------- window_mask


def away(q_pos: np.ndarray, kv_pos: np.ndarray) -> np.ndarray:
    return q_pos[:, None] - kv_pos[None, :]


def window(q_pos: np.ndarray, kv_pos: np.ndarray, w: int) -> np.ndarray:
    d = away(q_pos, kv_pos)
    return (d >= 0) & (d < w)


WRONG_WINDOWS: dict[str, tuple[Callable[..., Any], str]] = {
    "one too many": (
        lambda q, k, w: window(q, k, w + 1),
        "a window of 3 counts the query itself",
    ),
    "one too few": (lambda q, k, w: window(q, k, w - 1), "sees keys 4 and 5, which is 2 of them"),
    "not itself": (
        lambda q, k, w: window(q, k, w + 1) & (away(q, k) > 0),
        "and not itself",
    ),
    "the future": (lambda q, k, w: away(q, k) < w, "the future still has to be hidden"),
    "both ways": (lambda q, k, w: abs(away(q, k)) < w, "the distance has lost its sign"),
    "no window": (lambda q, k, w: away(q, k) >= 0, "the window is ignored"),
    "turned round": (
        lambda q, k, w: (-away(q, k) >= 0) & (-away(q, k) < w),
        "the mask is transposed",
    ),
    "exchanged": (lambda q, k, w: ~window(q, k, w), "True and False are exchanged"),
    "numbers": (lambda q, k, w: window(q, k, w).astype(int), "the mask is int64, needed bool"),
    "rows for positions": (
        lambda q, k, w: window(np.arange(len(q)), k, w),
        "the mask must come from q_pos",
    ),
    "columns for positions": (
        lambda q, k, w: window(q, np.arange(len(k)), w),
        "the mask must come from kv_pos",
    ),
    "aligned at the end": (
        lambda q, k, w: window(np.arange(len(k))[len(k) - len(q) :], np.arange(len(k)), w),
        "the mask must come from kv_pos",
    ),
}


def test_windows() -> None:
    assert check_window_mask(window).passed


@pytest.mark.parametrize("name", WRONG_WINDOWS)
def test_wrong_windows(name: str) -> None:
    wrong, message = WRONG_WINDOWS[name]
    refused(check_window_mask(wrong), message)


# -------------------------------------------------------------- what the page lets the model say


def test_the_recalled_answer_wins_clearly() -> None:
    model = kvlib.load_reference_model(xp=np)
    prompt, answer = recall_prompt(random.Random(0), 40, names=2, lead=0)
    source = "\n".join(cell["source"] for cell in code_cells(read_notebook(BOOK / "naive.ipynb")))
    assert "recall_prompt(random.Random(0), gap, names=2, lead=0)" in source
    assert smallest_margin(model, prompt.decode(), answer.decode()) >= 0.02


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
