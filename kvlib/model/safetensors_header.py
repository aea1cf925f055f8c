"""The header of a safetensors file, believed only after it has been checked against the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvlib.errors import CheckpointError

MAX_HEADER = 100_000_000  # bytes; the limit of the format's own library

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # NumPy has no bfloat16: the bits, widened when read
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("<i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("<u1"),
    "BOOL": np.dtype("?"),
}
FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class TensorInfo:
    """A header's entry: dtype as the file names it, shape, the file's bytes [start, stop)."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(file: Any, size: int, path: Path) -> tuple[int, dict[str, Any]]:
    """The header's length and its JSON object."""
    if size < 8:
        raise CheckpointError(f"{path}: truncated: {size} bytes, needed: 8 for the header's length")
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER:
        raise CheckpointError(f"{path}: header of {length} bytes, needed: at most {MAX_HEADER}")
    if 8 + length > size:
        raise CheckpointError(
            f"{path}: truncated: {size} bytes, needed: {8 + length} for the header"
        )
    try:
        header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is a {type(header).__name__}, needed: an object")
    return length, header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} comes twice")
    return found


def metadata_of(entry: Any, path: Path) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(one, str) for one in entry.values()):
        raise CheckpointError(f"{path}: __metadata__ is {entry!r}, needed: an object of strings")
    return entry


def tensor_info(name: str, entry: Any, data_start: int, size: int, path: Path) -> TensorInfo:
    """One entry of the header, checked alone: dtype, shape, offsets, and that they agree."""
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise CheckpointError(f"{where} is {entry!r}, needed: dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CheckpointError(f"{where} has dtype {dtype!r}, needed: one of {', '.join(DTYPES)}")
    if not _counts(shape):
        raise CheckpointError(f"{where} has shape {shape!r}, needed: a list of whole numbers")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has data_offsets {offsets!r}, needed: [start, stop]")
    start, stop = data_start + offsets[0], data_start + offsets[1]
    needed = math.prod(shape) * DTYPES[dtype].itemsize
    if stop - start != needed:
        raise CheckpointError(
            f"{where} spans {stop - start} bytes, needed: {needed} for {dtype} of shape {shape}"
        )
    if stop > size:
        raise CheckpointError(
            f"{where} ends at byte {stop}, but the file has {size}: truncated, or a wrong header"
        )
    return TensorInfo(dtype, tuple(shape), start, stop)


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in values
    )


def check_layout(tensors: Mapping[str, TensorInfo], start: int, size: int, path: Path) -> None:
    """The tensors must fill the file: overlap or gap means a header that is not this file's."""
    end = start
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if info.start != end:
            how = "overlaps the tensor before it" if info.start < end else "leaves a gap before it"
            raise CheckpointError(
                f"{path}: tensor {name!r} {how}: starts at byte {info.start}, needed: {end}"
            )
        end = info.stop
    if end != size:
        raise CheckpointError(f"{path}: {size - end} bytes after the last tensor, needed: none")
