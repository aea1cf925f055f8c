"""The kit's random lives of a cache (kvlib.testing), for the caches of caches.py by name."""

from typing import Any

import numpy as np
from caches import MAX_SEQ_LEN, MAX_SEQS, ON_TERMS, build, coded, factory, fitting

from kvlib import LayerSpec
from kvlib.testing import Terms, schedule
from kvlib.testing.schedule import TOLERANCE, Choose, close, seeded

__all__ = ["TOLERANCE", "Schedule", "close", "seeded"]


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
