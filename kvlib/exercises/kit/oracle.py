"""What a cache is compared with: the formula of attention in float64, written out naively.

Loops over heads and queries, no broadcasting tricks, no cache, nothing else of kvlib. Slow, and
easy to check by eye.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]


def float64(x: Any) -> np.ndarray:
    """Any library's array as float64 on the host."""
    if hasattr(x, "get"):
        x = x.get()
    return np.asarray(x).astype(np.float64)


def attention(
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
) -> Pair:
    """o (T, Hq, Dv) and lse (T, Hq) of q (T, Hq, Dk), k (S, Hkv, Dk), v (S, Hkv, Dv).

    q_pos (T,) and kv_pos (S,) are absolute positions; kv_pos may be (Hkv, S), one for each head.
    """
    q, k, v = float64(q), float64(k), float64(v)
    q_pos, kv_pos = float64(q_pos), float64(kv_pos)
    num_queries, num_qo_heads, dim = q.shape
    num_keys, num_kv_heads, v_dim = v.shape
    scale = 1 / math.sqrt(dim) if sm_scale is None else sm_scale
    o = np.zeros((num_queries, num_qo_heads, v_dim))
    lse = np.full((num_queries, num_qo_heads), -math.inf)
    for h in range(num_qo_heads):
        head = h // (num_qo_heads // num_kv_heads)
        where = kv_pos if kv_pos.ndim == 1 else kv_pos[head]
        for i in range(num_queries):
            seen = [
                j
                for j in range(num_keys)
                if where[j] <= q_pos[i] and (window is None or q_pos[i] - where[j] < window)
            ]
            logits = scale * (k[seen, head] @ q[i, h])
            if softcap is not None:
                logits = softcap * np.tanh(logits / softcap)
            values = v[seen, head]
            if sinks is not None:
                logits = np.append(logits, float64(sinks)[h])
                values = np.vstack([values, np.zeros(v_dim)])
            if not len(logits) or max(logits) == -math.inf:
                continue
            weights = np.exp(logits - max(logits))
            lse[i, h] = max(logits) + math.log(sum(weights))
            o[i, h] = weights @ values / sum(weights)
    return o, lse
