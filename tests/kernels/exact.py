"""A kernel's attention is compared with the kit's oracle, within the bound of its rounding."""

import math

import numpy as np
from engines import SLACK

from kvlib.kernels.types import as_float
from kvlib.testing import oracle
from kvlib.testing.rounding import EPS

SPACING = {"float32": EPS, "float16": 2.0**-10, "uint16": 2.0**-7}  # uint16 holds bfloat16
LEAST = 2.0**-24  # half the spacing of float16 near zero: what it cannot tell from zero


def expect(found, q, k, v, seen, run_on, operand=0.0, **settings):
    """o (R, Hq, D) and lse (R, Hq) of a request's last rows are attention over k, v (n, Hkv, D).

    seen (R, new tokens): which of the newest tokens each row sees. With the older ones, these are
    a chain: a leaf and those of its ancestors that no other leaf has are compared at once.
    operand: the spacing of a format that what codes are multiplied by was rounded to on the way.
    """
    o, lse = found
    (rows, new), open_rows = seen.shape, set(range(len(seen)))
    older, kind = np.arange(len(k) - new), str(np.asarray(o).dtype)
    q, narrow = as_float(q), SPACING[kind] if kind != "float32" else 0.0
    slack = SLACK.get(run_on, 1)
    for leaf in range(rows - 1, -1, -1):
        if leaf not in open_rows:
            continue
        path = np.flatnonzero(seen[leaf])
        of_leaf = [c - (new - rows) for c in path if c - (new - rows) in open_rows]
        open_rows -= {*of_leaf}
        keys = np.concatenate([older, len(older) + path])
        positions = np.arange(len(keys))
        arrays = q[of_leaf], k[keys], v[keys], positions[-len(of_leaf) :], positions
        wanted = oracle.attention(*arrays, **settings)
        bounds = attention_bound(
            *arrays, operand=max(operand, narrow), result=narrow, coded=operand, **settings
        )
        near(as_float(o[of_leaf]), wanted[0], slack * bounds[0] + (LEAST if narrow else 0), "o")
        near(lse[of_leaf], wanted[1], slack * bounds[1], "lse")
    assert not open_rows


def attention_bound(
    q, k, v, q_pos, kv_pos, *,
    window=None, sm_scale=None, softcap=None, sinks=None, eps=EPS, operand=0.0, result=0.0,
    coded=0.0,
):
    """How far o (T, Hq, Dv) and lse (T, Hq) may be from attention in float64, number by number.

    Arguments as those of the oracle, and:
    eps      spacing of the format that is added in
    operand  spacing of a narrower format that what is multiplied was rounded to, 0 for none
    result   spacing of the format that o is rounded to, 0 for the one it was computed in
    coded    spacing that weights of codes were rounded to: a small number may be the difference of
             two that are as large as the token's largest

    A score is a sum of Dk products; δ is the bound of its error, with what scaling it and taking
    the largest score away adds. An error Δs of the score of key j moves o by p (v_j - o) Δs and
    lse by p Δs, with p the key's weight: the derivative of softmax. Summed over the keys, with the
    bounds of the two sums over keys themselves, that is the bound.
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
            by_sum += 2 * coded * np.linalg.norm(p[i, own] * np.abs(x).max(axis=1))
            rounded = (weight_sum[i] + 2 * eps + result) * np.abs(o[i, h])
            o_bound[i, h] = by_score + by_sum + rounded
            lse_bound[i, h] = p[i, own] @ delta[i, own] + weight_sum[i]
            lse_bound[i, h] += eps * (abs(lse[i, h]) + 1)
    return o_bound, lse_bound


def near(found, wanted, bound, what):
    """Every number within its own bound; infinities equal."""
    found = np.asarray(found, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        fine = (found == wanted) | (np.abs(found - wanted) <= bound)
        worst = np.nanmax(np.abs(found - wanted) / np.maximum(bound, 1e-300), initial=0)
    assert fine.all(), f"{what}: {np.sum(~fine)} of {fine.size} are off, by {worst:.3g} bounds"
