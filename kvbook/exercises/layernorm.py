"""Checkers of the chapter on norms: the backward pass of RMSNorm, and a gradient check without a
loop. The checker of merged statistics is in `layernorm_moments`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.layernorm_moments import check_merge_moments
from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, diagnose, expect_close, expect_shape
from kvlib.norms import rms_norm_backward, rms_norm_forward

__all__ = ["check_merge_moments", "check_rms_backward", "check_spot_check"]

_CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}  # single precision is good enough


@checker
def check_rms_backward(rms_backward: Any) -> Iterator[str]:
    """rms_backward(dy, x_hat, inv_rms, weight) -> dx (T, D), dweight (D,)."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 6, 5)) + 1.0
    weight = rng.standard_normal(5)
    saved = rms_norm_forward(x, weight, 1e-2)[1]
    dx, dweight = rms_norm_backward(dy, saved)
    got = _pair(rms_backward(dy, saved.x_hat, saved.inv_std, weight))
    expect_shape(got[0], (6, 5), "dx", letters="T D")
    expect_shape(got[1], (5,), "dweight", letters="D")
    if not np.allclose(got[0], dx, **_CLOSE):
        diagnose(got[0], _suspects(dy, saved.x_hat, saved.inv_std, weight), **_CLOSE)
    expect_close(got[0], dx, "dx", axes=("row", "column"), **_CLOSE)
    yield "dx is the gradient of each row: g without its part along x̂, times inv_rms"
    g = dy * weight
    if not np.allclose(got[1], dweight, **_CLOSE):
        diagnose(
            got[1],
            {
                "dweight uses g = dy · γ. γ multiplies x̂, so its gradient is dy times x̂": (
                    (g * saved.x_hat).sum(axis=0)
                ),
                "dweight is the mean over rows. Every row changes the loss, so sum them": (
                    dweight / 6
                ),
                "dweight is the sum of dy, which would be the gradient of a bias": dy.sum(axis=0),
            },
            **_CLOSE,
        )
    expect_close(got[1], dweight, "dweight", axes=("column",), **_CLOSE)
    yield "dweight is a sum over rows, because all rows use the same γ"
    wide, dys = rng.standard_normal((2, 3, 64)) * 1e-3
    weight = np.ones(64)
    saved = rms_norm_forward(wide, weight, 1e-6)[1]
    got = _pair(rms_backward(dys, saved.x_hat, saved.inv_std, weight))
    why = "these rows are so small that eps matters; x̂ and 1/σ already contain it"
    needed = rms_norm_backward(dys, saved)[0]
    expect_close(got[0], needed, "dx", axes=("row", "column"), why=why, **_CLOSE)
    yield "it is right for rows so small that eps is as large as their mean square"


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Finding(
            f"rms_backward returned {type(result).__name__}. Return two arrays: dx, dweight."
        )
    return numbers(result[0], "dx"), numbers(result[1], "dweight")


def _suspects(dy: Any, x_hat: Any, r: Any, weight: Any) -> dict[str, Any]:
    g, width = dy * weight, dy.shape[1]
    along = x_hat * (g * x_hat).mean(axis=1, keepdims=True)
    plain = x_hat * (dy * x_hat).mean(axis=1, keepdims=True)
    return {
        "γ is missing: the gradient at x̂ is dy · γ": (dy - plain) * r,
        "1/σ is missing: x̂ moves by 1/σ for each unit of x": g - along,
        "the root is treated as a constant, but it depends on every number of the row": g * r,
        "the product of g and x̂ is summed; the formula needs its mean": (g - width * along) * r,
        "the mean runs over the whole array; each row needs a mean of its own (axis=-1)": (
            g - x_hat * (g * x_hat).mean()
        )
        * r,
        "this is LayerNorm's gradient. RMSNorm subtracts no mean, so neither does its gradient": (
            g - g.mean(axis=1, keepdims=True) - along
        )
        * r,
        "the part along x̂ is added; it has to be subtracted": (g + along) * r,
        "the result is divided by 1/σ; multiply by it": (g - along) / r,
        "γ is applied after the projection. It belongs to g, before the projection": (
            (dy - plain) * r * weight
        ),
    }


# ---------------------------------------- a gradient check without a loop


@checker
def check_spot_check(spot_check: Any) -> Iterator[str]:
    """spot_check(function, x, dy, rows, columns, step) -> gradients (n,), by differences."""
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 7, 4))
    rows, columns = np.asarray([0, 6, 3, 3, 0]), np.asarray([1, 3, 0, 2, 1])
    calls: list[tuple[int, ...]] = []

    def cube(z: Any) -> Any:
        calls.append(np.shape(z))
        return z**3

    got = numbers(spot_check(cube, x, dy, rows, columns, 1e-4), "the gradients")
    expect_shape(got, (5,), "the gradients", letters="n")
    at = x[rows, columns]
    needed = dy[rows, columns] * 3 * at**2
    if not np.allclose(got, needed, rtol=1e-5, atol=1e-7):
        ahead = dy[rows, columns] * ((at + 1e-4) ** 3 - at**3) / 1e-4
        suspects = {
            "this is a one-sided difference: its error is of order step, not of order step²": ahead,
            "the result is twice too large, because the two points lie 2 · step apart": 2 * needed,
            "dy is missing: the loss is the sum of dy · function(x)": 3 * at**2,
        }
        diagnose(got, suspects, rtol=1e-6, atol=1e-7)
    expect_close(got, needed, "cube", axes=("entry",), rtol=1e-5, atol=1e-7)
    yield "it is right if each output depends on one input only"
    if len(calls) > 2:
        raise Finding(
            f"function was called {len(calls)} times for 5 entries. Shift all entries first, each "
            "in a row of its own, then call function once or twice."
        )
    yield f"it makes {len(calls)} {'call' if len(calls) == 1 else 'calls'} for 5 entries"
    width = max(shape[-1] for shape in calls)
    most = max(int(np.prod(shape[:-1])) for shape in calls)
    if width != 4 or most > 10:
        raise Finding(
            f"function received {most} rows for 5 entries. Pass only the rows of these entries, "
            "because in a large tensor the other rows cost time and change nothing."
        )
    yield "it passes on only the rows of these entries"
    weight = rng.standard_normal(4)
    dx = rms_norm_backward(dy, rms_norm_forward(x, weight)[1])[0]
    norm = spot_check(lambda z: rms_norm_forward(z, weight)[0], x, dy, rows, columns, 2.0**-13)
    got = numbers(norm, "the gradients")
    why = "in a norm one input changes all outputs of its row, so sum dy · change over the row"
    expect_close(got, dx[rows, columns], "RMSNorm", rtol=1e-5, atol=1e-6, why=why)
    yield "it is right for RMSNorm, where one input changes the whole row"
