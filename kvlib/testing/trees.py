"""Trees of guesses for random lives: how they grow, and which path of them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature

import numpy as np

from kvlib.caches import Cache
from kvlib.caches.checks import check_takes_trees


def takes_trees(cache: Cache) -> bool:
    """Whether ``plan`` gives this cache trees; one of somebody's own may not know of them."""
    if "parents" not in signature(cache.plan).parameters:
        return False
    try:
        check_takes_trees(cache)
    except ValueError:
        return False
    return True


def any_tree(rng: np.random.Generator, n: int) -> list[int]:
    """Parents of n tokens: bushes, combs, chains, one root or several."""
    back = int(rng.integers(1, n + 1))
    return [int(rng.integers(max(-1, j - 1 - back), j)) for j in range(n)]


def draw_tree(rng: np.random.Generator, n: int) -> list[int] | None:
    """A tree for one step in four, None for the others and where a chain came out."""
    if rng.random() >= 0.25:
        return None
    tree = any_tree(rng, n)
    return None if tree == list(range(-1, n - 1)) else tree


def line_of(tree: Sequence[int] | None, node: int) -> list[int]:
    """A new token and its ancestors, from the root on."""
    if tree is None:
        return list(range(node + 1))
    line = [node]
    while tree[line[0]] >= 0:
        line.insert(0, tree[line[0]])
    return line


def draw_path(rng: np.random.Generator, tree: Sequence[int]) -> list[int]:
    """The beginning of a line of the tree; at times none of it."""
    line = line_of(tree, int(rng.integers(len(tree))))
    return line[: int(rng.integers(0, len(line) + 1))]
