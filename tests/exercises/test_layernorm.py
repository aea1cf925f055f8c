"""The right answers on norms give what kvlib and NumPy give."""

from __future__ import annotations

import numpy as np

from kvbook.exercises.layernorm import merge_moments, rms_backward
from kvlib.norms import rms_norm_backward, rms_norm_forward


def test_the_backward_pass() -> None:
    x, dy = np.random.default_rng(0).standard_normal((2, 6, 5))
    weight = np.arange(1.0, 6.0)
    saved = rms_norm_forward(x, weight, 1e-2)[1]
    got = rms_backward(dy, saved.x_hat, saved.inv_std, weight)
    for mine, kvlibs in zip(got, rms_norm_backward(dy, saved), strict=True):
        assert np.allclose(mine, kvlibs)


def test_merged_moments() -> None:
    x = np.random.default_rng(1).standard_normal(40)
    n, mean, m2 = merge_moments(*((len(y), y.mean(), y.var() * len(y)) for y in (x[:9], x[9:])))
    assert np.allclose((n, mean, m2), (40, x.mean(), 40 * x.var()))
