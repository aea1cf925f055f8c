"""The safetensors files of a checkpoint, read through a memory map with NumPy alone.

The format (https://github.com/huggingface/safetensors#format): 8 bytes, the header's length N as an
unsigned little-endian integer; N bytes of JSON, tensor name -> dtype, shape, data_offsets; then the
numbers, little-endian, row-major, without gaps or overlaps. A header is believed only after it has
been checked against the file, so a truncated or patched file is refused before a single number is
read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kvlib.config.keys import read_json
from kvlib.errors import CheckpointError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
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


class TensorInfo(NamedTuple):
    """A header's entry: dtype as the file names it, shape, the file's bytes [start, stop)."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """One checked file: `tensors` maps name -> TensorInfo, `metadata` holds the file's own strings.

    Opening reads the header only. Raises CheckpointError, naming the file and, where there is one,
    the tensor.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                start, header = self._header(file, size)
        except FileNotFoundError:
            raise self._error("no such file") from None
        except OSError as error:
            raise self._error(f"cannot be read ({error.strerror})") from None
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        given = self.metadata
        if not isinstance(given, dict) or not all(isinstance(x, str) for x in given.values()):
            raise self._error(f"__metadata__ is {given!r}, needed: an object of strings")
        self.tensors = {
            name: self._tensor(name, entry, start, size) for name, entry in header.items()
        }
        self._check_layout(start, size)
        self._bytes: np.ndarray | None = None

    def read(self, name: str) -> np.ndarray:
        """The tensor: a read-only view of the mapped file; for BF16 a widened float32 copy."""
        if name not in self.tensors:
            raise self._error(f"tensor {name!r} is not in the file")
        info = self.tensors[name]
        if self._bytes is None and info.start < info.stop:  # a file without numbers has no map
            self._bytes = np.memmap(self.path, dtype=np.uint8, mode="r")
        whole = np.empty(0, np.uint8) if self._bytes is None else self._bytes
        raw = whole[info.start : info.stop].view(np.ndarray)
        array = raw.view(DTYPES[info.dtype]).reshape(info.shape)
        return widen_bfloat16(array) if info.dtype == "BF16" else array

    def _error(self, words: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {words}")

    def _header(self, file: Any, size: int) -> tuple[int, dict[str, Any]]:
        """Where the numbers start, and the header's JSON object."""
        if size < 8:
            raise self._error(f"truncated: {size} bytes, needed: 8 for the header's length")
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER:
            raise self._error(f"header of {length} bytes, needed: at most {MAX_HEADER}")
        if 8 + length > size:
            raise self._error(f"truncated: {size} bytes, needed: {8 + length} for the header")
        try:
            header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise self._error(f"the header is not JSON ({error})") from None
        if not isinstance(header, dict):
            raise self._error(f"the header is a {type(header).__name__}, needed: an object")
        return 8 + length, header

    def _tensor(self, name: str, entry: Any, data_start: int, size: int) -> TensorInfo:
        """One entry of the header, checked alone: dtype, shape, offsets, and that they agree."""
        which = f"tensor {name!r}"
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise self._error(f"{which} is {entry!r}, needed: dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise self._error(f"{which} has dtype {dtype!r}, needed: one of {', '.join(DTYPES)}")
        if not _counts(shape):
            raise self._error(f"{which} has shape {shape!r}, needed: a list of whole numbers")
        if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._error(f"{which} has data_offsets {offsets!r}, needed: [start, stop]")
        start, stop = data_start + offsets[0], data_start + offsets[1]
        needed = math.prod(shape) * DTYPES[dtype].itemsize
        if stop - start != needed:
            raise self._error(
                f"{which} spans {stop - start} bytes, needed: {needed} for {dtype} of shape {shape}"
            )
        if stop > size:
            raise self._error(
                f"{which} ends at byte {stop}, but the file has {size}: truncated, or a wrong "
                "header"
            )
        return TensorInfo(dtype, tuple(shape), start, stop)

    def _check_layout(self, start: int, size: int) -> None:
        """The tensors must fill the file: overlap or gap means a header that is not this file's."""
        for name, info in sorted(
            self.tensors.items(), key=lambda item: (item[1].start, item[1].stop)
        ):
            if info.start != start:
                how = "overlaps the tensor" if info.start < start else "leaves a gap"
                raise self._error(
                    f"tensor {name!r} {how} before it: starts at byte {info.start}, needed: {start}"
                )
            start = info.stop
        if start != size:
            raise self._error(f"{size - start} bytes after the last tensor, needed: none")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} comes twice")
    return found


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in values
    )


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16, any shape) -> the same numbers: they are float32's upper half."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


# ----------------------------------------------------------------------- one file, or several


def weights_file(folder: str) -> str:
    """model.safetensors or, where there is none, the index of the shards."""
    for name in (SINGLE, INDEX):
        if os.path.isfile(path := os.path.join(folder, name)):
            return path
    raise CheckpointError(f"{folder}: no weights, needed: {SINGLE} or {INDEX}")


def weights_files(folder: str) -> Iterator[tuple[SafetensorsFile, Iterable[str]]]:
    """The folder's safetensors files, each with the names of its tensors."""
    path = weights_file(folder)
    if path.endswith(SINGLE):
        file = SafetensorsFile(path)
        yield file, file.tensors
        return
    for shard, listed in _shards(path).items():
        file = SafetensorsFile(os.path.join(folder, shard))
        if absent := listed - file.tensors.keys():
            raise CheckpointError(
                f"{file.path}: tensor {min(absent)!r} is missing; {INDEX} says it is here"
            )
        if unlisted := file.tensors.keys() - listed:
            raise CheckpointError(
                f"{file.path}: tensor {min(unlisted)!r} is here, but {INDEX} does not list it here"
            )
        yield file, sorted(listed)


def _shards(index: str) -> dict[str, set[str]]:
    """File name -> the tensors it holds, as the index says; every file is there."""
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{index}: weight_map is {where!r}, needed: tensor name -> file name")
    shards: dict[str, set[str]] = {}
    for name, shard in where.items():
        if not isinstance(shard, str) or not shard or os.path.basename(shard) != shard:
            raise CheckpointError(
                f"{index}: tensor {name!r} is in {shard!r}, needed: a file of this folder"
            )
        path = os.path.join(os.path.dirname(index), shard)
        if not os.path.isfile(path):
            raise CheckpointError(f"{path}: no such file; {INDEX} says it holds tensor {name!r}")
        shards.setdefault(shard, set()).add(name)
    return shards
