"""prefill.cu, prefill_tree.cu and their float32 forms in NumPy: tiles of rows and of keys, one
online softmax for each row and split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvlib.kernels.places import Places
from kvlib.kernels.plans_prefill import PrefillPlan
from kvlib.kernels.trees import Tree
from kvlib.kernels.twins.decode import Pair, finish
from kvlib.kernels.types import as_float, as_type
from kvlib.kernels.work import Work

Visible = Callable[[np.ndarray], np.ndarray]  # key slots (n,) → which of them a row sees, (R, n)


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
    tree: Tree | None = None,
    work: Work | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (N, Hkv, P, D) → o (T, Hq, D), lse (T, Hq) float32."""
    num_kv_heads = k.shape[1]
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
            stored = k, v, h, places.table[b], places
            for first in range(0, len(rows), plan.rows):
                part = np.arange(first, min(first + plan.rows, len(rows)))
                token, head = np.divmod(part, groups)
                oldest = start if seen is not None else start + skip + int(token[0])
                low = max(0, oldest - window + 1) if window else 0
                reach = low, start + skip + int(token[-1])
                visible = _visible(depths, seen, skip + token, start, window)
                asked = rows[part], visible, stored, reach, scale, softcap, plan
                out = finish([_tile(*asked, split, splits) for split in range(splits)])
                o[begin + token, h * groups + head] = out[0]
                lse[begin + token, h * groups + head] = out[1]
    return as_type(o, q.dtype), lse


def _new_tokens(tree: Tree | None, b: int, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Depths of a request's new tokens, and in a tree which of them each sees, (count, count)."""
    first, count = (-1, 0) if tree is None else tree.trees[b].tolist()
    if tree is None or first < 0:
        return np.arange(n), None
    own, at = slice(first, first + count), np.arange(count)
    return tree.depths[own], (tree.bits[own][:, at // 32] >> (at % 32).astype(np.uint32)) & 1 == 1


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


def _tile(
    rows: np.ndarray,
    visible: Visible,
    stored: tuple[np.ndarray, np.ndarray, int, np.ndarray, Places],
    reach: tuple[int, int],
    scale: float,
    softcap: float,
    plan: PrefillPlan,
    split: int,
    splits: int,
) -> Pair:
    """One block: rows (R, D) over a split of the keys in `reach` (first, last) → m, l, o."""
    k, v, h, table, places = stored
    low, last = reach
    m = np.full(len(rows), -np.inf, dtype=np.float32)
    total = np.zeros(len(rows), dtype=np.float32)
    o = np.zeros(rows.shape, dtype=np.float32)
    tiles = range(low // plan.keys * plan.keys, last + 1, plan.keys)
    each = -(-len(tiles) // splits)
    for first in tiles[split * each : (split + 1) * each]:
        j = np.arange(max(first, low), min(first + plan.keys, last + 1))
        blocks, at = table[j >> places.shift], j & ((1 << places.shift) - 1)
        keys, values = (as_float(x[blocks, h, at]) for x in (k, v))
        s = rows @ keys.T * np.float32(scale)
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        s = np.where(visible(j), s, np.float32(-np.inf))
        top = np.maximum(m, s.max(axis=1))
        safe = np.where(top == -np.inf, np.float32(0), top)
        p, shrink = np.exp2(s - safe[:, None]), np.exp2(m - safe)
        total = total * shrink + p.sum(axis=1, dtype=np.float32)
        if plan.tensor:  # a tensor core takes 16-bit weights; the sum of them stays exact
            p = as_float(as_type(p, k.dtype))
        o = o * shrink[:, None] + p @ values
        m = top
    return m, total, o
