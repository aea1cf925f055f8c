"""The decode and prefill sources in NumPy: the same tiles, splits and merges."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvlib.attention.partials import finite
from kvlib.codecs.fp8 import table as fp8_table
from kvlib.codecs.packing import unpack
from kvlib.kernels.checks import BlockTable, Settings
from kvlib.kernels.codes import Piece, Stored
from kvlib.kernels.plans import THREADS, UNROLL, PrefillPlan, Work
from kvlib.kernels.trees import Tree
from kvlib.kernels.types import LOG2E, as_float, as_type


def read(stored: Stored, which: str, blocks: Any, head: Any, at: Any) -> np.ndarray:
    """Keys ("k") or values ("v"): blocks, heads and slots in blocks (...) → (..., D) float32."""
    codes, scales, zeros = getattr(stored, which)
    x = codes[blocks, head, at]
    if stored.plain:
        return as_float(x)
    if scales is None:
        return fp8_table(stored.family.lower())[x]
    if stored.family != "Kivi":
        return x.astype(np.float32) * scales[blocks, head, at][..., None]
    if which == "k":
        scale, zero = (y[blocks, head, at // stored.k_group] for y in (scales, zeros))
    else:
        scale, zero = (np.repeat(y[blocks, head, at], stored.v_group, -1) for y in (scales, zeros))
    return unpack(x, stored.bits, np.float32) * scale.astype(np.float32) + zero.astype(np.float32)


Pair = tuple[np.ndarray, ...]  # maxima m (..., R), sums l (..., R), weighted values o (..., R, D)


def groups_of(dim: int, bits: int) -> int:
    """decode.cu: groups of lanes that share one key, 16 bytes per lane (GROUPS)."""
    vectors = dim * bits // 128
    return THREADS // min(32, 1 << (vectors - 1).bit_length())


def tile_of(dim: int, stored: Stored, rows: int) -> int:
    """decode_tensor.cu: keys that a warp takes at a time (Codec::tile)."""
    if stored.family == "Kivi":
        return 32 if dim in (64, 128) and stored.by_32(dim) else 16
    return 16 if stored.plain or dim > 128 or (rows > 4 and dim > 64) else 32


def decode(
    q: np.ndarray, pieces: Sequence[Piece], settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """q (B, Hq, D) and pieces of keys → o (B, Hq, D), lse (B, Hq) float32."""
    batch, num_qo_heads, dim = q.shape
    num_kv_heads = pieces[0].stored.k[0].shape[1]
    o = np.empty(q.shape, dtype=np.float32)
    lse = np.empty((batch, num_qo_heads), dtype=np.float32)
    query = (as_float(q) * np.float32(settings.scale)).reshape(batch, num_kv_heads, -1, dim)
    for b in range(batch):
        parts = [part for piece in pieces for part in _piece(query[b], piece, settings, b)]
        o_b, lse_b = finish(parts)
        o[b], lse[b] = o_b.reshape(-1, dim), lse_b.reshape(-1)
    return as_type(o, q.dtype), lse


def _piece(query: np.ndarray, piece: Piece, settings: Settings, b: int) -> list[Pair]:
    """Query (Hkv, R, D) of one request: a partial result (Hkv, R) a split.

    A block has `workers`, warps or groups of lanes, that take tiles of keys in turns.
    """
    (num_kv_heads, _, dim), stored, splits = query.shape, piece.stored, piece.plan.splits[b]
    length = int(piece.seq_lens[b])
    past = int(piece.behind[b]) if piece.behind is not None else 0
    low = max(0, length + past - settings.window) if settings.window else 0
    each = -(-max(0, length - low) // splits)
    if piece.tensor:  # tiles begin at multiples of their size, and a split is a number of tiles
        slots, workers = tile_of(dim, stored, piece.plan.rows), piece.plan.warps
        each = -(-each // slots) * slots
        ahead = low % slots
    else:  # a group of lanes takes UNROLL keys a step
        slots, workers, ahead = UNROLL, groups_of(dim, stored.bits), 0
    steps = -(-(each + ahead) // (slots * workers))
    turns: Any = np.arange(steps * slots * workers)
    if not piece.tensor:
        turns = turns.reshape(steps, slots, workers).swapaxes(1, 2)
    begin = (low + each * np.arange(splits))[:, None, None]
    positions = begin - ahead + turns.reshape(-1, slots)  # (splits, tiles, slots)
    seen = (positions >= begin) & (positions < np.minimum(length, begin + each))
    keys, values = np.zeros((2, num_kv_heads, *seen.shape, dim), np.float32)
    blocks, at = _slots(piece.table, b, positions[seen])
    for x, which in ((keys, "k"), (values, "v")):
        x[:, seen] = read(stored, which, blocks, np.arange(num_kv_heads)[:, None], at)
    s = _capped(query[:, None, None] @ keys.swapaxes(-1, -2), settings.softcap)
    s = np.where(seen[:, :, None], s, np.float32(-np.inf))
    state = _nothing(num_kv_heads, splits, workers, query.shape[1], dim)
    for i in range(0, steps * workers, workers):
        state = _next(state, s[:, :, i : i + workers], values[:, :, i : i + workers])
    while state[0].shape[2] > piece.plan.warps:  # __shfl_xor_sync: neighbours first
        state = _merge_all([tuple(x[:, :, i::2] for x in state) for i in range(2)])
    state = _merge_all([tuple(x[:, :, w] for x in state) for w in range(piece.plan.warps)])
    return [tuple(x[:, i] for x in state) for i in range(splits)]


def _nothing(*shape: int) -> Pair:
    """The state of an online softmax that has seen no key; shape: (..., R, D)."""
    m = np.full(shape[:-1], -np.inf, dtype=np.float32)
    return m, np.zeros(shape[:-1], dtype=np.float32), np.zeros(shape, dtype=np.float32)


def _next(state: Pair, s: np.ndarray, values: np.ndarray, rounded: Any = np.float32) -> Pair:
    """The state after scores s (..., R, n) of values (..., n, D); weights are rounded to a type."""
    m, total, o = state
    top = np.maximum(m, s.max(axis=-1))
    safe = finite(np, top)
    shrink, p = np.exp2(m - safe), np.exp2(s - safe[..., None])
    total = total * shrink + p.sum(axis=-1, dtype=np.float32)
    return top, total, o * shrink[..., None] + as_float(as_type(p, rounded)) @ values


def _capped(s: np.ndarray, softcap: float) -> np.ndarray:
    return np.float32(softcap) * np.tanh(s / np.float32(softcap)) if softcap else s


def _slots(table: BlockTable, b: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Block of a request's keys, and slot in it."""
    return table.blocks[b, positions >> table.shift], positions & ((1 << table.shift) - 1)


def _merge_all(states: list[Pair]) -> Pair:
    top = np.max([m for m, _, _ in states], axis=0)
    factors = [np.exp2(m - finite(np, top)) for m, _, _ in states]
    total = sum(f * t for f, (_, t, _) in zip(factors, states, strict=True))
    o = sum(f[..., None] * x for f, (_, _, x) in zip(factors, states, strict=True))
    return top, np.asarray(total, np.float32), np.asarray(o, np.float32)


def finish(parts: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """Splits as the kernel `merge` sees them: pairs (o, lse), each divided by its own sum."""
    pairs = []
    for m, total, o in parts:
        seen = np.where(total > 0, total, np.float32(1))
        lse = np.where(total > 0, (m + np.log2(seen)) / np.float32(LOG2E), np.float32(-np.inf))
        pairs.append((o / seen[..., None], lse.astype(np.float32)))
    lses = np.stack([lse for _, lse in pairs])
    top = lses.max(axis=0)
    weights = np.exp(lses - finite(np, top))
    total = weights.sum(axis=0, dtype=np.float32)
    seen = np.where(total > 0, total, np.float32(1))
    o = sum(w[..., None] * x for w, (x, _) in zip(weights, pairs, strict=True)) / seen[..., None]
    return o, np.where(total > 0, top + np.log(seen), np.float32(-np.inf)).astype(np.float32)


Visible = Callable[[np.ndarray], np.ndarray]  # key slots (n,) → which of them a row sees, (R, n)


def prefill(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    qo_indptr: np.ndarray,
    seq_lens: np.ndarray,
    table: BlockTable,
    settings: Settings,
    plan: PrefillPlan,
    tree: Tree | None = None,
    work: Work | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (N, Hkv, P, D) → o (T, Hq, D), lse (T, Hq) float32."""
    num_kv_heads, window = k.shape[1], settings.window
    groups = q.shape[1] // num_kv_heads
    o = np.empty(q.shape, dtype=np.float32)
    lse = np.empty(q.shape[:2], dtype=np.float32)
    items = None if work is None else work.items[0]
    shares = {} if items is None else {int(b): int(s) for b, _, s, _ in items}
    for b in range(len(seq_lens)):
        begin, end = int(qo_indptr[b]), int(qo_indptr[b + 1])
        depths, seen = _new_tokens(tree, b, end - begin)
        start, skip = int(seq_lens[b]) - len(depths), len(depths) - (end - begin)
        splits = shares.get(b, 1)
        for h in range(num_kv_heads):
            heads = slice(h * groups, (h + 1) * groups)
            rows = as_float(q[begin:end, heads]).reshape(-1, q.shape[2])  # token by token

            def keys_and_values(j: np.ndarray, b: int = b, h: int = h) -> tuple[np.ndarray, ...]:
                blocks, at = _slots(table, b, j)
                return as_float(k[blocks, h, at]), as_float(v[blocks, h, at])

            for first in range(0, len(rows), plan.rows):
                part = np.arange(first, min(first + plan.rows, len(rows)))
                token, head = np.divmod(part, groups)
                oldest = start if seen is not None else start + skip + int(token[0])
                low = max(0, oldest - window + 1) if window else 0
                last = start + skip + int(token[-1])
                visible = _visible(depths, seen, skip + token, start, window)
                tiles = range(low // plan.keys * plan.keys, last + 1, plan.keys)
                each = -(-len(tiles) // splits)
                states = []
                for split in range(splits):
                    state = _nothing(len(part), q.shape[2])
                    for tile in tiles[split * each : (split + 1) * each]:
                        j = np.arange(max(tile, low), min(tile + plan.keys, last + 1))
                        keys, values = keys_and_values(j)
                        s = _capped(
                            rows[part] @ keys.T * np.float32(settings.scale), settings.softcap
                        )
                        s = np.where(visible(j), s, np.float32(-np.inf))
                        # a tensor core takes 16-bit weights; the sum of them stays exact
                        state = _next(state, s, values, k.dtype if plan.tensor else np.float32)
                    states.append(state)
                o[begin + token, h * groups + head], lse[begin + token, h * groups + head] = finish(
                    states
                )
    return as_type(o, q.dtype), lse


def _new_tokens(tree: Tree | None, b: int, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Depths of a request's new tokens, and in a tree which of them each sees, (count, count)."""
    first, count = (-1, 0) if tree is None else tree.trees[b].tolist()
    if tree is None or first < 0:
        return np.arange(n), None
    rows, at = slice(first, first + count), np.arange(count)
    return tree.depths[rows], (tree.bits[rows][:, at // 32] >> (at % 32).astype(np.uint32)) & 1 == 1


def _visible(
    depths: np.ndarray, seen: np.ndarray | None, tokens: np.ndarray, start: int, window: int
) -> Visible:
    """The rule for rows that are the new tokens `tokens` (R,)."""

    def visible(j: np.ndarray) -> np.ndarray:
        new = np.clip(j - start, 0, len(depths) - 1)
        positions = np.where(j < start, j, start + depths[new])
        distance = start + depths[tokens][:, None] - positions[None, :]
        near = (distance < window) if window else True
        return near & (distance >= 0 if seen is None else (j < start) | seen[tokens][:, new])

    return visible
