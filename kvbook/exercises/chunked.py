"""Checkers of the chapter on chunks: the mask of a chunk here.

One tile of online softmax is in :mod:`kvbook.exercises.chunked_online`; chunks and the budget of a
step are in :mod:`kvbook.exercises.chunked_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.chunked_online import check_online_update
from kvbook.exercises.chunked_plan import check_fill_step, check_read_in_chunks
from kvbook.exercises.report import checker, diagnose, expect_close, expect_dtype, expect_shape

__all__ = ["check_chunk_mask", "check_fill_step", "check_online_update", "check_read_in_chunks"]


@checker
def check_chunk_mask(chunk_mask: Callable[..., Any]) -> Iterator[str]:
    """chunk_mask(T, S) → (T, S) bool: which keys do the last T of S tokens see?"""
    mask = chunk_mask(3, 8)
    expect_shape(mask, (3, 8), "the mask", letters="T S")
    expect_dtype(mask, bool, "the mask")
    yield "a row for each query, a column for each key, True or False"

    right = np.tri(3, 8, 5, dtype=bool)
    diagnose(
        mask,
        {
            "query 0 sees key 0 alone: the triangle is in the top left corner, as if the chunk "
            "began the prompt. Query i stands at position S - T + i, so the triangle belongs in "
            "the bottom right corner": np.tri(3, 8, dtype=bool),
            "every query sees every key: query 0 sees keys 6 and 7, which come after it": np.ones(
                (3, 8), bool
            ),
            "query 0, at position 5, does not see key 5, but a query sees itself": np.tri(
                3, 8, 4, dtype=bool
            ),
            "query 0, at position 5, sees key 6, which is one too far": np.tri(3, 8, 6, dtype=bool),
            "True and False are exchanged: True means that a query may see a key": ~right,
            "the queries see the keys before the chunk, but none of its own": np.tri(
                3, 8, 5, dtype=bool
            )
            & (np.arange(8) < 5),
            "the queries see their own chunk, but nothing of what is cached": right
            & (np.arange(8) >= 5),
        },
    )
    expect_close(mask, right, "the mask", axes=("query", "key"))
    yield "query i stands at position S - T + i and sees all keys up to its own"

    drawn = [sorted(pair) for pair in np.random.default_rng(6).integers(1, 20, (4, 2)).tolist()]
    for t, s in ((1, 1), (1, 9), (4, 4), (5, 6), *drawn):
        mask, what = chunk_mask(t, s), f"the mask for T = {t}, S = {s}"
        expect_dtype(mask, bool, what)
        expect_close(mask, np.tri(t, s, s - t, dtype=bool), what, axes=("query", "key"))
    yield "the same for a decode, a whole prompt and a chunk of any length"
