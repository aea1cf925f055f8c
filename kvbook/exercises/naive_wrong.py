"""Attention done rightly and wrongly, and what both attention exercises must keep hidden."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kvbook.exercises.report import (
    Finding,
    diagnose,
    expect_shape,
)
from kvlib.attention import attend

Function = Callable[..., Any]


def inputs(seed: int, t: int, s: int, hq: int, hkv: int, dim: int = 4) -> list[np.ndarray]:
    """Queries, keys and values whose scores are large enough for every mistake to show."""
    rng = np.random.default_rng(seed)
    shapes = ((t, hq, dim), (s, hkv, dim), (s, hkv, dim))
    return [(1.5 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def places(t: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(s - t, s), np.arange(s)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.asarray(attend(q, k, v, *places(len(q), len(k))))


def attended_wrongly(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visible: Any = None,
    *,
    add: Any = 0.0,
    times: Any = 1.0,
    scale: float | None = None,
    axis: int = -1,
    after: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda p, total: p / total,
) -> np.ndarray:
    """Attention with one thing wrong. Scores are (H, T, S)."""
    scale = 1 / math.sqrt(q.shape[2]) if scale is None else scale
    scores = np.einsum("thd,shd->hts", q, k) * scale * times + add
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    p = np.exp(scores - scores.max(axis=axis, keepdims=True))
    p = after(p, p.sum(axis=axis, keepdims=True))
    return np.einsum("hts,shd->thd", p, v)


def softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x)
    return p / p.sum(axis=-1, keepdims=True)


def shaped(o: Any, like: np.ndarray) -> np.ndarray:
    """What came of other numbers in the same shapes: it has the shape of the first result."""
    expect_shape(o, like.shape, "o of a call with other numbers", letters="T H D")
    shaped: np.ndarray = o
    return shaped


def expect_causal(
    function: Function, q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray
) -> None:
    """Change the last token; rows before it may move by no more than rounding."""
    last = len(k) - 1
    k2, v2 = k.copy(), v.copy()
    k2[last] += 1
    v2[last] += 1
    after = shaped(function(q, k2, v2), o)
    moved = [  # a hidden score may have been the maximum, which changes last bits
        i for i in range(last) if not np.allclose(after[i], o[i], 1e-5, 1e-6, equal_nan=True)
    ]
    if not moved:
        return
    seen = np.tri(len(q), len(k), dtype=bool)
    leak = f"position {moved[0]} changed when token {last} changed: "
    added = (
        leak + "the mask is added as 0 and 1, which moves scores a little and hides nothing. "
        "A hidden score is −inf, so that its weight is 0"
    )
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    suspects = {
        leak + "there is no mask, so the past sees the future": attended_wrongly(q, k, v),
        leak + "the mask multiplies the scores: a score of 0 is not a weight of 0. A hidden score "
        "is −inf": attended_wrongly(q, k, v, times=seen),
        leak + "the mask hides weights after the softmax, whose sum still counts the future: "
        "hide scores before the softmax": attended_wrongly(
            q, k, v, after=lambda p, total: p / total * seen
        ),
        leak + "the mask is reversed: each query sees itself and the future": attended_wrongly(
            q, k, v, seen.T
        ),
    }
    for mask in (seen, ~seen, -1.0 * ~seen):
        diagnose(o, {added: attended_wrongly(q, k, v, add=mask)})
    diagnose(o, suspects)
    raise Finding(leak + "your mask lets the past see the future")


CORNER = (
    "query 0 of {t} stands at position {at} of {s} and sees key 0 alone: your mask "
    "starts in the top left corner. The last query sees the last key: np.tri(T, S, k=S - T)"
)
