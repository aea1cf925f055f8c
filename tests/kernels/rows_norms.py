"""Rows of the table for LayerNorm and RMSNorm: forward and backward together, as in training."""

from functools import partial

import norm_oracle as oracle
import numpy as np
from engines import SLACK
from rows import Row

from kvlib import kernels
from kvlib.kernels.types import as_float, as_type

NEAR = {"float32": 3e-6, "float16": 6e-3, "uint16": 4e-2}
EPS = 1e-5


def case(kind="layer", rows=5, width=64, dtype="float32", numbers="normal", seed=1):
    """x (rows, width), weight, bias (width,) of a LayerNorm, dy as x; of the kind `numbers`."""
    rng = np.random.default_rng(seed)
    shapes = {"x": (rows, width), "weight": width, "bias": width, "dy": (rows, width)}
    inputs = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    x = inputs["x"]
    if numbers == "far":  # where float32 has a number in 8
        x[...] = 100 * x + np.float32(1e8)
    elif numbers == "equal":
        x[0], x[1] = 0, 7
    inputs = {n: as_type(a, np.dtype(dtype)) for n, a in inputs.items()}
    if kind == "rms":
        del inputs["bias"]
    return inputs, None


def run(x, weight, *more, eps=EPS, groups=None, run_on=None):
    """y, Saved and (dx, dweight[, dbias])."""
    *bias, dy = more
    kind = "layer" if bias else "rms"
    y, saved = getattr(kernels, f"{kind}_norm_forward")(x, weight, *bias, eps, run_on=run_on)
    backward = getattr(kernels, f"{kind}_norm_backward")
    return y, saved, backward(dy, saved, groups=groups, run_on=run_on)


def compare(inputs, _, results, run_on, groups=None):
    y, saved, gradients = results
    dtype, centre = inputs["x"].dtype, "bias" in inputs
    near = NEAR[str(dtype)] * SLACK.get(run_on, 1)
    x, weight, *bias, dy = (as_float(a).astype(float) for a in inputs.values())
    chain = oracle.chain_rule(x, weight, EPS, centre, dy)
    close(y, oracle.forward(x, weight, bias[0] if centre else 0.0, EPS, centre), near)
    close(saved.x_hat, oracle.forward(x, 1.0, 0.0, EPS, centre), near)
    assert len(gradients) == 2 + centre and saved.inv_std.shape == (len(x), 1)
    close(gradients[0], chain.dx, 4 * near)
    for found, wanted in zip(gradients[1:], chain[1:], strict=False):
        close(found, wanted, 4 * near * len(x) ** 0.5)
    assert all(a.dtype == y.dtype == saved.x_hat.dtype == dtype for a in gradients)


def close(found, wanted, near):
    np.testing.assert_allclose(as_float(found), wanted, atol=near * np.abs(wanted).max(), rtol=0)


def norm(kind):
    """The row of "layer" or "rms"."""
    sides = 2 if kind == "layer" else 1
    row, bytes_of_x, groups = 512 * 2, 30 * 512 * 2, 2
    return Row(
        partial(case, kind), run, compare,
        units={"layernorm": {"rows": 11, "width": 488, "groups": 11}},
        cases=(
            {"width": [8, 64, 264, 2048], "dtype": list(NEAR), "groups": 2},
            {"width": [2056, 4096, 8192], "dtype": "float16", "rows": 2},
            {"rows": 20, "width": 16, "groups": [1, 2, 8, 9, 20]},
            {"rows": 3, "width": 996, "numbers": "far"},
            {"rows": 3, "width": 32, "numbers": "equal"},
        ),
        # Each array is read once, weights by each row; 1/σ is asked for by each of 64 threads.
        traffic=(
            ({"rows": 30, "width": 512, "dtype": "float16", "groups": groups}, [
                {"read": {3: bytes_of_x, **dict.fromkeys(range(4, 4 + sides), 30 * row)},
                 "written": {0: bytes_of_x, 1: bytes_of_x, 2: 4 * 30}, "efficiency": 0.9},
                {"read": {2: bytes_of_x, 3: bytes_of_x, 4: 64 * 4 * 30, 5: 30 * row},
                 "written": {0: bytes_of_x, 1: sides * groups * 512 * 4}, "efficiency": 0.9},
                {"read": {2: sides * groups * 512 * 4},
                 "written": dict.fromkeys(range(sides), row)},
            ]),
        ),
        refused=(
            ({"rows": 2, "width": 8}, (
                ({"x": lambda x: x[:, :6].copy(), "weight": lambda x: x[:6].copy(),
                  "bias": lambda x: x[:6].copy()}, ValueError, "multiple of 4 numbers, got 6"),
                ({"x": lambda x: x[0]}, ValueError, r"x must be \(T, D\)"),
                ({"x": lambda x: x[:0]}, ValueError, r"1 to 8192 numbers, got x of shape \(0, 8\)"),
                ({"weight": lambda x: x[:4]}, ValueError, r"weight must be \(D\) with D=8"),
                ({"weight": lambda x: x.astype(np.float16)}, TypeError, "weight must be float32"),
                ({"x": lambda x: x.astype(float)}, TypeError, "float32, float16 or uint16"),
                ({"x": lambda x: x[:, ::-1]}, ValueError, "contiguous"),
                ({"eps": 0.0}, ValueError, "eps must be a finite number above 0"),
                ({"eps": float("nan")}, ValueError, "eps must be a finite number above 0"),
                ({"run_on": "device"}, TypeError, "CuPy arrays"),
            )),
            ({"rows": 1, "width": 8200}, (({}, ValueError, "8192"),)),
        ),
    )  # fmt: skip


LAYER, RMS = norm("layer"), norm("rms")
