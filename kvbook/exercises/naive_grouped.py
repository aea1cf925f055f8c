"""The checker of causal attention with fewer key/value heads than query heads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from kvbook.exercises.naive_wrong import (
    CORNER,
    Function,
    attended,
    attended_wrongly,
    expect_causal,
    inputs,
    shaped,
)
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)


@checker
def check_grouped_attention(grouped_attention: Function) -> Iterator[str]:
    """grouped_attention(q (T, Hq, D), k (S, Hkv, D), v (S, Hkv, D)) -> o (T, Hq, D), float32;
    G = Hq / Hkv neighbouring query heads read one key/value head."""
    q, k, v = inputs(2, 5, 5, 6, 2)
    o = grouped_attention(q, k, v)
    expect_shape(o, (5, 6, 4), "o", letters="T Hq D")
    expect_dtype(o, np.float32, "o")
    yield "o has one vector for each query head, in float32"

    for name in ("key", "value"):
        for head in (0, 1):
            _expect_readers(grouped_attention, name, head, q, k, v, o)
    yield "query heads 0, 1, 2 read key/value head 0, and 3, 4, 5 read head 1"

    expect_causal(grouped_attention, q, k, v, o)
    yield "changing a token leaves the outputs of all earlier tokens as they were"

    k6, v6 = (np.repeat(x, 3, axis=1) for x in (k, v))
    seen = np.tri(5, dtype=bool)
    diagnose(
        o,
        {
            "the scores are not scaled: divide them by √D": attended_wrongly(
                q, k6, v6, seen, scale=1.0
            ),
            "the scores are divided by √Hq: D is the size of one head": (
                attended_wrongly(q, k6, v6, seen, scale=1 / math.sqrt(6))
            ),
        },
    )
    expect_close(o, attended(q, k, v), "o", axes=("query", "head"))
    yield "the numbers are those of kvlib.attend"

    for t, s, hq, hkv in ((4, 4, 3, 3), (4, 4, 4, 1), (1, 6, 4, 2), (3, 9, 8, 2)):
        q, k, v = inputs(20 + s, t, s, hq, hkv)
        what = f"o of {hq} query heads over {hkv} kv heads, {t} queries over {s} keys"
        o = grouped_attention(q, k, v)
        if t < s:
            k_all, v_all = (np.repeat(x, hq // hkv, axis=1) for x in (k, v))
            corner = f"{what}: " + CORNER.format(t=t, s=s, at=s - t)
            diagnose(o, {corner: attended_wrongly(q, k_all, v_all, np.tri(t, s, dtype=bool))})
        expect_close(o, attended(q, k, v), what, axes=("query", "head"))
    yield "it also works with one kv head for all, with one per query head, and for a chunk"


def _expect_readers(
    function: Function,
    name: str,
    head: int,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    o: np.ndarray,
) -> None:
    """Change one head of the keys or values; exactly its group of query heads must move."""
    k2, v2 = k.copy(), v.copy()
    # Not by the same number for all keys, which the softmax would not notice.
    (k2 if name == "key" else v2)[:, head] *= np.linspace(-1, 2, len(k), dtype=np.float32)[:, None]
    after = shaped(function(q, k2, v2), o)
    moved = [h for h in range(6) if not np.allclose(after[:, h], o[:, h], atol=1e-6)]
    needed = [3 * head + g for g in range(3)]
    if moved == needed:
        return
    words = f"changing {name} head {head} changed query heads {moved}, needed {needed}"
    cause = ""
    if moved == [head, head + 2, head + 4]:
        cause = ": np.tile lays the heads out 0 1 0 1 0 1, and np.repeat 0 0 0 1 1 1"
    elif not moved:
        cause = f": no query head reads {name} head {head}"
    elif moved == list(range(6)):
        cause = ": every query head reads it, but only the query heads of its group may"
    raise Finding(words + cause)
