"""The checker of cascade attention: a shared part and private parts, merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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

Pair = tuple[np.ndarray, np.ndarray]


@checker
def check_cascade(cascade: Callable[..., Any]) -> Iterator[str]:
    """cascade(q (B, D), k (S, D), v (S, D), own: B pairs of (n, D)) → o (B, D)."""
    q, k, v, own = _request(0, [3, 1, 5])
    o = cascade(q, k, v, list(own))
    expect_shape(o, (3, 8), "o", letters="B D")
    diagnose(o, _suspects(q, k, v, own))
    expect_close(o, _whole(q, k, v, own), "o", axes=("request", "dim"))
    yield "attention over shared and private keys together"

    expect_dtype(o, np.float32, "o")
    q, k, v, own = _request(1, [2, 2])
    o = cascade(q * 300, k, v, own)
    if not np.isfinite(o).all():
        raise Finding(
            "with large scores the result is not finite: e^lse overflows. Subtract the larger lse "
            "from both before you exponentiate, as in every softmax"
        )
    # float32 rounds scores of a thousand to 1e-4, and e^score by as much: of two keys that score
    # alike the shares may differ in the third digit
    axes = ("request", "dim")
    expect_close(o, _whole(q * 300, k, v, own), "o with large scores", axes=axes, atol=5e-3)
    yield "large scores do not overflow"

    for seed, lengths in ((2, [1]), (3, [7, 1, 1, 2])):
        q, k, v, own = _request(seed, lengths)
        expect_close(cascade(q, k, v, own), _whole(q, k, v, own), f"o of {len(lengths)} requests")
    yield "any number of requests"


def _suspects(q: Any, k: Any, v: Any, own: list[Pair]) -> dict[str, np.ndarray]:
    """What known mistakes make of one request."""
    shared, lse_a = _part(q, k, v)
    parts = [_part(q[i : i + 1], *pair) for i, pair in enumerate(own)]
    private, lse_b = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    a, b = np.exp(lse_a)[:, None], np.exp(lse_b)[:, None]
    n, m = len(k), np.array([[len(pair[0])] for pair in own])
    everyone = np.concatenate([x for x, _ in own]), np.concatenate([x for _, x in own])
    return {
        "o is the mean of the two parts: a part weighs e^lse": (shared + private) / 2,
        "o is the sum of the two parts: their weights have to add up to one": shared + private,
        "the parts are weighed by how many keys they have: a key weighs e^score, and a part the "
        "sum of these, e^lse": (n * shared + m * private) / (n + m),
        "the weights are exchanged: the part with the larger lse counts more": (
            (b * shared + a * private) / (a + b)
        ),
        "the parts are weighed by lse itself: the sum of weights is e^lse": (
            (lse_a[:, None] * shared + lse_b[:, None] * private) / (lse_a + lse_b)[:, None]
        ),
        "every request sees the private keys of all requests": _whole(q, k, v, [everyone] * 3),
        "only the shared keys count": shared,
        "only the private keys count": private,
        "the scores were not divided by the root of D": _whole(q * np.float32(8**0.5), k, v, own),
    }


def _request(seed: int, lengths: list[int]) -> tuple[Any, Any, Any, list[Pair]]:
    """Queries (B, 8), shared keys and values (6, 8), private ones (n, 8) each, float32."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> np.ndarray:
        return rng.standard_normal((n, 8)).astype(np.float32)

    return draw(len(lengths)), draw(6), draw(6), [(draw(n), draw(n)) for n in lengths]


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
