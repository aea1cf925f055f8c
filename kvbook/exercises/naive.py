"""Checkers of the chapter on recomputation: the count of work and a window's mask (attention
itself is in :mod:`kvbook.exercises.naive_attention` and :mod:`kvbook.exercises.naive_grouped`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.naive_attention import check_causal_attention
from kvbook.exercises.naive_grouped import check_grouped_attention
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_equal,
    expect_shape,
)
from kvlib.arrays import Array, to_numpy
from kvlib.attention import attend
from kvlib.model import Decoder

__all__ = [
    "check_causal_attention",
    "check_grouped_attention",
    "check_token_passes",
    "check_window_mask",
    "logits_of",
]


def logits_of(model: Decoder, tokens: Sequence[int]) -> Array:
    """What kvlib's own model says after each of T tokens: logits (T, V), a NumPy array."""
    cache = model.new_cache(1, len(tokens))
    cache.add("text")
    step = cache.plan(["text"], [len(tokens)])
    return to_numpy(model.forward(tokens, cache, step, rows="all"))


@checker
def check_token_passes(token_passes: Callable[..., Any]) -> Iterator[str]:
    """token_passes(prompt, new) -> (again, once): tokens sent through the layers to get `new`
    tokens, from scratch at each step and each token once."""
    again, once = _pair(token_passes(7, 1))
    expect_equal(again, 7, "one new token after a prompt of 7, from scratch")
    expect_equal(once, 7, "one new token after a prompt of 7, each token once", why=_NOT_FED)
    yield "for one new token, both counts are the length of the prompt"

    prompt, new = 5, 4  # steps of 5, 6, 7 and 8 tokens
    again, once = _pair(token_passes(prompt, new))
    diagnose_again = {
        32: "every step is counted at the final length, but step 1 has the prompt alone, and "
        "each later step has one token more than the step before",
        10: "the prompt is missing: every step computes its tokens again, too",
        6: "the prompt is missing: every step computes its tokens again, too",
        20: "every step is counted with the prompt alone, but a new token belongs to the text "
        "of the next step",
        35: "the last new token is sent through the layers as well, but no token after it is "
        "needed",
        30: "each step is counted with the token that it produces, but a step reads only the "
        "tokens before that one",
        21: "a step is missing: 4 new tokens take 4 steps",
        18: "a step is missing: 4 new tokens take 4 steps",
    }
    if isinstance(again, int | np.integer) and int(again) in diagnose_again:
        raise Finding(f"from scratch, 5 + 4 tokens: got {again}: {diagnose_again[int(again)]}")
    expect_equal(again, 26, "from scratch, 4 new tokens after 5", why="5 + 6 + 7 + 8")
    yield "from scratch, each step reads one token more than the step before it"

    why = _NOT_FED if once == 9 else "the prompt once, and each new token but the last"
    expect_equal(once, 8, "each token once, 4 new tokens after 5", why=why)
    yield "each token once: the rows of the prompt, and of all new tokens except the last"

    drawn = np.random.default_rng(0).integers(1, 300, (6, 2)).tolist()
    for prompt, new in ((1, 1), (1, 100), (1024, 100), (4096, 3), *drawn):
        again, once = _pair(token_passes(prompt, new))
        expect_equal(again, sum(range(prompt, prompt + new)), f"from scratch, {new} after {prompt}")
        expect_equal(once, prompt + new - 1, f"each token once, {new} after {prompt}")
    yield "the counts hold for any prompt and any number of new tokens"


_NOT_FED = "the last new token is only returned, so it is not sent through the layers"


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Finding(f"token_passes returned {type(result).__name__}, needed (again, once)")
    return result[0], result[1]


@checker
def check_window_mask(window_mask: Callable[..., Any]) -> Iterator[str]:
    """window_mask(q_pos (T,), kv_pos (S,), window) -> (T, S) bool, True where a query may see
    the key: 0 <= q_pos - kv_pos < window."""
    place = np.arange(6)
    mask = window_mask(place, place, 3)
    expect_shape(mask, (6, 6), "the mask", letters="T S")
    expect_dtype(mask, bool, "the mask")
    yield "a row for each query and a column for each key, True or False"

    away = place[:, None] - place[None, :]
    right = (away >= 0) & (away < 3)
    diagnose(
        mask,
        {
            "query 5 sees keys 2, 3, 4 and 5, which is 4 of them: a window of 3 counts the query "
            "itself, so the distance stays below 3": (away >= 0) & (away <= 3),
            "query 5 sees keys 4 and 5, which is 2 of them: a window of 3 is the query itself and "
            "2 before it": (away >= 0) & (away < 2),
            "query 5 sees keys 2, 3 and 4 and not itself: a window counts the query": (
                (away > 0) & (away <= 3)
            ),
            "query 0 sees key 5: the window bounds the past, and the future still has to be "
            "hidden": away < 3,
            "query 0 sees key 2: the window reaches into the future as well, because the "
            "distance has lost its sign": abs(away) < 3,
            "query 5 sees key 0: the window is ignored, this is the causal mask": away >= 0,
            "the mask is transposed: its rows must be queries and its columns keys": right.T,
            "True and False are exchanged: True means that a query may see a key": ~right,
        },
    )
    expect_close(mask, right, "the mask", axes=("query", "key"))
    yield "a window of 3 is the query itself and the two before it"

    mask = window_mask(np.array([9]), np.arange(10), 4)
    expect_shape(mask, (1, 10), "the mask of one query", letters="T S")
    expect_close(
        mask,
        np.arange(10)[None, :] >= 6,
        "the mask of one query at position 9",
        axes=("query", "key"),
        why="the mask must come from q_pos, because row 0 need not be position 0",
    )
    kv_pos = np.array([8, 9, 10, 3, 4, 5, 6, 7])  # a ring: the oldest was overwritten
    mask = window_mask(np.array([9, 10]), kv_pos, 5)
    away = np.array([[9], [10]]) - kv_pos
    expect_close(
        mask,
        (away >= 0) & (away < 5),
        "the mask over keys that lie out of order",
        axes=("query", "key"),
        why="the mask must come from kv_pos, because column 0 need not be position 0",
    )
    yield "the mask follows the positions, in whatever order the keys lie"

    rng = np.random.default_rng(3)
    shapes = [(9, 9, 1), (9, 9, 4), (2, 12, 5), (9, 9, 50)]
    for s in rng.integers(3, 15, 3).tolist():
        shapes.append((int(rng.integers(1, s + 1)), s, int(rng.integers(1, s + 2))))
    for t, s, window in shapes:
        q, k, v = (rng.standard_normal((n, 2, 4)).astype(np.float32) for n in (t, s, s))
        q_pos, kv_pos = np.arange(s - t, s), np.arange(s)
        scores = np.einsum("thd,shd->hts", q, k) / 2
        mask, what = window_mask(q_pos, kv_pos, window), f"the mask of {t} queries and {s} keys"
        expect_shape(mask, (t, s), what, letters="T S")
        expect_dtype(mask, bool, what)
        scores = np.where(mask, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        o = np.einsum("hts,shd->thd", p / p.sum(axis=-1, keepdims=True), v)
        wanted = attend(q, k, v, q_pos, kv_pos, window=window)
        expect_close(o, wanted, f"attention with a window of {window}", axes=("query", "head"))
    yield "attention under this mask is kvlib.attend(..., window=window)"
