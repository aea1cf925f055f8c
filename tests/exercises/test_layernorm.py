"""Known wrong answers to the exercises of the chapter on norms: each refused in fitting words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.layernorm import check_merge_moments, check_rms_backward, check_spot_check
from kvbook.exercises.report import Report


def refused(report: Report, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


def stub(*args: Any) -> Any: ...


@pytest.mark.parametrize("check", [check_merge_moments, check_rms_backward, check_spot_check])
def test_a_stub_is_not_done(check: Any) -> None:
    assert check(stub).status == "not done yet"
    refused(check(lambda *args: "x"), "str")


# ------------------------------------------------------------------------------ RMSNorm, backward


def mean(x: Any) -> Any:
    return x.mean(axis=-1, keepdims=True)


def right(dy: Any, h: Any, r: Any, w: Any) -> Any:
    g = dy * w
    return r * (g - h * mean(g * h)), (dy * h).sum(axis=0)


def with_dx(dx: Any) -> Any:
    return lambda dy, h, r, w: (dx(dy, h, r, w, dy * w), (dy * h).sum(axis=0))


WRONG_BACKWARDS = [
    (with_dx(lambda dy, h, r, w, g: r * (dy - h * mean(dy * h))), "γ is missing"),
    (with_dx(lambda dy, h, r, w, g: g - h * mean(g * h)), "1/σ is missing"),
    (with_dx(lambda dy, h, r, w, g: g * r), "treated as a constant"),
    (
        with_dx(lambda dy, h, r, w, g: r * (g - h * (g * h).sum(axis=-1, keepdims=True))),
        "is summed; the formula needs its mean",
    ),
    (with_dx(lambda dy, h, r, w, g: r * (g - h * (g * h).mean())), "over the whole array"),
    (with_dx(lambda dy, h, r, w, g: r * (g - mean(g) - h * mean(g * h))), "this is LayerNorm's"),
    (with_dx(lambda dy, h, r, w, g: r * (g + h * mean(g * h))), "has to be subtracted"),
    (with_dx(lambda dy, h, r, w, g: (g - h * mean(g * h)) / r), "multiply by it"),
    (with_dx(lambda dy, h, r, w, g: w * r * (dy - h * mean(dy * h))), "after the projection"),
    (with_dx(lambda dy, h, r, w, g: 2 * g), "dx: row 0, column 0 is"),
    (with_dx(lambda dy, h, r, w, g: (r * (g - h * mean(g * h))).T), "an axis is in the wrong"),
    (lambda dy, h, r, w: (right(dy, h, r, w)[0], (dy * w * h).sum(axis=0)), "uses g = dy · γ"),
    (lambda dy, h, r, w: (right(dy, h, r, w)[0], (dy * h).mean(axis=0)), "the mean over rows"),
    (lambda dy, h, r, w: (right(dy, h, r, w)[0], dy.sum(axis=0)), "the gradient of a bias"),
    (lambda dy, h, r, w: (right(dy, h, r, w)[0], dy * h), "dweight has shape (6, 5), needed (5,)"),
    (lambda dy, h, r, w: right(dy, h, r, w)[0], "Return two arrays: dx, dweight"),
    (
        lambda dy, h, r, w: (
            right(dy, h, r, w)
            if dy.shape[1] == 5
            else (right(dy, h / np.sqrt(mean(h * h)), r, w)[0], dy.sum(axis=0))
        ),
        "so small that eps matters",
    ),
]


@pytest.mark.parametrize("wrong, message", WRONG_BACKWARDS)
def test_wrong_backwards(wrong: Any, message: str) -> None:
    refused(check_rms_backward(wrong), message)


def test_the_right_backward() -> None:
    report = check_rms_backward(right)
    assert report.passed and len(report.proved) == 3, report


# ------------------------------------------------------------------------- differences, no loop


def slopes(f: Any, x: Any, rows: Any, columns: Any, step: float) -> Any:
    n = np.arange(len(rows))
    up, down = x[rows], x[rows]
    up[n, columns] += step
    down[n, columns] -= step
    return (f(up) - f(down)) / (2 * step)


def spot(f: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    return (slopes(f, x, rows, columns, step) * dy[rows]).sum(axis=-1)


def one_sided(f: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    up = x[rows]
    up[np.arange(len(rows)), columns] += step
    return ((f(up) - f(x[rows])) / step * dy[rows]).sum(axis=-1)


def looped(f: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    pairs = [
        spot(f, x, dy, np.asarray([i]), np.asarray([j]), step)[0]
        for i, j in zip(rows, columns, strict=True)
    ]
    return np.asarray(pairs)


def whole(f: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    n = np.arange(len(rows))
    up, down = (np.repeat(x[None], len(rows), axis=0) for _ in range(2))
    up[n, rows, columns] += step
    down[n, rows, columns] -= step
    return ((f(up) - f(down)) / (2 * step) * dy).sum(axis=(1, 2))


def own_output(f: Any, x: Any, dy: Any, rows: Any, columns: Any, step: float) -> Any:
    n = np.arange(len(rows))
    return slopes(f, x, rows, columns, step)[n, columns] * dy[rows, columns]


WRONG_CHECKS = [
    (one_sided, "a one-sided difference"),
    (lambda *a: 2 * spot(*a), "2 · step apart"),
    (lambda f, x, dy, *a: spot(f, x, np.ones_like(dy), *a), "dy is missing"),
    (lambda *a: spot(*a) + 1, "cube: entry 0 is"),
    (looped, "called 10 times for 5 entries"),
    (whole, "received 35 rows for 5 entries"),
    (own_output, "one input changes all outputs"),
    (lambda *a: spot(*a)[:, None], "needed (5,) (n)"),
]


@pytest.mark.parametrize("wrong, message", WRONG_CHECKS)
def test_wrong_checks(wrong: Any, message: str) -> None:
    refused(check_spot_check(wrong), message)


def test_the_right_check() -> None:
    report = check_spot_check(spot)
    assert report.passed and len(report.proved) == 4, report


# --------------------------------------------------------------------------- merged statistics


def merge(a: Any, b: Any) -> Any:
    (n, mean_a, m2), (k, mean_b, other) = a, b
    if n + k == 0:
        return a
    gap = mean_b - mean_a
    return n + k, mean_a + gap * k / (n + k), m2 + other + gap**2 * n * k / (n + k)


def by_squares(a: Any, b: Any) -> Any:
    n = a[0] + b[0]
    if n == 0:
        return a
    total = a[0] * a[1] + b[0] * b[1]
    squares = sum(m2 + k * mean**2 for k, mean, m2 in (a, b))
    return n, total / n, squares - total**2 / n


def changed(i: int, value: Any) -> Any:
    def wrong(a: Any, b: Any) -> Any:
        result = list(merge(a, b))
        result[i] = value(a, b, result)
        return tuple(result)

    return wrong


WRONG_MERGES = [
    (changed(1, lambda a, b, r: (a[1] + b[1]) / 2), "the mean of the two means"),
    (
        changed(1, lambda a, b, r: (a[0] * b[1] + b[0] * a[1]) / r[0]),
        "too close to the smaller part",
    ),
    (changed(1, lambda a, b, r: 7.0), "the mean: expected 3.00364, got 7"),
    (changed(2, lambda a, b, r: a[2] + b[2]), "ignores that the parts have different means"),
    (changed(2, lambda a, b, r: a[2] + b[2] + (b[1] - a[1]) ** 2), "is added as it is"),
    (
        changed(2, lambda a, b, r: a[2] + b[2] + abs(b[1] - a[1]) * a[0] * b[0] / r[0]),
        "is not squared",
    ),
    (changed(2, lambda a, b, r: r[2] / r[0]), "this is a variance"),
    (changed(0, lambda a, b, r: r[0] + 1), "The count is 41"),
    (lambda a, b: merge(a, b) if a[0] and b[0] else (0, 0.0, 0.0), "merged with nothing"),
    (lambda a, b: merge(a, b) if a[0] or b[0] else (0, np.nan, 0.0), "no NaN"),
    (
        lambda a, b: merge(a, b) if a[0] != 1 and b[0] != 1 else merge(a, (b[0], b[1], 1.0)),
        "four parts",
    ),
    (by_squares, "Sums of x² lose"),
    (lambda a, b: merge(a, b)[:2], "Return three numbers"),
]


@pytest.mark.parametrize("wrong, message", WRONG_MERGES)
def test_wrong_merges(wrong: Any, message: str) -> None:
    refused(check_merge_moments(wrong), message)


def test_the_right_merge() -> None:
    report = check_merge_moments(merge)
    assert report.passed and len(report.proved) == 4, report
