"""What attention refuses, and in which words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvlib.arrays import Array


def is_integer(x: object) -> bool:
    """Whether ``x`` counts something: an integer of Python or NumPy, and no bool."""
    return type(x) is int or (isinstance(x, int | np.integer) and not isinstance(x, bool))


def check_integer(name: str, value: Any, least: int = 1) -> int:
    """The value as a Python integer; ValueError unless it is an integer of at least `least`."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {describe(value)}")
    return int(value)


def describe(x: object) -> str:
    """What came, in a few words: of an array its kind and shape, of a long text its beginning."""
    if getattr(x, "ndim", 0):
        return f"an array of shape {tuple(x.shape)}"  # type: ignore[attr-defined]
    text = repr(x)
    return text if len(text) <= 80 else f"{text[:60]}... (a {type(x).__name__})"


def check_inputs(
    xp: Any, q: Array, k: Array, v: Array, q_pos: Array, kv_pos: Array, sinks: Array | None
) -> None:
    """Refuse arrays that cannot be attended to: ValueError for shapes, TypeError for dtypes."""
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
    for name, x in (("q_pos", q_pos), ("kv_pos", kv_pos)):
        # The difference of unsigned positions wraps round, and the future becomes visible.
        if not xp.isdtype(x.dtype, "signed integer"):
            raise TypeError(f"{name} must hold signed integers, got dtype {x.dtype}")
    check_sinks(q, sinks)


def check_dtypes(xp: Any, q: Array, k: Array, v: Array) -> None:
    """Refuse what is not floating, and keys and values of two kinds."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not xp.isdtype(x.dtype, "real floating"):
            raise TypeError(f"{name} must be floating, got dtype {x.dtype}")
    if k.dtype != v.dtype:
        raise TypeError(f"k and v must share a dtype, got {k.dtype} and {v.dtype}")


def check_sinks(q: Array, sinks: Array | None) -> None:
    """Refuse sinks that are not one a query head.   q (T, Hq, Dk)   sinks (Hq,)"""
    if sinks is not None and not hasattr(sinks, "shape"):
        raise TypeError(f"sinks must be an array (Hq,) = {(q.shape[1],)}, got {describe(sinks)}")
    if sinks is not None and sinks.shape != (q.shape[1],):
        raise ValueError(f"sinks must be (Hq,) = {(q.shape[1],)}, got {sinks.shape}")


def check_settings(
    window: int | None, sm_scale: float | None, softcap: float | None
) -> tuple[int | None, float | None, float | None]:
    """The same as Python numbers, after refusing what means nothing.

    A NumPy float64 scalar turns every float32 array it meets into float64, and differences from an
    unsigned window wrap round.
    """
    if window is not None:
        window = check_integer("window counts the query itself and", window)
    return window, _positive("sm_scale", sm_scale), _positive("softcap", softcap)


def _positive(name: str, x: Any) -> float | None:
    if x is None:
        return None
    if (
        not isinstance(x, float | int | np.floating | np.integer)
        or isinstance(x, bool)
        or not (math.isfinite(x) and x > 0)
    ):
        raise ValueError(f"{name} must be a finite number above 0, got {describe(x)}")
    return float(x)
