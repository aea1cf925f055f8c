"""What SnapKV keeps, and what the known mistakes of the exercise would keep instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Score = Callable[
    [np.ndarray, int, int], np.ndarray
]  # p, window, kernel → (Hkv, S - window or more)


def _seen(p: np.ndarray, window: int) -> np.ndarray:
    """What the last `window` queries gave on average, (Hkv, S)."""
    found: np.ndarray = p[:, :, p.shape[2] - window :].astype(np.float64).mean(axis=(1, 2))
    return found


def _views(x: np.ndarray, kernel: int, pad: Any = "constant") -> np.ndarray:
    """Each number of x (Hkv, n) with its neighbours: (Hkv, n, kernel)."""
    half = kernel // 2
    wide = np.pad(x, ((0, 0), (half, half)), mode=pad)
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=1)
    return found


def best(scores: np.ndarray, s: int, window: int, budget: int) -> np.ndarray:
    """The slots that stay, in order, by scores (Hkv, S - window) of the older tokens."""
    top = np.argsort(-scores, axis=1, kind="stable")[:, : budget - window]
    newest = np.tile(np.arange(s - window, s), (len(scores), 1))
    return np.concatenate([np.sort(top, axis=1), newest], axis=1)


def slots_that_stay(p: np.ndarray, window: int, kernel: int, budget: int) -> np.ndarray:
    """The right answer: slots (Hkv, min(budget, S)) int64."""
    heads, _, _, s = p.shape
    if budget >= s:
        return np.tile(np.arange(s), (heads, 1))
    return best(scores_of(p, window, kernel), s, window, budget)


def scores_of(p: np.ndarray, window: int, kernel: int) -> np.ndarray:
    return _views(_seen(p, window)[:, : p.shape[3] - window], kernel).mean(axis=2)


def agrees(slots: np.ndarray, scores: np.ndarray) -> bool:
    """Whether these slots may be what the scores choose; of equal scores, any may be chosen."""
    older = np.zeros(scores.shape, bool)
    for h, own in enumerate(slots.astype(np.int64)):
        older[h, own[own < scores.shape[1]]] = True
    least = np.where(older, scores, np.inf).min(axis=1)
    most = np.where(older, -np.inf, scores).max(axis=1)
    return bool((least >= most - 1e-6 * np.abs(scores).max()).all())


def _pooled(x: np.ndarray, window: int, kernel: int, pad: Any = "constant") -> np.ndarray:
    return _views(x[:, : x.shape[1] - window], kernel, pad).mean(axis=2)


def _counted(p: np.ndarray, window: int, kernel: int) -> np.ndarray:
    """The mean over the neighbours that are there."""
    ones = np.ones((1, p.shape[3]))
    return scores_of(p, window, kernel) / _pooled(ones, window, kernel)


def _lagged(p: np.ndarray, window: int, kernel: int) -> np.ndarray:
    """Each token with those before it, instead of those on both sides."""
    x, half = _seen(p, window)[:, : p.shape[3] - window], kernel // 2
    wide = np.pad(x, ((0, 0), (2 * half, 0)))
    return np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=1).mean(axis=2)


def _together(p: np.ndarray, window: int, kernel: int) -> np.ndarray:
    scores = scores_of(p, window, kernel)
    return np.broadcast_to(scores.mean(axis=0, keepdims=True), scores.shape)


SUSPECTS: dict[str, Score] = {
    "the weights are not pooled: a token must be scored with its neighbours, so that a name stays "
    "whole": lambda p, w, c: _seen(p, w),
    "pooled by the largest of the neighbours, but the mean was asked for": (
        lambda p, w, c: _views(_seen(p, w)[:, : p.shape[3] - w], c).max(axis=2)
    ),
    "at both ends, the mean is taken over fewer tokens; divide by `kernel` everywhere, as if zeros "
    "stood beyond the ends": _counted,
    "the weights of the newest tokens are pooled into their neighbours; pool the older tokens "
    "alone": (lambda p, w, c: _views(_seen(p, w), c).mean(axis=2)),
    "beyond the ends, the last weight is repeated; zeros stand there": (
        lambda p, w, c: _pooled(_seen(p, w), w, c, "edge")
    ),
    "beyond the ends, the weights begin again at the other end (np.roll does that); zeros stand "
    "there": (lambda p, w, c: _pooled(_seen(p, w), w, c, "wrap")),
    "a token is pooled with those before it; its neighbours on both sides count": _lagged,
    "all queries vote, as in H2O; in SnapKV, only the last `window` do": (
        lambda p, w, c: _pooled(_seen(p, p.shape[2]), w, c)
    ),
    "the last query chooses alone, as in TOVA; the last `window` queries do": (
        lambda p, w, c: _pooled(_seen(p, 1), w, c)
    ),
    "the first queries choose; the last `window` do": (
        lambda p, w, c: _pooled(_seen(p[:, :, :w], w), w, c)
    ),
    "the largest weight of a query head counts; take the mean over the query heads": (
        lambda p, w, c: _pooled(p[:, :, p.shape[2] - w :].max(axis=1).mean(axis=1), w, c)
    ),
    "the first query head of each kv head chooses alone; take the mean over all of them": (
        lambda p, w, c: scores_of(p[:, :1], w, c)
    ),
    "the largest weight of the last queries counts; take their mean": (
        lambda p, w, c: _pooled(p[:, :, p.shape[2] - w :].mean(axis=1).max(axis=1), w, c)
    ),
    "all kv heads keep the same slots; each chooses for itself": _together,
    "the tokens of least weight stay": (lambda p, w, c: -scores_of(p, w, c)),
}
