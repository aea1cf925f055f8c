"""What the norms must do, as checks that the mutants of norm_mutants.py have to fail."""

import norm_oracle as oracle
import numpy as np

from kvlib import Meter
from kvlib.norms import (
    layer_norm,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm,
    rms_norm_backward,
    rms_norm_forward,
)

KINDS = ("layer", "rms")
EPS = 1e-5


def draw(seed, rows, width, offset=0.0, scale=1.0):
    """x (rows, width), weight, bias (width,), dy as x; float64."""
    rng = np.random.default_rng(seed)
    x = offset + scale * rng.standard_normal((rows, width))
    return x, rng.standard_normal(width), rng.standard_normal(width), rng.standard_normal(x.shape)


def run(kind, x, weight, bias, dy, eps=EPS):
    """y, Saved and the gradients (dbias 0 where there is none) from kvlib."""
    if kind == "layer":
        y, saved = layer_norm_forward(x, weight, bias, eps)
        return y, saved, oracle.Gradients(*layer_norm_backward(dy, saved))
    y, saved = rms_norm_forward(x, weight, eps)
    return y, saved, oracle.Gradients(*rms_norm_backward(dy, saved), dy.sum(axis=0))


def plain(kind, x, weight, bias, eps=EPS):
    bias = bias if kind == "layer" else 0 * bias
    return oracle.forward(x, weight, bias, eps, kind == "layer")


def agree(kind, x, weight, bias, dy, eps=EPS):
    """kvlib, the chain rule and the complex step give one gradient."""
    y, saved, got = run(kind, x, weight, bias, dy, eps)
    centre = kind == "layer"
    size = np.abs(weight).max() * np.abs(saved.x_hat).max() + np.abs(bias).max()
    assert np.abs(y - plain(kind, x, weight, bias, eps)).max() <= 1e-12 * size, "y"
    # Both subtract terms of this size, so that is what their rounding is to be measured by.
    scale = saved.inv_std * np.abs(dy * weight).max(axis=-1, keepdims=True)
    columns = (np.abs(dy) * (1 + np.abs(saved.x_hat))).sum(axis=0)
    chain = oracle.chain_rule(x, weight, eps, centre, dy)
    step = oracle.complex_step(x, weight, bias, eps, centre, dy)
    for needed, tolerance, name in ((chain, 1e-12, "chain rule"), (step, 1e-10, "complex step")):
        assert (np.abs(got.dx - needed.dx) <= tolerance * scale).all(), f"dx, {name}"
        assert (np.abs(got.dweight - needed.dweight) <= tolerance * columns).all(), name
        assert (np.abs(got.dbias - needed.dbias) <= tolerance * columns).all(), name


def gradients_agree():
    for kind in KINDS:
        for rows, width in ((1, 1), (3, 2), (4, 7), (9, 33), (50, 8)):
            for offset, scale, eps in ((0, 1, 1e-5), (3, 0.1, 1e-2), (-1e4, 1, 1e-6)):
                agree(kind, *draw(rows, rows, width, offset, scale), eps)


def offsets_are_survived():
    for offset in (1e4, 1e8):
        agree("layer", *draw(3, 4, 64, offset), EPS)
        agree("rms", *draw(3, 4, 64, offset), EPS)
    for offset in (1e4, 1e8):  # near 1e8 float32 has a number in 8, so the noise has to be larger
        x, weight, bias, dy = (a.astype(np.float32) for a in draw(4, 4, 999, offset, 100.0))
        wide = [a.astype(float) for a in (x, weight, bias, dy)]
        y, _, got = run("layer", x, weight, bias, dy)
        assert np.abs(y - plain("layer", *wide[:3])).max() < 1e-5
        needed = oracle.chain_rule(wide[0], wide[1], EPS, True, wide[3])
        assert np.abs(got.dx - needed.dx).max() < 1e-5 * np.abs(needed.dx).max()


def long_rows_keep_their_digits():
    width = (1 << 22) + 5
    x = np.random.default_rng(0).standard_normal((1, width), dtype=np.float32) + np.float32(100)
    one, zero = np.ones(width, np.float32), np.zeros(width, np.float32)
    centred = x.astype(float) - x.astype(float).mean()
    y, saved = layer_norm_forward(x, one, zero)
    needed = 1 / np.sqrt((centred**2).mean() + EPS)
    assert abs(saved.inv_std.item() / needed - 1) < 3e-7
    assert np.abs(y - centred * needed).max() < 3e-6
    needed = 1 / np.sqrt((x.astype(float) ** 2).mean() + EPS)
    assert abs(rms_norm_forward(x, one, EPS)[1].inv_std.item() / needed - 1) < 3e-7


def many_rows_keep_their_digits():
    rng = np.random.default_rng(1)
    dy = 1 + 0.1 * rng.standard_normal((90_001, 16), dtype=np.float32)
    x, weight = rng.standard_normal(dy.shape, dtype=np.float32), np.ones(16, np.float32)
    got = layer_norm_backward(dy, layer_norm_forward(x, weight, weight)[1])[2]
    error = got / dy.sum(axis=0, dtype=float) - 1
    # 300 roundings and then 300 more, whose errors add up as the root of their number does; row
    # after row it is 90,000 roundings, and 2e-6 or more over all columns
    assert (error**2).mean() ** 0.5 < 600**0.5 * 2.0**-24


def degenerate_rows():
    for dtype in (np.float32, np.float64):
        zero, one = np.zeros((2, 4), dtype), np.ones(4, dtype)
        dy = np.asarray([[1, 2, 3, 6], [0, 0, 0, 1]], dtype)
        y, saved, got = run("layer", zero + 7, one, 2 * one, dy)
        assert (y == 2).all() and np.allclose(saved.inv_std, EPS**-0.5, rtol=1e-6)
        assert np.allclose(got.dx, (dy - dy.mean(axis=1, keepdims=True)) / np.sqrt(EPS), rtol=1e-6)
        y, saved, got = run("rms", zero, one, one, dy)
        assert (y == 0).all() and np.allclose(got.dx, dy / np.sqrt(EPS), rtol=1e-6)
        assert (got.dweight == 0).all()
        column, weight = np.asarray([[5.0], [-3.0]], dtype), np.asarray([2.0], dtype)
        y, _, got = run("layer", column, weight, weight, column)
        assert (y == 2).all() and (got.dx == 0).all() and (got.dweight == 0).all()
        y, _, got = run("rms", column, weight, weight, column)  # x² is all there is
        needed = 2 * column * EPS / (column**2 + EPS) ** 1.5
        assert np.allclose(y, [[2], [-2]], rtol=1e-6)
        assert np.abs(got.dx - needed).max() < np.finfo(dtype).eps * 10


def what_is_saved_is_enough_and_no_more():
    x, weight, bias, dy = (a.astype(np.float32) for a in draw(6, 5, 12))
    for kind in KINDS:
        y, saved, _ = run(kind, x, weight, bias, dy)
        norm, *more = (layer_norm, bias) if kind == "layer" else (rms_norm,)
        assert (norm(x, weight, *more, EPS) == y).all()
        assert saved._fields == ("x_hat", "inv_std", "weight")
        assert saved.x_hat.shape == x.shape and saved.inv_std.shape == (5, 1)
        assert saved.weight is weight and saved.nbytes == x.nbytes + 5 * 4
        before = run(kind, x, weight, bias, dy)[2]
        y, kept = run(kind, x.copy(), weight, bias, dy)[:2]
        y[...] = np.nan  # nothing of the backward pass may hang on y
        again = layer_norm_backward(dy, kept) if kind == "layer" else rms_norm_backward(dy, kept)
        assert all((a == b).all() for a, b in zip(again, before))


def dtypes_are_kept():
    for dtype, near in ((np.float16, 5e-3), (np.float32, 2e-6), (np.float64, 1e-13)):
        for kind in KINDS:
            x, weight, bias, dy = (a.astype(dtype) for a in draw(8, 6, 20, 1.0))
            y, saved, got = run(kind, x, weight, bias, dy)
            wide = [a.astype(float) for a in (x, weight, bias)]
            assert y.dtype == saved.x_hat.dtype == got.dx.dtype == got.dweight.dtype == dtype
            assert saved.inv_std.dtype == (np.float64 if dtype == np.float64 else np.float32)
            needed = oracle.chain_rule(*wide[:2], EPS, kind == "layer", dy.astype(float))
            assert np.abs(y - plain(kind, *wide)).max() < near
            assert np.abs(got.dx - needed.dx).max() < 2 * near
            assert np.abs(got.dweight - needed.dweight).max() < 10 * near
    big = np.full((1, 64), 300, np.float16)  # whose square is more than float16 holds
    big[0, ::2] = -300
    one = np.ones(64, np.float16)
    assert (np.abs(rms_norm(big, one, EPS)) == 1).all()
    assert (np.abs(layer_norm(big, one, 0 * one, EPS)) == 1).all()


def traffic_is_what_the_arrays_weigh():
    x, weight, bias, dy = (a.astype(np.float32) for a in draw(2, 16, 32))
    for kind, inputs in (("layer", (x, weight, bias)), ("rms", (x, weight))):
        with Meter() as meter:
            y, saved, got = run(kind, x, weight, bias, dy)
        there, back = (meter.by_label[f"{kind} norm {way}"] for way in ("forward", "backward"))
        found = got if kind == "layer" else got[:2]
        kept = saved.x_hat.nbytes + saved.inv_std.nbytes
        assert there.read == sum(a.nbytes for a in inputs)
        assert there.written == y.nbytes + kept
        assert back.read == dy.nbytes + kept + weight.nbytes
        assert back.written == sum(a.nbytes for a in found)
        each = {"layer": (7, 11), "rms": (4, 8)}[kind]
        assert (there.flops, back.flops) == (each[0] * x.size, each[1] * x.size)
        with Meter() as meter:
            (layer_norm if kind == "layer" else rms_norm)(*inputs, EPS)
        assert not meter.by_label  # what a decoder runs stays as it was


CHECKS = (
    gradients_agree, offsets_are_survived, long_rows_keep_their_digits, many_rows_keep_their_digits,
    degenerate_rows, what_is_saved_is_enough_and_no_more, dtypes_are_kept,
    traffic_is_what_the_arrays_weigh,
)
