"""The right answer on packing gives what `plan` gives."""

from __future__ import annotations

import numpy as np

from kvbook.exercises.batched import pack
from kvlib.caches import DenseCache, LayerSpec


def test_a_plan_has_the_same_integers() -> None:
    cache, prompts = DenseCache([LayerSpec(1, 2)], 3, 9, xp=np), [[5, 9, 2], [7], [1, 1, 4, 8, 3]]
    for i in range(3):
        cache.add(i)
    step, (_, positions, indptr) = cache.plan(range(3), [3, 1, 5]), pack(prompts)
    assert positions.tolist() == step.positions.tolist()
    assert indptr.tolist() == list(step.qo_indptr)
