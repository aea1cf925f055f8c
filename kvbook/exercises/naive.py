"""Exercises of the chapter on recomputation."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Draws, Seen
from kvbook.exercises.expect import expect_shape
from kvlib.arrays import Array, to_numpy
from kvlib.model import Decoder


def logits_of(model: Decoder, tokens: Sequence[int]) -> Array:
    """What kvlib's own model says after each of T tokens: logits (T, V), a NumPy array."""
    cache = model.new_cache(1, len(tokens))
    cache.add("text")
    step = cache.plan(["text"], [len(tokens)])
    return to_numpy(model.forward(tokens, cache, step, rows="all"))


# ------------------------------------------------------------------------------------ token_passes


def token_passes(prompt: int, new: int) -> tuple[int, int]:
    """token_passes(prompt, new) → (again, once): tokens sent through the layers to get `new` ones,
    from scratch at each step and each token once."""
    again = sum(prompt + i for i in range(new))
    return again, prompt + new - 1


check_token_passes = Checker(
    token_passes,
    names=("again", "once"),
    stages={
        "for one new token, both counts are the length of the prompt": [(7, 1)],
        "from scratch, each step reads one token more than the step before it; otherwise the "
        "prompt is read once, and so is each new token but the last": [(5, 4)],
        "the counts hold for any prompt and any number of new tokens": Draws(
            lambda rng: [(1, 1), (1024, 100), (4096, 3), *rng.integers(1, 300, (6, 2)).tolist()]
        ),
    },
    mistakes={
        "every step is counted at the final length, but step 1 has the prompt alone, and each "
        "later step has one token more than the step before": "prompt + i → prompt + new - 1",
        "the prompt is missing: every step computes its tokens again, too": [
            "prompt + i → i",
            "prompt + i → 1 + i",
        ],
        "every step is counted with the prompt alone, but a new token belongs to the text of the "
        "next step": "prompt + i → prompt",
        "each step is counted with the token that it produces, but a step reads only the tokens "
        "before that one": "prompt + i → prompt + i + 1",
        "the last new token is sent through the layers as well, but no token after it is needed": (
            "range(new) → range(new + 1)"
        ),
        "a step is missing: 4 new tokens take 4 steps": [
            "range(new) → range(max(1, new - 1))",
            "range(new) → range(min(1, new - 1), new)",
        ],
        "the last new token is only returned, so it is not sent through the layers": (
            "new - 1 → new"
        ),
        "the prompt goes through the layers, too": [
            "prompt + new - 1 → new",
            "prompt + new - 1 → new if new > 1 else prompt",
        ],
    },
)


# ------------------------------------------------------------------------------------- window_mask


def window_mask(q_pos: np.ndarray, kv_pos: np.ndarray, window: int) -> np.ndarray:
    """window_mask(q_pos (T,), kv_pos (S,), window) → (T, S) bool, True where a query may see the
    key: 0 <= q_pos - kv_pos < window."""
    away = q_pos[:, None] - kv_pos[None, :]
    return (away >= 0) & (away < window)


def _of_three(window_mask: Any) -> Iterator[Seen]:
    yield "the mask", window_mask(np.arange(6), np.arange(6), 3)


def _moved(window_mask: Any) -> Iterator[Seen]:
    mask = window_mask(np.array([9]), np.arange(10), 4)
    yield "the mask of one query at position 9", mask
    ring = np.array([8, 9, 10, 3, 4, 5, 6, 7])  # the oldest keys were overwritten
    yield "the mask over keys that are out of order", window_mask(np.array([9, 10]), ring, 5)


def _drawn_masks(window_mask: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(3)
    shapes = [(9, 9, 1), (9, 9, 4), (2, 12, 5), (9, 9, 50)]
    for s in rng.integers(3, 15, 3).tolist():
        shapes.append((int(rng.integers(1, s + 1)), s, int(rng.integers(1, s + 2))))
    for t, s, window in shapes:
        mask = window_mask(np.arange(s - t, s), np.arange(s), window)
        yield f"the mask of {t} queries, {s} keys and a window of {window}", mask


check_window_mask = Checker(
    window_mask,
    letters="query key",
    typed=True,
    stages={
        "a window of 3 is the query itself and the two before it": _of_three,
        "the mask follows the positions, in whatever order the keys are": _moved,
        "it holds for the last queries of any text, and for any window": _drawn_masks,
    },
    mistakes={
        "query 5 sees keys 2, 3, 4 and 5, which is 4 of them: a window of 3 counts the query "
        "itself, so the distance stays below 3": "away < window → away <= window",
        "query 5 sees keys 4 and 5, which is 2 of them: a window of 3 is the query itself and 2 "
        "before it": "away < window → away < window - 1",
        "query 5 sees keys 2, 3 and 4 and not itself: a window counts the query": (
            "away >= 0) & (away < window → away > 0) & (away <= window"
        ),
        "query 0 sees key 5: the window bounds the past, and the future still has to be hidden": (
            "(away >= 0) & → "
        ),
        "query 0 sees key 2: the window reaches into the future as well, because the distance has "
        "lost its sign": "(away >= 0) & (away → (abs(away)",
        "query 5 sees key 0: the window is ignored, this is the causal mask": (
            " & (away < window) → "
        ),
        "the mask is transposed: its rows must be queries and its columns keys": (
            "q_pos[:, None] - kv_pos[None, :] → kv_pos[None, :] - q_pos[:, None]"
        ),
        "True and False are exchanged: True means that a query may see a key": (
            "(away >= 0) & (away < window) → (away < 0) | (away >= window)"
        ),
        "the mask must come from q_pos, because row 0 need not be position 0": (
            "q_pos[:, None] → np.arange(len(q_pos))[:, None]"
        ),
        "the mask must come from kv_pos, because column 0 need not be position 0": [
            "kv_pos[None, :] → np.arange(len(kv_pos))",
            "away = → kv_pos = np.arange(len(kv_pos)); q_pos = kv_pos[-len(q_pos) :]; away =",
        ],
    },
)


# --------------------------------------------------------- causal_attention and grouped_attention


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """causal_attention(q (T, H, D), k (S, H, D), v (S, H, D)) → o (T, H, D), float32, T <= S; the
    last query is at the position of the last key."""
    t, s = len(q), len(k)
    seen = np.tri(t, s, k=s - t, dtype=bool)
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[2])
    scores = np.where(seen, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v)


def _inputs(seed: int, t: int, s: int, hq: int, hkv: int, dim: int = 4) -> list[np.ndarray]:
    """Queries, keys and values whose scores are large enough for every mistake to show."""
    rng = np.random.default_rng(seed)
    shapes = ((t, hq, dim), (s, hkv, dim), (s, hkv, dim))
    return [(1.5 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def _shaped(o: Any, q: np.ndarray) -> np.ndarray:
    expect_shape(o, q.shape, "o")
    return np.asarray(o)


def _same(after: np.ndarray, before: np.ndarray) -> bool:
    """Whether nothing changed. A hidden score may have been the maximum, which moves last bits."""
    return np.allclose(after, before, 1e-5, 1e-6, equal_nan=True)


def _one_text(seed: int, t: int, hq: int, hkv: int, attention: Any) -> Iterator[Seen]:
    """o, and the first row that changed with the last token, which no earlier row may see."""
    q, k, v = _inputs(seed, t, t, hq, hkv)
    o, last = _shaped(attention(q, k, v), q), t - 1
    k[last] += 1
    v[last] += 1
    after, why = _shaped(attention(q, k, v), q), ""
    moved = [i for i in range(last) if not _same(after[i], o[i])]
    if moved:
        why = f"position {moved[0]} changed when token {last} changed, so the past sees the future"
    yield "o", o, why


def _large(causal_attention: Any) -> Iterator[Seen]:
    q, k, v = _inputs(1, 4, 4, 2, 2)
    why = (
        "e to the power of a large score overflows. Subtract the row's largest score before "
        "np.exp; the weights stay the same"
    )
    yield "o with queries 60 times as large", causal_attention(60 * q, k, v), why


def _chunks(causal_attention: Any) -> Iterator[Seen]:
    for t, s in ((1, 7), (2, 7), (5, 8)):
        o = causal_attention(*_inputs(10 + t, t, s, 3, 3))
        yield f"o of {t} {'query' if t == 1 else 'queries'} over {s} keys", o


_WRONG_MASKS = {
    "the queries see everything, but they end where the keys end: query 0 is at position S − T": (
        "k=s - t → k=s if t < s else 0"
    ),
    "there is no mask, so the past sees the future": "np.where(seen, scores, -np.inf) → scores",
    "the mask is added as 0 and 1, which moves scores a little and hides nothing. A hidden score "
    "is −inf, so that its weight is 0": [
        "np.where(seen, scores, -np.inf) → scores + seen",
        "np.where(seen, scores, -np.inf) → scores + ~seen",
    ],
    "the mask multiplies the scores: a score of 0 is not a weight of 0. A hidden score is −inf": (
        "np.where(seen, scores, -np.inf) → scores * seen"
    ),
    "the mask hides weights after the softmax, whose sum still counts the future: hide scores "
    "before the softmax": ("np.where(seen, scores, -np.inf) → scores", "p / → seen * p /"),
    "the mask is reversed: each query sees itself and the future": (
        "np.tri(t, s, k=s - t, → ~np.tri(t, s, k=s - t - 1,"
    ),
    "query 0 sees nothing, not even itself: a token may see its own key, so key j is hidden from "
    "query i only where j > i": "k=s - t → k=s - t - 1",
    "query 0 sees key 0 alone: your mask starts in the top left corner. The last query sees the "
    "last key: np.tri(T, S, k=S - T)": "k=s - t → k=0",
    "the scores are not scaled: divide them by √D, or the softmax sharpens as D grows": (
        " / math.sqrt(q.shape[2]) → "
    ),
}

check_causal_attention = Checker(
    causal_attention,
    letters="T H D",
    typed=True,
    stages={
        "o is softmax(q k / √D) v over the keys that a query may see, in float32, and changing "
        "token 5 leaves the outputs of all earlier tokens as they were": (
            partial(_one_text, 0, 6, 2, 2)
        ),
        "large scores do not overflow": _large,
        "fewer queries than keys: the last query sees the last key": _chunks,
    },
    mistakes={
        **_WRONG_MASKS,
        "the scores are divided by D = 4: √D = 2 was needed": "math.sqrt(q.shape[2]) → 4",
        "the scores are multiplied by √D = 2: divide by it": "/ math.sqrt → * math.sqrt",
        "the softmax runs over the queries. The weights that one query gives to its keys must sum "
        "to 1, so sum over the axis of the keys": ("max(-1 → max(1", "sum(-1 → sum(1"),
        "the weights are not normalised: divide them by their sum over the keys": (
            " - scores.max(-1, keepdims=True) → ",
            " / p.sum(-1, keepdims=True) → ",
        ),
        "the weights are e to the power of (score − largest score), but they are not divided by "
        "their sum over the keys": " / p.sum(-1, keepdims=True) → ",
        "the softmax is normalised twice: its weights no longer sum to 1": [
            "p / p.sum(-1, keepdims=True) → p / p.sum(-1, keepdims=True) ** 2",
            "p / → p / np.exp(scores).sum(-1, keepdims=True) /",
            "return → p = np.exp(p / p.sum(-1, keepdims=True)); return",
            "return → p = np.exp(p / p.sum(-1, keepdims=True)) * seen; return",
        ],
    },
    refused={
        "Subtract the row's largest score before np.exp": " - scores.max(-1, keepdims=True) → ",
        "position 4 changed when token 5 changed": "k=s - t → k=s - t + 1",
    },
)


def grouped_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """grouped_attention(q (T, Hq, D), k (S, Hkv, D), v (S, Hkv, D)) → o (T, Hq, D), float32;
    G = Hq / Hkv neighbouring query heads read one key/value head."""
    t, s, groups = len(q), len(k), q.shape[1] // k.shape[1]
    k = np.repeat(k, groups, axis=1)
    v = np.repeat(v, groups, axis=1)
    seen = np.tri(t, s, k=s - t, dtype=bool)
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[2])
    scores = np.where(seen, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v)


def _readers(grouped_attention: Any) -> Iterator[Seen]:
    """Change one head of the keys or values; exactly its group of query heads must move."""
    q, k, v = _inputs(2, 5, 5, 6, 2)
    o = _shaped(grouped_attention(q, k, v), q)
    # Not by the same number for all keys, which the softmax would not notice.
    change = np.linspace(-1, 2, len(k), dtype=np.float32)[:, None]
    for name, head in (("key", 0), ("key", 1), ("value", 0), ("value", 1)):
        k2, v2 = k.copy(), v.copy()
        (k2 if name == "key" else v2)[:, head] *= change
        after = _shaped(grouped_attention(q, k2, v2), q)
        moved = [h for h in range(6) if not _same(after[:, h], o[:, h])]
        why = ""
        if moved == [head, head + 2, head + 4]:
            why = "np.tile lays the heads out 0 1 0 1 0 1, and np.repeat 0 0 0 1 1 1"
        elif len(moved) in (0, 6):
            who = "every" if moved else "no"
            why = f"{who} query head reads it, but the query heads of its group must, and no other"
        yield f"the query heads that changed with {name} head {head}", moved, why


def _any_heads(grouped_attention: Any) -> Iterator[Seen]:
    for t, s, hq, hkv in ((4, 4, 3, 3), (4, 4, 4, 1), (1, 6, 4, 2), (3, 9, 8, 2)):
        what = f"o of {hq} query heads over {hkv} kv heads, {t} queries over {s} keys"
        yield what, grouped_attention(*_inputs(20 + s, t, s, hq, hkv))


check_grouped_attention = Checker(
    grouped_attention,
    letters="T Hq D",
    typed=True,
    stages={
        "query heads 0, 1, 2 read key/value head 0, and 3, 4, 5 read head 1": _readers,
        "the numbers are those of kvlib.attend, in float32, and changing a token leaves the "
        "outputs of all earlier tokens as they were": partial(_one_text, 2, 5, 6, 2),
        "it also works with one kv head for all, with one per query head, and for a chunk": (
            _any_heads
        ),
    },
    mistakes={
        **_WRONG_MASKS,
        "the scores are divided by √Hq: D is the size of one head": "q.shape[2] → q.shape[1]",
    },
    refused={
        "with key head 0: got [0, 2, 4], needed [0, 1, 2]: np.tile": (
            "np.repeat(k, groups, axis=1) → np.tile(k, (1, groups, 1))",
            "np.repeat(v, groups, axis=1) → np.tile(v, (1, groups, 1))",
        ),
        "with value head 0: got [0, 2, 4], needed [0, 1, 2]: np.tile": (
            "np.repeat(v, groups, axis=1) → np.tile(v, (1, groups, 1))"
        ),
        "got [0, 1, 2, 3, 4, 5], needed [0, 1, 2]: every query head reads it": [
            "repeat(k, groups → repeat(k[:, :1], q.shape[1]",
            "repeat(k, groups → repeat(k.mean(1, keepdims=True), q.shape[1]",
        ],
    },
)
