"""Writes safetensors files, so that the tests can build checkpoints that are right or broken."""

import json

from kvlib.model.safetensors import DTYPES

CODES = {dtype: code for code, dtype in DTYPES.items() if code not in ("BF16", "F8_E4M3")}


def save_safetensors(path, tensors, metadata=None, u16="U16", u8="U8") -> None:
    """Write name -> array as one file. u16, u8: "BF16", "F8_E4M3" where arrays hold bits."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    # the widest numbers first: then each tensor starts at a multiple of its item size
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        code = CODES[array.dtype.newbyteorder("<")]
        code = {"U16": u16, "U8": u8}.get(code, code)
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    numbers = (tensors[name].astype(tensors[name].dtype.newbyteorder("<")) for name in order)
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(x.tobytes() for x in numbers)
    )
