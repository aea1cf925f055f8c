"""The checker of attention over a block table that copies nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kvlib.attention import attend
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)


class Task(NamedTuple):
    """A query and a request in blocks; what no token holds is NaN."""

    q: np.ndarray  # (Hq, D)
    k_blocks: np.ndarray  # (N, Hkv, block_size, D)
    v_blocks: np.ndarray
    table: np.ndarray
    length: int

    def dense(self, x: np.ndarray, blocks: Any = None) -> np.ndarray:
        """(S, Hkv, D) in the order of the table, or of other blocks."""
        found = x[self.table if blocks is None else blocks].swapaxes(1, 2)
        return found.reshape(-1, *found.shape[2:])[: self.length]

    def expected(self) -> np.ndarray:
        s = np.arange(self.length)
        k, v = self.dense(self.k_blocks), self.dense(self.v_blocks)
        return np.asarray(attend(self.q[None], k, v, s[-1:], s))[0]


def make(seed: int, length: int, size: int, heads: int, groups: int, dim: int) -> Task:
    """A request of `length` tokens in blocks that lie in any order among as many others."""
    rng = np.random.default_rng(seed)
    used = -(-length // size)
    table = (
        1 + rng.permutation(2 * used - 1)[:used]
    )  # never block 0: who ignores the table reads it
    shape = (2 * used, heads, size, dim)
    k, v = (np.full(shape, np.nan, dtype=np.float32) for _ in range(2))
    for n, block in enumerate(table):
        here = min(size, length - n * size)
        for x in (k, v):
            x[block, :, :here] = rng.standard_normal((heads, here, dim))
    q = rng.standard_normal((heads * groups, dim)).astype(np.float32)
    return Task(q, k, v, table, length)


@checker
def check_paged_decode(paged_decode: Callable[..., Any]) -> Iterator[str]:
    """paged_decode(q (Hq, D), k_blocks, v_blocks (N, Hkv, block_size, D), table, length)
    → o (Hq, D)."""
    task = make(1, 8, 4, 2, 3, 8)
    got = paged_decode(*task)
    expect_shape(got, task.q.shape, "o", letters="Hq D")
    if np.isnan(got).any():
        raise Finding(
            "o is NaN: a block that is not in the table was read. Entry n of the table says which "
            "block holds tokens n * block_size and on"
        )
    _diagnose(got, task)
    expect_close(got, task.expected(), "o, two full blocks", axes=("head",), rtol=1e-3)
    yield "two full blocks: attention over the request's own keys"

    for seed, length, size in ((2, 11, 4), (3, 1, 4), (4, 9, 8), (5, 5, 1), (6, 40, 16)):
        task = make(seed, length, size, 2, 2, 8)
        got = paged_decode(*task)
        what = f"{length} tokens in blocks of {size}"
        if np.isnan(got).any():
            raise Finding(
                f"{what}: o is NaN, so places behind the last token were read. The last block "
                f"holds {(length - 1) % size + 1} of {size}"
            )
        _diagnose_last(got, task, what, size)
        expect_close(got, task.expected(), f"o, {what}", axes=("head",), rtol=1e-3)
    yield "a last block that is not full, a single token, blocks of one token"

    task = make(7, 4096, 64, 2, 2, 64)
    paged_decode(*task)  # in words, should it fail; and whatever is imported on first use
    bare = getattr(paged_decode, "__wrapped__", paged_decode)  # the guard copies its arguments
    tracemalloc.start()
    try:
        got = bare(*task)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    held = task.length * 2 * 64 * 4
    if peak > held // 2:
        raise Finding(
            f"4,096 tokens: {peak / 2**20:.1f} MiB were allocated, and the keys themselves take "
            f"{held / 2**20:.1f}: the cache was copied. x[block] with one integer is a view; "
            "x[table] and np.concatenate are copies"
        )
    expect_close(got, task.expected(), "o, 4,096 tokens", axes=("head",), rtol=1e-3)
    expect_dtype(got, np.float32, "o")
    yield "4,096 tokens without copying the cache"


def _attend(task: Task, scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """scores (Hkv, G, S), v (S, Hkv, D) → (Hq, D)."""
    p = np.exp(scores - scores.max(-1, keepdims=True))
    o = np.einsum("hgs,shd->hgd", p / p.sum(-1, keepdims=True), v)
    return o.reshape(task.q.shape)


def _diagnose(got: np.ndarray, task: Task) -> None:
    heads, dim = task.k_blocks.shape[1], task.q.shape[1]
    k, v = task.dense(task.k_blocks), task.dense(task.v_blocks)
    scores = np.einsum("hgd,shd->hgs", task.q.reshape(heads, -1, dim), k)
    swapped = task.q.reshape(-1, heads, dim).swapaxes(0, 1)
    tiled = _attend(task, np.einsum("hgd,shd->hgs", swapped, k) / dim**0.5, v)
    tiled = tiled.reshape(heads, -1, dim).swapaxes(0, 1).reshape(task.q.shape)
    half = task.length // 2
    first, last = (
        _attend(task, scores[..., a] / dim**0.5, v[a]) for a in (slice(half), slice(half, None))
    )
    diagnose(
        got,
        {
            "the scores are not scaled: divide them by sqrt(D)": _attend(task, scores, v),
            "query heads are dealt out in turn: head h uses key/value head h // G, so reshape q to "
            "(Hkv, G, D)": tiled,
            "each block has a softmax of its own, and the results were averaged: the denominator "
            "runs over all blocks": (first + last) / 2,
            "each block has a softmax of its own, and the results were added: the denominator runs "
            "over all blocks": first + last,
            "only the last block was attended to: the first was overwritten": last,
            "only the first block was attended to": first,
        },
    )


def _diagnose_last(got: np.ndarray, task: Task, what: str, size: int) -> None:
    whole = task.length // size * size
    if 0 < whole < task.length:
        s = np.arange(whole)
        k, v = task.dense(task.k_blocks)[:whole], task.dense(task.v_blocks)[:whole]
        wrong = np.asarray(attend(task.q[None], k, v, s[-1:], s))[0]
        words = f"{what}: the last block is missing, since {task.length} // {size} leaves it out. "
        diagnose(got, {words + "Round up": wrong})
    if task.length == 1 and not got.any():
        raise Finding(f"{what}: o is zero, so no block was read. {task.length} // {size} is 0")
