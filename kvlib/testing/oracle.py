"""The formula of attention in float64, written out naively: what a cache is compared with.

Loops over heads and queries, no broadcasting tricks, no cache, nothing else of kvlib. Slow, and
easy to check by eye.
"""

import math
from typing import Any

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]


def float64(x: Any) -> np.ndarray:
    """Return any library's array as float64 on the host."""
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
    """q (T, Hq, Dk), k (S, Hkv, Dk), v (S, Hkv, Dv) → o (T, Hq, Dv), lse (T, Hq).
    q_pos (T,), kv_pos (S,) or (Hkv, S): absolute positions."""
    q, k, v = float64(q), float64(k), float64(v)
    q_pos, kv_pos = float64(q_pos), float64(kv_pos)
    num_queries, num_qo_heads, dim = q.shape
    num_keys, num_kv_heads, v_dim = v.shape
    scale = 1 / math.sqrt(dim) if sm_scale is None else sm_scale
    where = kv_pos if kv_pos.ndim == 2 else np.tile(kv_pos, (num_kv_heads, 1))
    sink = np.full(num_qo_heads, -math.inf) if sinks is None else float64(sinks)
    o = np.zeros((num_queries, num_qo_heads, v_dim))
    lse = np.full((num_queries, num_qo_heads), -math.inf)
    for i in range(num_queries):
        visible = where <= q_pos[i]
        if window is not None:
            visible &= q_pos[i] - where < window
        for h in range(num_qo_heads):
            head = h // (num_qo_heads // num_kv_heads)
            seen = visible[head].nonzero()[0]
            logits = scale * (k[seen, head] @ q[i, h])
            if softcap is not None:
                logits = softcap * np.tanh(logits / softcap)
            peak = logits.max(initial=sink[h])
            if peak == -math.inf:
                continue
            weights = np.exp(logits - peak)
            total = weights.sum() + math.exp(sink[h] - peak)  # a sink has a weight and no value
            lse[i, h] = peak + math.log(total)
            o[i, h] = weights @ v[seen, head] / total
    return o, lse
