"""A step of few new tokens of each request: how its keys are split, and what is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import check_integer, check_list
from kvlib.arrays import Array, namespace
from kvlib.kernels import engine
from kvlib.kernels.decode_pieces import MOST_ITEMS, device_of, merge_launch
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans_prefill import THREADS, PrefillPlan, plan_prefill, splits_of_rows
from kvlib.kernels.results import registers_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.trees import Tree
from kvlib.kernels.types import HEAD_DIMS, ctype
from kvlib.kernels.work import MOST_SPLITS, Work, work_of_rows


def split_work(
    q: Array,
    num_kv_heads: int,
    q_lens: Sequence[int],
    lens: Sequence[int],
    *,
    splits: int | None = None,
    where: str = "twin",
) -> Work | None:
    """How a step of few new tokens is split by keys between blocks; None if it is not.

    q (T, Hq, D), of which the shape and type are asked   q_lens, lens (B,): of each request its new
    tokens, and the keys that these read   splits: of each request, instead of what the plan chooses

    >>> q = np.zeros((16, 32, 128), np.float16)
    >>> split_work(q, 8, [16], [65_536], splits=4).parts  # four of each token
    64
    >>> split_work(q, 8, [16], [500]) is None
    True
    """
    dim, groups = q.shape[2], q.shape[1] // num_kv_heads
    new = [check_integer("q_lens", n, 0) for n in check_list("q_lens", q_lens, "lengths")]
    keys = [check_integer("lens", n, 0) for n in check_list("lens", lens, "lengths")]
    if len(new) != len(keys) or sum(new) != q.shape[0]:
        raise ValueError(
            f"q_lens and lens must be of the same requests, with {q.shape[0]} new tokens together, "
            f"got {len(new)} and {len(keys)} numbers and {sum(new)} tokens"
        )
    if splits is None:
        found = splits_of_rows(
            plan_prefill(dim, q.dtype.itemsize), new, keys, num_kv_heads, groups,
            registers=registers_of(tree_kernel(ctype(q, "q"), dim).name), device=device_of(where),
        )  # fmt: skip
    else:
        found = (check_integer("splits", splits, 1, MOST_SPLITS),) * len(new)
    if max(found, default=1) == 1 or sum(found) > MOST_ITEMS:
        return None
    work, xp = work_of_rows(found, new, keys), namespace(q)
    return work._replace(items=tuple(map(xp.asarray, work.items)), first=xp.asarray(work.first))


def tree_launches(
    o: Array,
    lse: Array,
    stored: tuple[Array, ...],
    numbers: tuple[Any, ...],
    floats: tuple[Any, ...],
    longest: int,
    plan: PrefillPlan,
    tree: Tree | None,
    work: Work | None,
) -> list[Launch]:
    """The launches of prefill_tree.cu: the rows of each split, and their merge if there are any.

    stored: q, k, v, block table, seq_lens, qo_indptr
    numbers, floats: the kernel's other arguments, but for the words of bits
    longest: rows of a kv head that one request has at most
    """
    q, k = stored[:2]
    (_, num_qo_heads, dim), batch = q.shape, int(stored[4].shape[0])
    part, sums, items = None, None, None
    if work is not None:
        items = work.items[0]
        part = engine.empty(q, (work.parts, num_qo_heads, dim), np.float32)
        sums = engine.empty(q, (work.parts, num_qo_heads), np.float32)
    words = np.int32(1 if tree is None else tree.bits.shape[1])
    seen = tree or Tree(None, None, None)
    args = (o, lse, part, sums, *stored, *seen, items, *numbers, words, *floats)
    grid = (plan.tiles(longest), k.shape[1], batch if items is None else items.shape[0])
    kernel = tree_kernel(ctype(q, "q"), dim)
    launches = [Launch(kernel, grid, THREADS, plan.shared, args)]
    if work is not None:
        launches.append(merge_launch(o, lse, part, sums, work))
    return launches


def tree_kernel(kind: str, dim: int) -> Kernel:
    """The kernel for numbers of a C type."""
    if kind == "float":
        return Kernel("prefill_tree_float", f"prefill_tree_float<{dim}>")
    return Kernel("prefill_tree", f"prefill_tree<{kind}, {dim}>")


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    return [tree_kernel(t, d) for t in ("Half", "BFloat16", "float") for d in HEAD_DIMS]
