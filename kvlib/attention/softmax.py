"""Softmax before its division: what a piece of scores gives, and how two pieces join.

A piece gives p = e^(s − top), its largest score top and total = Σ p; with o = p·v the triple
(o, top, total) is a partial result that has not been divided yet. Triples join in any order, as the
divided pairs (o, lse) of `states` do. Milakov & Gimelshein, arXiv:1805.02867.
"""

from __future__ import annotations

import math
from typing import Any

from kvlib.arrays import Array

Parts = tuple[Array, Array, Array]


def softmax_parts(xp: Any, s: Array) -> Parts:
    """e^(s − top), top and Σ e^(s − top) along the last axis.

    s (..., S)  →  p (..., S), top (..., 1), total (..., 1); a row of −inf gives (0, −inf, 0).
    """
    if s.shape[-1] == 0:
        edge = xp.sum(s, axis=-1, keepdims=True, dtype=s.dtype)
        return s, edge - math.inf, edge
    top = xp.max(s, axis=-1, keepdims=True)
    p = xp.exp(s - finite(xp, top))
    return p, top, xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)


def softmax_seen(xp: Any, s: Array) -> Parts:
    """The same for rows that each see a key, as every decoding query does. s is overwritten.

    Apart from `softmax_parts`, whose guard against −inf takes a tenth of the time of a short text.
    """
    top = xp.max(s, axis=-1, keepdims=True)
    s -= top
    p = xp.exp(s)
    return p, top, xp.sum(p, axis=-1, keepdims=True, dtype=p.dtype)


def join(xp: Any, a: Parts, b: Parts) -> Parts:
    """Two partial results (o, top, total) over disjoint keys as one. The o of b is overwritten.

    The part with the lower top shrinks by e^(its top − the new top).
    """
    (o_a, top_a, total_a), (o_b, top_b, total_b) = a, b
    top = xp.maximum(top_a, top_b)
    safe = finite(xp, top)
    shrink_a, shrink_b = xp.exp(top_a - safe), xp.exp(top_b - safe)
    o_b *= shrink_b
    return o_a * shrink_a + o_b, top, total_a * shrink_a + total_b * shrink_b


def divided(xp: Any, parts: Parts, lse: bool) -> tuple[Array, Array | None]:
    """o / total, in place, and top + ln(total) where `lse` asks for it: for rows that see a key."""
    o, top, total = parts
    o /= total
    return o, top + xp.log(total) if lse else None


def finite(xp: Any, top: Array) -> Array:
    """0 in place of −inf: −inf − −inf is NaN."""
    return xp.where(top == -math.inf, xp.zeros_like(top), top)
