"""Trees of guesses: tokens of one step that follow different tokens (SpecInfer, arXiv:2305.09781).

`parents` says which new token each follows: -1 for a root, which follows what the request held
before. A token of depth d is d positions after the end of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Parents = tuple[int, ...]
Trees = tuple[Parents | None, ...]  # one per request of a step, None for a chain


def depths(parents: Sequence[int]) -> list[int]:
    """How many ancestors each token has among the new ones.

    >>> depths([-1, 0, 0, 1])  # token 3 follows 1, which follows 0
    [0, 1, 1, 2]
    """
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """Which of n new tokens each of them sees, itself and its ancestors: (n, n) bool, read-only.

    >>> ancestors([-1, 0, 0]).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 0, 1]])
    """
    return _ancestors(tuple(parents))


@lru_cache(maxsize=64)
def _ancestors(parents: Parents) -> np.ndarray:
    found = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            found[row] |= found[parent]
    found.flags.writeable = False
    return found


def chained(parents: Sequence[int]) -> int:
    """How many of the first tokens are a chain: each follows the one before.

    >>> chained([-1, 0, 1, 1])
    3
    """
    return next((j for j, parent in enumerate(parents) if parent != j - 1), len(parents))
