"""Attention in two halves: each gives a pair (o, lse), and the pairs merge."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib import Step, attend, merge_states


def attend_halves(cache: Any, layer: int, q: Any, step: Step, return_lse: bool = False) -> Any:
    """q (T, Hq, Dk) → o (T, Hq, Dv), and with `return_lse` lse (T, Hq)."""
    settings = dict(cache.layers[layer].settings)
    sinks = settings.pop("sinks")  # of the whole softmax, so they count in one half only
    answers = []
    for i, seq_id in enumerate(step.seq_ids):
        rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
        k, v, at = cache.read(layer, seq_id)
        parts = [
            attend(
                q[rows],
                k[half],
                v[half],
                step.positions[rows],
                at[..., half],
                sinks=own,
                return_lse=True,
                **settings,
            )
            for half, own in zip(_halves(len(k)), (sinks, None), strict=True)
        ]
        answers.append(merge_states(*(np.stack(each) for each in zip(*parts, strict=True))))
    o, lse = (np.concatenate(each) for each in zip(*answers, strict=True))
    return (o, lse) if return_lse else o


def _halves(n: int) -> Sequence[slice]:
    return slice(0, n // 2), slice(n // 2, n)
