"""A short life of any cache in any dtype, against float64 attention over what it says it holds."""

from typing import Any

import numpy as np
import oracle
from caches import CACHES, coded, fitting
from schedules import close

from kvlib import LayerSpec
from kvlib.arrays import to_numpy

ROUNDING = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-24}  # of what is given


def live(name: str, xp: Any, dtype: str, seed: int = 0) -> None:
    """Prompts, decode steps, a fork, a truncation; queries in float32 and in the cache's dtype."""
    rng = np.random.default_rng(seed)
    sinks = xp.asarray(rng.standard_normal(4).astype(np.float32))
    layers = [
        LayerSpec(2, 16), LayerSpec(1, 8, window=5, softcap=3.0), LayerSpec(2, 8, sinks=sinks),
    ]
    layers = fitting(name, layers)
    # `read` rounds decoded codes to the cache's dtype, `run` attends to them in float32
    near = 3e-3 if dtype == "float16" and coded(name) else 3e-5
    cache = CACHES[name](layers, xp, getattr(xp, dtype))
    for request in "ab":
        cache.add(request)
    for turn, (names, q_lens) in enumerate(
        [("ab", [7, 3]), ("ab", [1, 1]), ("b", [6]), ("ba", [1, 9]), ("cb", [1, 1]), ("a", [1])]
    ):
        if turn == 4:
            cache.fork("a", "c")
            cache.truncate("b", cache.seq_len("b"))
        step = cache.plan(list(names), q_lens)
        for layer, spec in enumerate(layers):
            # float64 is no narrower cache's to take; float32 is anybody's
            given = dtype if dtype == "float64" else "float32"
            k, v = (random(rng, xp, given, step.num_tokens, spec, spec.num_kv_heads) for _ in "kv")
            cache.append(layer, k, v, step)
        for layer, spec in enumerate(layers):
            kind = dtype if dtype == "float64" or turn % 2 else "float32"
            q = random(rng, xp, kind, step.num_tokens, spec, 4)
            compare(cache, layer, q, step, near)


def random(rng, xp, dtype, tokens, spec, heads) -> Any:
    return xp.asarray(rng.standard_normal((tokens, heads, spec.head_dim)).astype(dtype))


def compare(cache: Any, layer: int, q: Any, step: Any, near: float) -> None:
    o, lse = (to_numpy(x) for x in cache.run(layer, q, step, return_lse=True))
    rounding = 2 * ROUNDING[o.dtype.name]
    assert o.dtype == to_numpy(q).dtype and lse.dtype == np.promote_types(o.dtype, np.float32)
    for i, name in enumerate(step.seq_ids):
        rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
        k, v, held = (to_numpy(x) for x in cache.read(layer, name))
        positions = to_numpy(step.positions)[rows]
        right = oracle.attention(
            to_numpy(q)[rows], k, v, positions, held, **cache.layers[layer].settings
        )
        close(lse[rows], right[1], f"lse of layer {layer}", near)
        close(o[rows].astype(np.float64), right[0], f"o of layer {layer}", near + rounding)
