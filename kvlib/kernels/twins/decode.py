"""decode.cu in NumPy: splits, groups of lanes, steps of UNROLL keys, and three merges."""

from __future__ import annotations

import numpy as np

from kvlib.kernels.plans import THREADS, WARPS, DecodePlan
from kvlib.kernels.types import LOG2E, as_float, as_type

UNROLL = 4  # as in layouts.cuh
Pair = tuple[np.ndarray, np.ndarray, np.ndarray]  # maxima m, sums l, weighted values o


def groups_of_lanes(dim: int, itemsize: int) -> int:
    """Groups that each hold one key between them, 16 bytes a lane (layouts.cuh, GROUPS)."""
    vectors = dim * itemsize // 16
    lanes = min(32, 1 << (vectors - 1).bit_length())
    return THREADS // lanes


def decode(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    seq_lens: np.ndarray,
    table: np.ndarray,
    shift: int,
    window: int,
    scale: float,
    softcap: float,
    plan: DecodePlan,
) -> tuple[np.ndarray, np.ndarray]:
    """q (B, Hq, D), k and v (N, Hkv, P, D), table (B, W) → o (B, Hq, D), lse (B, Hq) float32."""
    batch, num_qo_heads, dim = q.shape
    num_kv_heads = k.shape[1]
    per_head = num_qo_heads // num_kv_heads
    o = np.empty(q.shape, dtype=np.float32)
    lse = np.empty((batch, num_qo_heads), dtype=np.float32)
    query = as_float(q) * np.float32(scale)
    lanes = groups_of_lanes(dim, k.dtype.itemsize)
    for b in range(batch):
        length = int(seq_lens[b])
        low = max(0, length - window) if window else 0
        each = -(-(length - low) // plan.splits)
        for h in range(num_kv_heads):
            rows = slice(h * per_head, (h + 1) * per_head)
            parts = []
            for split in range(plan.splits):
                begin = min(length, low + split * each)
                positions = np.arange(begin, min(length, begin + each))
                blocks, at = table[b, positions >> shift], positions & ((1 << shift) - 1)
                keys, values = (as_float(x[blocks, h, at]) for x in (k, v))
                parts.append(_split(query[b, rows], keys, values, softcap, lanes))
            o[b, rows], lse[b, rows] = _finish(parts)
    return as_type(o, q.dtype), lse


def _split(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, softcap: float, groups: int
) -> Pair:
    """One block: each group of lanes has keys of its own, then groups and warps merge."""
    states = [_group(query, keys[g::groups], values[g::groups], softcap) for g in range(groups)]
    in_warp = groups // WARPS
    warps = []
    for w in range(WARPS):
        part = states[w * in_warp : (w + 1) * in_warp]
        while len(part) > 1:  # __shfl_xor_sync: neighbours first
            part = [_merge(a, b) for a, b in zip(part[::2], part[1::2], strict=True)]
        warps.append(part[0])
    return _merge_all(warps)


def _group(query: np.ndarray, keys: np.ndarray, values: np.ndarray, softcap: float) -> Pair:
    """The online softmax of one group of lanes, UNROLL keys a step."""
    rows, dim = query.shape[0], values.shape[-1]
    m = np.full(rows, -np.inf, dtype=np.float32)
    total = np.zeros(rows, dtype=np.float32)
    o = np.zeros((rows, dim), dtype=np.float32)
    for first in range(0, len(keys), UNROLL):
        s = query @ keys[first : first + UNROLL].T
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        top = np.maximum(m, s.max(axis=1))
        shrink, p = np.exp2(m - top), np.exp2(s - top[:, None])
        total = total * shrink + p.sum(axis=1, dtype=np.float32)
        o = o * shrink[:, None] + p @ values[first : first + UNROLL]
        m = top
    return m, total, o


def _safe(top: np.ndarray) -> np.ndarray:
    return np.where(top == -np.inf, np.float32(0), top)  # −inf − −inf would be NaN


def _merge(a: Pair, b: Pair) -> Pair:
    return _merge_all([a, b])


def _merge_all(states: list[Pair]) -> Pair:
    top = np.max([m for m, _, _ in states], axis=0)
    factors = [np.exp2(m - _safe(top)) for m, _, _ in states]
    total = sum(f * t for f, (_, t, _) in zip(factors, states, strict=True))
    o = sum(f[:, None] * x for f, (_, _, x) in zip(factors, states, strict=True))
    return top, np.asarray(total, np.float32), np.asarray(o, np.float32)


def _finish(parts: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """Splits as the kernel `merge` sees them: pairs (o, lse), each divided by its own sum."""
    pairs = []
    for m, total, o in parts:
        seen = np.where(total > 0, total, np.float32(1))
        lse = np.where(total > 0, (m + np.log2(seen)) / np.float32(LOG2E), np.float32(-np.inf))
        pairs.append((o / seen[:, None], lse.astype(np.float32)))
    lses = np.stack([lse for _, lse in pairs])
    top = lses.max(axis=0)
    weights = np.exp(lses - _safe(top))
    total = weights.sum(axis=0, dtype=np.float32)
    seen = np.where(total > 0, total, np.float32(1))
    o = sum(w[:, None] * x for w, (x, _) in zip(weights, pairs, strict=True)) / seen[:, None]
    return o, np.where(total > 0, top + np.log(seen), np.float32(-np.inf)).astype(np.float32)
