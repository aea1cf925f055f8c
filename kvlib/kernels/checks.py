"""What is refused before a launch: a kernel that reads past an array does not say so."""

import os
from typing import NamedTuple

import numpy as np

from kvlib.arrays import Array, namespace, to_numpy
from kvlib.attention import checks as attention
from kvlib.kernels.types import HEAD_DIMS, LOG2E

SIZES = dict[str, int]
MOST_KEYS = 2**30  # of a request: kernels count them in 32 bits


def check_shape(name: str, x: Array, wanted: str, sizes: SIZES) -> None:
    """Refuse x unless it is contiguous and of shape `wanted`, such as "B Hq D". Letters in `sizes`
    must agree; the others are added to it."""
    letters = wanted.split()
    fits = x.ndim == len(letters)
    if fits:
        for letter, n in zip(letters, x.shape, strict=True):
            fits = fits and sizes.setdefault(letter, int(n)) == n
    if not fits:
        known = ", ".join(f"{k}={sizes[k]}" for k in letters if k in sizes)
        raise ValueError(f"{name} must be ({', '.join(letters)}) with {known}, got shape {x.shape}")
    check_contiguous(name, x)


def check_array(name: str, x: Array, shape: str, sizes: SIZES, *dtypes: str) -> None:
    """Check shape, order and type. Raises ValueError or TypeError."""
    check_shape(name, x, shape, sizes)
    check_dtype(name, x, *dtypes)


def check_contiguous(name: str, x: Array) -> None:
    """Raises ValueError unless x is in C order."""
    if not x.flags.c_contiguous:
        raise ValueError(
            f"{name} must be contiguous (C order), got strides {x.strides}; pass a copy"
        )


def check_aligned(name: str, x: Array) -> None:
    """Raises ValueError unless x starts at a multiple of 16 bytes, which a lane loads at once."""
    address = x.ctypes.data if isinstance(x, np.ndarray) else int(x.data.ptr)
    if address % 16:
        raise ValueError(
            f"{name} must start at a multiple of 16 bytes, got an address {address % 16} bytes "
            "past one; a slice may start anywhere, so pass a copy"
        )


def check_dtype(name: str, x: Array, *wanted: str) -> None:
    """Raises TypeError naming the array and its dtype."""
    if np.dtype(x.dtype).name not in wanted:
        raise TypeError(f"{name} must be {' or '.join(wanted)}, got {x.dtype}")


def sees_values(x: Array) -> bool:
    """Whether to look at an index array: on a device, where it is copied, only with KVLIB_CHECK."""
    return isinstance(x, np.ndarray) or bool(os.environ.get("KVLIB_CHECK"))


def check_range(name: str, x: Array, low: int, high: int) -> None:
    """Raises ValueError, with the worst number, if an index array leaves low ... high."""
    if not sees_values(x) or x.size == 0:
        return
    smallest, largest = int(x.min()), int(x.max())
    if smallest < low or largest > high:
        worst = smallest if smallest < low else largest
        raise ValueError(f"{name} must be in {low} ... {high}, got {worst}")


class BlockTable(NamedTuple):
    """Blocks (B, width) of `size` keys of each request; shift is log2 of size, 31 for rows."""

    blocks: Array
    size: int
    shift: int
    width: int


def check_block_table(sizes: SIZES, seq_lens: Array, block_table: Array | None) -> BlockTable:
    """Where keys (N, Hkv, P, D) of B requests are; without a table, in the rows of a dense
    cache."""
    check_array("seq_lens", seq_lens, "B", sizes, "int32")
    if sizes["D"] not in HEAD_DIMS:
        raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {sizes['D']}")
    if sizes["Hkv"] == 0 or sizes["Hq"] % sizes["Hkv"]:
        raise ValueError(
            f"query heads must be a multiple of kv heads, got {sizes['Hq']} and {sizes['Hkv']}"
        )
    size, batch = sizes["P"], sizes["B"]
    if block_table is None:
        if batch > sizes["N"]:
            raise ValueError(
                f"k must have a row for each of {batch} requests, got {sizes['N']} rows"
            )
        check_range("seq_lens", seq_lens, 0, size)
        xp = namespace(seq_lens)
        return BlockTable(xp.arange(batch, dtype=xp.int32)[:, None], size, 31, 1)
    namespace(seq_lens, block_table)
    check_array("block_table", block_table, "B W", sizes, "int32")
    # One block a request needs no splitting of positions: a row of a dense cache, of any length.
    shift = 31 if sizes["W"] == 1 else size.bit_length() - 1
    if shift < 31 and size != 1 << max(0, shift):
        words = "block_size must be a power of two (positions are split by shifts)"
        raise ValueError(f"{words}, got {size}")
    check_range("seq_lens", seq_lens, 0, size * sizes["W"])
    if sees_values(block_table):
        blocks, lens = to_numpy(block_table), to_numpy(seq_lens)
        used = np.arange(blocks.shape[1])[None, :] * size < lens[:, None]
        wrong = used & ((blocks < 0) | (blocks >= sizes["N"]))
        if wrong.any():
            b, i = np.argwhere(wrong)[0].tolist()
            raise ValueError(
                f"block_table[{b}, {i}] must be one of {sizes['N']} blocks, got {blocks[b, i]}"
            )
    return BlockTable(block_table, size, shift, sizes["W"])


class Settings(NamedTuple):
    """What a layer fixes: scale and softcap times log2 e (0: none), window in tokens (0: none)."""

    scale: float
    softcap: float
    window: int


def check_settings(
    dim: int, sm_scale: float | None, softcap: float | None, window: int | None
) -> Settings:
    """The settings of attention over heads of `dim` numbers. Raises ValueError."""
    window, sm_scale, softcap = attention.check_settings(window, sm_scale, softcap)
    scale = dim**-0.5 if sm_scale is None else sm_scale
    seen = 0 if window is None else min(window, MOST_KEYS)
    return Settings(scale * LOG2E, 0.0 if softcap is None else softcap * LOG2E, seen)
