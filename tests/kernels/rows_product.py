"""The row of the table for products of a decode step, compared with float64."""

import numpy as np
from engines import SLACK
from exact import LEAST, near
from rows import Row

from kvlib.kernels.product import linear
from kvlib.kernels.types import as_float, as_type
from kvlib.testing.rounding import EPS

SPLIT = {"float32": 0.0, "float16": 2.0**-21, "uint16": 2.0**-16}  # what two numbers leave of x


def case(rows=3, n=34, k=200, dtype="uint16", scaled=None, shifted=None, gone=(), seed=1):
    """x, weight (n, k) and what a layer adds; scaled, shifted: the types of norm and bias, if any.

    gone: rows of x that are NaN. Where there is a norm, there is a residual.
    """
    rng = np.random.default_rng(seed)
    shapes = {"x": (rows, k), "weight": (n, k), "bias": n, "norm": k, "residual": (rows, n)}
    types = {"x": "float32", "weight": dtype, "bias": shifted, "norm": scaled}
    types["residual"] = scaled and "float32"
    inputs = {
        name: types[name]
        and as_type(rng.standard_normal(shape).astype(np.float32), np.dtype(types[name]))
        for name, shape in shapes.items()
    }
    inputs["x"][list(gone)] = np.nan
    return inputs, None


def run(x, weight, bias, norm, residual, *, eps=1e-5, gated=False, run_on=None):
    """One array; of a gated product, the residual is the first half of the columns."""
    if gated and residual is not None:
        residual = residual[:, : len(weight) // 2].copy()
    more = {"norm": norm, "residual": residual}
    return linear(x, weight, bias, eps=eps, gated=gated, run_on=run_on, **more)


def compare(inputs, _, found, run_on, gated=False, eps=1e-5):
    x, weight, bias, norm, residual = (
        None if a is None else as_float(a).astype(float) for a in inputs.values()
    )
    there = np.isfinite(x).all(axis=1)
    x, found = x[there], found[there]
    relative = EPS * x.shape[1] ** 0.5 + 2 * SPLIT[str(inputs["weight"].dtype)]
    if norm is not None:
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * norm
        relative += 4 * EPS
    y, bound = x @ weight.T, relative * np.sqrt(x**2 @ weight.T**2)
    bound += LEAST * np.sqrt((weight**2).sum(axis=1))  # of float16's smallest numbers
    if gated:
        (gate, up), (gate_bound, up_bound) = (np.split(z, 2, axis=1) for z in (y, bound))
        silu = gate / (1 + np.exp(-gate))
        y, bound = silu * up, 1.1 * np.abs(up) * gate_bound + np.abs(silu) * up_bound
        bound += 8 * EPS * np.abs(y)
    for more in (bias, residual):
        if more is not None:
            y = y + (more if more.ndim == 1 else more[there, : y.shape[1]])
    near(found, y, SLACK.get(run_on, 1) * (2 * bound + 2 * EPS * np.abs(y)), "out")


ROW, X = 128 * 2, 2 * 128 * 4
BOTH = [None, "float32"]
PRODUCT = Row(
    case, run, compare,
    units={"product": {"n": 33, "k": 584, "scaled": "uint16"}},
    cases=(
        {"rows": [1, 2, 4, 7, 16], "dtype": list(SPLIT), "scaled": BOTH, "gated": [False, True]},
        {"dtype": "uint16", "scaled": ["float32", "uint16"], "shifted": ["float32", "uint16"]},
        {"dtype": "float16", "scaled": "float16", "shifted": "float16", "k": [8, 584]},
        {"rows": 16, "k": 8192, "n": 17, "dtype": list(SPLIT), "scaled": BOTH},  # x in parts
        {"rows": 4, "gone": (1, 3), "dtype": list(SPLIT), "scaled": BOTH},
        {"k": [8, 64, 72, 520], "n": [1, 16, 17], "rows": 1},
        {"rows": 1, "n": 6400, "k": 584, "scaled": "uint16"},  # tiles in turns
    ),
    # The weight is read once, and x by each of its tiles of 16 rows; three of them, one of a row.
    traffic=(
        ({"rows": 2, "n": 33, "k": 128}, [
            {"read": {1: 3 * X, 2: 33 * ROW}, "written": {0: 2 * 33 * 4}, "grid": (3, 1, 1)},
        ]),
        ({"rows": 2, "n": 32, "k": 128}, [{"efficiency": 0.9}]),
    ),
    refused=(
        ({"scaled": "uint16"}, (
            ({"x": lambda x: np.zeros((17, 200), np.float32)}, ValueError, "1 to 16 rows, got 17"),
            ({"x": lambda x: x.astype(np.float16)}, TypeError, "x must be float32"),
            ({"weight": lambda x: x[:, :192]}, ValueError, "weight must be"),
            ({"weight": lambda x: x.astype(float)}, TypeError, "weight must be float32 or"),
            ({"residual": lambda x: x[:, :8].copy()}, ValueError, "residual must be"),
            ({"norm": lambda x: x.astype(np.float16)}, TypeError, "norm must be float32 or uint16"),
            ({"eps": 0.0}, ValueError, "eps must be a finite number above 0"),
            ({"run_on": "device"}, TypeError, "CuPy arrays"),
        )),
        ({"k": 12}, (({}, ValueError, "multiple of 8 numbers, got 12"),)),
        ({"n": 33}, (({"gated": True}, ValueError, "in pairs and without bias if gated, got 33"),)),
    ),
)  # fmt: skip
