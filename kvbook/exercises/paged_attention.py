"""The checker of attention over a block table that copies nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kvbook.exercises.counted import allocated
from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    bare,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
    guarded,
)
from kvlib.attention import attend

AXES = ("head", "dim")
LONG = 16_384  # tokens where the memory is measured: pieces of the cache may be gathered, not all


class Task(NamedTuple):
    """A query and a request in blocks; slots without a token hold NaN."""

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
    # never block 0, which is read if the table is ignored; never in order, so that sorting shows
    table = 1 + rng.permutation(2 * used - 1)[:used]
    table = table[::-1].copy() if table[-1] == table.max() else table
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
    if np.isnan(numbers(got, "o")).any():
        raise Finding(
            "o is NaN: a block that is not in the table was read. Entry n of the table says which "
            "block holds the tokens from n * block_size on"
        )
    if not np.allclose(got, task.expected(), rtol=1e-3, atol=1e-5):
        _diagnose(got, task)
    expect_close(got, task.expected(), "o, two full blocks", axes=AXES, rtol=1e-3)
    yield "two full blocks: attention over the request's own keys"

    for seed, length, size, heads, groups in (
        (2, 11, 4, 2, 2), (3, 1, 4, 2, 2), (4, 9, 8, 1, 1), (5, 5, 1, 2, 2), (6, 40, 16, 3, 1),
    ):  # fmt: skip
        task = make(seed, length, size, heads, groups, 8)
        got = paged_decode(*task)
        what = f"{length} tokens in blocks of {size}"
        expect_shape(got, task.q.shape, f"{what}: o", letters="Hq D")
        if np.isnan(numbers(got, "o")).any():
            raise Finding(
                f"{what}: o is NaN, so slots after the last token were read. The last block of "
                f"the table holds {(length - 1) % size + 1} of {size}"
            )
        _diagnose_last(got, task, what, size)
        expect_close(got, task.expected(), f"o, {what}", axes=AXES, rtol=1e-3)
    yield (
        "it holds for a last block that is not full, for a single token and for blocks of one token"
    )

    _large_scores(paged_decode)
    yield "scores near a thousand do not overflow"

    paged_decode(*make(8, 4096, 64, 2, 2, 64))  # whatever is imported or set up on first use
    task = make(7, LONG, 64, 2, 2, 64)
    light = guarded(bare(paged_decode), may_modify=True)  # which copies no arguments
    got, peak = allocated(light, *task)
    held = task.length * 2 * 64 * 4
    if peak > held // 2:
        raise Finding(
            f"{LONG:,} tokens: {peak / 2**20:.1f} MiB were allocated, and the keys themselves take "
            f"{held / 2**20:.1f}: the cache was copied. x[block] with one integer is a view; "
            "x[table] and np.concatenate are copies"
        )
    expect_close(got, task.expected(), f"o, {LONG:,} tokens", axes=AXES, rtol=1e-3)
    expect_dtype(got, np.float32, "o")
    yield f"{LONG:,} tokens are read without a copy of the cache"


def _large_scores(paged_decode: Callable[..., Any]) -> None:
    """Scores near a thousand, but for head 0, whose are small."""
    task = make(9, 11, 4, 2, 2, 8)
    loud = np.array([[1], [1000], [1000], [1000]], dtype=np.float32)
    task = task._replace(q=task.q * loud)
    got = paged_decode(*task)
    expect_shape(got, task.q.shape, "o with large scores", letters="Hq D")
    finite = np.isfinite(got).all(axis=1)
    if finite.any() and not finite[0]:
        raise Finding(
            "head 0 has small scores, the others scores near a thousand, and o of head 0 is not "
            "finite: subtract each head's own largest score before e^score, not that of all heads"
        )
    if not finite.all():
        raise Finding(
            "with scores near a thousand o is not finite: e^score overflows. Subtract the largest "
            "score before you exponentiate, as in every softmax"
        )
    # float32 rounds such scores to 1e-4, and e^score by as much
    expect_close(got, task.expected(), "o with large scores", axes=AXES, atol=5e-3)


def _attend(task: Task, scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """scores (Hkv, G, S), v (S, Hkv, D) → (Hq, D)."""
    p = np.exp(scores - scores.max(-1, keepdims=True))
    o = np.einsum("hgs,shd->hgd", p / p.sum(-1, keepdims=True), v)
    return o.reshape(task.q.shape)


def _diagnose(got: np.ndarray, task: Task) -> None:
    heads, dim = task.k_blocks.shape[1], task.q.shape[1]
    k, v = task.dense(task.k_blocks), task.dense(task.v_blocks)
    grouped = task.q.reshape(heads, -1, dim)
    scores = np.einsum("hgd,shd->hgs", grouped, k)
    swapped = task.q.reshape(-1, heads, dim).swapaxes(0, 1)
    tiled = _attend(task, np.einsum("hgd,shd->hgs", swapped, k) / dim**0.5, v)
    tiled = tiled.reshape(heads, -1, dim).swapaxes(0, 1).reshape(task.q.shape)
    one_head = _attend(task, np.einsum("hgd,sd->hgs", grouped, k[:, 0]) / dim**0.5, v[:, :1])
    half = task.length // 2
    parts = (scores / dim**0.5)[..., :half], (scores / dim**0.5)[..., half:]
    own = np.concatenate([x - x.max(-1, keepdims=True) for x in parts], axis=-1)
    running = np.maximum(*(x.max(-1, keepdims=True) for x in parts))
    late = np.concatenate([own[..., :half], parts[1] - running], axis=-1)
    first, last = (
        _attend(task, scores[..., a] / dim**0.5, v[a]) for a in (slice(half), slice(half, None))
    )
    diagnose(
        got,
        {
            "the scores are not scaled: divide them by sqrt(D)": _attend(task, scores, v),
            "query heads were dealt out in turn, but head h uses key/value head h // G: reshape q "
            "to (Hkv, G, D)": tiled,
            "each block has a softmax of its own, and the results were averaged: the denominator "
            "runs over all blocks": (first + last) / 2,
            "each block has a softmax of its own, and the results were added: the denominator runs "
            "over all blocks": first + last,
            "each block had its own largest score subtracted: the sums of blocks can be added only "
            "if all blocks subtract the same number": _attend(task, own, v),
            "the largest score rose in the second block, but the sums of the first block were not "
            "rescaled: multiply them by e^(old top - new top)": _attend(task, late, v),
            "every query head uses key/value head 0: head h uses head h // G": one_head,
            "keys and values changed places": _attend(
                task, np.einsum("hgd,shd->hgs", grouped, v) / dim**0.5, k
            ),
            "only the last block was attended to: the first was overwritten": last,
            "only the first block was attended to. (length % block_size is 0 where the last block "
            "is full.)": first,
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
