"""The shape of a tree of guesses: which guess each one follows."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from kvlib.arguments import check_integer, check_list, describe, is_integer
from kvlib.caches.trees import Parents


def branches(*counts: int) -> Parents:
    """The tree in which each guess of one level is followed by equally many guesses.

    counts: how many guesses follow the text, then each guess of the first level, and so on.

    Returns the parents of its guesses, level by level: the number of the guess that each one
    follows, −1 if it follows the text.

    >>> branches(2, 1)  # two guesses for the next token, and one after each
    (-1, -1, 0, 1)
    """
    parents, level = list[int](), [-1]
    for i, count in enumerate(counts):
        n = check_integer(f"counts[{i}]", count)
        begun = len(parents)
        parents += [at for at in level for _ in range(n)]
        level = list(range(begun, len(parents)))
    return tuple(parents)


def chain(n: int) -> Parents:
    """The tree in which each guess follows the one before.

    >>> chain(3)
    (-1, 0, 1)
    """
    return tuple(range(-1, n - 1))


def check_tree(name: str, parents: Any, n: int | None = None) -> Parents:
    """The parents as Python integers, after refusing what is no tree of n guesses.

    >>> check_tree("tree", [-1, 2])
    Traceback (most recent call last):
        ...
    ValueError: tree[1] must be -1 or the number of an earlier guess, 0 ... 0, got 2
    """
    given = check_list(name, parents, "numbers, one per guess")
    if n is not None and len(given) != n:
        raise ValueError(f"{name} must hold {n} numbers, one per guess, got {len(given)}")
    found = list[int]()
    for j, parent in enumerate(given):
        number = index(parent) if is_integer(parent) else -2
        if not -1 <= number < j:
            earlier = f", 0 ... {j - 1}" if j else ""
            raise ValueError(
                f"{name}[{j}] must be -1 or the number of an earlier guess{earlier}, "
                f"got {describe(parent)}"
            )
        found.append(number)
    return tuple(found)


def followers(parents: Sequence[int]) -> dict[int, list[int]]:
    """Number of a guess, or −1 for the text → the guesses that follow it; no entry if none do.

    >>> followers((-1, -1, 0))
    {-1: [0, 1], 0: [2]}
    """
    found: dict[int, list[int]] = {}
    for j, parent in enumerate(parents):
        found.setdefault(parent, []).append(j)
    return found


def ranks(parents: Sequence[int]) -> list[int]:
    """How many guesses with the same parent stand before each guess.

    >>> ranks((-1, -1, 0))
    [0, 1, 0]
    """
    seen: dict[int, int] = {}
    found = list[int]()
    for parent in parents:
        found.append(seen.get(parent, 0))
        seen[parent] = found[-1] + 1
    return found
