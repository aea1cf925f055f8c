"""The safetensors files of a checkpoint, read through a memory map with NumPy alone.

The format (https://github.com/huggingface/safetensors#format): 8 bytes, the header's length N,
little-endian; N bytes of JSON, tensor name -> dtype, shape, data_offsets; then the numbers,
little-endian, row-major, without gaps or overlaps.
"""

import math
import os
from typing import Any, NamedTuple

import numpy as np

from kvlib.config import words
from kvlib.config.json_files import MOST_BYTES, open_file, parse
from kvlib.errors import CheckpointError

MOST_AXES = 32  # of a tensor; NumPy 1 has no more
MOST_NUMBERS = 2**59  # of a tensor, counting an empty axis as 1: NumPy counts bytes in 64 bits

_KINDS = dict(F64="<f8", F32="<f4", F16="<f2", BF16="<u2", I64="<i8", I32="<i4", I16="<i2")
_KINDS |= dict(I8="<i1", U64="<u8", U32="<u4", U16="<u2", U8="<u1", BOOL="?")
# NumPy has no bfloat16: BF16 are its bits, widened when read
DTYPES = {name: np.dtype(kind) for name, kind in _KINDS.items()}
ENTRY = {"dtype", "shape", "data_offsets"}  # what the header says of a tensor
FLOATS = ("F64", "F32", "F16", "BF16")
FP8 = "F8_E4M3"  # its bits, too
DTYPES[FP8] = np.dtype("u1")


class TensorInfo(NamedTuple):
    """A header's entry: dtype as the file names it, shape, the file's bytes [start, stop)."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """A file's `tensors`, name -> TensorInfo, and `metadata`; CheckpointError for a bad header."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.shown = words.path(self.path)  # for errors
        with open_file(self.path) as file:
            self._size = size = os.fstat(file.fileno()).st_size
            try:
                start, header = self._header(file, size)
            except OSError as error:
                raise self._error(f"cannot be read ({error.strerror})") from None
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        metadata = self.metadata
        if not isinstance(metadata, dict) or not all(type(x) is str for x in metadata.values()):
            raise self._error(
                f"__metadata__ is {words.stated(metadata)}, needed: an object of strings"
            )
        self.tensors = {
            name: self._tensor(name, entry, start, size) for name, entry in header.items()
        }
        self._check_layout(start, size)
        self._bytes: np.ndarray | None = None

    def read(self, name: str) -> np.ndarray:
        """The tensor as `stored` has it; for BF16 a widened float32 copy."""
        array = self.stored(name)
        return widen_bfloat16(array) if self.tensors[name].dtype == "BF16" else array

    def stored(self, name: str) -> np.ndarray:
        """The tensor as a read-only view, BF16 as bits; CheckpointError for none or a new file."""
        if name not in self.tensors:
            raise self._error(f"tensor {words.shown(name)} is not in the file")
        info = self.tensors[name]
        if self._bytes is None and info.start < info.stop:  # a file without numbers has no map
            with open_file(self.path) as file:
                if os.fstat(file.fileno()).st_size != self._size:
                    raise self._error("its size has changed since its header was read")
                self._bytes = np.memmap(file, dtype=np.uint8, mode="r")
        data = np.empty(0, np.uint8) if self._bytes is None else self._bytes
        raw = data[info.start : info.stop].view(np.ndarray)
        return raw.view(DTYPES[info.dtype]).reshape(info.shape)

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.shown}: {what}")

    def _header(self, file: Any, size: int) -> tuple[int, dict[str, Any]]:
        """Where the numbers start, and the header's JSON object."""
        if size < 8:
            raise self._error(f"truncated: {size} bytes, needed: 8 for the header's length")
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_BYTES:
            raise self._error(f"header of {length} bytes, needed: at most {MOST_BYTES}")
        if 8 + length > size:
            raise self._error(f"truncated: {size} bytes, needed: {8 + length} for the header")
        return 8 + length, parse(file.read(length), self.shown, "the header is ")

    def _tensor(self, name: str, entry: Any, data_start: int, size: int) -> TensorInfo:
        """One entry of the header, checked alone: dtype, shape, offsets, and that they agree."""

        def error(what: str) -> CheckpointError:
            return self._error(f"tensor {words.shown(name)} {what}")

        if not isinstance(entry, dict) or entry.keys() != ENTRY:
            raise error(f"is {words.stated(entry)}, needed: dtype, shape and data_offsets alone")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise error(f"has dtype {words.stated(dtype)}, needed: one of {', '.join(DTYPES)}")
        if not _counts(shape):
            raise error(f"has shape {words.stated(shape)}, needed: a list of whole numbers")
        if len(shape) > MOST_AXES:
            raise error(f"has {len(shape):,} axes, needed: at most {MOST_AXES}")
        if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise error(f"has data_offsets {words.stated(offsets)}, needed: [start, stop]")
        start, stop = data_start + offsets[0], data_start + offsets[1]
        needed = math.prod(shape) * DTYPES[dtype].itemsize
        if stop - start != needed:
            raise error(
                f"spans {words.shown(stop - start)} bytes, needed: {words.shown(needed)} for "
                f"{dtype} of shape {words.shown(shape)}"
            )
        if stop > size:
            raise error(
                f"ends at byte {words.shown(stop)}, but the file has {size}: truncated, or a wrong "
                "header"
            )
        if math.prod(max(1, axis) for axis in shape) > MOST_NUMBERS:  # empty, but not elsewhere
            raise error(
                f"has shape {words.shown(shape)}, needed: axes whose product is at most 2^59"
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
                    f"tensor {words.shown(name)} {how} before it: starts at byte {info.start}, "
                    f"needed: {start}"
                )
            start = info.stop
        if start != size:
            raise self._error(f"{size - start} bytes after the last tensor, needed: none")


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in values
    )


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16, any shape) -> the same numbers: they are float32's upper half."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
