"""decode.cu in NumPy: splits, groups of lanes, steps of UNROLL keys, and three merges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvlib.kernels.decode_pieces import Piece, Settings
from kvlib.kernels.plans import THREADS, UNROLL, WARPS
from kvlib.kernels.twins.codes import read_keys, read_values
from kvlib.kernels.types import LOG2E, as_float, as_type

Pair = tuple[np.ndarray, np.ndarray, np.ndarray]  # maxima m, sums l, weighted values o


def lanes_of(dim: int, count: int) -> int:
    """Groups of lanes that each hold one key between them, `count` numbers a vector (GROUPS)."""
    vectors = dim // count
    return THREADS // min(32, 1 << (vectors - 1).bit_length())


def decode(
    q: np.ndarray, pieces: Sequence[Piece], settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """q (B, Hq, D) and pieces of keys → o (B, Hq, D), lse (B, Hq) float32."""
    batch, num_qo_heads, dim = q.shape
    num_kv_heads = pieces[0].written.k[0].shape[1]
    per_head = num_qo_heads // num_kv_heads
    o = np.empty(q.shape, dtype=np.float32)
    lse = np.empty((batch, num_qo_heads), dtype=np.float32)
    query = as_float(q) * np.float32(settings.scale)
    for b in range(batch):
        for h in range(num_kv_heads):
            rows = slice(h * per_head, (h + 1) * per_head)
            parts = [
                part for piece in pieces for part in _piece(query[b, rows], piece, settings, b, h)
            ]
            o[b, rows], lse[b, rows] = _finish(parts)
    return as_type(o, q.dtype), lse


def _piece(query: np.ndarray, piece: Piece, settings: Settings, b: int, h: int) -> Iterator[Pair]:
    """One request and kv head: a partial result a split."""
    kept, splits = piece.written, piece.plan.splits
    length = int(piece.seq_lens[b])
    past = int(piece.behind[b]) if piece.behind is not None else 0
    low = max(0, length + past - settings.window) if settings.window else 0
    each = -(-max(0, length - low) // splits)
    groups = lanes_of(query.shape[1], kept.count(piece.plan.rows))
    for split in range(splits):
        begin = min(length, low + split * each)
        end = min(length, begin + each)
        positions = np.arange(begin, end)
        blocks = piece.table[b, positions >> piece.shift]
        at = positions & ((1 << piece.shift) - 1)
        keys, values = read_keys(kept, blocks, h, at), read_values(kept, blocks, h, at)
        # Whose keys are whose: in turns, or UNROLL neighbours from a multiple of UNROLL on.
        shared = kept.family == "Kivi"
        first = begin // UNROLL * UNROLL if shared else begin
        owner = (positions - first) // (UNROLL if shared else 1) % groups
        own = [owner == g for g in range(groups)]
        lead = begin % UNROLL if shared else 0  # of the first group's first step, not its own
        yield _split(query, [(keys[i], values[i]) for i in own], settings.softcap, lead)


def _split(
    query: np.ndarray, own: list[tuple[np.ndarray, np.ndarray]], softcap: float, lead: int
) -> Pair:
    """One block: each group of lanes has keys of its own, then groups and warps merge."""
    states = [_group(query, *kv, softcap, 0 if g else lead) for g, kv in enumerate(own)]
    in_warp = len(own) // WARPS
    warps = []
    for w in range(WARPS):
        part = states[w * in_warp : (w + 1) * in_warp]
        while len(part) > 1:  # __shfl_xor_sync: neighbours first
            part = [_merge(a, b) for a, b in zip(part[::2], part[1::2], strict=True)]
        warps.append(part[0])
    return _merge_all(warps)


def _group(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, softcap: float, lead: int
) -> Pair:
    """The online softmax of one group of lanes, UNROLL keys a step, `lead` fewer in the first."""
    rows, dim = query.shape[0], values.shape[-1]
    m = np.full(rows, -np.inf, dtype=np.float32)
    total = np.zeros(rows, dtype=np.float32)
    o = np.zeros((rows, dim), dtype=np.float32)
    for first in range(-lead if len(keys) else 0, len(keys), UNROLL):
        step = slice(max(0, first), first + UNROLL)
        s = query @ keys[step].T
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        top = np.maximum(m, s.max(axis=1))
        shrink, p = np.exp2(m - top), np.exp2(s - top[:, None])
        total = total * shrink + p.sum(axis=1, dtype=np.float32)
        o = o * shrink[:, None] + p @ values[step]
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
