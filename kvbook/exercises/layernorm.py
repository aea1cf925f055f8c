"""Exercises of the chapter on norms."""

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen
from kvbook.exercises.expect import Finding, expect_close
from kvlib.norms import rms_norm_forward

# ------------------------------------------------------------------------------------ rms_backward


def rms_backward(dy: Any, x_hat: Any, inv_rms: Any, weight: Any) -> Any:
    """rms_backward(dy, x_hat, inv_rms, weight) → dx (T, D), dweight (D,)."""
    g = dy * weight
    along = (g * x_hat).mean(axis=-1, keepdims=True)
    return inv_rms * (g - x_hat * along), (dy * x_hat).sum(axis=0)


def _rows(shape: Any, scale: float, eps: float, why: str, rms_backward: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(0)
    (x, dy), weight = scale * rng.standard_normal((2, *shape)), rng.standard_normal(shape[1])
    saved = rms_norm_forward(x + scale, weight, eps)[1]
    got = rms_backward(dy, saved.x_hat, saved.inv_std, weight)
    yield f"at scale {scale} and eps {eps}", got, why


check_rms_backward = Checker(
    rms_backward,
    names=("dx", "dweight"),
    letters="T D",
    rtol=1e-5,
    atol=1e-6,  # single precision is good enough
    stages={
        "dx is g without its part along x̂, times inv_rms; dweight is a sum over rows": (
            partial(_rows, (6, 5), 1, 1e-2, "")
        ),
        "rows so small that eps matters": partial(
            _rows,
            (3, 64),
            1e-3,
            1e-6,
            "in rows so small, eps matters, and x̂ and inv_rms contain it already",
        ),
    },
    mistakes={
        "γ is missing: the gradient at x̂ is dy · γ": "g = dy * weight → g = dy",
        "1/σ is missing: x̂ moves by 1/σ for each unit of x": "inv_rms * (g → (g",
        "the root was taken for a constant, but it depends on every number of the row": (
            " - x_hat * along → "
        ),
        "the product of g and x̂ is summed, not averaged": "mean(axis=-1 → sum(axis=-1",
        "the mean is that of the whole array, but each row needs its own (axis=-1)": (
            ".mean(axis=-1, keepdims=True) → .mean()"
        ),
        "this is LayerNorm's gradient: RMSNorm subtracts no mean, nor does its gradient": (
            "(g - → (g - g.mean(1)[:, None] -"
        ),
        "the part along x̂ was added: subtract it": "g - x_hat → g + x_hat",
        "divided by 1/σ; multiply by it": "inv_rms * (g - x_hat → 1 / inv_rms * (g - x_hat",
        "γ was applied after the projection, but it belongs to g, before it": (
            "g = dy * weight → g = dy",
            "return inv_rms → return weight * inv_rms",
        ),
        "this uses g, but γ multiplies x̂, so its gradient is dy times x̂": (
            "(dy * x_hat).sum → (g * x_hat).sum"
        ),
        "this is the mean over rows, but every row changes the loss, so sum them": (
            "x_hat).sum(axis=0) → x_hat).mean(axis=0)"
        ),
        "this is the sum of dy, which would be the gradient of a bias": "(dy * x_hat).sum → dy.sum",
    },
    refused={
        "dx: token 0, dim 0 is": "x_hat * along → x_hat",
        "x̂ and inv_rms contain it": (
            "(g - x_hat * → (g - x_hat / (x_hat**2).mean() ** (len(dy) == 3) *"
        ),
    },
)


# -------------------------------------------------------------------------------------- spot_check


def spot_check(function: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    """spot_check(function, x, dy, rows, columns, step) → gradients (n,), by differences."""
    n = len(rows)
    both = np.concatenate([x[rows], x[rows]])
    both[np.arange(n), columns] += step
    both[n + np.arange(n), columns] -= step
    out = function(both)
    slope = (out[:n] - out[n:]) / (2 * step)
    return (slope * dy[rows]).sum(axis=-1)


_AT = np.asarray([0, 6, 3, 3, 0]), np.asarray([1, 3, 0, 2, 1])


def _cube(spot_check: Any) -> Iterator[Seen]:
    (x, dy), calls = np.random.default_rng(1).standard_normal((2, 7, 4)), list[int]()

    def cube(z: Any) -> Any:
        calls.append(np.size(z) // 4)
        return z**3

    yield "the gradients of a cube", spot_check(cube, x, dy, *_AT, 1e-4)
    if len(calls) > 1:
        why = "Shift all entries first, each in a row of its own"
        raise Finding(f"function was called {len(calls)} times for 5 entries. {why}")
    if max(calls, default=0) > 10:
        why = "The other rows cost time and change nothing"
        raise Finding(f"function received {max(calls)} rows for 5 entries. {why}")


def _norm(spot_check: Any) -> Iterator[Seen]:
    (x, dy), weight = np.random.default_rng(1).standard_normal((2, 7, 4)), np.arange(1.0, 5.0)
    got = spot_check(lambda z: rms_norm_forward(z, weight)[0], x, dy, *_AT, 2.0**-13)
    yield "the gradients of RMSNorm", got


check_spot_check = Checker(
    spot_check,
    letters="n",
    rtol=1e-5,
    atol=1e-7,
    stages={
        "each output depends on one input only; one call, and only the rows asked": _cube,
        "RMSNorm, where one input changes the whole row": _norm,
    },
    mistakes={
        "a one-sided difference has an error of order step, not step²": (
            "both[n + np.arange(n), columns] -= step → ",
            "(2 * step) → step",
        ),
        "this is twice too large: the two points are 2 · step apart": "(2 * step) → step",
        "dy is missing: the loss is the sum of dy · function(x)": "(slope * dy[rows]) → slope",
        "one input changes all outputs of its row, so sum dy · change over the row": (
            ".sum(axis=-1) → [np.arange(n), columns]"
        ),
    },
    refused={
        "a cube: n 0 is": "sum(axis=-1) → sum(axis=-1) + 1",
        "function was called 2 times": (
            "function(both) → np.r_[function(both[:n]), function(both[n:])]"
        ),
        "function was called 10 times": "function(both) → np.stack([*map(function, both)])",
        "function received 17 rows": "function(both) → function(np.r_[both, x])[: 2 * n]",
    },
)


# ----------------------------------------------------------------------------------- merge_moments

Moments = tuple[int, float, float]


def merge_moments(a: Moments, b: Moments) -> Moments:
    """merge_moments(a, b) → (n, mean, m2) of both parts; a and b are such triples."""
    (n_a, mean_a, m2_a), (n_b, mean_b, m2_b) = a, b
    n = n_a + n_b
    if n == 0:
        return a
    gap = mean_b - mean_a
    return n, mean_a + gap * n_b / n, m2_a + m2_b + gap * gap * n_a * n_b / n


def _moments(x: Any) -> Moments:
    return len(x), float(x.mean()), float(((x - x.mean()) ** 2).sum())


def _four(merge_moments: Any) -> Iterator[Seen]:
    x = np.random.default_rng(2).standard_normal(40)
    parts = [_moments(part) for part in np.split(x, [1, 2, 17])]
    yield "four parts, from the left", reduce(merge_moments, parts)
    yield "four parts, from the right", reduce(lambda p, q: merge_moments(q, p), parts[::-1])


def _far(merge_moments: Any) -> Iterator[Seen]:
    far = 1e8 + np.random.default_rng(2).standard_normal((64, 64))
    n, mean, m2 = reduce(merge_moments, map(_moments, far))
    why = "with a mean of 1e8, sums of x² lose all digits. Use the difference of the means"
    yield "the count", n
    yield "the mean", mean
    expect_close(m2 / 1e6, _moments(far.ravel())[2] / 1e6, "m2 / 1e6", rtol=1e-6, why=why)


_A, _NONE = (2, 1.0, 2.0), (0, 0.0, 0.0)
_M2 = "m2_a + m2_b + gap * gap * n_a * n_b / n"
check_merge_moments = Checker(
    merge_moments,
    names=("n", "mean", "m2"),
    rtol=1e-9,
    stages={
        "parts of 2 and 6 numbers": [(_A, (6, 5.0, 4.0))],
        "an empty part changes nothing": [(_A, _NONE), (_NONE, _A), (_NONE, _NONE)],
        "four parts give the same in any order": _four,
        "64 parts of a row with mean 1e8 keep their digits": _far,
    },
    mistakes={
        "this is the mean of two means: 2 numbers count as much as 6": "gap * n_b / n → gap / 2",
        "this is too close to the smaller part: the share of b is n_b / n": (
            "gap * n_b / n → gap * n_a / n"
        ),
        "the parts have different means, and their distance adds to m2": f"{_M2} → m2_a + m2_b",
        "multiply the squared distance of the means by n_a n_b / n": " * n_a * n_b / n → ",
        "the distance of the means is not squared": "gap * gap * → abs(gap) *",
        "this is a variance. Keep the sum of squares": f"{_M2} → ({_M2}) / n",
    },
    refused={
        "n: got 9, needed 8": "return n, → return n + 1,",
        "n: got 0, needed 2": "if n == 0:\n        return a → if not n_a * n_b:\n        return b",
        "mean: got nan, needed 0": "return a → return 0, np.nan, 0.0",
        "four parts, from the": "gap = → m2_b = 1.0 if n_b == 1 else m2_b; gap =",
        "sums of x² lose": (
            f"{_M2} → sum(m2 + n * x * x for n, x, m2 in (a, b)) "
            "- (n_a * mean_a + n_b * mean_b) ** 2 / n"
        ),
    },
)
