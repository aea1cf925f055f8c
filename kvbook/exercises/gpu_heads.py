"""The checker of lines of CUDA C++ in which query heads share the keys that were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.gpu_lines import run_lines
from kvbook.exercises.report import Finding, checker, diagnose, expect_close
from kvlib.attention import attend
from kvlib.kernels.processor import Traffic
from kvlib.kernels.types import LOG2E

HEADS = """
#include "portable.cuh"
template <int D, int G> __global__ void decode_shared(
    float* out, const float* q, const float* k, const float* v, const int* block_table,
    const int* seq_lens, int W, int P, float scale)
{
    const int kv_head = blockIdx.x, b = blockIdx.y, lane = threadIdx.x, Hkv = gridDim.x;
    const int PER = D / 32;
    const i64 row = ((i64)b * Hkv + kv_head) * G * D + lane;
    float query[G][PER], o[G][PER], m[G], l[G];
    for (int g = 0; g < G; g++) {
        m[g] = -infinity();
        l[g] = 0.0f;
        for (int i = 0; i < PER; i++) {
            query[g][i] = load(q + row + g * D + 32 * i) * scale;
            o[g][i] = 0.0f;
        }
    }
    const int count = load(seq_lens + b);
    for (int j = 0; j < count; j++) {
        const i64 page = load(block_table + b * W + j / P);
        const i64 at = ((page * Hkv + kv_head) * P + j % P) * D + lane;
        {
@@
        }
    }
    for (int g = 0; g < G; g++)
        for (int i = 0; i < PER; i++) store(out + row + g * D + 32 * i, o[g][i] / l[g]);
}
"""


@checker
def check_shared_heads(shared_heads: Callable[..., Any]) -> Iterator[str]:
    """shared_heads() → CUDA C++: one key and its value, for the G query heads of a kv head."""
    o, traffic, given = _decoded(shared_heads, lens=(40, 23), groups=4)
    q, rows = given
    needed = np.concatenate([_attend(q[b : b + 1], *own) for b, own in enumerate(rows)])
    if not np.isfinite(o).all():
        raise Finding(
            "the output is not finite: o / 0 or infinity - infinity. Does l add up the weights?"
        )
    if not np.allclose(o, needed, atol=1e-4):
        diagnose(o, {words: wrong(q, rows) for words, wrong in _MISTAKES.items()}, atol=1e-3)
    expect_close(o, needed, "the output", axes=("request", "query head", "channel"), atol=1e-4)
    yield "four query heads of each kv head get their attention over all keys"
    bytes_once = sum(k.nbytes for k, _ in rows)
    for i, what in ((2, "keys"), (3, "values")):
        times = traffic.read[i] / bytes_once
        if times > 1:
            raise Finding(
                f"the {what} are read {times:.3g} times, {traffic.read[i]:,} bytes in place of "
                f"{bytes_once:,}: load into an array of PER floats before the loop over g"
            )
    yield "each key and each value is read once, for all four"
    o, _, (q, rows) = _decoded(shared_heads, lens=(1,), groups=2)
    expect_close(o, _attend(q, *rows[0]), "one key", atol=1e-5)
    yield "a request with one key gets its value back, with two query heads per kv head"


Rows = list[tuple[np.ndarray, np.ndarray]]


def _decoded(
    lines: Callable[[], Any], lens: tuple[int, ...], groups: int
) -> tuple[np.ndarray, Traffic, tuple[np.ndarray, Rows]]:
    """The kernel's output, its traffic, and (q, each request's keys and values as rows)."""
    rng = np.random.default_rng(5)
    dim, heads, size, width, batch = 64, 2, 8, 5, len(lens)
    k, v = (np.full((batch * width, heads, size, dim), np.nan, np.float32) for _ in "kv")
    table = rng.permutation(batch * width).astype(np.int32).reshape(batch, width)
    q = 2 * rng.standard_normal((batch, heads * groups, dim), dtype=np.float32)
    rows: Rows = []
    for b, n in enumerate(lens):
        own = tuple(rng.standard_normal((n, heads, dim), dtype=np.float32) for _ in "kv")
        for stored, x in zip((k, v), own, strict=True):
            for j in range(n):
                stored[table[b, j // size], :, j % size] = x[j]
        rows.append((own[0], own[1]))
    o = np.full_like(q, np.nan)
    numbers = (np.int32(width), np.int32(size), np.float32(dim**-0.5 * LOG2E))
    args = (o, q, k, v, table, np.array(lens, np.int32), *numbers)
    name = f"decode_shared<{dim}, {groups}>"
    return o, run_lines(lines, HEADS, name, (heads, batch), 32, *args), (q, rows)


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    o = attend(q, k, v, np.array([len(k) - 1]), np.arange(len(k)))
    assert isinstance(o, np.ndarray)
    return o


def _walked(
    q: np.ndarray, rows: Rows, *, sums: bool = True, shrinks: bool = True, base: float = 2.0
) -> np.ndarray:
    """The online softmax key by key, with something left out."""
    batch, num_qo_heads, dim = q.shape
    out = np.zeros(q.shape, np.float64)
    for b, (k, v) in enumerate(rows):
        groups = num_qo_heads // k.shape[1]
        for h in range(num_qo_heads):
            products = k[:, h // groups].astype(np.float64) * q[b, h] * dim**-0.5 * LOG2E
            s = products.sum(axis=1, keepdims=True) + 0 * products
            if not sums:  # what a lane has by itself: channels lane, lane + 32, ...
                lanes = products.reshape(len(k), -1, 32).sum(axis=1)
                s = np.tile(lanes, dim // 32)
            m, total, o = s[0] - np.inf, np.zeros(dim), np.zeros(dim)
            for j in range(len(k)):
                top = np.maximum(m, s[j])
                shrink = base ** (m - top) if shrinks else np.ones(dim)
                p = base ** (s[j] - top)
                total, o, m = total * shrink + p, o * shrink + p * v[j, h // groups], top
            out[b, h] = o / total
    return out.astype(np.float32)


def _last(q: np.ndarray, rows: Rows) -> np.ndarray:
    groups = q.shape[1] // rows[0][1].shape[1]
    return np.stack([np.repeat(v[-1], groups, axis=0) for _, v in rows])


def _mean(q: np.ndarray, rows: Rows) -> np.ndarray:
    groups = q.shape[1] // rows[0][1].shape[1]
    return np.stack([np.repeat(v.mean(axis=0), groups, axis=0) for _, v in rows])


_MISTAKES: dict[str, Callable[[np.ndarray, Rows], np.ndarray]] = {
    "each lane used its own part of the score: add the 32 parts with __shfl_xor_sync": (
        lambda q, rows: _walked(q, rows, sums=False)
    ),
    "o and l are not shrunk when a larger score comes: multiply both by exp2_fast(m - top)": (
        lambda q, rows: _walked(q, rows, shrinks=False)
    ),
    "the exponential has base e: scale holds log2 e already, so exp2_fast is needed": (
        lambda q, rows: _walked(q, rows, base=float(np.e))
    ),
    "only the last key counts: m[g] has to be set to top for the next key": _last,
    "the output is the plain mean of the values: weigh each by exp2_fast(s - top)": _mean,
}
