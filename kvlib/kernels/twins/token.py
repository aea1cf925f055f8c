"""token.cu in NumPy: functions of a launch's arguments that write into its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.codecs import Fp8, Int8
from kvlib.kernels.launch import Launch
from kvlib.kernels.types import as_float, as_type
from kvlib.model.rope import rotate


def run(launch: Launch) -> None:
    """What a launch of token.cu does."""
    name, _, kind = launch.kernel.name.partition("<")
    with np.errstate(invalid="ignore", over="ignore"):
        if name == "append":
            _append(kind[:-1], *launch.args)
        elif name == "embed":
            _embed(*launch.args)
        else:
            _choose(*launch.args)


def _embed(x: np.ndarray, table: np.ndarray, ids: np.ndarray, hidden: int) -> None:
    x[...] = as_float(table[ids])


def _append(
    codec: str, q: Any, k_codes: Any, k_scales: Any, v_codes: Any, v_scales: Any, qkv: Any,
    q_norm: Any, k_norm: Any, cos: Any, sin: Any, positions: Any, lens: Any, table: Any,
    width: int, size: int, shift: int, num_qo_heads: int, num_kv_heads: int, dim: int,
    rotary: int, eps: np.float32,
) -> None:  # fmt: skip
    rows = np.flatnonzero(lens)
    heads = qkv.reshape(len(qkv), -1, dim)[rows]
    parts = np.split(heads, (num_qo_heads, num_qo_heads + num_kv_heads), axis=1)
    for i, norm in enumerate((q_norm, k_norm)):
        if norm is not None:
            parts[i] = parts[i] / _root(parts[i], eps)[..., None] * norm
        if cos is not None:
            angles = (x[positions[rows]][:, None, :] for x in (cos, sin))
            parts[i] = rotate(parts[i], *angles)
    q[rows] = parts[0]
    newest = lens[rows] - 1
    at = (table[rows, newest // size], slice(None), newest % size)
    for x, codes, scales in ((parts[1], k_codes, k_scales), (parts[2], v_codes, v_scales)):
        if codec.startswith("Plain"):
            codes[at] = as_type(x, codes.dtype)
            continue
        coded = (Int8() if codec == "Int8" else Fp8(codec.lower())).encode(x)
        codes[at] = coded["codes"]
        if scales is not None:
            scales[at] = coded["scales"]


def _root(x: np.ndarray, eps: np.float32) -> np.ndarray:
    """Root of the mean square of each head (..., D): a lane's numbers, then lanes 16 apart."""
    *lead, dim = x.shape
    padded = np.zeros((*lead, -(-dim // 128) * 128), np.float32)
    padded[..., :dim] = x * x
    lanes = padded.reshape(*lead, -1, 32, 4).swapaxes(-3, -2).reshape(*lead, 32, -1)
    sums = np.add.accumulate(lanes, axis=-1)[..., -1]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return np.sqrt(sums[..., 0] / np.float32(dim) + eps)


def _choose(
    ids: Any, positions: Any, lens: Any, words: Any, counter: Any, tops: Any, finished: Any,
    logits: np.ndarray, vocabulary: int, each: int, groups: int, length: int,
) -> None:  # fmt: skip
    rows, found, top = np.flatnonzero(lens[0]), logits.argmax(axis=1), logits.max(axis=1)
    unfit = np.select([np.isnan(top), top == np.inf, top == -np.inf], [3, 2, 1])
    words[counter[0] % length] = (int(counter[0]) + 1) << 32 | unfit << 30 | found
    ids[rows] = found[rows]
    positions[rows] += 1
    lens[:, rows] += 1
    counter += 1
