"""Partial attention results and their merge, and the steps that all forms of attention share.

Attention over a set of keys is o = Σ e^s v / Σ e^s. For a part of the keys, keep o and
lse = ln Σ e^s: two parts merge by weighing their outputs with e^lse, in any order, and (0, −inf)
is neutral. Within one call the division waits, so triples (o, top, total) merge there.
Milakov & Gimelshein, arXiv:1805.02867; Ye et al. (FlashInfer), arXiv:2501.01005.
"""

import math
from typing import Any

from kvlib.arrays import Array, at_least_float32, namespace

# Of a part of the keys, the largest score is top: Σ e^(s − top) v, top, Σ e^(s − top).
Partial = tuple[Array, Array, Array]


def softmax_parts(xp: Any, s: Array) -> tuple[Array, Array, Array]:
    """s (..., S) → e^(s − top) (..., S), top, total (..., 1); a row of −inf gives (0, −inf, 0)."""
    if s.shape[-1] == 0:
        edge = xp.sum(s, axis=-1, keepdims=True, dtype=s.dtype)
        return s, edge - math.inf, edge
    top = xp.max(s, axis=-1, keepdims=True)
    p = xp.exp(s - finite(xp, top))
    return p, top, xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)


def softmax_seen(xp: Any, s: Array) -> tuple[Array, Array, Array]:
    """`softmax_parts` of rows that each see a key, with no guard against −inf; overwrites s."""
    top = xp.max(s, axis=-1, keepdims=True)
    s -= top
    p = xp.exp(s)
    return p, top, xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)


def join(xp: Any, a: Partial, b: Partial) -> Partial:
    """Merge two partial results over disjoint keys; overwrites the o of b."""
    (o_a, top_a, total_a), (o_b, top_b, total_b) = a, b
    top = xp.maximum(top_a, top_b)
    safe = finite(xp, top)
    shrink_a, shrink_b = xp.exp(top_a - safe), xp.exp(top_b - safe)
    o_b *= shrink_b
    o_b += o_a * shrink_a  # in place: not every Python lets NumPy reuse the memory of a product
    return o_b, top, total_a * shrink_a + total_b * shrink_b


def divided(xp: Any, partial: Partial, want_lse: bool) -> tuple[Array, Array | None]:
    """o / total, in place, and lse = top + ln(total) if wanted: for rows that each see a key."""
    o, top, total = partial
    o /= total
    return o, top + xp.log(total) if want_lse else None


def finite(xp: Any, top: Array) -> Array:
    """Replace −inf by 0, because −inf − −inf is NaN."""
    return xp.where(top == -math.inf, xp.zeros_like(top), top)


def present(xp: Any, o: Array, lse: Array) -> Array:
    """Replace o by 0 where its lse is −inf: a query that sees no key may have an unwritten o."""
    return xp.where((lse == -math.inf)[..., None], xp.zeros_like(o), o)


def merge_state(o_a: Array, lse_a: Array, o_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """Merge two partial results over disjoint sets of keys.

    o_a, o_b (..., D)   lse_a, lse_b (...), natural log   →   o (..., D), lse (...)

    Where an lse is −inf, its o is not looked at. Two empty states merge to (0, −inf).
    Raises ValueError if the shapes do not fit.

    >>> import numpy as np
    >>> a = np.ones((1, 2), np.float32), np.zeros(1, np.float32)
    >>> merge_state(*a, 3 * a[0], a[1])[0]  # both parts have the same weight
    array([[2., 2.]], dtype=float32)
    """
    xp = namespace(o_a, lse_a, o_b, lse_b)
    _check(o_a, lse_a, "_a")
    _check(o_b, lse_b, "_b")
    if o_a.shape != o_b.shape:
        raise ValueError(f"partial outputs must have one shape, got {o_a.shape} and {o_b.shape}")
    top = xp.maximum(lse_a, lse_b)
    safe = finite(xp, top)
    a, b = xp.exp(lse_a - safe), xp.exp(lse_b - safe)
    total = a + b
    empty = total == 0
    share = b / xp.where(empty, xp.ones_like(total), total)
    dtype = o_a.dtype
    o_a = at_least_float32(xp, present(xp, o_a, lse_a))
    o_b = at_least_float32(xp, present(xp, o_b, lse_b))
    o = o_a + (o_b - o_a) * xp.astype(share, o_a.dtype, copy=False)[..., None]
    o = xp.astype(o, dtype, copy=False)
    # ln 0 warns, so empty rows get their −inf from top.
    lse = xp.where(empty, top, safe + xp.log(xp.where(empty, xp.ones_like(total), total)))
    return o, lse


def merge_states(o: Array, lse: Array) -> tuple[Array, Array]:
    """Merge N partial results at once: `merge_state` of all of them.

    o (N, ..., D)   lse (N, ...), natural log   →   o (..., D), lse (...)

    >>> import numpy as np
    >>> o = np.array([[[1.0, 0.0]], [[0.0, 1.0]]], np.float32)  # two results (N, T, D)
    >>> lse = np.log(np.array([[3.0], [1.0]], np.float32))  # the first has three quarters
    >>> merge_states(o, lse)[0].round(3)
    array([[0.75, 0.25]], dtype=float32)
    """
    xp = namespace(o, lse)
    _check(o, lse, "")
    if o.ndim < 2 or o.shape[0] == 0:
        raise ValueError(f"at least one state needed in o (N, ..., D), got shape {o.shape}")
    top = xp.max(lse, axis=0)
    safe = finite(xp, top)
    weight = xp.exp(lse - safe[None, ...])
    total = xp.sum(weight, axis=0, dtype=lse.dtype)
    empty = total == 0
    divisor = xp.where(empty, xp.ones_like(total), total)
    wide = at_least_float32(xp, present(xp, o, lse))
    share = xp.astype(weight / divisor[None, ...], wide.dtype, copy=False)
    merged = xp.sum(wide * share[..., None], axis=0, dtype=wide.dtype)
    return xp.astype(merged, o.dtype, copy=False), xp.where(empty, top, safe + xp.log(divisor))


def with_sink(xp: Any, o: Array, lse: Array, sinks: Array) -> tuple[Array, Array]:
    """o (T, H, D), lse (T, H), a learned logit z (H,) per head, whose value is zero
    →   o · σ(lse − z), ln(e^lse + e^z)   (gpt-oss)"""
    z = xp.broadcast_to(xp.astype(sinks, lse.dtype), lse.shape)
    total = xp.logaddexp(lse, z)
    safe = finite(xp, total)  # −inf where there is no key and no sink either
    return present(xp, o, lse) * xp.astype(xp.exp(lse - safe), o.dtype)[..., None], total


def _check(o: Array, lse: Array, name: str) -> None:
    if o.shape[:-1] != lse.shape:
        raise ValueError(
            f"lse{name} must have the shape of o{name} without its last axis: "
            f"needed {o.shape[:-1]}, got {lse.shape}"
        )


def scaled(xp: Any, q: Array, sm_scale: float | None) -> Array:
    """q times the softmax scale, 1/√Dk unless given, in float32 or wider."""
    q = q if q.dtype == xp.float32 else at_least_float32(xp, q)
    return q * (1.0 / math.sqrt(q.shape[2]) if sm_scale is None else sm_scale)


def by_head(xp: Any, q: Array, num_kv_heads: int) -> Array:
    """q (T, Hq, Dk) → (Hkv, G·T, Dk): the G query heads of a kv head stacked, for one product."""
    t, num_qo_heads, dim = q.shape
    heads_per_kv = num_qo_heads // num_kv_heads
    q = xp.permute_dims(xp.reshape(q, (t, num_kv_heads, heads_per_kv, dim)), (1, 2, 0, 3))
    return xp.reshape(q, (num_kv_heads, heads_per_kv * t, dim))


def by_token(xp: Any, x: Array, t: int, num_qo_heads: int) -> Array:
    """The inverse of `by_head`: (Hkv, G·T, D) → (T, Hq, D)."""
    heads, _, dim = x.shape
    x = xp.permute_dims(xp.reshape(x, (heads, num_qo_heads // heads, t, dim)), (2, 0, 1, 3))
    return xp.reshape(x, (t, num_qo_heads, dim))


def as_dtype(xp: Any, x: Array, dtype: Any) -> Array:
    """Return x in that dtype, itself if it has it already."""
    return x if x.dtype == dtype else xp.astype(x, dtype)


def visible(q_pos: Array, kv_pos: Array, window: int | None) -> Array:
    """Which keys each query may read: (T, S), or (Hkv, T, S) if kv_pos has a row per kv head."""
    distance = q_pos[:, None] - kv_pos[..., None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def cap(xp: Any, s: Array, softcap: float | None) -> Array:
    """Squash scores into (−softcap, softcap), as Gemma 2 does (arXiv:2408.00118)."""
    return s if softcap is None else xp.tanh(s / softcap) * softcap


def answer(
    xp: Any, o: Array, lse: Array | None, dtype: Any, sinks: Array | None, return_lse: bool
) -> Array | tuple[Array, Array]:
    """Return o (T, Hq, Dv) with the sinks' share, as `dtype`; and lse (of any shape) if wanted."""
    if lse is None:
        return o if o.dtype == dtype else xp.astype(o, dtype)
    lse = xp.reshape(lse, o.shape[:2])
    if sinks is not None:
        o, lse = with_sink(xp, o, lse, sinks)
    o = as_dtype(xp, o, dtype)
    return (o, lse) if return_lse else o
