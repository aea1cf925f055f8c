"""Decode attention: one query token a request, over keys in blocks or in rows of a dense cache."""

from __future__ import annotations

from collections.abc import Sequence

from kvlib.arguments import check_flag, check_integer, check_list
from kvlib.arrays import Array
from kvlib.kernels import checks, engine
from kvlib.kernels.codes import Codes, Written, decode_kernel, written
from kvlib.kernels.decode_pieces import attend, device_of
from kvlib.kernels.pieces import Piece, Settings
from kvlib.kernels.places import check_settings, check_table
from kvlib.kernels.plans import TENSOR_ROWS, plan_decode, rows_of, suits_tensor_cores
from kvlib.kernels.results import registers_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, HEAD_DIMS, ctype


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

    With a block table, k and v are N blocks of P positions. P is a power of two; it may be any
    number if each request has one block. Without a table, k and v are the rows of a dense cache,
    and row b belongs to request b. Numbers are float32, float16, or bfloat16 as uint16 bits, and
    sums are float32. k and v may be :class:`Codes`, which the kernel decodes in registers. D is 64,
    96, 128 or 256. window (which counts the query itself), sm_scale and softcap mean the same as in
    :func:`kvlib.attend`.
    behind: (B,) int32, how many newer tokens each request has that are not among these keys,
    because another call attends to them; none unless given. A window is counted back from the
    newest token of all.
    lens: seq_lens as Python integers, by which the plan balances the thread blocks. If seq_lens
    lies on the host, kvlib reads it itself. If it lies on a device and lens is missing, every
    request gets the same number of splits.
    max_len: the longest length. Where every request gets the same number of splits, the plan
    chooses that number by it; unless given, it is what a request's blocks could hold at most.
    splits: thread blocks that share each request's keys; :func:`kvlib.kernels.plans.plan_decode`
    chooses.
    tensor: whether tensor cores multiply; :func:`kvlib.kernels.plans.suits_tensor_cores` chooses.
    Each query and weight is split into two 16-bit numbers for the tensor cores, so sums are
    accurate to 2^-16; KIVI's numbers are rounded to float16 once.
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
    where = engine.chosen(run_on, q)
    return_lse = check_flag("return_lse", return_lse)
    settings = settings_of(q, sm_scale, softcap, window)
    piece = piece_of(
        q, k, v, seq_lens, block_table, settings,
        behind=behind, lens=lens, max_len=max_len, splits=splits, tensor=tensor, where=where,
    )  # fmt: skip
    o, lse = attend(q, [piece], settings, where)
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
    where: str = "twin",
) -> Piece:
    """Keys that lie together, checked, and how they are attended to.

    lens: keys that each request reads of these, which may be fewer than seq_lens with a window
    """
    stored = [x for x in (k, v) if not isinstance(x, Codes)]
    stored += [x for c in (k, v) if isinstance(c, Codes) for x in c[1:] if x is not None]
    xp = checks.check_together(
        q=q, seq_lens=seq_lens, **{f"k, v {i}": x for i, x in enumerate(stored)}
    )
    sizes: checks.SIZES = {}
    checks.check_shape("q", q, "B Hq D", sizes)
    ctype(q, "q")
    if sizes["D"] not in HEAD_DIMS:
        raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {sizes['D']}")
    kept = written(k, v, sizes)
    _lengths("seq_lens", seq_lens, sizes)
    if behind is not None:
        checks.check_together(q=q, behind=behind)
        _lengths("behind", behind, sizes)
        checks.check_range("behind", behind, 0, 2**30)
    if sizes["Hkv"] == 0 or sizes["Hq"] % sizes["Hkv"]:
        raise ValueError(
            f"query heads must be a multiple of kv heads, got {sizes['Hq']} and {sizes['Hkv']}"
        )
    if block_table is None:
        if sizes["B"] > sizes["N"]:
            raise ValueError(
                f"k must have a row for each of {sizes['B']} requests, got {sizes['N']} rows"
            )
        block_table = xp.arange(sizes["B"], dtype=xp.int32)[:, None]
    checks.check_together(q=q, block_table=block_table)
    checks.check_shape("block_table", block_table, "B W", sizes)
    checks.check_dtype("block_table", block_table, "int32")
    size, width = sizes["P"], sizes["W"]
    shift = 31 if width == 1 else checks.power_of_two("block_size", size)
    checks.check_range("seq_lens", seq_lens, 0, size * width)
    check_table(block_table, seq_lens, size, sizes["N"])
    keys: int | Sequence[int]
    most = size * width
    if max_len is not None:
        most = check_integer("max_len", max_len, 0)
    if splits is not None:
        splits = check_integer("splits", splits, most=65535)
    if lens is not None:
        keys = [check_integer("lens", n, 0) for n in check_list("lens", lens, "lengths")]
        if len(keys) != sizes["B"]:
            raise ValueError(f"lens must hold {sizes['B']} lengths, got {len(keys)}")
    elif where == "device":
        keys = min(most, settings.window or most)
    else:
        past = [0] * len(seq_lens) if behind is None else behind.tolist()
        keys = keys_read(seq_lens.tolist(), past, settings.window)
    groups = sizes["Hq"] // sizes["Hkv"]
    on_tensor_cores = _on_tensor_cores(kept, groups, sizes["D"], tensor)
    plan = plan_decode(
        sizes["B"], sizes["Hkv"], groups, sizes["D"], keys,
        choices=(TENSOR_ROWS,) if on_tensor_cores else rows_of(sizes["D"], kept.bits),
        splits=splits, device=device_of(where),
        registers=_registers(kept, on_tensor_cores, sizes["D"]),
    )  # fmt: skip
    return Piece(kept, block_table, seq_lens, behind, size, shift, plan, on_tensor_cores)


def keys_read(lens: Sequence[int], past: Sequence[int], window: int) -> tuple[int, ...]:
    """Of each request's keys those in its window (0: all); past: tokens that follow them."""
    if not window:
        return tuple(lens)
    return tuple(n - min(n, max(0, n + m - window)) for n, m in zip(lens, past, strict=True))


def _on_tensor_cores(kept: Written, groups: int, dim: int, wish: bool | None) -> bool:
    """Raises ValueError where there is no such kernel."""
    found = suits_tensor_cores(groups, dim, kept.bits, kept.plain)
    if wish is not None:
        found = check_flag("tensor", wish)
    if found and kept.bits == 32:
        raise ValueError(
            "tensor cores take 16-bit numbers and codes, got float32; leave tensor out"
        )
    if not found and not (kept.plain and rows_of(dim, kept.bits)):
        what = f"{kept.number} in heads of {dim}" if kept.plain else f"{kept.family} codes"
        raise ValueError(f"{what} are decoded on tensor cores alone: leave tensor out")
    return found


def _registers(kept: Written, tensor: bool, dim: int) -> dict[int, int]:
    """Registers of the kernels that could be launched, by their rows."""
    choices = (TENSOR_ROWS,) if tensor else rows_of(dim, kept.bits)
    found = {rows: registers_of(kept.kernel(tensor, dim, rows).name) for rows in choices}
    return {rows: n for rows, n in found.items() if n is not None}


def _lengths(name: str, x: Array, sizes: checks.SIZES) -> None:
    checks.check_shape(name, x, "B", sizes)
    checks.check_dtype(name, x, "int32")


def settings_of(
    q: Array, sm_scale: float | None, softcap: float | None, window: int | None
) -> Settings:
    """Scale and softcap to base 2, and the window, 0 for none. Raises ValueError."""
    return Settings(*check_settings(q.shape[-1], sm_scale, softcap, window))


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    found = [Kernel("decode", "merge")]
    codes = [("Int8", 8), ("E4M3", 8), ("E5M2", 8), ("Kivi", 8), ("Kivi", 4), ("Kivi", 2)]
    for dim in HEAD_DIMS:
        for number in CTYPES.values():
            bits = 32 if number == "float" else 16
            for rows in rows_of(dim, bits):
                found.append(decode_kernel("Plain", bits, number, False, dim, rows))
            if bits == 16:
                found.append(decode_kernel("Plain", bits, number, True, dim, TENSOR_ROWS))
        for family, bits in codes:
            found.append(decode_kernel(family, bits, "", True, dim, TENSOR_ROWS))
    return found


__all__ = ["Codes", "decode_attention"]
