"""The checker of cascade attention: a shared part and private parts, merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.counted import Reads, kept_watched
from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)
from kvlib.attention import attend

Pair = tuple[np.ndarray, np.ndarray]
OFTEN = 5  # reads that are still one product: keys may be scaled, cast or joined before it


@checker
def check_cascade(cascade: Callable[..., Any]) -> Iterator[str]:
    """cascade(q (B, D), k (S, D), v (S, D), own: B pairs of (n, D)) → o (B, D)."""
    q, k, v, own = _request(0, [3, 1, 5])
    o = cascade(q, k, v, list(own))
    expect_shape(o, (3, 8), "o", letters="B D")
    numbers(o, "o")
    right = _whole(q, k, v, own)
    if not np.allclose(o, right, rtol=1e-4, atol=1e-5):
        diagnose(o, _suspects(q, k, v, own))
    expect_close(o, right, "o", axes=("request", "dim"))
    yield "attention over shared and private keys together"

    expect_dtype(o, np.float32, "o")
    q, k, v, own = _request(1, [2, 2, 2])
    q *= np.array([[300], [300], [1]], dtype=np.float32)
    o = cascade(q, k, v, own)
    expect_shape(o, (3, 8), "o with large scores", letters="B D")
    finite = np.isfinite(o).all(axis=1)
    alone = np.allclose(o[2], _part(q[2:], *own[2])[0], atol=1e-5)  # a merge may drop what is NaN
    if finite.any() and (alone or not finite[2]):
        raise Finding(
            "request 2 has small scores, the others large ones, and its o "
            f"{'lacks the shared keys' if alone else 'is not finite'}: subtract each request's own "
            "largest score before you exponentiate, not that of all requests"
        )
    if not finite.all():
        raise Finding(
            "with large scores the result is not finite: e^lse overflows. Subtract the larger lse "
            "from both before you exponentiate, as in every softmax"
        )
    # float32 rounds scores of a thousand to 1e-4, and e^score by as much: of two keys that score
    # alike the shares may differ in the third digit
    axes = ("request", "dim")
    expect_close(o, _whole(q, k, v, own), "o with large scores", axes=axes, atol=5e-3)
    q, k, v, own = _request(5, [2, 2])
    own[1][0][0] = 200 * q[1]  # one key of its own scores far above all that is shared
    o = cascade(q, k, v, own)
    if not np.isfinite(o).all():
        raise Finding(
            "a request whose own key has a far larger score than all shared keys gets an o that is "
            "not finite: subtract the larger of both maxima, whichever part it comes from"
        )
    expect_close(o, _whole(q, k, v, own), "o with a large score of its own", axes=axes, atol=5e-3)
    yield "large scores do not overflow"

    for seed, lengths in ((2, [1]), (3, [7, 1, 1, 2])):
        q, k, v, own = _request(seed, lengths)
        o, what = cascade(q, k, v, own), f"o of a step of {len(lengths)}"
        expect_close(o, _whole(q, k, v, own), what, axes=axes)
    yield "it holds for any number of requests"

    if _counted(cascade):
        yield "the shared keys and values are read once for all requests, as a counter says"


def _counted(cascade: Callable[..., Any]) -> bool:
    """Raise a Finding if a step of twelve requests reads the shared part too often.

    False if code that is right for plain arrays cannot run with watched ones.
    """
    q, k, v, own = _request(4, [3] * 12, shared=300, dim=32)
    right = _whole(q, k, v, own)
    expect_close(cascade(q, k, v, own), right, "o of a step of 12", axes=("request", "dim"))
    reads = Reads({"k": k.size, "v": v.size}, width=32)
    given = reads.watch(q), reads.watch(k, "k"), reads.watch(v, "v")
    try:
        with kept_watched():
            cascade(*given, [(reads.watch(x), reads.watch(y)) for x, y in own])
    except Finding:
        return False
    for name, product in (("k", "q @ k.T"), ("v", "p @ v")):
        times = reads.times(name)
        if times > OFTEN:
            raise Finding(
                f"12 requests share 300 keys, and {name} was read {times:.0f} times: each request "
                f"went over the shared part by itself. {product} serves all B queries at once"
            )
        if times < 0.99:
            raise Finding(
                f"no product read the whole of {name}: perhaps {name} has become a list, or a loop "
                f"goes over its numbers one at a time. Keep {name} an array, because {product} "
                "serves all B queries at once"
            )
    return True


def _suspects(q: Any, k: Any, v: Any, own: list[Pair]) -> dict[str, np.ndarray]:
    """The results of known mistakes for one request."""
    shared, lse_a = _part(q, k, v)
    parts = [_part(q[i : i + 1], *pair) for i, pair in enumerate(own)]
    private, lse_b = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    a, b = np.exp(lse_a)[:, None], np.exp(lse_b)[:, None]
    n, m = len(k), np.array([[len(pair[0])] for pair in own])
    everyone = np.concatenate([x for x, _ in own]), np.concatenate([x for _, x in own])
    own_top = np.concatenate([_top(q[i : i + 1], pair[0]) for i, pair in enumerate(own)])
    return {
        "o is the mean of the two parts, but a part weighs e^lse": (shared + private) / 2,
        "o is the sum of the two parts, but their weights must add up to one": shared + private,
        "the parts are weighed by their number of keys, but the weight of a key is e^score, "
        "and that of a part is the sum of these, e^lse": (n * shared + m * private) / (n + m),
        "the weights are exchanged: the part with the larger lse must count more": (
            (b * shared + a * private) / (a + b)
        ),
        "the parts are weighed by lse itself, but the sum of weights is e^lse": (
            (lse_a[:, None] * shared + lse_b[:, None] * private) / (lse_a + lse_b)[:, None]
        ),
        "the lse is the logarithm of the sum alone: add the largest score that was subtracted": (
            _weighed(shared, lse_a - _top(q, k), private, lse_b - own_top)
        ),
        "the lse is the largest score alone: add the logarithm of the sum of weights": (
            _weighed(shared, _top(q, k), private, own_top)
        ),
        "every request sees the private keys of all requests": _whole(q, k, v, [everyone] * 3),
        "only the shared keys count": shared,
        "only the private keys count": private,
        "the scores were not divided by √D": _whole(q * np.float32(8**0.5), k, v, own),
    }


def _request(
    seed: int, lengths: list[int], shared: int = 6, dim: int = 8
) -> tuple[Any, Any, Any, list[Pair]]:
    """Queries (B, D), shared keys and values (S, D), private ones (n, D) each, float32."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> np.ndarray:
        return rng.standard_normal((n, dim)).astype(np.float32)

    return draw(len(lengths)), draw(shared), draw(shared), [(draw(n), draw(n)) for n in lengths]


def _top(q: Any, k: Any) -> np.ndarray:
    """The largest score (B,) of each query."""
    top: np.ndarray = (q @ k.T).max(axis=1) / np.float32(q.shape[1] ** 0.5)
    return top


def _weighed(o_a: Any, lse_a: Any, o_b: Any, lse_b: Any) -> np.ndarray:
    a, b = (np.exp(x - np.maximum(lse_a, lse_b))[:, None] for x in (lse_a, lse_b))
    merged: np.ndarray = (a * o_a + b * o_b) / (a + b)
    return merged


def _part(q: Any, k: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
    """o (B, D) and lse (B,) of queries that see all of k and v."""
    q_pos, kv_pos = np.full(len(q), len(k)), np.arange(len(k))
    o, lse = attend(q[:, None, :], k[:, None, :], v[:, None, :], q_pos, kv_pos, return_lse=True)
    return o[:, 0, :], lse[:, 0]


def _whole(q: Any, k: Any, v: Any, own: Any) -> np.ndarray:
    parts = []
    for i, (k_own, v_own) in enumerate(own):
        both = np.concatenate([k, k_own]), np.concatenate([v, v_own])
        parts.append(_part(q[i : i + 1], *both)[0])
    return np.concatenate(parts)
