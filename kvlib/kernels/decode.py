"""Decode attention: one query token per request, over keys in blocks or rows of a dense cache."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import check_flag, check_integer, check_list
from kvlib.arrays import Array, namespace
from kvlib.kernels import checks, engine, plans
from kvlib.kernels.checks import Settings
from kvlib.kernels.codes import Codes, Piece, Stored, check_stored
from kvlib.kernels.launch import Launch, device_of
from kvlib.kernels.results import registers_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.tuning import choice
from kvlib.kernels.types import CTYPES, HEAD_DIMS, ctype

MOST_ITEMS = 65_535  # the second number of CUDA's grid


def decode_attention(
    q: Array,
    k: Array | Codes,
    v: Array | Codes,
    seq_lens: Array,
    block_table: Array | None = None,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    behind: Array | None = None,
    lens: Sequence[int] | None = None,
    max_len: int | None = None,
    splits: int | None = None,
    tensor: bool | None = None,
    return_lse: bool = False,
    run_on: str | None = None,
) -> Array | tuple[Array, Array]:
    """Attention of one query per request over its first `seq_lens` keys.

    q (B, Hq, D)   k, v (N, Hkv, P, D)   seq_lens (B,) int32   block_table (B, W) int32
    →   o (B, Hq, D), and with ``return_lse`` lse (B, Hq) float32, natural logarithm

    With a block table, k and v are N blocks of P positions; P is a power of two, or any number if
    each request has one block. Without a table, row b of k and v belongs to request b. Numbers are
    float32, float16, or bfloat16 as uint16 bits, and sums are float32. k and v may be
    :class:`Codes`, which the kernel decodes in registers. D is 64, 96, 128 or 256. window (which
    counts the query itself), sm_scale and softcap mean the same as in :func:`kvlib.attend`.
    behind: (B,) int32, how many newer tokens each request has that are not among these keys,
    because another call attends to them. A window is counted back from the newest token of all.
    lens: seq_lens as Python integers, by which the plan balances the thread blocks. Unless given,
    they are read from the host; on a device, every request gets the same number of splits.
    max_len: the longest length, by which the plan chooses an equal number of splits; on a device,
    and not given, it is what a request's blocks could hold at most.
    splits: thread blocks that share each request's keys; :func:`kvlib.kernels.plans.plan_decode`
    chooses.
    tensor: whether tensor cores multiply; :func:`kvlib.kernels.plans.suits_tensor_cores` chooses.
    Each query and weight is split into two 16-bit numbers for the tensor cores, so sums are
    accurate to 2^-16; with KIVI's codes they are rounded to float16, once more with each scale.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    A request without keys gives (0, −inf). Split keys and merged states are Flash-Decoding (T. Dao,
    D. Haziza, F. Massa, G. Sizov, 2023); the online softmax is arXiv:2205.14135. Raises ValueError
    or TypeError, before anything is launched, for arguments that do not fit together.

    >>> import numpy as np
    >>> q, k = np.zeros((2, 1, 64), np.float32), np.zeros((4, 1, 2, 64), np.float32)
    >>> v = k + np.arange(4, dtype=np.float32)[:, None, None, None]  # each: its block's number
    >>> table = np.array([[3, 1], [0, 2]], np.int32)
    >>> lens = np.array([3, 4], np.int32)
    >>> o, lse = decode_attention(q, k, v, lens, table, return_lse=True)
    >>> o[:, 0, 0]  # zero scores, so means: of 3, 3, 1 and of 0, 0, 2, 2
    array([2.3333333, 1.       ], dtype=float32)
    >>> np.exp(lse[:, 0]).round(3)  # and e^lse counts the keys
    array([3., 4.], dtype=float32)
    """
    run_on = engine.engine_of(run_on, q)
    return_lse = check_flag("return_lse", return_lse)
    settings = checks.check_settings(q.shape[-1], sm_scale, softcap, window)
    piece = piece_of(
        q, k, v, seq_lens, block_table, settings,
        behind=behind, lens=lens, max_len=max_len, splits=splits, tensor=tensor, run_on=run_on,
    )  # fmt: skip
    o, lse = attend(q, [piece], settings, run_on)
    return (o, lse) if return_lse else o


def piece_of(
    q: Array,
    k: Array | Codes,
    v: Array | Codes,
    seq_lens: Array,
    block_table: Array | None,
    settings: Settings,
    *,
    behind: Array | None = None,
    lens: Sequence[int] | None = None,
    max_len: int | None = None,
    splits: int | None = None,
    tensor: bool | None = None,
    run_on: str = "twin",
) -> Piece:
    """Keys that are stored alike, checked, with their plan. lens: keys that each request reads of
    these, which may be fewer than seq_lens with a window."""
    arrays = [x for y in (k, v) for x in (y[1:] if isinstance(y, Codes) else (y,))]
    namespace(*(x for x in (q, seq_lens, behind, *arrays) if x is not None))
    sizes: checks.SIZES = {}
    checks.check_shape("q", q, "B Hq D", sizes)
    ctype(q, "q")
    stored = check_stored(k, v, sizes)
    table = checks.check_block_table(sizes, seq_lens, block_table)
    if behind is not None:
        checks.check_array("behind", behind, "B", sizes, "int32")
        checks.check_range("behind", behind, 0, checks.MOST_KEYS)
    most = table.size * table.width
    if max_len is not None:
        most = check_integer("max_len", max_len, 0)
    if splits is not None:
        splits = check_integer("splits", splits, most=65535)
    keys: int | Sequence[int]
    if lens is not None:
        keys = [check_integer("lens", n, 0) for n in check_list("lens", lens, "lengths")]
        if len(keys) != sizes["B"]:
            raise ValueError(f"lens must hold {sizes['B']} lengths, got {len(keys)}")
    elif run_on == "device" or max_len is not None:
        keys = min(most, settings.window or most)
    else:
        past = [0] * len(seq_lens) if behind is None else behind.tolist()
        keys = keys_read(seq_lens.tolist(), past, settings.window)
    dim, groups = sizes["D"], sizes["Hq"] // sizes["Hkv"]
    if tensor is None:
        tensor = plans.suits_tensor_cores(groups, dim, stored.bits, stored.plain)
    tensor = check_flag("tensor", tensor)
    choices = plans.tensor_rows_of(dim) if tensor else plans.rows_of(dim, stored.bits)
    if tensor and stored.bits == 32:
        raise ValueError(
            "tensor cores take 16-bit numbers and codes, got float32; leave tensor out"
        )
    if not tensor and not (stored.plain and choices):
        what = f"{stored.number} in heads of {dim}" if stored.plain else f"{stored.family} codes"
        raise ValueError(f"{what} are decoded on tensor cores alone: leave tensor out")
    known = {n: registers_of(stored.kernel(tensor, dim, n).name) for n in choices}
    warps = {n: plans.tensor_warps_of(dim, n, stored.plain) for n in choices} if tensor else None
    measured: tuple[int, ...] = ()
    if tensor:
        case = case_of(stored, dim, plans.rows_for(groups, choices))
        measured = tuple(choice("decode_tensor", case).values())
    if measured:
        most = plans.REGISTERS // (32 * measured[0] * measured[1])
        known, warps = dict.fromkeys(choices, most), dict.fromkeys(choices, measured[0])
    plan = plans.plan_decode(
        sizes["B"], sizes["Hkv"], groups, dim, keys,
        choices=choices, splits=splits, device=device_of(run_on), registers=known, warps=warps,
    )  # fmt: skip
    return Piece(stored, table, seq_lens, behind, plan._replace(measured=measured), tensor)


def case_of(stored: Stored, head_dim: int, rows: int) -> str:
    """The name of what a variant of decode_tensor.cu is chosen for; rows: of query heads."""
    return f"{stored.family} of {stored.bits} bits, head of {head_dim}, {rows} rows"


def keys_read(lens: Sequence[int], past: Sequence[int], window: int) -> tuple[int, ...]:
    """Of each request's keys those in its window (0: all); past: tokens that follow them."""
    if not window:
        return tuple(lens)
    return tuple(n - min(n, max(0, n + m - window)) for n, m in zip(lens, past, strict=True))


def attend(
    q: Array,
    pieces: Sequence[Piece],
    settings: Settings,
    run_on: str,
    known: dict[Any, Any] | None = None,
) -> tuple[Array, Array]:
    """q (B, Hq, D) → o (B, Hq, D) of q's dtype, lse (B, Hq) float32, over all pieces together.
    known: work items of earlier layers, and room for parts; new ones are added."""
    if run_on == "twin":
        from kvlib.kernels.twins.attention import decode

        return decode(q, pieces, settings)
    o = engine.empty(q, q.shape, q.dtype)
    lse = engine.empty(q, q.shape[:2], np.float32)
    if q.shape[0]:
        engine.start(run_on, *launches_of(o, lse, q, pieces, settings, known))
    return o, lse


def launches_of(
    o: Array,
    lse: Array,
    q: Array,
    pieces: Sequence[Piece],
    settings: Settings,
    known: dict[Any, Any] | None = None,
    early: bool = False,
) -> list[Launch]:
    """The launches of one call, one a piece; the last block merges. early: as in `Launch`."""
    known, key = {} if known is None else known, tuple(piece.plan.splits for piece in pieces)
    if key not in known:  # made and sent once for all layers of a step
        lens = [piece.plan.lens for piece in pieces if piece.plan.lens is not None]
        known[key] = plans.work_of(key, lens if len(lens) == len(pieces) else ()).on_device_of(q)
    work = known[key]
    num_kv_heads, launches = pieces[0].stored.k[0].shape[1], []
    room = key, q.shape, num_kv_heads
    if room not in known:  # layers take turns; a counter is 0 again when a launch has ended
        finished = engine.zeros(q, (q.shape[0], num_kv_heads), np.int32) if work.parts else None
        known[room] = *partials(q, work), finished
    part, sums, finished = known[room]
    for piece, items in zip(pieces, work.items, strict=True):
        stored, table, plan = piece.stored, piece.table, piece.plan
        if sum(plan.splits) > MOST_ITEMS:
            raise ValueError(
                f"requests and splits make {sum(plan.splits):,} work items, but a launch takes at "
                f"most {MOST_ITEMS:,}; use fewer splits or smaller batches"
            )
        shifts = (group.bit_length() - 1 for group in (stored.k_group, stored.v_group))
        numbers = (
            table.width, table.size, table.shift, num_kv_heads, q.shape[1] // num_kv_heads,
            settings.window, *shifts, _kind(q), plan.splits[0],
        )  # fmt: skip
        args = (
            o, lse, part, sums, finished, q, *stored.k, *stored.v,
            table.blocks, piece.seq_lens, piece.behind, items, work.first,
            *map(np.int32, numbers), np.float32(settings.scale), np.float32(settings.softcap),
        )  # fmt: skip
        grid = (num_kv_heads * plan.tiles, sum(plan.splits), 1)
        kernel = stored.kernel(piece.tensor, q.shape[2], plan.rows, *plan.measured)
        launches.append(Launch(kernel, grid, 32 * plan.warps, plan.shared, args, early))
    return launches


def partials(q: Array, work: plans.Work | None) -> tuple[Array | None, Array | None]:
    """Room for the o (parts, Hq, D) and lse (parts, Hq) of parts, float32; None without parts."""
    if work is None or not work.parts:
        return None, None
    _, num_qo_heads, dim = q.shape
    shapes = (work.parts, num_qo_heads, dim), (work.parts, num_qo_heads)
    return engine.empty(q, shapes[0], np.float32), engine.empty(q, shapes[1], np.float32)


def _kind(x: Array) -> int:
    return list(CTYPES.values()).index(ctype(x, "q"))


def merge_launch(
    o: Array, lse: Array, part: Array | None, sums: Array | None, work: plans.Work
) -> Launch:
    """The merge of each row's parts, as `work` counts them: o (rows, Hq, D), lse (rows, Hq)."""
    rows, num_qo_heads, dim = o.shape
    numbers = (rows * num_qo_heads, work.most, num_qo_heads, dim, _kind(o))
    args = (o, lse, part, sums, work.first, *map(np.int32, numbers))
    grid = (-(-rows * num_qo_heads // plans.WARPS), 1, 1)  # a warp a row
    return Launch(Kernel("decode", "merge"), grid, plans.THREADS, 0, args)


def instantiations() -> list[Kernel]:
    kernels = [Kernel("decode", "merge")]
    for dim in HEAD_DIMS:
        for number in CTYPES.values():
            plain = Stored("Plain", 32 if number == "float" else 16, number)
            kernels += [plain.kernel(False, dim, rows) for rows in plans.rows_of(dim, plain.bits)]
            if plain.bits == 16:
                kernels += [plain.kernel(True, dim, rows) for rows in plans.tensor_rows_of(dim)]
        coded = [Stored(family, 8) for family in ("Int8", "E4M3", "E5M2")]
        for bits in (8, 4, 2):
            coded += [Stored("Kivi", bits, k_group=size, v_group=size) for size in (8, 32)]
        kernels += [x.kernel(True, dim, rows) for x in coded for rows in plans.tensor_rows_of(dim)]
    return list(dict.fromkeys(kernels))
