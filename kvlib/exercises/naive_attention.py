"""Checkers of causal attention, with as many key/value heads as query heads and with fewer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvlib.attention import attend
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)

__all__ = ["check_causal_attention", "check_grouped_attention"]

Function = Callable[..., Any]


def _inputs(seed: int, t: int, s: int, hq: int, hkv: int, dim: int = 4) -> list[np.ndarray]:
    """Queries, keys and values whose scores are large enough for every mistake to show."""
    rng = np.random.default_rng(seed)
    shapes = ((t, hq, dim), (s, hkv, dim), (s, hkv, dim))
    return [(1.5 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def _places(t: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(s - t, s), np.arange(s)


def _right(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.asarray(attend(q, k, v, *_places(len(q), len(k))))


def _wrong(
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


def _softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x)
    return p / p.sum(axis=-1, keepdims=True)


@checker
def check_causal_attention(causal_attention: Function) -> Iterator[str]:
    """causal_attention(q (T, H, D), k (S, H, D), v (S, H, D)) -> o (T, H, D), float32, T <= S;
    the last query stands where the last key does."""
    q, k, v = _inputs(0, 6, 6, 2, 2)
    o = causal_attention(q, k, v)
    expect_shape(o, (6, 2, 4), "o", letters="T H D")
    expect_dtype(o, np.float32, "o")
    yield "o has one vector of D numbers for each query and head, in float32"

    _expect_causal(causal_attention, q, k, v, o)
    yield "what came before token 5 does not move when token 5 changes"

    _expect_softmax(q, k, v, o)
    yield "o is softmax(q k / √D) v over the keys that a query may see"

    q, k, v = _inputs(1, 4, 4, 2, 2)
    big = _shaped(causal_attention(60 * q, k, v), q)
    if np.isnan(big).any() or np.isinf(big).any():
        raise Finding(
            "with queries 60 times as large o holds NaN: e to the power of a large score "
            "overflows. Subtract the row's largest score before np.exp; the weights stay the same"
        )
    expect_close(big, _right(60 * q, k, v), "o with large scores", axes=("query", "head"))
    yield "large scores do not overflow"

    for t, s in ((1, 7), (2, 7), (5, 8)):
        _expect_aligned(causal_attention, *_inputs(10 + t, t, s, 3, 3))
    yield "fewer queries than keys: the last query sees the last key"


def _shaped(o: Any, like: np.ndarray) -> np.ndarray:
    """What came of other numbers in the same shapes: it has the shape of the first result."""
    expect_shape(o, like.shape, "o of other numbers", letters="T H D")
    shaped: np.ndarray = o
    return shaped


def _expect_causal(
    function: Function, q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray
) -> None:
    """Change the last token; rows before it must not move, to the bit."""
    last = len(k) - 1
    k2, v2 = k.copy(), v.copy()
    k2[last] += 1
    v2[last] += 1
    after = _shaped(function(q, k2, v2), o)
    moved = [i for i in range(last) if not np.array_equal(after[i], o[i], True)]
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
        leak + "there is no mask, so the past sees the future": _wrong(q, k, v),
        leak + "the mask multiplies the scores: a score of 0 is not a weight of 0. A hidden score "
        "is −inf": _wrong(q, k, v, times=seen),
        leak + "the mask hides weights after the softmax, whose sum still counts the future: hide "
        "scores, before it": _wrong(q, k, v, after=lambda p, total: p / total * seen),
        leak + "the mask is turned round, each query sees itself and the future": _wrong(
            q, k, v, seen.T
        ),
    }
    for mask in (seen, ~seen, -1.0 * ~seen):
        diagnose(o, {added: _wrong(q, k, v, add=mask)})
    diagnose(o, suspects)
    raise Finding(leak + "your mask lets the past see the future")


def _expect_softmax(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> None:
    t, dim = len(q), q.shape[2]
    seen = np.tri(t, dtype=bool)
    with np.errstate(all="ignore"):
        blind = _wrong(q, k, v, seen & ~np.eye(t, dtype=bool))
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
                _wrong(q, k, v, seen, scale=1.0)
            ),
            f"the scores are divided by D = {dim}: √D = {math.sqrt(dim):.4g} was needed": (
                _wrong(q, k, v, seen, scale=1 / dim)
            ),
            f"the scores are multiplied by √D = {math.sqrt(dim):.4g}: divide by it": (
                _wrong(q, k, v, seen, scale=math.sqrt(dim))
            ),
            "the softmax runs over the queries: the weights that one query gives to all of its "
            "keys sum to 1, so sum over the axis of the keys": _wrong(q, k, v, seen, axis=1),
            "the weights are not normalised: divide them by their sum over the keys": (
                np.einsum("hts,shd->thd", raw, v)
            ),
            "the weights are e to the power of (score − largest score), and nobody divided them by "
            "their sum over the keys": _wrong(q, k, v, seen, after=lambda p, total: p),
        },
    )
    again = np.where(seen, _softmax(np.where(seen, raw / total, -np.inf)), 0)
    for wrong in (
        np.einsum("hts,shd->thd", raw / total / total, v),
        _wrong(q, k, v, seen, after=lambda p, total: p / total / total),
        np.einsum("hts,shd->thd", again, v),
        np.einsum("hts,shd->thd", _softmax(raw / total), v),
    ):
        diagnose(o, {twice: wrong})
    nan = np.isnan(o).any(axis=(1, 2))
    if nan[0]:
        raise Finding(itself + " (a row of −inf gives NaN)")
    expect_close(o, _right(q, k, v), "o", axes=("query", "head"))


_CORNER = (
    "query 0 of {t} stands at position {at} of {s} and sees key 0 alone: your mask "
    "starts in the top left corner. The last query sees the last key: np.tri(T, S, k=S - T)"
)


def _expect_aligned(function: Function, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    t, s = len(q), len(k)
    o = function(q, k, v)
    expect_shape(o, q.shape, f"o of {t} queries over {s} keys", letters="T H D")
    corner = _CORNER.format(t=t, s=s, at=s - t)
    diagnose(
        o,
        {
            corner: _wrong(q, k, v, np.tri(t, s, dtype=bool)),
            f"the {t} queries over {s} keys see everything: they end where the keys end, so "
            f"query 0 stands at position {s - t}": _wrong(q, k, v) if t > 1 else np.empty(0),
        },
    )
    axes = ("query", "head")
    expect_close(o, _right(q, k, v), f"o of {t} queries over {s} keys", axes=axes)


@checker
def check_grouped_attention(grouped_attention: Function) -> Iterator[str]:
    """grouped_attention(q (T, Hq, D), k (S, Hkv, D), v (S, Hkv, D)) -> o (T, Hq, D), float32;
    G = Hq / Hkv neighbouring query heads read one key/value head."""
    q, k, v = _inputs(2, 5, 5, 6, 2)
    o = grouped_attention(q, k, v)
    expect_shape(o, (5, 6, 4), "o", letters="T Hq D")
    expect_dtype(o, np.float32, "o")
    yield "o has one vector for each query head, in float32"

    for name in ("key", "value"):
        for head in (0, 1):
            _expect_readers(grouped_attention, name, head, q, k, v, o)
    yield "query heads 0, 1, 2 read key/value head 0, and 3, 4, 5 read head 1"

    _expect_causal(grouped_attention, q, k, v, o)
    yield "no position moves when a later token changes"

    k6, v6 = (np.repeat(x, 3, axis=1) for x in (k, v))
    seen = np.tri(5, dtype=bool)
    diagnose(
        o,
        {
            "the scores are not scaled: divide them by √D": _wrong(q, k6, v6, seen, scale=1.0),
            "the scores are divided by √Hq: D is the size of one head": (
                _wrong(q, k6, v6, seen, scale=1 / math.sqrt(6))
            ),
        },
    )
    expect_close(o, _right(q, k, v), "o", axes=("query", "head"))
    yield "the numbers are those of kvlib.attend"

    for t, s, hq, hkv in ((4, 4, 3, 3), (4, 4, 4, 1), (1, 6, 4, 2), (3, 9, 8, 2)):
        q, k, v = _inputs(20 + s, t, s, hq, hkv)
        what = f"o of {hq} query heads over {hkv} kv heads, {t} queries over {s} keys"
        o = grouped_attention(q, k, v)
        if t < s:
            k_all, v_all = (np.repeat(x, hq // hkv, axis=1) for x in (k, v))
            corner = f"{what}: " + _CORNER.format(t=t, s=s, at=s - t)
            diagnose(o, {corner: _wrong(q, k_all, v_all, np.tri(t, s, dtype=bool))})
        expect_close(o, _right(q, k, v), what, axes=("query", "head"))
    yield "one kv head for all, one for each, and fewer queries than keys work, too"


def _expect_readers(
    function: Function,
    name: str,
    head: int,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    o: np.ndarray,
) -> None:
    """Change one head of the keys or values; exactly its group of query heads must move."""
    k2, v2 = k.copy(), v.copy()
    # Not by the same number for all keys, which the softmax would not notice.
    (k2 if name == "key" else v2)[:, head] *= np.linspace(-1, 2, len(k), dtype=np.float32)[:, None]
    after = _shaped(function(q, k2, v2), o)
    moved = [h for h in range(6) if not np.allclose(after[:, h], o[:, h], atol=1e-6)]
    needed = [3 * head + g for g in range(3)]
    if moved == needed:
        return
    words = f"changing {name} head {head} changed query heads {moved}, needed {needed}"
    cause = ""
    if moved == [head, head + 2, head + 4]:
        cause = ": np.tile lays the heads out 0 1 0 1 0 1, and np.repeat 0 0 0 1 1 1"
    elif not moved:
        cause = f": nobody reads {name} head {head}"
    elif moved == list(range(6)):
        cause = ": every query head reads it, and a query head has one key/value head"
    raise Finding(words + cause)
