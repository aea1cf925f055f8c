"""The decode and prefill sources in NumPy: the same tiles, splits and merges."""

from collections.abc import Callable, Iterator, Sequence
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


def read(stored: Stored, which: str, blocks: np.ndarray, head: int, at: np.ndarray) -> np.ndarray:
    """Keys ("k") or values ("v") of one head at n slots: blocks, at (n,) → (n, D) float32."""
    codes, scales, zeros = getattr(stored, which)
    x = codes[blocks, head, at]
    if stored.plain:
        return as_float(x)
    if scales is None:
        return fp8_table(stored.family.lower())[x]
    if stored.family != "Kivi":
        return x.astype(np.float32) * scales[blocks, head, at][:, None]
    if which == "k":
        scale, zero = (y[blocks, head, at // stored.k_group] for y in (scales, zeros))
    else:
        scale, zero = (np.repeat(y[blocks, head, at], stored.v_group, -1) for y in (scales, zeros))
    return unpack(x, stored.bits, np.float32) * scale.astype(np.float32) + zero.astype(np.float32)


Pair = tuple[np.ndarray, np.ndarray, np.ndarray]  # maxima m, sums l, weighted values o


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
    stored, splits = piece.stored, piece.plan.splits[b]
    length = int(piece.seq_lens[b])
    past = int(piece.behind[b]) if piece.behind is not None else 0
    low = max(0, length + past - settings.window) if settings.window else 0
    each = -(-max(0, length - low) // splits)
    tile = tile_of(query.shape[1], stored, piece.plan.rows) if piece.tensor else 1
    each = -(-each // tile) * tile  # a split of decode_tensor.cu is a number of tiles
    for split in range(splits):
        begin = min(length, low + split * each)
        end = min(length, begin + each)
        positions = np.arange(begin, end)
        blocks, at = _slots(piece.table, b, positions)
        keys, values = (read(stored, which, blocks, h, at) for which in "kv")
        if piece.tensor:  # warps take tiles in turns; tiles begin at multiples of their size
            tiles, workers = positions // tile - begin // tile, piece.plan.warps
        else:  # groups of lanes take keys in turns, UNROLL of them a step
            groups = groups_of(query.shape[1], stored.bits)
            turns = positions - begin
            tiles, workers = turns // (groups * UNROLL) * groups + turns % groups, groups
        which = [tiles == i for i in range(int(tiles.max()) + 1 if len(tiles) else 0)]
        steps = [(keys[i], values[i]) for i in which]
        yield _split(query, steps, settings.softcap, workers, piece.plan.warps)


def _split(query: np.ndarray, steps: list[Any], softcap: float, workers: int, warps: int) -> Pair:
    """One block: `workers` (warps, or groups of lanes) take steps in turns, then merge."""
    dim = query.shape[1]
    states = [_worker(query, dim, steps[i::workers], softcap) for i in range(workers)]
    in_warp, merged = workers // warps, []
    for w in range(warps):
        part = states[w * in_warp : (w + 1) * in_warp]
        while len(part) > 1:  # __shfl_xor_sync: neighbours first
            part = [_merge_all([*two]) for two in zip(part[::2], part[1::2], strict=True)]
        merged.append(part[0])
    return _merge_all(merged)


def _worker(
    query: np.ndarray, dim: int, steps: list[tuple[np.ndarray, np.ndarray]], softcap: float
) -> Pair:
    """The online softmax over the keys of some steps."""
    state = _nothing(query.shape[0], dim)
    for keys, values in steps:
        if len(keys):
            state = _next(state, _capped(query @ keys.T, softcap), values)
    return state


def _nothing(rows: int, dim: int) -> Pair:
    """The state of an online softmax that has seen no key."""
    m = np.full(rows, -np.inf, dtype=np.float32)
    return m, np.zeros(rows, dtype=np.float32), np.zeros((rows, dim), dtype=np.float32)


def _next(state: Pair, s: np.ndarray, values: np.ndarray, rounded: Any = np.float32) -> Pair:
    """The state after more scores s (R, n) and values (n, D); weights are rounded to a type."""
    m, total, o = state
    top = np.maximum(m, s.max(axis=1))
    safe = finite(np, top)
    shrink, p = np.exp2(m - safe), np.exp2(s - safe[:, None])
    total = total * shrink + p.sum(axis=1, dtype=np.float32)
    return top, total, o * shrink[:, None] + as_float(as_type(p, rounded)) @ values


def _capped(s: np.ndarray, softcap: float) -> np.ndarray:
    return np.float32(softcap) * np.tanh(s / np.float32(softcap)) if softcap else s


def _slots(table: BlockTable, b: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Block of a request's keys, and slot in it."""
    return table.blocks[b, positions >> table.shift], positions & ((1 << table.shift) - 1)


def _merge_all(states: list[Pair]) -> Pair:
    top = np.max([m for m, _, _ in states], axis=0)
    factors = [np.exp2(m - finite(np, top)) for m, _, _ in states]
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
    weights = np.exp(lses - finite(np, top))
    total = weights.sum(axis=0, dtype=np.float32)
    seen = np.where(total > 0, total, np.float32(1))
    o = sum(w[:, None] * x for w, (x, _) in zip(weights, pairs, strict=True)) / seen[:, None]
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
