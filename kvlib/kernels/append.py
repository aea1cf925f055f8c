"""Append: scatter new keys and values into the blocks of a cache, as they come or as codes."""

from __future__ import annotations

import os

import numpy as np

from kvlib.arrays import Array, to_numpy
from kvlib.codecs import Fp8, PerChannel, PerToken
from kvlib.codecs.fp8 import FORMATS
from kvlib.codecs.int8 import Int8
from kvlib.kernels import checks, engine
from kvlib.kernels.codes import Codes, written
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans import THREADS, WARPS
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, ctype


def append_kv(
    k: Array,
    v: Array,
    k_blocks: Array | Codes,
    v_blocks: Array | Codes,
    slot_mapping: Array,
    *,
    run_on: str | None = None,
) -> None:
    """Write the keys and values of T tokens where a slot mapping says.

    k, v (T, Hkv, D)   slot_mapping (T,) int64   k_blocks, v_blocks (N, Hkv, P, D), or Codes
    slot = block · P + position; −1: the token is skipped (padding)

    Numbers are float32, float16 or bfloat16 (uint16); float32 may go into 16-bit blocks. int8 and
    fp8 are encoded token by token. KIVI encodes whole groups: tokens i · g ... (i + 1) · g go, in
    order, into slots that are one group of a block, or all of them nowhere. Codes are those of
    ``codec.encode`` to the last bit, for numbers that are not NaN. Slots are looked at where
    they are NumPy's, or where KVLIB_CHECK is set.
    Raises ValueError for slots outside of the blocks or named twice, ValueError and TypeError for
    what does not fit, before anything is written.

    >>> import numpy as np
    >>> k_blocks, v_blocks = (np.zeros((3, 1, 2, 4), np.float32) for _ in "kv")
    >>> new = np.ones((3, 1, 4), np.float32) * np.array([7, 8, 9], np.float32)[:, None, None]
    >>> append_kv(new, new, k_blocks, v_blocks, np.array([5, 0, -1]))  # 5 = 2 · P + 1
    >>> k_blocks[:, 0, :, 0]  # a row a block; the third token was padding
    array([[8., 0.],
           [0., 0.],
           [0., 7.]], dtype=float32)
    """
    where = engine.chosen(run_on, k)
    group = _checked(k, v, k_blocks, v_blocks, slot_mapping)
    if where == "twin":
        from kvlib.kernels.twins.append import scatter

        for x, blocks in ((k, k_blocks), (v, v_blocks)):
            scatter(x, blocks, slot_mapping)
    elif k.shape[0]:
        both = ((k, k_blocks), (v, v_blocks))
        engine.start(where, *(launch_of(x, y, slot_mapping, group) for x, y in both))


def launch_of(x: Array, blocks: Array | Codes, slots: Array, group: int) -> Launch:
    """The launch for keys, or for values. group: tokens that are encoded together."""
    tokens, heads, dim = x.shape
    kind, size = ctype(x, "x"), _numbers(blocks).shape[2]
    warps = (-(-tokens * heads // WARPS), 1, 1)  # one a row
    sizes = [np.int32(n) for n in (tokens, heads, size, dim)]
    if not isinstance(blocks, Codes):
        if x.dtype == blocks.dtype:
            sizes[3] = np.int32(dim * x.dtype.itemsize // 16)
            return Launch(Kernel("append", "copy"), warps, THREADS, 0, (blocks, x, slots, *sizes))
        kernel = Kernel("append", f"narrow<{ctype(blocks, 'blocks')}>")
        return Launch(kernel, warps, THREADS, 0, (blocks, x, slots, *sizes))
    codec = blocks.codec
    if isinstance(codec, Int8):
        args = (blocks.codes, blocks.scales, x, slots, *sizes)
        return Launch(Kernel("append", f"int8<{kind}>"), warps, THREADS, 0, args)
    if isinstance(codec, Fp8):
        args = (blocks.codes, x, slots, *sizes, *(np.int32(n) for n in FORMATS[codec.kind]))
        return Launch(Kernel("append", f"fp8<{kind}>"), warps, THREADS, 0, args)
    assert isinstance(codec, PerChannel | PerToken)
    numbers, shared, name = [heads, size, dim, group], 0, "kivi_keys"
    if isinstance(codec, PerToken):
        numbers.append(codec.size)
        shared, name = 4 * WARPS * 2 * (dim // codec.size), "kivi_values"
    first = slots[::group].copy()  # a slot a group: its first token's
    args = (*blocks[1:], x, first, *(np.int32(n) for n in (*numbers, codec.bits)))
    grid = (tokens // group, heads, 1)
    return Launch(Kernel("append", f"{name}<{kind}>"), grid, THREADS, shared, args)


def _numbers(blocks: Array | Codes) -> Array:
    return blocks.codes if isinstance(blocks, Codes) else blocks


def _checked(
    k: Array, v: Array, k_blocks: Array | Codes, v_blocks: Array | Codes, slots: Array
) -> int:
    """Tokens that are encoded together, after refusing what does not fit."""
    stored = [_numbers(k_blocks), _numbers(v_blocks)]
    checks.check_together(k=k, v=v, slots=slots, k_blocks=stored[0], v_blocks=stored[1])
    sizes: checks.SIZES = {}
    checks.check_shape("k", k, "T Hkv D", sizes)
    checks.check_shape("v", v, "T Hkv D", sizes)
    kind = np.dtype(k.dtype).name
    ctype(k, "k")
    checks.check_dtype("v", v, kind)
    kept = written(k_blocks, v_blocks, sizes)
    checks.check_shape("slot_mapping", slots, "T", sizes)
    checks.check_dtype("slot_mapping", slots, "int64")
    if kept.plain:
        into = np.dtype(stored[0].dtype).name
        if into != kind and (kind != "float32" or into not in ("float16", "uint16")):
            raise TypeError(f"k must be {into} or float32 as the blocks are {into}, got {kind}")
        if into == kind and sizes["D"] * k.dtype.itemsize % 16:
            raise ValueError(f"vectors must fill 16 bytes, got head_dim {sizes['D']} of {kind}")
    if sizes["T"] % kept.k_group:
        raise ValueError(f"whole groups of {kept.k_group} tokens needed, got {sizes['T']} tokens")
    if isinstance(slots, np.ndarray) or os.environ.get("KVLIB_CHECK"):
        _check_slots(to_numpy(slots), sizes["N"] * sizes["P"], kept.k_group)
    return kept.k_group


def _check_slots(slots: np.ndarray, room: int, group: int) -> None:
    checks.check_range("slot_mapping", slots, -1, room - 1)
    used, times = np.unique(slots[slots >= 0], return_counts=True)
    if (times > 1).any():
        raise ValueError(f"slot_mapping names slot {used[times > 1][0]} more than once")
    first = slots.reshape(-1, group)[:, :1]
    steps = np.arange(group) if group > 1 else np.zeros(1, np.int64)
    wanted = np.where(first < 0, -1, first + steps)
    wrong = ((slots.reshape(-1, group) != wanted) | (first >= 0) & (first % group != 0)).any(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"slot_mapping[{i * group} ... {(i + 1) * group - 1}] must be the {group} slots of one "
            f"group in order, or −1, got {slots[i * group : (i + 1) * group].tolist()}"
        )


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    names = ["copy", "narrow<Half>", "narrow<BFloat16>"]
    names += [
        f"{n}<{t}>" for n in ("int8", "fp8", "kivi_keys", "kivi_values") for t in CTYPES.values()
    ]
    return [Kernel("append", name) for name in names]


__all__ = ["append_kv"]
