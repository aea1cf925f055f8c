"""Attention by online softmax: keys a tile at a time, never the whole score matrix."""

from __future__ import annotations

import math

from kvlib.arrays import Array, namespace
from kvlib.attention.checks import check_inputs, check_integer, check_settings
from kvlib.attention.direct import (
    by_head,
    cap,
    count,
    finish,
    scaled,
    visible,
    widened,
)
from kvlib.attention.softmax import join, softmax_parts


def attend_tiled(
    q: Array,
    k: Array,
    v: Array,
    q_pos: Array,
    kv_pos: Array,
    *,
    tile: int = 128,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """The same function as :func:`kvlib.attend`, reading ``tile`` keys at a time.

    Shapes, masks and errors are those of ``attend``; ``tile`` may be any integer from 1 up.

    Three running values per query are enough: the largest score so far (top), the sum of
    e^(score − top) (total) and the sum of e^(score − top)·v (o). When a tile raises top, what
    was summed before shrinks by e^(old top − new top). The division waits for the end.
    Peak memory is O(T · tile) in place of O(T · S).
    Milakov & Gimelshein, arXiv:1805.02867; Rabe & Staats, arXiv:2112.05682; FlashAttention,
    arXiv:2205.14135.

    >>> import numpy as np
    >>> from kvlib import attend
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 5, 2, 4)).astype(np.float32)
    >>> at = np.arange(5)
    >>> np.allclose(attend_tiled(q, k, v, at, at, tile=2), attend(q, k, v, at, at), atol=1e-6)
    True
    """
    check_integer("tile", tile)
    tile = int(tile)  # a small integer of NumPy overflows where it meets a long text
    xp = namespace(q, k, v, q_pos, kv_pos)
    check_inputs(xp, q, k, v, q_pos, kv_pos, sinks)
    window, sm_scale, softcap = check_settings(window, sm_scale, softcap)
    t, num_kv_heads, groups = q.shape[0], k.shape[1], q.shape[1] // k.shape[1]
    qh, _, _ = by_head(xp, scaled(xp, q, sm_scale), k[:0, ...], v[:0, ...])
    rows = qh.shape[:2]  # (Hkv, G·T)
    dtype, device = qh.dtype, q.device
    total = xp.zeros((*rows, 1), dtype=dtype, device=device)
    o = xp.zeros((*rows, v.shape[2]), dtype=dtype, device=device)
    parts = (o, total - math.inf, total)  # of no keys
    for start in range(0, k.shape[0], tile):
        part = slice(start, min(start + tile, k.shape[0]))
        tiles = widened(xp, qh, k[part, ...], v[part, ...])
        kh, vh = (xp.permute_dims(x, (1, 0, 2)) for x in tiles)
        s = cap(xp, xp.matmul(qh, kh.mT), softcap)
        hidden = ~visible(q_pos, kv_pos[..., part], window)
        hidden = hidden[:, None, :, :] if hidden.ndim == 3 else hidden[None, None, :, :]
        s = xp.reshape(s, (num_kv_heads, groups, t, s.shape[-1]))
        s = xp.reshape(xp.where(hidden, -math.inf, s), (*rows, s.shape[-1]))
        p, top, total = softmax_parts(xp, s)
        parts = join(xp, parts, (xp.matmul(p, vh), top, total))
    count(q, k, v, pairs=t * k.shape[0])
    return finish(xp, *parts, q, v, sinks, return_lse)
