"""Trees of guesses: tokens of one step that follow different tokens (SpecInfer, arXiv:2305.09781).

`parents` says which new token each follows: -1 for a root, which follows what the request cached
before. A token of depth d is d positions after the end of the request.
"""

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
    result: list[int] = []
    for parent in parents:
        result.append(result[parent] + 1 if parent >= 0 else 0)
    return result


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """Which of n new tokens each of them sees, itself and its ancestors: (n, n) bool, read-only."""
    return _ancestors(tuple(parents))


@lru_cache(maxsize=64)
def _ancestors(parents: Parents) -> np.ndarray:
    mask = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[row] |= mask[parent]
    mask.flags.writeable = False
    return mask


def chained(parents: Sequence[int]) -> int:
    """How many of the first tokens are a chain: each follows the one before."""
    return next((j for j, parent in enumerate(parents) if parent != j - 1), len(parents))


def check_parents(parents: Any, seq_ids: Sequence[Any], q_lens: Sequence[int]) -> Trees | None:
    """The parents of each request that has a tree, None for a chain; None if there is no tree."""
    parents = check_list("parents", parents, "one entry per request")
    if len(parents) != len(q_lens):
        raise ValueError(
            f"parents must have one entry per request of the plan, {len(q_lens)}, got "
            f"{len(parents)}"
        )
    rows = zip(seq_ids, q_lens, parents, strict=True)
    trees = tuple(None if tree is None else _tree(name, n, tree) for name, n, tree in rows)
    return None if all(tree is None for tree in trees) else trees


def _tree(name: Any, n: int, parents: Any) -> Parents | None:
    who = f"parents of request {describe(name)}"
    parents = check_list(who, parents, "the numbers of new tokens")
    if len(parents) != n:
        raise ValueError(f"{who} must be {n} numbers, one per new token, got {len(parents)}")
    tree = []
    for j, parent in enumerate(parents):
        number = index(parent) if is_integer(parent) else None
        if number is None or not -1 <= number < j:
            before = f", or a new token before it, 0 ... {j - 1}" if j else ""
            raise ValueError(
                f"{who}: new token {j} must follow -1, what the request cached before{before}; "
                f"got {describe(parent)}"
            )
        tree.append(number)
    return None if chained(tree) == n else tuple(tree)


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
    path = check_list("path", path, "the numbers of new tokens")
    if seq.ticket is None:
        raise ValueError(
            f"request {name} has no step of which tokens could be kept: it has ended, or there was "
            "none yet"
        )
    n = seq.length - seq.start
    parents = range(-1, n - 1) if seq.tree is None else seq.tree
    kept, before = [], -1
    for number in path:
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
        kept.append(before)
    return kept


def check_no_tree(seq: Any) -> None:
    """Refuse a request of whose guesses none has been chosen yet."""
    if seq.tree is not None:
        raise ValueError(
            f"request {describe(seq.name)} holds a tree of {len(seq.tree)} guesses after "
            f"its first {seq.start} tokens: keep({describe(seq.name)}, path) what is right "
            f"of it first, or truncate it to {seq.start}"
        )


def check_chain(seq: Any, length: int) -> None:
    """Refuse to cut a tree to tokens that are no chain."""
    assert seq.tree is not None
    most = seq.start + chained(seq.tree)
    if length > most:
        raise ValueError(
            f"request {describe(seq.name)} holds a tree of {len(seq.tree)} guesses, of "
            f"which the first {length - seq.start} are no chain: it can be truncated to a "
            f"length of 0 ... {most}, and keep({describe(seq.name)}, path) keeps any path"
        )


def check_finished(seq: Any) -> None:
    """Refuse to keep tokens of a step that some layer has not appended."""
    layers, appended = seq.ticket.layers, seq.ticket.appended
    missing = next((layer for layer in range(layers) if layer not in appended), None)
    if missing is not None:
        raise ValueError(
            f"request {describe(seq.name)} cannot keep tokens of a step that is unfinished: "
            f"layer {missing} has not appended them; append them, or truncate the request to "
            f"{seq.start}"
        )
