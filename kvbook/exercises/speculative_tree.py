"""The checker of a tree of guesses: whom each guess sees, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)

EXAMPLE = (-1, 0, 0, 1, 1, 2, 3)  # of the task: two branches, one of which splits again


@checker
def check_tree_mask(tree_mask: Callable[..., Any]) -> Iterator[str]:
    """tree_mask(parents (n ids), length) → mask (n, n) bool, positions (n,) integers."""
    rng = np.random.default_rng(63)
    _expect(tree_mask, EXAMPLE, 10, "the tree of the task")
    yield "each guess sees itself and its ancestors, and stands one position after its parent"

    for n in (1, 2, 5):
        _expect(tree_mask, tuple(range(-1, n - 1)), 7, f"a chain of {n}")
    yield "a chain gets the triangle of a prompt"

    _expect(tree_mask, (-1, -1, -1), 4, "three roots")
    _expect(tree_mask, (-1, -1, 0, 1, 2, 3), 4, "two chains from two roots")
    yield "there may be several roots, which do not see one another"

    _expect(tree_mask, (-1, 0, 1, 2, 0, 4, 1), 5, "a tree written branch by branch")
    _expect(tree_mask, (-1, 0, 0, 1, 2, 3, 4), 5, "the same kind of tree, written level by level")
    for n, length in rng.integers((3, 0), (16, 3000), (8, 2)).tolist():
        parents = drawn(rng, n)
        _expect(tree_mask, parents, length, f"parents {list(parents)}")
    yield "this holds for any tree, in any order in which parents come before their children"


def drawn(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """n parents, each before its child; -1 for a root."""
    found = [int(rng.integers(-1, j)) for j in range(n)]
    return tuple(found)


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """The right mask: row j sees itself and its ancestors, (n, n) bool."""
    found = np.eye(len(parents), dtype=bool)
    for j, parent in enumerate(parents):
        if parent >= 0:
            found[j] |= found[parent]
    return found


def _received(tree_mask: Callable[..., Any], parents: Sequence[int], length: int, what: str) -> Any:
    result = tree_mask(list(parents), length)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Finding(f"{what}: got {type(result).__name__}, needed two results: mask, positions")
    mask, positions = result
    return numbers(mask, f"{what}: the mask"), numbers(positions, f"{what}: the positions")


def _expect(tree_mask: Callable[..., Any], parents: Sequence[int], length: int, what: str) -> None:
    mask, positions = _received(tree_mask, parents, length, what)
    n = len(parents)
    if mask.shape == (n, length + n) != (n, n):
        raise Finding(
            f"{what}: the mask has {length} columns too many. Every guess sees the {length} older "
            "tokens; the mask says which of the guesses it sees"
        )
    expect_shape(mask, (n, n), f"{what}: the mask", letters="n n")
    if mask.dtype.kind == "f" and np.isneginf(mask).any():
        raise Finding(
            f"{what}: the mask is {mask.dtype} and holds -inf. Needed is a mask of booleans, True "
            "where a guess sees another; nothing is added to scores here"
        )
    expect_dtype(mask, bool, f"{what}: the mask")
    right = ancestors(parents)
    if not (mask == right).all():
        _diagnose_mask(mask, right, parents, what)
    _expect_positions(positions, right.sum(axis=1) - 1, length, what)


def _diagnose_mask(mask: np.ndarray, right: np.ndarray, parents: Sequence[int], what: str) -> None:
    suspects = _suspects(right, parents)
    fits = [words for words, wrong in suspects.items() if (mask == wrong).all()]
    row, column = (int(x) for x in np.argwhere(mask != right)[0])
    hint = f". {fits[0]}" if fits else ""
    said = f"{what}: guess {row} (parent {parents[row]})"
    if mask[row, column]:
        where = "which comes after it" if right[column, row] else "which is on another branch"
        if parents[row] < 0 and right[row].sum() == 1 and not right[column, row]:
            where = "but it is a root"
        raise Finding(f"{said} sees guess {column}, {where}{hint}")
    kind = "itself" if row == column else f"its ancestor {column}"
    raise Finding(f"{said} does not see {kind}{hint}")


def _suspects(right: np.ndarray, parents: Sequence[int]) -> dict[str, np.ndarray]:
    n = len(parents)
    depth = right.sum(axis=1) - 1
    eye, own = np.eye(n, dtype=bool), np.array(parents)
    direct = eye | (own[:, None] == np.arange(n))
    wrapped, to_0 = eye.copy(), eye.copy()
    for j, parent in enumerate(parents):
        wrapped[j] |= wrapped[parent]  # parents[j] = -1 is the last row
        if j:
            to_0[j] |= to_0[max(parent, 0)]
    stopped = right & (eye | (np.arange(n) > 0))
    return {
        "This is the mask of a chain: every guess sees all guesses before it": np.tri(
            n, dtype=bool
        ),
        "Every guess sees every other": np.ones((n, n), bool),
        "Every guess sees only itself; it must see its ancestors, too": eye,
        "The parent is seen, but not the parent's own ancestors": direct,
        "The mask has the right shape of a tree, but no guess sees itself": right & ~eye,
        "Rows and columns are exchanged: row j says what guess j sees": right.T,
        "The mask holds in both directions; an ancestor does not see its descendants": (
            right | right.T
        ),
        "A guess sees all guesses of smaller depth, but only ancestors may be seen": (
            (depth[None, :] < depth[:, None]) | eye
        ),
        "A guess sees all guesses of no larger depth, but only ancestors may be seen": (
            depth[None, :] <= depth[:, None]
        ),
        "Guesses with one parent see one another; they are guesses for the same position": (
            right | (own[:, None] == own[None, :])
        ),
        "True and False are exchanged: True means that a guess sees another": ~right,
        "In NumPy, row -1 is the last row; a root has no parent, so copy nothing for it": wrapped,
        "Every root was taken for a child of guess 0": to_0,
        "Guess 0 was left out of the ancestors; a loop that stops at 0 must stop at -1": stopped,
    }


def _expect_positions(got: np.ndarray, depth: np.ndarray, length: int, what: str) -> None:
    right = length + depth
    expect_shape(got, right.shape, f"{what}: the positions", letters="n")
    if got.dtype.kind not in "iu":
        raise Finding(f"{what}: the positions are an array of {got.dtype}, needed integers")
    if (got == right).all():
        return
    n, start = len(right), f"{what}, after {length} older tokens"
    diagnose(
        got,
        {
            f"{start}: the positions run on with the slots; guesses for the same place in the text "
            "have the same position, the length plus the depth": length + np.arange(n),
            f"{start}: these are the depths; the positions begin at {length}, the number of older "
            "tokens": depth,
            f"{start}: a root follows position {length - 1}, so it stands at {length}; these "
            "positions are one too far": right + 1,
            f"{start}: a root follows position {length - 1}, so it stands at {length}; these "
            "positions are one too few": right - 1,
            f"{start}: these are the numbers of the guesses; a position is the length plus the "
            "depth": np.arange(n),
            f"{start}: all guesses stand at the position of a root; one that follows another "
            "stands a position further on": np.full(n, length),
        },
        rtol=0,
        atol=0,
    )
    axes = ("guess",)
    expect_close(got, right, f"{what}: the positions", axes=axes, rtol=0, atol=0)
