"""Trees of new tokens as the kernels read them: a bit per ancestor, and each token's depth."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_integer, check_list
from kvlib.arrays import Array, namespace, to_numpy
from kvlib.kernels import checks

MOST_NODES = 1024  # new tokens of a tree


class Tree(NamedTuple):
    """Which new tokens of its request each new token sees, for every request that has a tree.

    bits (N, words) uint32    bit i % 32 of word i // 32 of a token's row: it sees new token i,
                              which is itself or one of its ancestors
    depths (N,) int32         its position minus the number of older tokens
    trees (B, 2) int32        row of the request's first new token in bits and depths, and how many
                              new tokens it has; −1, 0 for a chain
    """

    bits: Array
    depths: Array
    trees: Array


def tree_of(parents: Sequence[Sequence[int] | None], xp: Any = np) -> Tree:
    """The trees of a step, sent to the device of `xp`.

    parents: B entries, None for a chain of new tokens, or the parent of each new token: a token
    before it, or −1 for an older token

    Raises ValueError for a parent that is not before its child, or more than 1,024 new tokens.
    """
    trees_of = check_list("parents", parents, "trees, one per request")
    most = max((len(tree) for tree in trees_of if tree is not None), default=0)
    if most > MOST_NODES:
        raise ValueError(
            f"a tree of the kernels has at most {MOST_NODES:,} new tokens, got {most:,}; "
            "plan fewer, or let the cache attend without kernels"
        )
    words, rows, depths = max(1, -(-most // 32)), list[int](), list[int]()
    trees = np.array([(-1, 0)] * len(trees_of), dtype=np.int32).reshape(-1, 2)
    for b, tree in enumerate(trees_of):
        if tree is None:
            continue
        first = len(rows)
        trees[b] = first, len(tree)
        for j, value in enumerate(tree):
            parent = check_integer(f"parents[{b}][{j}]", value, -1, j - 1)
            rows.append(1 << j | (rows[first + parent] if parent >= 0 else 0))
            depths.append(1 + depths[first + parent] if parent >= 0 else 0)
    packed = b"".join(row.to_bytes(4 * words, "little") for row in rows)
    bits = np.frombuffer(packed, dtype="<u4").astype(np.uint32).reshape(-1, words)
    return Tree(*(xp.asarray(x) for x in (bits, np.array(depths, np.int32), trees)))


def check_tree(tree: Tree, qo_indptr: Array, seq_lens: Array) -> None:
    """Check shapes and types of a tree, and its numbers on the host. ValueError or TypeError."""
    namespace(qo_indptr, *tree)
    sizes: checks.SIZES = {"B": int(seq_lens.shape[0])}
    checks.check_shape("bits", tree.bits, "N words", sizes)
    checks.check_shape("depths", tree.depths, "N", sizes)
    checks.check_shape("trees", tree.trees, "B 2", sizes | {"2": 2})
    for name, x, wanted in zip(Tree._fields, tree, ("uint32", "int32", "int32"), strict=True):
        checks.check_dtype(name, x, wanted)
    if not checks.sees_values(qo_indptr):
        return
    bits, depths, trees = (to_numpy(x) for x in tree)
    rows, lens = np.diff(to_numpy(qo_indptr)).tolist(), to_numpy(seq_lens).tolist()
    for b, (first, count) in enumerate(trees.tolist()):
        if first < 0:
            continue
        if first + count > len(bits) or count > 32 * sizes["words"]:
            raise ValueError(
                f"bits must have a row and a bit for each of {count} new tokens of request {b} "
                f"from row {first} on, got shape {bits.shape}"
            )
        if not rows[b] <= count <= lens[b]:
            raise ValueError(
                f"request {b} has {rows[b]} rows and {lens[b]} tokens, so its tree has between "
                f"{rows[b]} and {lens[b]} new tokens, got {count}"
            )
        part = slice(first, first + count)
        seen = np.unpackbits(bits[part].view(np.uint8), axis=1, bitorder="little")[:, :count]
        if np.triu(seen, 1).any() or not np.diagonal(seen).all():
            raise ValueError(
                f"a new token sees itself and tokens before it, but request {b}'s bits differ"
            )
        checks.check_range("depths", depths[part], 0, count - 1)
