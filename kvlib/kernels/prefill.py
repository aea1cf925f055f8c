"""Attention of many query tokens per request: prompts, chunks of prompts, guessed tokens."""

from collections.abc import Sequence

import numpy as np

from kvlib.arguments import check_flag, check_integer, check_list
from kvlib.arrays import Array, namespace, to_numpy
from kvlib.kernels import checks, engine, plans
from kvlib.kernels.decode import MOST_ITEMS, merge_launch, partials
from kvlib.kernels.launch import Boxes, Device, Launch, device_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.trees import Tree, check_tree
from kvlib.kernels.tuning import choice
from kvlib.kernels.types import HEAD_DIMS, ctype


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
    work: plans.Work | None = None,
    warpgroups: bool | None = None,
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
    (`split_work`); None: a thread block reads all keys that its rows see.
    warpgroups: whether Hopper's multiply (prefill_wgmma.cu), 16-bit numbers in blocks of 8 keys or
    more, without a tree; the device and the number of rows decide by default.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    Raises ValueError or TypeError, before anything is launched, for arguments that do not fit
    together.

    >>> import numpy as np
    >>> q, k = np.zeros((3, 1, 64), np.float32), np.zeros((1, 1, 8, 64), np.float32)
    >>> v = k + np.arange(8, dtype=np.float32)[:, None]  # each: its position
    >>> ends, lens = np.array([0, 3], np.int32), np.array([5], np.int32)
    >>> prefill_attention(q, k, v, ends, lens)[:, 0, 0]  # means of the first 3, 4 and 5
    array([1. , 1.5, 2. ], dtype=float32)
    """
    run_on = engine.engine_of(run_on, q)
    namespace(q, k, v, qo_indptr, seq_lens)
    sizes: checks.SIZES = {}
    checks.check_shape("q", q, "T Hq D", sizes)
    checks.check_shape("k", k, "N Hkv P D", sizes)
    checks.check_shape("v", v, "N Hkv P D", sizes)
    ctype(q, "q")
    return_lse = check_flag("return_lse", return_lse)
    for name, x in (("k", k), ("v", v)):
        checks.check_dtype(name, x, np.dtype(q.dtype).name)
    checks.check_dtype("qo_indptr", qo_indptr, "int32")
    table = checks.check_block_table(sizes, seq_lens, block_table)
    checks.check_shape("qo_indptr", qo_indptr, "B+1", {"B+1": sizes["B"] + 1})
    _check_tokens(qo_indptr, seq_lens, sizes["T"])
    settings = checks.check_settings(sizes["D"], sm_scale, softcap, window)
    groups = sizes["Hq"] // sizes["Hkv"]
    longest = sizes["T"]
    if max_new is not None:
        longest = check_integer("max_new", max_new, 0, checks.MOST_KEYS)
    can = plans.suits_warpgroups(q.dtype.itemsize, table.size, table.shift == 31)
    can = can and tree is None and work is None
    if warpgroups is None:
        wide = longest * groups >= plans.WIDE_ROWS and device_of(run_on).capability == "9.0"
        warpgroups = can and wide
    elif warpgroups and not can:
        raise ValueError(
            "warpgroups need 16-bit numbers, blocks of 8 keys or more, and no tree or work"
        )
    if warpgroups:
        plan = plans.plan_warpgroups(sizes["D"])
    else:
        plan = tuned(sizes["D"], q.dtype.itemsize, longest * groups, device_of(run_on))
    if tree is not None:
        check_tree(tree, qo_indptr, seq_lens)
    if work is not None and work.first is not None:
        checks.check_shape("work.first", work.first, "T+1", {"T+1": sizes["T"] + 1})
    if run_on == "twin":
        from kvlib.kernels.twins.attention import prefill

        o, lse = prefill(q, k, v, qo_indptr, seq_lens, table, settings, plan, tree, work)
        return (o, lse) if return_lse else o
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    launches = launches_of(
        o, lse, (q, k, v, table.blocks, seq_lens, qo_indptr), table, settings,
        longest * groups, plan, tree, work,
    )  # fmt: skip
    if sizes["T"] and sizes["B"]:
        engine.start(run_on, *launches)
    return (o, lse) if return_lse else o


def case_of(head_dim: int, rows: int) -> str:
    """The name of what a variant is chosen for; rows: of a kv head in a request."""
    return f"head of {head_dim}, {'few' if rows <= 64 else 'many'} rows"


def tuned(head_dim: int, itemsize: int, rows: int, device: Device) -> plans.PrefillPlan:
    """:func:`plan_prefill`, or what was measured on this card."""
    if itemsize == 2 and (measured := choice("prefill", case_of(head_dim, rows))):
        return plans.tiled(head_dim, **measured)
    return plans.plan_prefill(head_dim, itemsize, rows, device)


def _check_tokens(qo_indptr: Array, seq_lens: Array, tokens: int) -> None:
    """Offsets that rise from 0 to T, and no request with more new tokens than it is long."""
    if not checks.sees_values(qo_indptr):
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


def _kernel(unit: str, kind: str, dim: int, plan: plans.PrefillPlan) -> Kernel:
    if not plan.tensor:
        return Kernel(f"{unit}_float", f"{unit}_float<{dim}>")
    if plan.warpgroups:
        sizes = f"{plan.warpgroups}, {plan.stages}"
        return Kernel("prefill_wgmma", f"prefill_wgmma<{kind}, {dim}, {sizes}>")
    sizes = f"{plan.bands}, {plan.threads // 32}, {plan.keys}, {plan.stages}"
    return Kernel(unit, f"{unit}<{kind}, {dim}, {sizes}>")


def split_work(
    q: Array,
    num_kv_heads: int,
    q_lens: Sequence[int],
    lens: Sequence[int],
    *,
    splits: int | None = None,
    run_on: str = "twin",
) -> plans.Work | None:
    """How a step of few new tokens is split by keys between blocks; None if it is not.

    q (T, Hq, D), of which the shape and type are asked   q_lens, lens (B,): of each request its new
    tokens, and the keys that these read   splits: of each request, instead of what the plan chooses
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
        device = device_of(run_on)
        plan = tuned(dim, q.dtype.itemsize, max(new, default=0) * groups, device)
        shares = plans.splits_of_rows(plan, new, keys, num_kv_heads, groups, device)
    else:
        shares = (check_integer("splits", splits, 1, plans.MOST_SPLITS),) * len(new)
    if max(shares, default=1) == 1 or sum(shares) > MOST_ITEMS:
        return None
    return plans.work_of_rows(shares, new, keys).on_device_of(q)


def launches_of(
    o: Array,
    lse: Array,
    stored: tuple[Array, ...],
    table: checks.BlockTable,
    settings: checks.Settings,
    rows: int,
    plan: plans.PrefillPlan,
    tree: Tree | None,
    work: plans.Work | None,
) -> list[Launch]:
    """The launches of one call, and its merge; rows: of a kv head that one request has at most."""
    q, k = stored[:2]
    num_kv_heads, batch = int(k.shape[1]), int(stored[4].shape[0])
    numbers = (table.width, table.size, table.shift, num_kv_heads, q.shape[1] // num_kv_heads)
    integers = [np.int32(n) for n in (*numbers, settings.window)]
    floats = np.float32(settings.scale), np.float32(settings.softcap)
    unit = "prefill" if tree is None and work is None else "prefill_tree"
    kernel = _kernel(unit, ctype(q, "q"), q.shape[2], plan)
    if unit == "prefill":
        args = (o, lse, *stored, *integers, *floats)
        grid = (plan.tiles(rows), num_kv_heads, batch)
        if plan.warpgroups:  # a block takes job after job
            device = device_of("twin" if isinstance(q, np.ndarray) else "device")
            box = plan.keys if table.shift == 31 else min(plan.keys, table.size)
            k, v = Boxes(k, box), Boxes(stored[2], box)
            args = (o, lse, q, k, v, *stored[3:], *integers, *floats)
            args = (*args, np.int32(batch), np.int32(plan.tiles(rows)))
            grid = (min(device.sms, plan.tiles(rows) * num_kv_heads * batch), 1, 1)
        return [Launch(kernel, grid, plan.threads, plan.shared, args)]
    part, sums = partials(q, work)
    items = None if work is None else work.items[0]
    words = np.int32(1 if tree is None else tree.bits.shape[1])
    seen = tree or Tree(None, None, None)
    args = (o, lse, part, sums, *stored, *seen, items, *integers, words, *floats)
    grid = (plan.tiles(rows), num_kv_heads, batch if items is None else int(items.shape[0]))
    launches = [Launch(kernel, grid, plan.threads, plan.shared, args)]
    return launches if work is None else [*launches, merge_launch(o, lse, part, sums, work)]


def instantiations() -> list[Kernel]:
    found = {  # few rows and many; some heads have one kernel for both
        _kernel(unit, kind, dim, plans.plan_prefill(dim, itemsize, rows)): None
        for unit in ("prefill", "prefill_tree")
        for kind, itemsize in (("Half", 2), ("BFloat16", 2), ("float", 4))
        for dim in HEAD_DIMS
        for rows in (64, 65)
    } | {
        _kernel("prefill", kind, dim, plans.plan_warpgroups(dim)): None
        for kind in ("Half", "BFloat16")
        for dim in HEAD_DIMS
    }
    return list(found)
