"""The kit's random lives of a cache (kvlib.testing), for the caches of caches.py by name."""

from typing import Any

import numpy as np
import oracle
from caches import MAX_SEQ_LEN, MAX_SEQS, ON_TERMS, build, coded, factory, fitting

from kvlib import LayerSpec
from kvlib.arrays import to_numpy
from kvlib.testing import Terms, schedule
from kvlib.testing.schedule import TOLERANCE, Choose, close, seeded

__all__ = ["TOLERANCE", "Schedule", "check_run", "close", "seeded"]


class Schedule(schedule.Schedule):
    """A life of the cache of that name, every unused number in it NaN."""

    def __init__(self, name: str, choose: Choose, xp: Any, dtype: Any = None) -> None:
        layers = fitting(name, [LayerSpec(1, 8)])
        terms: dict[str, Any] = {
            "max_seqs": MAX_SEQS,
            "max_seq_len": getattr(factory(name)(layers, np, None), "max_seq_len", MAX_SEQ_LEN),
            "unit": layers[0].head_dim if coded(name) else 1,
        }
        if name in ON_TERMS:
            terms |= ON_TERMS[name][1]

        def make(layers: Any) -> Any:
            return build(name, layers, xp, dtype)

        super().__init__(make, choose, xp=xp, terms=Terms(**terms))


def check_run(cache, layer, q, step, near=TOLERANCE, run=None) -> tuple[Any, Any]:
    """Check that each request gets attention over what the cache holds of it; o and lse of all."""
    o, lse = (cache.run if run is None else run)(layer, q, step, return_lse=True)
    for i, name in enumerate(step.seq_ids):
        rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
        k, v, stored = (to_numpy(x) for x in cache.read(layer, name))
        positions, settings = to_numpy(step.positions)[rows], cache.layers[layer].settings
        needed = oracle.attention(to_numpy(q)[rows], k, v, positions, stored, **settings)
        for got, right, what in zip((o, lse), needed, ("o", "lse"), strict=True):
            close(to_numpy(got)[rows], right, f"{what} of layer {layer} of {name}", near)
    return o, lse
