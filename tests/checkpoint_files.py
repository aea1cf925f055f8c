"""Writes safetensors files, so that the tests can build checkpoints that are right or broken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kvlib.model.safetensors import DTYPES

CODES = {dtype: code for code, dtype in DTYPES.items() if code != "BF16"}


def save_safetensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    u16: str = "U16",
) -> None:
    """Write name -> array as one file. u16: "BF16" where arrays of uint16 hold such bits."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    # the widest numbers first: then each tensor starts at a multiple of its item size
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        code = CODES[array.dtype.newbyteorder("<")]
        code = u16 if code == "U16" else code
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    numbers = (tensors[name].astype(tensors[name].dtype.newbyteorder("<")) for name in order)
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(x.tobytes() for x in numbers)
    )
