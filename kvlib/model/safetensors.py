"""safetensors files, read through a memory map and written, with NumPy alone.

The format (https://github.com/huggingface/safetensors#format): 8 bytes, the header's length N as an
unsigned little-endian integer; N bytes of JSON, tensor name -> dtype, shape, data_offsets; then the
numbers, little-endian, row-major, without gaps or overlaps. A header is believed only after it has
been checked against the file, so a truncated or patched file is refused before a single number is
read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvlib.errors import CheckpointError
from kvlib.model.safetensors_header import (
    DTYPES,
    FLOATS,
    MAX_HEADER,
    TensorInfo,
    check_layout,
    metadata_of,
    read_header,
    tensor_info,
)

__all__ = [
    "DTYPES",
    "FLOATS",
    "MAX_HEADER",
    "SafetensorsFile",
    "TensorInfo",
    "save_safetensors",
    "widen_bfloat16",
]


class SafetensorsFile:
    """One checked file: `tensors` maps name -> TensorInfo, `metadata` holds the file's own strings.

    Opening reads the header only. Raises CheckpointError, naming the file and, where there is one,
    the tensor.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                length, header = read_header(file, size, self.path)
        except FileNotFoundError:
            raise CheckpointError(f"{self.path}: no such file") from None
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read ({error.strerror})") from None
        self.metadata = metadata_of(header.pop("__metadata__", {}), self.path)
        self.tensors = {
            name: tensor_info(name, entry, 8 + length, size, self.path)
            for name, entry in header.items()
        }
        check_layout(self.tensors, 8 + length, size, self.path)
        self._bytes: np.ndarray | None = None

    def read(self, name: str) -> np.ndarray:
        """The tensor: a read-only view of the mapped file; for BF16 a widened float32 copy."""
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: tensor {name!r} is not in the file")
        info = self.tensors[name]
        if info.start == info.stop:
            return np.zeros(
                info.shape, dtype=np.float32 if info.dtype == "BF16" else DTYPES[info.dtype]
            )
        if self._bytes is None:
            self._bytes = np.memmap(self.path, dtype=np.uint8, mode="r")
        raw = self._bytes[info.start : info.stop].view(np.ndarray)
        array = raw.view(DTYPES[info.dtype]).reshape(info.shape)
        return widen_bfloat16(array) if info.dtype == "BF16" else array


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16, any shape) -> the same numbers: they are float32's upper half."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def save_safetensors(
    path: str | Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write name -> NumPy array as one file, which appears whole or not at all.

    Raises TypeError for a dtype the format (or NumPy) does not have, ValueError for the name
    "__metadata__".
    """
    codes = {dtype: code for code, dtype in DTYPES.items() if code != "BF16"}
    arrays: dict[str, tuple[str, np.ndarray]] = {}
    for name, value in tensors.items():
        array = np.asarray(value)
        dtype = array.dtype.newbyteorder("<")
        if name == "__metadata__":
            raise ValueError("a tensor is named '__metadata__', which the format keeps for itself")
        if dtype not in codes:
            raise TypeError(f"tensor {name!r} is {array.dtype}, needed: one of {', '.join(DTYPES)}")
        arrays[name] = codes[dtype], np.asarray(array, dtype=dtype, order="C")
    # the widest numbers first: then each tensor starts at a multiple of its item size
    order = sorted(arrays, key=lambda name: (-arrays[name][1].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        code, array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(arrays[name][1].tobytes())
    unfinished.replace(path)
