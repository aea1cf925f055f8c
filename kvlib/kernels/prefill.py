"""Attention of many query tokens a request: prompts, chunks of prompts, guessed tokens."""

from __future__ import annotations

import numpy as np

from kvlib.arguments import check_flag, check_integer
from kvlib.arrays import Array, to_numpy
from kvlib.kernels import checks, engine
from kvlib.kernels.launch import Launch
from kvlib.kernels.places import MOST_KEYS, check_places, check_settings
from kvlib.kernels.plans_prefill import THREADS, plan_prefill
from kvlib.kernels.prefill_work import tree_launches
from kvlib.kernels.source import Kernel
from kvlib.kernels.trees import Tree, check_tree
from kvlib.kernels.types import HEAD_DIMS, ctype
from kvlib.kernels.work import Work


def prefill_attention(
    q: Array,
    k: Array,
    v: Array,
    qo_indptr: Array,
    seq_lens: Array,
    block_table: Array | None = None,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    max_new: int | None = None,
    tree: Tree | None = None,
    work: Work | None = None,
    return_lse: bool = False,
    run_on: str | None = None,
) -> Array | tuple[Array, Array]:
    """Causal attention of the last tokens of each request over all its keys.

    q (T, Hq, D) requests one after the other   k, v (N, Hkv, P, D)   qo_indptr (B + 1,) int32
    seq_lens (B,) int32, new tokens included   block_table (B, W) int32; none: rows of a dense cache
    →   o (T, Hq, D), and with ``return_lse`` lse (T, Hq) float32, natural logarithm

    Rows qo_indptr[b] to qo_indptr[b + 1] − 1 of q are the newest of request b's seq_lens[b] tokens.
    float16, and bfloat16 as uint16 bits, are multiplied on tensor cores with float32 sums; the
    weights are rounded to 16 bits before the second product, as in FlashAttention-2
    (arXiv:2307.08691). float32 stays float32. D is 64, 96, 128 or 256. window, sm_scale and softcap
    mean the same as in :func:`kvlib.attend`.
    max_new: the most new tokens of one request, if you know it; T otherwise.
    tree: which new tokens each of them sees (`kvlib.kernels.trees.tree_of`); None: a chain.
    work: how thread blocks share the keys of a step of few new tokens, such as guesses
    (`kvlib.kernels.prefill_work.split_work`); None: a thread block reads all keys that its rows
    see.

    Raises ValueError or TypeError, before anything is launched, for arguments that do not fit
    together.

    >>> import numpy as np
    >>> q, k = np.zeros((3, 1, 64), np.float32), np.zeros((1, 1, 8, 64), np.float32)
    >>> v = k + np.arange(8, dtype=np.float32)[:, None]  # each: its position
    >>> ends, lens = np.array([0, 3], np.int32), np.array([5], np.int32)
    >>> prefill_attention(q, k, v, ends, lens)[:, 0, 0]  # means of the first 3, 4 and 5
    array([1. , 1.5, 2. ], dtype=float32)
    """
    where = engine.chosen(run_on, q)
    checks.check_together(q=q, k=k, v=v, qo_indptr=qo_indptr, seq_lens=seq_lens)
    sizes: checks.SIZES = {}
    checks.check_shape("q", q, "T Hq D", sizes)
    checks.check_shape("k", k, "N Hkv P D", sizes)
    checks.check_shape("v", v, "N Hkv P D", sizes)
    kind, return_lse = ctype(q, "q"), check_flag("return_lse", return_lse)
    for name, x in (("k", k), ("v", v)):
        checks.check_dtype(name, x, np.dtype(q.dtype).name)
    checks.check_dtype("qo_indptr", qo_indptr, "int32")
    places = check_places(sizes, seq_lens, block_table, int(seq_lens.shape[0]))
    checks.check_shape("qo_indptr", qo_indptr, "B+1", {"B+1": sizes["B"] + 1})
    _check_tokens(qo_indptr, seq_lens, sizes["T"])
    scale, cap, window = check_settings(sizes["D"], sm_scale, softcap, window)
    groups = sizes["Hq"] // sizes["Hkv"]
    longest = sizes["T"] if max_new is None else check_integer("max_new", max_new, 0, MOST_KEYS)
    plan = plan_prefill(sizes["D"], q.dtype.itemsize)
    if tree is not None:
        check_tree(tree, qo_indptr, seq_lens)
    if work is not None and work.first is not None:
        checks.check_shape("work.first", work.first, "T+1", {"T+1": sizes["T"] + 1})
    if where == "twin":
        from kvlib.kernels.twins.prefill import prefill

        asked = places, window, scale, cap, plan, tree, work
        o, lse = prefill(q, k, v, qo_indptr, seq_lens, *asked)
        return (o, lse) if return_lse else o
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    stored = (q, k, v, places.table, seq_lens, qo_indptr)
    numbers = (places.width, places.size, places.shift, sizes["Hkv"], groups, window)
    integers, floats = tuple(np.int32(n) for n in numbers), (np.float32(scale), np.float32(cap))
    if tree is None and work is None:
        grid = (plan.tiles(longest * groups), sizes["Hkv"], sizes["B"])
        args = (o, lse, *stored, *integers, *floats)
        launches = [Launch(_kernel(kind, sizes["D"]), grid, THREADS, plan.shared, args)]
    else:
        rows = longest * groups
        launches = tree_launches(o, lse, stored, integers, floats, rows, plan, tree, work)
    if sizes["T"] and sizes["B"]:
        engine.start(where, *launches)
    return (o, lse) if return_lse else o


def _check_tokens(qo_indptr: Array, seq_lens: Array, tokens: int) -> None:
    """Offsets that rise from 0 to T, and no request with more new tokens than it is long."""
    if not checks.looks(qo_indptr):
        return
    offsets, lens = to_numpy(qo_indptr), to_numpy(seq_lens)
    new = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != tokens or (new < 0).any():
        raise ValueError(f"qo_indptr must rise from 0 to {tokens} tokens, got {offsets.tolist()}")
    if (new > lens).any():
        b = int(np.argmax(new > lens))
        raise ValueError(
            f"seq_lens[{b}] counts the new tokens too: at least {new[b]} needed, got {lens[b]}"
        )


def _kernel(kind: str, dim: int) -> Kernel:
    """The kernel for numbers of a C type."""
    if kind == "float":
        return Kernel("prefill_float", f"prefill_float<{dim}>")
    return Kernel("prefill", f"prefill<{kind}, {dim}>")


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    return [_kernel(t, d) for t in ("Half", "BFloat16", "float") for d in HEAD_DIMS]
