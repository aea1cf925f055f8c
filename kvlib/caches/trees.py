"""Trees of guesses: tokens of one step that follow different tokens (SpecInfer, arXiv:2305.09781).

`parents` says which new token each follows: -1 for a root, which follows what the request held
before. A token of depth d is d positions after the end of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import check_list, describe, is_integer

Parents = tuple[int, ...]
Trees = tuple[Parents | None, ...]  # one per request of a step, None for a chain


def depths(parents: Sequence[int]) -> list[int]:
    """How many ancestors each token has among the new ones: [-1, 0, 0, 1] → [0, 1, 1, 2]."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """Which of n new tokens each of them sees, itself and its ancestors: (n, n) bool, read-only."""
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
    """How many of the first tokens are a chain: each follows the one before."""
    return next((j for j, parent in enumerate(parents) if parent != j - 1), len(parents))


# What is refused --------------------------------------------------------------------------------


def check_parents(parents: Any, seq_ids: Sequence[Any], q_lens: Sequence[int]) -> Trees | None:
    """The parents of each request that has a tree, None for a chain; None if there is no tree."""
    given = check_list("parents", parents, "one entry per request")
    if len(given) != len(q_lens):
        raise ValueError(
            f"parents must have one entry per request of the plan, {len(q_lens)}, got {len(given)}"
        )
    both = zip(seq_ids, q_lens, given, strict=True)
    found = tuple(None if own is None else _parents(name, n, own) for name, n, own in both)
    return None if all(own is None for own in found) else found


def _parents(name: Any, n: int, own: Any) -> Parents | None:
    who = f"parents of request {describe(name)}"
    given = check_list(who, own, "the numbers of new tokens")
    if len(given) != n:
        raise ValueError(f"{who} must be {n} numbers, one per new token, got {len(given)}")
    found = []
    for j, parent in enumerate(given):
        number = index(parent) if is_integer(parent) else None
        if number is None or not -1 <= number < j:
            before = f", or a new token before it, 0 ... {j - 1}" if j else ""
            raise ValueError(
                f"{who}: new token {j} must follow -1, what the request held before{before}; "
                f"got {describe(parent)}"
            )
        found.append(number)
    return None if chained(found) == n else tuple(found)


def check_takes_trees(cache: Any) -> None:
    """Refuse trees in a cache that cannot hold them, or that attends by positions alone."""
    cache._check_trees()
    if cache.attention is not None and not getattr(cache.attention, "trees", False):
        raise ValueError(
            f"parents must be left out: {describe(cache.attention)} attends by positions alone, "
            "by which the guesses of a tree would see one another (a function that asks "
            "step.ancestors says so by its attribute trees = True)"
        )


def check_path(seq: Any, path: Any) -> list[int]:
    """The numbers of the new tokens to keep, after refusing what is no path from a root."""
    name = describe(seq.name)
    given = check_list("path", path, "the numbers of new tokens")
    if seq.ticket is None:
        raise ValueError(
            f"request {name} has no step of which tokens could be kept: it has ended, or there was "
            "none yet"
        )
    n = seq.length - seq.start
    parents = range(-1, n - 1) if seq.tree is None else seq.tree
    found, before = [], -1
    for number in given:
        if not is_integer(number) or not 0 <= number < n:
            raise ValueError(
                f"path must hold numbers of the {n} new tokens of request {name}, 0 ... {n - 1}, "
                f"got {describe(number)}"
            )
        if parents[index(number)] != before:
            raise ValueError(
                f"path must lead from a root of request {name} from parent to child, and new token "
                f"{index(number)} follows {parents[index(number)]}, not {before}"
            )
        before = index(number)
        found.append(before)
    return found


def check_no_tree(seq: Any) -> None:
    """Refuse a request of whose guesses none has been chosen yet."""
    if seq.tree is not None:
        raise ValueError(
            f"request {describe(seq.name)} holds a tree of {len(seq.tree)} guesses after "
            f"its first {seq.start} tokens: keep({describe(seq.name)}, path) what is right "
            f"of it first, or truncate it to {seq.start}"
        )


def check_chain(seq: Any, length: int) -> None:
    """Refuse to cut a tree where what is left of it is no chain."""
    assert seq.tree is not None
    most = seq.start + chained(seq.tree)
    if length > most:
        raise ValueError(
            f"request {describe(seq.name)} holds a tree of {len(seq.tree)} guesses, of "
            f"which the first {length - seq.start} are no chain: it can be truncated to a "
            f"length of 0 ... {most}, and keep({describe(seq.name)}, path) keeps any path"
        )


def check_whole(seq: Any, layers: int) -> None:
    """Refuse to keep tokens that some layer has not appended."""
    appended = set() if seq.ticket is None else seq.ticket.appended
    missing = next((layer for layer in range(layers) if layer not in appended), None)
    if missing is not None:
        raise ValueError(
            f"request {describe(seq.name)} cannot keep tokens of a step that is unfinished: "
            f"layer {missing} has not appended them; append them, or truncate the request to "
            f"{seq.start}"
        )
