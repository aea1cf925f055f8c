"""Rows of the table for softmax with top-k and for draws."""

import numpy as np
from rows import Row

from kvlib.kernels import sample_tokens, softmax_topk
from kvlib.kernels.types import as_float, as_type
from kvlib.serve import probabilities

TILE = 4096
DTYPES = ["float32", "float16", "uint16"]
KINDS = ["normal", "few values", "equal", "ascending", "descending", "one peak", "−inf between"]


def case(kind="normal", columns=65, dtype="float32", rows=2, seed=0):
    """Logits of one kind, as they are stored; odd numbers of columns shift rows off 16 bytes.

    rows: a number or a shape
    """
    rng = np.random.default_rng(seed)
    shape = (rows, columns) if isinstance(rows, int) else (*rows, columns)
    x = rng.standard_normal(shape).astype(np.float32) * 3
    if kind == "few values":
        x = np.round(x)
    elif kind == "equal":
        x = np.zeros_like(x)
    elif kind in ("ascending", "descending"):
        x = np.sort(x, axis=1)[:, :: 1 if kind == "ascending" else -1]
    elif kind == "one peak":
        x[:, columns // 2] = 80.0
    elif kind == "−inf between":
        x[rng.random(x.shape) < 0.9] = -np.inf
        x[:, -1] = 0.0
    elif kind == "large":
        x += np.float32(1e4)
    elif kind == "zeros of both signs":
        x[...] = np.where(np.arange(columns) % 2, 0.0, -0.0)
        x[:, -1] = -1.0
    elif kind == "no number and no end":  # of five rows; NaN is last, in order, after −inf
        x[0, 3::2], x[1], x[2, 9], x[2, 20], x[3] = np.nan, -np.inf, np.inf, -np.inf, np.nan
        x[4], x[4, 30] = -np.inf, 2.5
    return {"logits": as_type(np.ascontiguousarray(x), np.dtype(dtype))}, None


def compare(inputs, _, found, run_on, k, temperature=1.0, splits=None):
    """A stable sort and a softmax of the whole row in float64."""
    near = 1e-4 if run_on == "device" else 3e-6  # 2^x of the special function unit
    x = as_float(inputs["logits"]).astype(np.float64)
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.fmax.reduce(x, axis=-1, initial=-np.inf)
        safe = np.where(np.isfinite(top), top, 0)
        total = np.exp((x - safe[..., None]) / temperature).sum(axis=-1)
        total = np.where(np.isposinf(top), np.nan, total)
        lse = safe / temperature + np.log(total)
    values = np.take_along_axis(x, order, axis=-1)
    assert found.indices.dtype == np.int32 and found.values.dtype == np.float32
    assert np.array_equal(found.indices, order)
    assert np.array_equal(found.values, values.astype(np.float32), equal_nan=True)
    assert np.array_equal(found.maximum, top.astype(np.float32))
    np.testing.assert_allclose(found.total, total, rtol=near)
    np.testing.assert_allclose(found.lse, lse, atol=near, rtol=near / 15)
    fine = np.isfinite(lse)
    p = np.exp(values[fine] / temperature - lse[fine][..., None])
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = found.probabilities()[fine]
    np.testing.assert_allclose(shares, p, rtol=1e-4, atol=1e-9)


def zeros(*shape, dtype=np.float32):
    return {"logits": lambda x: np.zeros(shape, dtype)}


TWO = {"columns": 2 * TILE, "k": 50}
BEST = {"written": {0: 400, 1: 400, 2: 24}}
TOPK = Row(
    case, softmax_topk, compare,
    units={"topk": {"kind": "ascending", "columns": 2 * TILE + 77, "dtype": "float16", "rows": 1,
                    "k": 60, "splits": 2}},
    cases=(
        {"kind": KINDS, "columns": 3 * TILE - 1001, "k": 50, "splits": [1, 3]},
        # Halves of logits repeat: ties all over.
        {"columns": [4099], "k": [1, 255], "dtype": DTYPES, "rows": 3},
        *({"columns": n, "k": k, "dtype": DTYPES, "rows": 3}
          for n, k in ((1, 1), (7, 7), (300, 256), (9001, 1))),
        # Any number of splits, and more than columns need.
        {"k": 5, "rows": 1, "splits": [1, 2, 7, 30]},
        {"kind": "few values", "columns": 2003, "k": 40, "splits": [1, 2, 7, 30]},
        {"columns": 501, "k": 20, "temperature": [0.01, 0.7, 30.0]},
        {"kind": "no number and no end", "columns": 37, "rows": 5, "k": 37, "splits": 2},
        {"kind": "zeros of both signs", "columns": 4, "rows": 1, "k": 3},
        {"kind": "large", "columns": 600, "rows": (2, 3), "k": 9},
        {"columns": 600, "rows": (0, 3), "k": 9},
        {"columns": 7, "rows": 0, "k": 3},
    ),
    # Logits are read once in whole sectors, and so many vectors of 16 bytes once more;
    # one warp of the merge reads the sums.
    traffic=(
        (TWO | {"splits": 1},
         [BEST | {"read": {3: 2 * 2 * TILE * 4 + 217 * 16}, "efficiency": 0.8}]),
        (TWO | {"dtype": "float16", "splits": 1},
         [BEST | {"read": {3: 2 * 2 * TILE * 2 + 103 * 16}, "efficiency": 0.7}]),
        (TWO | {"splits": 2},
         [{"read": {5: 2 * 2 * TILE * 4 + 203 * 16}, "written": {3: 2 * 2 * 50 * 8, 4: 2 * 2 * 8}},
          {"read": {3: 2 * 2 * 50 * 8, 4: 2 * 2 * 8}}]),
        ({"columns": TILE + 3, "rows": 3, "k": 8}, [{"read": {3: 3 * (TILE + 3) * 4 + 41 * 16}}]),
    ),
    refused=(
        ({"columns": 500, "k": 1}, (
            ({**zeros(2, 5), "k": 6}, ValueError, r"k must be in 1 ... 5 .*got 6"),
            ({"k": 257}, ValueError, "1 ... 256 .*got 257"),
            ({"k": 0}, ValueError, "k must be in"),
            (zeros(2, 5, dtype=np.float64), TypeError, "float32, float16 or uint16"),
            (zeros(5), ValueError, r"logits must be .*got shape \(5,\)"),
            (zeros(2, 0), ValueError, "V in 1"),
            ({"logits": lambda x: x.T}, ValueError, "contiguous"),
            ({"logits": lambda x: np.zeros(9, np.float32)[1:].reshape(2, 4)}, ValueError,
             "multiple of 16 bytes"),
            (zeros(70_000, 1, dtype=np.float16), ValueError, "65535 rows"),
            ({"temperature": 0}, ValueError, "temperature"),
            ({"splits": 0}, ValueError, "splits must be in"),
            ({"k": 5, "splits": 1025}, ValueError, "splits must be in"),
        )),
    ),
)  # fmt: skip


def drawn(inputs, _, tokens, run_on, seeds, step=0, **settings):
    """The twin's tokens, which have a probability; on a device top_p may round another way once."""
    x = inputs["logits"]
    twin = sample_tokens(x, **settings, seeds=seeds, step=step, run_on="twin")
    differ = sum(a != b for a, b in zip(tokens, twin, strict=True))
    assert differ <= (run_on == "device" and "top_p" in settings)
    assert all(type(token) is int for token in tokens)
    p = probabilities(as_float(x), **settings)
    assert (p[np.arange(len(p)), tokens] > 0).all()


SETTINGS = (
    {}, {"temperature": 0}, {"temperature": 0.6}, {"top_k": 1}, {"top_k": 5},
    {"top_k": 300, "top_p": 0.7}, {"top_p": 0.8}, {"top_p": 0.99, "temperature": 3.0},
    {"top_k": 40, "top_p": 0.6, "temperature": 1.3}, {"top_p": 1},
)
LOGITS = {"columns": 4999, "rows": 4, "seeds": 11}
ROWS = {"columns": 50, "rows": 4}


def holding(wrong):
    def change(x):
        x[2, slice(None) if wrong == -np.inf else 17] = wrong
        return x

    return change


SAMPLE = Row(
    case, sample_tokens, drawn, hosts=("processor",),
    units={"sample": {**ROWS, "seeds": 3, "top_k": 5}},
    cases=(
        {**LOGITS, "dtype": DTYPES},
        {**LOGITS, "kind": ["ascending", "descending"]},  # the last token is likely, or the first
        *({**LOGITS, "dtype": DTYPES[i % 3], "step": i, **s} for i, s in enumerate(SETTINGS)),
    ),
    # The draw reads k candidates a row: nothing of the size of the vocabulary is made.
    traffic=(
        ({"columns": 9000, "top_k": 30},
         [{"written": {0: 240, 1: 240, 2: 24}}, {"written": {0: 8}}]),
    ),
    refused=(
        (ROWS, (
            ({"temperature": -1}, ValueError, "temperature"),
            ({"top_k": 0}, ValueError, "top_k"),
            ({"top_p": 1.5}, ValueError, "top_p"),
            ({"seeds": -1}, ValueError, "seeds must be in"),
            ({"seeds": [1, 2]}, ValueError, "seeds must have one number per row: 4, got 2"),
            ({"streams": [1 << 32] * 4}, ValueError, "streams must be in"),
            ({"step": -1}, ValueError, "step must be in"),
            ({"bits": [1]}, ValueError, "bits must have one number per row: 4, got 1"),
            ({"bits": [1 << 64] * 4}, ValueError, "bits must be in"),
            (zeros(1, 2, 3), ValueError, r"\(B, V\)"),
            *(({"logits": holding(wrong), **settings}, ValueError,
               f"must be a finite number, got {wrong}")
              for settings in ({}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.5})
              for wrong in (np.nan, np.inf, -np.inf)),
        )),
    ),
)  # fmt: skip
