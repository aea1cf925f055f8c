"""LayerNorm and RMSNorm, forward and backward: every check that test_mutants.py asks of mutants."""

import array_api_strict as strict
import norm_checks as checks
import numpy as np
import pytest
from effort import number
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvlib.arrays import to_numpy
from kvlib.model.layers import PART
from kvlib.norms import (
    Saved,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
    row_differences,
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda c: c.__name__)
def test_kvlib_passes(check):
    check()


@settings(deadline=None, max_examples=number(quick=10, usual=60, whole=150))
@given(
    kind=st.sampled_from(checks.KINDS), rows=st.integers(1, 6), width=st.integers(1, 40),
    seed=st.integers(0, 2**20), offset=st.sampled_from([0.0, 1.0, -300.0, 1e6]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]), eps=st.sampled_from([1e-12, 1e-6, 1e-2]),
)
@example(kind="layer", rows=1, width=1, seed=0, offset=0.0, scale=1.0, eps=1e-12)
@example(kind="rms", rows=1, width=1, seed=0, offset=1e6, scale=1.0, eps=1e-12)
def test_three_derivations_agree(kind, rows, width, seed, offset, scale, eps):
    checks.agree(kind, *checks.draw(seed, rows, width, offset, scale), eps)


@given(seed=st.integers(0, 2**20), width=st.integers(2, 30), up=st.sampled_from([0.25, 8.0]))
def test_what_a_norm_cannot_see_gets_no_gradient(seed, width, up):
    x, weight, bias, dy = checks.draw(seed, 3, width)
    for kind in checks.KINDS:
        _, saved, got = checks.run(kind, x, weight, bias, dy, 1e-300)
        size = saved.inv_std[:, 0] * np.abs(dy * weight).max(axis=1) * width
        assert (np.abs(np.vecdot(got.dx, saved.x_hat)) <= 1e-12 * size).all()
        if kind == "layer":
            assert (np.abs(got.dx.sum(axis=1)) <= 1e-12 * size).all()
        larger = checks.run(kind, up * x, weight, bias, dy, 1e-300)
        assert np.allclose(larger[0], checks.run(kind, x, weight, bias, dy, 1e-300)[0], rtol=1e-12)
        assert (np.abs(up * larger[2].dx - got.dx) <= 1e-12 * size[:, None]).all()


def test_leading_axes_are_rows():
    x, weight, bias, dy = checks.draw(1, 12, 5)
    flat = checks.run("layer", x, weight, bias, dy)
    shape = (2, 3, 2, 5)
    y, saved, got = checks.run("layer", x.reshape(shape), weight, bias, dy.reshape(shape))
    assert (y.reshape(12, 5) == flat[0]).all() and saved.inv_std.shape == (2, 3, 2, 1)
    assert (got.dx.reshape(12, 5) == flat[2].dx).all() and np.allclose(got.dweight, flat[2].dweight)
    one = layer_norm_forward(x[0], weight, bias)
    assert (one[0] == flat[0][0]).all()
    assert (layer_norm_backward(dy[0], one[1])[1] == dy[0] * one[1].x_hat).all()
    none, saved = rms_norm_forward(x[:0], weight)
    assert none.shape == (0, 5) and (rms_norm_backward(x[:0], saved)[1] == 0).all()


@pytest.mark.parametrize("width", [1, 6, PART + 3])
def test_the_standard_is_enough(width):
    arrays = [a.astype(np.float32) for a in checks.draw(3, 7, width)]
    x, weight, bias, dy = map(strict.asarray, arrays)
    there, back = layer_norm_forward(x, weight, bias), layer_norm_forward(*arrays[:3])
    pairs = [
        (there[0], back[0]),
        *zip(layer_norm_backward(dy, there[1]), layer_norm_backward(arrays[3], back[1])),
    ]
    there, back = rms_norm_forward(x, weight), rms_norm_forward(*arrays[:2])
    pairs += [
        (there[0], back[0]),
        *zip(rms_norm_backward(dy, there[1]), rms_norm_backward(arrays[3], back[1])),
    ]
    for got, needed in pairs:
        assert got.dtype == strict.float32
        assert np.allclose(to_numpy(got), needed, rtol=1e-5, atol=1e-5)


X, W = np.ones((2, 3), np.float32), np.ones(3, np.float32)


@pytest.mark.parametrize("call, error, words", [
    (lambda: rms_norm_forward(X, W[:2]), ValueError, r"weight: got shape \(2,\), needed \(3,\)"),
    (lambda: layer_norm_forward(X, W, X), ValueError, r"bias: got shape \(2, 3\)"),
    (lambda: rms_norm_forward(X[:, :0], W[:0]), ValueError, "at least one number a row"),
    (lambda: rms_norm_forward(X[0, 0], W), TypeError, "numpy.float32"),
    (lambda: rms_norm_forward(X, W.astype(float)), TypeError, "float32 and float64"),
    (lambda: rms_norm_forward(X.astype(int), W.astype(int)), TypeError, "floating"),
    (lambda: rms_norm_forward(X, W, 0.0), ValueError, "eps: got 0.0, needed"),
    (lambda: rms_norm_forward(X, W, -1e-6), ValueError, "eps: got -1e-06"),
    (lambda: rms_norm_forward(X, W, float("nan")), ValueError, "eps: got nan"),
    (lambda: rms_norm_forward(X, W, 1e-60), ValueError, "at least 1.18e-38 for float32"),
    (
        lambda: rms_norm_backward(X[:1], rms_norm_forward(X, W)[1]), ValueError,
        r"dy: got shape \(1, 3\), needed \(2, 3\)",
    ),
    (
        lambda: layer_norm_backward(X.astype(float), layer_norm_forward(X, W, W)[1]), TypeError,
        "dy: got float64, needed float32",
    ),
    (lambda: layer_norm_backward(strict.asarray(X), Saved(X, X, W)), TypeError, "one library"),
])
def test_wrong_inputs_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_differences_see_every_shift_in_one_call():
    x, weight, bias, dy = checks.draw(2, 5, 9)
    rows, columns = (a.ravel() for a in np.indices(x.shape))
    seen = []

    def watched(z):
        seen.append(z.shape)
        return layer_norm_forward(z, weight, bias)[0]

    numeric = row_differences(watched, x, dy, rows, columns)
    assert seen == [(4 * 45, 9)]
    dx = checks.run("layer", x, weight, bias, dy)[2].dx
    assert np.abs(numeric - dx.ravel()).max() < 1e-10 * np.abs(dx).max()
    wrong = dx.ravel() * (1 + 1e-8)
    assert np.abs(numeric - wrong).max() > 1e-9 * np.abs(dx).max()


def test_differences_are_exact_for_a_polynomial():
    x = np.asarray([[0.5, -2.0], [3.0, 1.0]])
    got = row_differences(lambda z: z**4, x, np.ones((2, 2)), [0, 1, 1], [1, 0, 1])
    assert np.allclose(got, [-32.0, 108.0, 4.0], rtol=1e-12)


def test_differences_of_a_large_tensor_take_only_the_rows_they_need():
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 1024, 2048))
    weight = rng.standard_normal(2048)
    rows, columns = rng.integers(1024, size=40), rng.integers(2048, size=40)
    saved = rms_norm_forward(x, weight)[1]
    dx = rms_norm_backward(dy, saved)[0]
    numeric = row_differences(lambda z: rms_norm_forward(z, weight)[0], x, dy, rows, columns)
    assert np.abs(numeric - dx[rows, columns]).max() < 1e-10 * np.abs(dx).max()
    # weight and bias see all rows: they are the one row, and the function is linear in them
    columns = np.arange(4)
    numeric = row_differences(
        lambda w: (saved.x_hat[:8, None] * w).transpose(1, 0, 2).reshape(len(w), -1),
        weight[None], dy[:8].reshape(1, -1), 0 * columns, columns,
    )
    assert np.allclose(numeric, (dy[:8] * saved.x_hat[:8]).sum(axis=0)[:4], rtol=1e-10)


@pytest.mark.parametrize("changed, error, words", [
    ({"x": np.ones((2, 3), np.float32)}, TypeError, "float32 and float64, needed float64"),
    ({"dy": np.ones((3, 3))}, ValueError, r"shapes \(2, 3\) and \(3, 3\)"),
    ({"rows": [0, 1]}, ValueError, r"\(2,\) and \(1,\)"),
    ({"step": 0.001}, ValueError, "power of two below 1"),
    ({"step": 2.0}, ValueError, "power of two below 1"),
    ({"function": lambda z: z[:1]}, ValueError, r"function: got shape \(1, 3\), needed \(4, 3\)"),
])
def test_wrong_inputs_of_differences_are_named(changed, error, words):
    one = np.ones((2, 3))
    given = dict(function=lambda z: z, x=one, dy=one, rows=[0], columns=[1]) | changed
    with pytest.raises(error, match=words):
        row_differences(**given)
