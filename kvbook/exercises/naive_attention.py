"""The checker of causal attention with as many key/value heads as query heads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from kvbook.exercises.naive_wrong import (
    CORNER,
    Function,
    attended,
    attended_wrongly,
    expect_causal,
    inputs,
    shaped,
    softmax,
)
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)


@checker
def check_causal_attention(causal_attention: Function) -> Iterator[str]:
    """causal_attention(q (T, H, D), k (S, H, D), v (S, H, D)) -> o (T, H, D), float32, T <= S;
    the last query stands where the last key does."""
    q, k, v = inputs(0, 6, 6, 2, 2)
    o = causal_attention(q, k, v)
    expect_shape(o, (6, 2, 4), "o", letters="T H D")
    expect_dtype(o, np.float32, "o")
    yield "o has one vector of D numbers for each query and head, in float32"

    expect_causal(causal_attention, q, k, v, o)
    yield "changing token 5 leaves the outputs of all earlier tokens as they were"

    _expect_softmax(q, k, v, o)
    yield "o is softmax(q k / √D) v over the keys that a query may see"

    q, k, v = inputs(1, 4, 4, 2, 2)
    big = shaped(causal_attention(60 * q, k, v), q)
    if np.isnan(big).any() or np.isinf(big).any():
        raise Finding(
            "with queries 60 times as large o holds NaN: e to the power of a large score "
            "overflows. Subtract the row's largest score before np.exp; the weights stay the same"
        )
    expect_close(big, attended(60 * q, k, v), "o with large scores", axes=("query", "head"))
    yield "large scores do not overflow"

    for t, s in ((1, 7), (2, 7), (5, 8)):
        _expect_aligned(causal_attention, *inputs(10 + t, t, s, 3, 3))
    yield "fewer queries than keys: the last query sees the last key"


def _expect_softmax(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> None:
    t, dim = len(q), q.shape[2]
    seen = np.tri(t, dtype=bool)
    with np.errstate(all="ignore"):
        blind = attended_wrongly(q, k, v, seen & ~np.eye(t, dtype=bool))
        raw = np.exp(np.where(seen, np.einsum("thd,shd->hts", q, k) / math.sqrt(dim), -np.inf))
    total = raw.sum(axis=-1, keepdims=True)
    itself = (
        "query 0 sees nothing, not even itself: a token may see its own key, so key j is hidden "
        "from query i only where j > i"
    )
    twice = "the softmax is normalised twice: its weights no longer sum to 1"
    diagnose(
        o,
        {
            itself: blind,
            "the scores are not scaled: divide them by √D, or the softmax sharpens as D grows": (
                attended_wrongly(q, k, v, seen, scale=1.0)
            ),
            f"the scores are divided by D = {dim}: √D = {math.sqrt(dim):.4g} was needed": (
                attended_wrongly(q, k, v, seen, scale=1 / dim)
            ),
            f"the scores are multiplied by √D = {math.sqrt(dim):.4g}: divide by it": (
                attended_wrongly(q, k, v, seen, scale=math.sqrt(dim))
            ),
            "the softmax runs over the queries. The weights that one query gives to its keys must "
            "sum to 1, so sum over the axis of the keys": attended_wrongly(q, k, v, seen, axis=1),
            "the weights are not normalised: divide them by their sum over the keys": (
                np.einsum("hts,shd->thd", raw, v)
            ),
            "the weights are e to the power of (score − largest score), but they are not "
            "divided by their sum over the keys": attended_wrongly(
                q, k, v, seen, after=lambda p, total: p
            ),
        },
    )
    again = np.where(seen, softmax(np.where(seen, raw / total, -np.inf)), 0)
    for wrong in (
        np.einsum("hts,shd->thd", raw / total / total, v),
        attended_wrongly(q, k, v, seen, after=lambda p, total: p / total / total),
        np.einsum("hts,shd->thd", again, v),
        np.einsum("hts,shd->thd", softmax(raw / total), v),
    ):
        diagnose(o, {twice: wrong})
    nan = np.isnan(o).any(axis=(1, 2))
    if nan[0]:
        raise Finding(itself + " (a row of −inf gives NaN)")
    expect_close(o, attended(q, k, v), "o", axes=("query", "head"))


def _expect_aligned(function: Function, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    t, s = len(q), len(k)
    o = function(q, k, v)
    expect_shape(o, q.shape, f"o of {t} queries over {s} keys", letters="T H D")
    corner = CORNER.format(t=t, s=s, at=s - t)
    diagnose(
        o,
        {
            corner: attended_wrongly(q, k, v, np.tri(t, s, dtype=bool)),
            f"the {t} queries over {s} keys see everything: they end where the keys end, so "
            f"query 0 stands at position {s - t}": attended_wrongly(q, k, v)
            if t > 1
            else np.empty(0),
        },
    )
    axes = ("query", "head")
    expect_close(o, attended(q, k, v), f"o of {t} queries over {s} keys", axes=axes)
