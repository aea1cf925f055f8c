"""decode.cu and decode_tensor.cu in NumPy: splits, steps of a few keys, and three merges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvlib.kernels.pieces import Piece, Settings
from kvlib.kernels.plans import THREADS, UNROLL, WARPS
from kvlib.kernels.twins.codes import read_keys, read_values
from kvlib.kernels.types import LOG2E, as_float, as_type

Pair = tuple[np.ndarray, np.ndarray, np.ndarray]  # maxima m, sums l, weighted values o


def groups_of(dim: int, bits: int) -> int:
    """decode.cu: groups of lanes that each hold one key between them, 16 bytes a lane (GROUPS)."""
    vectors = dim * bits // 128
    return THREADS // min(32, 1 << (vectors - 1).bit_length())


def tile_of(dim: int, family: str) -> int:
    """decode_tensor.cu: keys that a warp takes at a time (Codec::tile)."""
    return 32 if family == "Kivi" and dim in (64, 128) else 16


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
            o[b, rows], lse[b, rows] = finish(parts)
    return as_type(o, q.dtype), lse


def _piece(query: np.ndarray, piece: Piece, settings: Settings, b: int, h: int) -> Iterator[Pair]:
    """One request and kv head: a partial result a split."""
    kept, splits = piece.written, piece.plan.splits[b]
    length = int(piece.seq_lens[b])
    past = int(piece.behind[b]) if piece.behind is not None else 0
    low = max(0, length + past - settings.window) if settings.window else 0
    each = -(-max(0, length - low) // splits)
    for split in range(splits):
        begin = min(length, low + split * each)
        end = min(length, begin + each)
        positions = np.arange(begin, end)
        blocks = piece.table[b, positions >> piece.shift]
        at = positions & ((1 << piece.shift) - 1)
        keys, values = read_keys(kept, blocks, h, at), read_values(kept, blocks, h, at)
        if piece.tensor:  # warps take tiles in turns; tiles begin at multiples of their size
            tile = tile_of(query.shape[1], kept.family)
            tiles, workers = positions // tile - begin // tile, WARPS
            if kept.family == "Kivi":  # what is multiplied is float16
                keys, values = (x.astype(np.float16).astype(np.float32) for x in (keys, values))
        else:  # groups of lanes take keys in turns, UNROLL of them a step
            groups = groups_of(query.shape[1], kept.bits)
            turns = positions - begin
            tiles, workers = turns // (groups * UNROLL) * groups + turns % groups, groups
        steps = [tiles == i for i in range(int(tiles.max()) + 1 if len(tiles) else 0)]
        yield _split(query, [(keys[i], values[i]) for i in steps], settings.softcap, workers)


def _split(
    query: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]], softcap: float, workers: int
) -> Pair:
    """One block: `workers` (warps, or groups of lanes) take steps in turns, then merge."""
    dim = query.shape[1]
    states = [_worker(query, dim, steps[i::workers], softcap) for i in range(workers)]
    in_warp = workers // WARPS
    warps = []
    for w in range(WARPS):
        part = states[w * in_warp : (w + 1) * in_warp]
        while len(part) > 1:  # __shfl_xor_sync: neighbours first
            part = [_merge(a, b) for a, b in zip(part[::2], part[1::2], strict=True)]
        warps.append(part[0])
    return _merge_all(warps)


def _worker(
    query: np.ndarray, dim: int, steps: list[tuple[np.ndarray, np.ndarray]], softcap: float
) -> Pair:
    """The online softmax over the keys of some steps."""
    rows = query.shape[0]
    m = np.full(rows, -np.inf, dtype=np.float32)
    total = np.zeros(rows, dtype=np.float32)
    o = np.zeros((rows, dim), dtype=np.float32)
    for keys, values in steps:
        if not len(keys):
            continue
        s = query @ keys.T
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        top = np.maximum(m, s.max(axis=1))
        shrink, p = np.exp2(m - top), np.exp2(s - top[:, None])
        total = total * shrink + p.sum(axis=1, dtype=np.float32)
        o = o * shrink[:, None] + p @ values
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


def finish(parts: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
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
