"""How far a correct result may be from the exact one: derived, so that it holds on any processor.

Another processor, number of threads or release of the BLAS adds the same numbers in another order,
and each order rounds differently. A tolerance that was found by trying on one machine fails on
another. The bounds here follow from the spacing ε of the format's numbers, the length n of the sum,
and the root mean square r of its terms. Each of n roundings is off by at most half of ε times the
sum so far, which grows like r √i where the signs are random. The error then has a standard
deviation of at most 0.35 ε n r in the worst order, one term after the other; ε n r is almost three
of them. Where all terms are positive and alike, ε n r bounds every order. Probabilistic error
analysis: Higham & Mary, doi:10.1137/18M1226312.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvlib.testing import oracle

EPS = float(np.finfo(np.float32).eps)  # spacing of float32 at 1: 1.2e-7


def sum_bound(length: int, size: float, eps: float = EPS) -> float:
    """How far a sum of `length` terms of root mean square `size` may be from the exact one.

    >>> f"{sum_bound(64, 1.0):.1e}"
    '7.6e-06'
    """
    return eps * length * size


def attention_bound(
    q: Any,
    k: Any,
    v: Any,
    q_pos: Any,
    kv_pos: Any,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    eps: float = EPS,
    operand: float = 0.0,
    result: float = 0.0,
) -> oracle.Pair:
    """How far o (T, Hq, Dv) and lse (T, Hq) may be from attention in float64, number by number.

    Arguments as those of the oracle, and:
    eps      spacing of the format that is added in
    operand  spacing of a narrower format that what is multiplied was rounded to, 0 for none
    result   spacing of the format that o is rounded to, 0 for the one it was computed in

    A score is a sum of Dk products; δ is the bound of its error, with what scaling it and taking
    the largest score away adds. An error Δs of the score of key j moves o by p (v_j - o) Δs and
    lse by p Δs, with p the key's weight: the derivative of softmax. Summed over the keys, with the
    bounds of the two sums over keys themselves, that is the bound.

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 100, 1, 64))
    >>> o, lse = attention_bound(q, k, v, np.arange(100), np.arange(100))
    >>> o.shape, lse.shape, f"{o.max():.0e}", f"{lse.max():.0e}"
    ((100, 1, 64), (100, 1), '4e-06', '3e-06')
    """
    settings = dict(window=window, sm_scale=sm_scale, softcap=softcap, sinks=sinks)
    o, lse = oracle.attention(q, k, v, q_pos, kv_pos, **settings)
    q, k, v = oracle.float64(q), oracle.float64(k), oracle.float64(v)
    groups = q.shape[1] // k.shape[1] if k.size else 1
    q_pos, kv_pos = oracle.float64(q_pos), oracle.float64(kv_pos)
    scale = 1 / math.sqrt(q.shape[2]) if sm_scale is None else abs(sm_scale)
    o_bound, lse_bound = np.zeros_like(o), np.zeros_like(lse)
    for h in range(q.shape[1]):
        keys, values = k[:, h // groups], v[:, h // groups]
        distance = q_pos[:, None] - (kv_pos if kv_pos.ndim == 1 else kv_pos[h // groups])
        seen = (distance >= 0) & (distance < (window or math.inf))
        scores = scale * (q[:, h] @ keys.T)  # (T, S)
        terms = scale * np.sqrt(q[:, h] ** 2 @ (keys**2).T)  # √Dk times their root mean square
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)  # stretches no difference
        top = np.abs(np.where(seen, scores, 0)).max(axis=1, initial=0)[:, None]
        delta = eps * (math.sqrt(q.shape[2]) * terms + np.abs(scores) + top + 1)
        delta += 2 * operand * terms
        p = np.where(seen, np.exp(np.minimum(scores - lse[:, h, None], 0)), 0)
        n = np.sqrt(seen.sum(axis=1))
        weight_sum = eps * n * np.linalg.norm(p, axis=1)
        for i in np.flatnonzero(seen.any(axis=1)):
            own, x = seen[i], values[seen[i]]
            by_score = (p[i, own] * delta[i, own]) @ np.abs(x - o[i, h])
            by_sum = np.linalg.norm(p[i, own, None] * x, axis=0) * (eps * n[i] + 2 * operand)
            rounded = (weight_sum[i] + 2 * eps + result) * np.abs(o[i, h])
            o_bound[i, h] = by_score + by_sum + rounded
            lse_bound[i, h] = p[i, own] @ delta[i, own] + weight_sum[i]
            lse_bound[i, h] += eps * (abs(lse[i, h]) + 1)
    return o_bound, lse_bound
