"""prefill.cu and prefill_float.cu in NumPy: tiles of rows and of keys, one online softmax a row."""

from __future__ import annotations

import numpy as np

from kvlib.kernels.places import Places
from kvlib.kernels.plans_prefill import PrefillPlan
from kvlib.kernels.types import LOG2E, as_float, as_type


def prefill(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    qo_indptr: np.ndarray,
    seq_lens: np.ndarray,
    places: Places,
    window: int,
    scale: float,
    softcap: float,
    plan: PrefillPlan,
) -> tuple[np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (N, Hkv, P, D) → o (T, Hq, D), lse (T, Hq) float32."""
    num_kv_heads = k.shape[1]
    groups = q.shape[1] // num_kv_heads
    o = np.empty(q.shape, dtype=np.float32)
    lse = np.empty(q.shape[:2], dtype=np.float32)
    for b in range(len(seq_lens)):
        begin, end = int(qo_indptr[b]), int(qo_indptr[b + 1])
        start = int(seq_lens[b]) - (end - begin)
        for h in range(num_kv_heads):
            heads = slice(h * groups, (h + 1) * groups)
            rows = as_float(q[begin:end, heads]).reshape(-1, q.shape[2])  # token by token
            for first in range(0, len(rows), plan.rows):
                part = slice(first, min(first + plan.rows, len(rows)))
                positions = start + np.arange(part.start, part.stop) // groups
                table = places.table[b]
                out = _tile(
                    rows[part], positions, (k, v, h, table, places), window, scale, softcap, plan
                )
                token, head = np.divmod(np.arange(part.start, part.stop), groups)
                o[begin + token, h * groups + head] = out[0]
                lse[begin + token, h * groups + head] = out[1]
    return as_type(o, q.dtype), lse


def _tile(
    rows: np.ndarray,
    positions: np.ndarray,
    stored: tuple[np.ndarray, np.ndarray, int, np.ndarray, Places],
    window: int,
    scale: float,
    softcap: float,
    plan: PrefillPlan,
) -> tuple[np.ndarray, np.ndarray]:
    """One block: rows (R, D) at `positions` (R,) → o (R, D), lse (R,)."""
    k, v, h, table, places = stored
    oldest, last = int(positions[0]), int(positions[-1])
    low = max(0, oldest - window + 1) if window else 0
    m = np.full(len(rows), -np.inf, dtype=np.float32)
    total = np.zeros(len(rows), dtype=np.float32)
    o = np.zeros(rows.shape, dtype=np.float32)
    for first in range(low // plan.keys * plan.keys, last + 1, plan.keys):
        j = np.arange(max(first, low), min(first + plan.keys, last + 1))
        blocks, at = table[j >> places.shift], j & ((1 << places.shift) - 1)
        keys, values = (as_float(x[blocks, h, at]) for x in (k, v))
        s = rows @ keys.T * np.float32(scale)
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        distance = positions[:, None] - j[None, :]
        seen = (distance >= 0) & ((distance < window) if window else True)
        s = np.where(seen, s, np.float32(-np.inf))
        top = np.maximum(m, s.max(axis=1))
        safe = np.where(top == -np.inf, np.float32(0), top)
        p, shrink = np.exp2(s - safe[:, None]), np.exp2(m - safe)
        total = total * shrink + p.sum(axis=1, dtype=np.float32)
        if plan.tensor:  # a tensor core takes 16-bit weights; the sum of them stays exact
            p = as_float(as_type(p, k.dtype))
        o = o * shrink[:, None] + p @ values
        m = top
    seen_any = np.where(total > 0, total, np.float32(1))
    lse = np.where(total > 0, (m + np.log2(seen_any)) / np.float32(LOG2E), np.float32(-np.inf))
    return o / seen_any[:, None], lse.astype(np.float32)
