"""The checker of attention to latent vectors, which makes no key and no value of any head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.counted import allocated
from kvbook.exercises.latent_task import Task, bound, expanded, make
from kvbook.exercises.latent_wrong import diagnose_absorbed
from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    bare,
    checker,
    expect_close,
    expect_dtype,
    expect_shape,
    guarded,
)

AXES = ("query", "head", "number")
HUGE, FAR = 1e30, 1e10  # their product is too large for float32


@checker
def check_absorbed(absorbed: Callable[..., Any]) -> Iterator[str]:
    """absorbed(q (T, H, N), q_pe (T, H, R), c (S, C), k_pe (S, R), W_UK (H, N, C),
    W_UV (H, V, C)) → o (T, H, V)."""
    _expect(absorbed, make(81, 1, 6, 3, 7, 4, 2, 5), "one query and 6 tokens")
    yield "decoding: one query gets what attention over expanded keys and values would give it"

    _expect(absorbed, make(82, 5, 9, 2, 7, 4, 3, 6), "5 queries and 9 tokens")
    _expect(absorbed, make(83, 4, 4, 3, 6, 5, 2, 4), "4 queries and 4 tokens")
    yield "in a chunk and in a whole prompt, each query sees its own token and those before it"

    _expect(absorbed, make(84, 3, 8, 3, 4, 4, 4, 4), "C, N, R and V are all 4, and H is 3")
    for name, sizes in (
        ("one head", (2, 5, 1, 6, 3, 2, 4)),
        ("one token", (1, 1, 2, 6, 3, 2, 4)),
        ("64 heads", (1, 40, 64, 16, 8, 4, 8)),
    ):
        _expect(absorbed, make(85, *sizes), name)
    yield "it holds for other sizes, also where all matrices are square"

    _large_scores(absorbed)
    yield "scores in the thousands do not overflow"

    _no_key_overflows(absorbed)
    _little_memory(absorbed)
    yield (
        "no key and no value was made: vectors that would not fit into float32 do no harm, and "
        "4,096 tokens take less memory than the keys of one head would"
    )


def _called(absorbed: Callable[..., Any], task: Task, what: str) -> np.ndarray:
    got = numbers(absorbed(*task), "o")
    (t, h, _), (v, c) = task.q.shape, task.W_UV.shape[1:]
    if got.shape == (t, h, c) and c != v:
        raise Finding(
            f"{what}: o has shape {got.shape}, (T, H, C), so these are weighted sums of latent "
            "vectors. W_UV of its head turns each into V numbers"
        )
    expect_shape(got, (t, h, v), f"{what}: o", letters="T H V")
    expect_dtype(got, np.float32, "o")
    return got


def _expect(absorbed: Callable[..., Any], task: Task, what: str) -> None:
    got, right, off = _called(absorbed, task, what), expanded(task), bound(task)
    if not np.allclose(got, right, rtol=0, atol=off):
        diagnose_absorbed(got, task, what)
    expect_close(got, right, f"{what}: o", axes=AXES, rtol=0, atol=off)


def _large_scores(absorbed: Callable[..., Any]) -> None:
    """Scores in the thousands, but small ones for head 0. The last token has the largest of all,
    and the queries before it do not see it."""
    task = make(86, 4, 9, 3, 7, 4, 2, 5, loud=300)
    task.q_pe[..., 0] = 300 + np.abs(task.q_pe[..., 0])
    task.k_pe[-1, 0] = 100
    task.q[:, 0] /= 300
    task.q_pe[:, 0] /= 300
    what = "with scores in the thousands"
    got = _called(absorbed, task, what)
    fine = np.isfinite(got).all(axis=2)  # (T, H)
    if fine[-1].all() and not fine.all():
        raise Finding(
            f"{what}, o of the last query is finite, and those of earlier queries are not: take "
            "the largest score after the mask, over the tokens that the query sees"
        )
    if not fine[:, 0].all() and fine[:, 1:].any():
        raise Finding(
            f"{what} in other heads, o of head 0, whose scores are small, is not finite: subtract "
            "the largest score of each query in each head, not that of all heads"
        )
    if not fine.all():
        raise Finding(
            f"{what}, o is not finite: e^score overflows. Subtract the largest score before you "
            "exponentiate"
        )
    expect_close(got, expanded(task), f"{what}: o", axes=AXES, rtol=0, atol=bound(task))


def _no_key_overflows(absorbed: Callable[..., Any]) -> None:
    """A token whose expanded key and value float32 cannot hold, and that no query attends to.

    Its latent vector has `FAR` where W_UK and W_UV have columns of `HUGE`. The query times W_UK is
    0 there, because two rows cancel; the weighted sum is, because the token has a weight of 0.
    """
    task = make(87, 1, 6, 2, 8, 4, 2, 5)
    q, q_pe, c, k_pe, w_uk, w_uv = task
    q[..., 0], q[..., 1] = 1, -1
    c[:, :4], c[2, :4] = 0, FAR
    w_uk[:, :, :4], w_uv[:, :, :4] = 0, HUGE
    w_uk[:, :2, :4] = HUGE
    q_pe[...] = 1 + np.abs(q_pe)
    k_pe[2] = -10_000
    got = _called(absorbed, task, "a token with a very long latent vector")
    if not np.isfinite(got).all():
        raise Finding(
            "a key or a value was expanded: token 2 has a latent vector whose products with W_UK "
            "and W_UV do not fit into float32, and o is not finite. No query attends to that "
            "token, and both W_UK times the query and the weighted sum of the latent vectors are "
            "small. So multiply the query by W_UK first, then attend to the latent vectors, and "
            "multiply their weighted sum by W_UV last (an einsum over three arrays does not)"
        )
    others = [0, 1, 3, 4, 5]
    task = task._replace(c=c[others], k_pe=k_pe[others])
    what = "a token with a very long latent vector and a weight of 0: o"
    expect_close(got, expanded(task), what, axes=AXES, rtol=0, atol=bound(task))


def _little_memory(absorbed: Callable[..., Any]) -> None:
    """A head's key has 16 times as many numbers as the latent vector, so expanding it shows."""
    sizes = dict(H=2, C=16, N=256, R=8, V=256)
    light = guarded(bare(absorbed), may_modify=True)  # which copies no arguments
    for tokens in (64, 4096):  # the short one also meets whatever is set up on first use
        task = make(88, 1, tokens, **sizes)
        got, peak = allocated(light, *task)
        right, off = expanded(task), bound(task)
        expect_shape(got, right.shape, f"{tokens:,} tokens: o", letters="T H V")
        expect_close(got, right, f"{tokens:,} tokens: o", axes=AXES, rtol=0, atol=off)
        expect_dtype(got, np.float32, "o")
    keys = tokens * sizes["N"] * 4  # of one head
    if peak > keys // 2:
        raise Finding(
            f"one query over {tokens:,} tokens: {peak / 2**20:.1f} MiB were allocated at once. The "
            f"latent vectors take {task.c.nbytes / 2**20:.2f} MiB, and keys of a single head would "
            f"take {keys / 2**20:.0f} MiB: make keys or values of no head. (A mask of S x S pairs "
            "would be too large, too; T x S are enough.)"
        )
