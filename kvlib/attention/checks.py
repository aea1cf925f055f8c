"""What attention refuses, and in which words."""

import math
from typing import Any

import numpy as np

from kvlib.arguments import check_integer, check_positive, describe
from kvlib.arrays import Array, namespace

FARTHEST = 2**62  # positions beyond have distances that no int64 holds


def check_inputs(
    xp: Any, q: Array, k: Array, v: Array, q_pos: Array, kv_pos: Array, sinks: Array | None
) -> tuple[Array, Array]:
    """Return q_pos and kv_pos as int64; ValueError or TypeError for arrays that do not fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3:
            raise ValueError(f"{name} must be (tokens, heads, dim), got shape {x.shape}")
    check_dtypes(xp, q, k, v)
    if k.shape[:2] != v.shape[:2]:
        raise ValueError(
            f"k and v must have the same tokens and heads, got {k.shape} and {v.shape}"
        )
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"q and k must share head_dim, got {q.shape[2]} and {k.shape[2]}")
    if q.shape[2] == 0:
        raise ValueError("head_dim of q and k must be at least 1, got 0")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"num_qo_heads must be a multiple of num_kv_heads, got {q.shape[1]} and {k.shape[1]}"
        )
    if q_pos.shape != q.shape[:1]:
        raise ValueError(f"q_pos must be (T,) = {q.shape[:1]}, got {q_pos.shape}")
    if kv_pos.shape not in ((k.shape[0],), (k.shape[1], k.shape[0])):
        raise ValueError(
            f"kv_pos must be (S,) = {(k.shape[0],)} or (Hkv, S) = {(k.shape[1], k.shape[0])}, "
            f"got {kv_pos.shape}"
        )
    check_sinks(q, sinks)
    return _positions(xp, "q_pos", q_pos), _positions(xp, "kv_pos", kv_pos)


def _positions(xp: Any, name: str, x: Array) -> Array:
    """Return positions as int64, in which differences don't wrap; those on a device aren't read."""
    if not xp.isdtype(x.dtype, "integral"):
        raise TypeError(f"{name} must hold integers, got dtype {x.dtype}")
    if xp is np and x.dtype.itemsize == 8 and x.size:
        low, high = int(x.min()), int(x.max())
        if low <= -FARTHEST or high >= FARTHEST:
            wrong = low if low <= -FARTHEST else high
            raise ValueError(f"{name} must hold positions between -2^62 and 2^62, got {wrong}")
    return x if x.dtype == xp.int64 else xp.astype(x, xp.int64)


def check_dtypes(xp: Any, q: Array, k: Array, v: Array) -> None:
    """Refuse arrays that are not floating, and keys and values of different dtypes."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not xp.isdtype(x.dtype, "real floating"):
            raise TypeError(f"{name} must be floating, got dtype {x.dtype}")
    if k.dtype != v.dtype:
        raise TypeError(f"k and v must share a dtype, got {k.dtype} and {v.dtype}")


def check_sinks(q: Array, sinks: Array | None) -> None:
    """Refuse sinks that do not fit the query heads.   q (T, Hq, Dk)   sinks (Hq,)"""
    if sinks is None:
        return
    if not hasattr(sinks, "shape"):
        raise TypeError(f"sinks must be an array (Hq,) = {(q.shape[1],)}, got {describe(sinks)}")
    if sinks.shape != (q.shape[1],):
        raise ValueError(f"sinks must be (Hq,) = {(q.shape[1],)}, got {sinks.shape}")
    check_sink_values(sinks, look=isinstance(sinks, np.ndarray))


def check_sink_values(sinks: Array, look: bool = True) -> None:
    """Refuse sinks that are no logits; look: check the numbers, too, which stalls a device."""
    xp = namespace(sinks)
    if not xp.isdtype(sinks.dtype, ("real floating", "integral")):
        raise TypeError(f"sinks must be real numbers, got dtype {sinks.dtype}")
    if look and not xp.isdtype(sinks.dtype, "integral") and not bool(xp.all(sinks < math.inf)):
        raise ValueError("sinks must be below infinity and not NaN; −inf is a sink of no weight")


def check_settings(
    window: int | None, sm_scale: float | None, softcap: float | None
) -> tuple[int | None, float | None, float | None]:
    """Return the settings as Python numbers; refuse those out of range."""
    if window is not None:
        window = check_integer("window counts the query itself and", window)
    if sm_scale is not None:
        sm_scale = check_positive("sm_scale", sm_scale)
    return window, sm_scale, None if softcap is None else check_positive("softcap", softcap)
