"""Where the decisions of a schedule come from, and the random layers that a cache is built for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvlib.caches import LayerSpec

Choose = Callable[[int, int], int]


def seeded(seed: int) -> Choose:
    """Decisions of a generator with that seed."""
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high, endpoint=True))


def lengths(terms: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of keys, and of values that are not as long as the keys."""
    if terms.lengths is not None:
        return tuple(terms.lengths), tuple(terms.lengths)
    unit = terms.unit
    return tuple(max(2, unit) * n for n in (1, 2, 3)), (unit, 5 * unit)


def draw_layer(
    choose: Choose, xp: Any, values: np.random.Generator, terms: Any
) -> tuple[LayerSpec, int]:
    """A layer and its number of query heads, within the terms (see `Terms`)."""
    keys, values_of = lengths(terms)
    num_kv_heads, groups = choose(1, 3), (1, 2, 4)[choose(0, 2)]
    head_dim = keys[choose(0, len(keys) - 1)]
    v_from_k = choose(0, 4) == 0 and terms.v_from_k
    others = (None, *values_of)
    v_head_dim = choose(1, head_dim) if v_from_k else others[choose(0, len(others) - 1)]
    sinks = None
    if choose(0, 3) == 0:
        sinks = xp.asarray(values.standard_normal(num_kv_heads * groups).astype(np.float32))
    spec = LayerSpec(
        num_kv_heads,
        head_dim,
        v_head_dim,
        window=choose(1, 9) if choose(0, 1) else None,
        sm_scale=0.7 if choose(0, 2) == 0 else None,
        softcap=1.5 if choose(0, 2) == 0 else None,
        sinks=sinks,
        v_from_k=v_from_k,
    )
    return spec, num_kv_heads * groups


def describe(spec: LayerSpec) -> str:
    """A layer in words: its shape, and what is not as usual."""
    words = [f"{spec.num_kv_heads} kv heads of {spec.head_dim}"]
    if spec.v_dim != spec.head_dim:
        words.append(f"values of {spec.v_dim}")
    words += ["values from keys"] * spec.v_from_k
    words += [f"window {spec.window}"] * (spec.window is not None)
    for name in ("sm_scale", "softcap", "sinks"):
        words += [name] * (getattr(spec, name) is not None)
    return ", ".join(words)
