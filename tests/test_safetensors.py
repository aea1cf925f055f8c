"""The safetensors reader believes no header that does not fit its file, and reads every dtype."""

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import save_safetensors
from effort import number
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlib.config.door import MOST_BYTES
from kvlib.errors import CheckpointError
from kvlib.model.safetensors import SafetensorsFile, widen_bfloat16


def write(path: Path, header: object, data: bytes = b"") -> Path:
    """A file with this header, a str as it is, anything else as JSON."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list, start: int, stop: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


ALL = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


def test_round_trip_of_every_dtype(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {f"t{code}": (rng.random((3, 5)) * 9).astype(code) for code in ALL}
    tensors["scalar"] = np.float32(2.5)
    tensors["empty"] = np.zeros((0, 4), dtype=np.float32)
    tensors["strided"] = np.arange(12, dtype=np.float32).reshape(3, 4).T
    tensors["big-endian"] = np.arange(4, dtype=">f4")
    save_safetensors(tmp_path / "x.safetensors", tensors, {"format": "np"})
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.metadata == {"format": "np"} and file.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        read = file.read(name)
        np.testing.assert_array_equal(read, value)
        assert read.dtype == np.asarray(value).dtype.newbyteorder("<")
        assert read.shape == np.shape(value)


def test_the_map_is_read_only_and_aligned(tmp_path):
    save_safetensors(
        tmp_path / "x", {"b": np.ones(3, dtype=np.int8), "a": np.ones(3, dtype=np.float32)}
    )
    array = SafetensorsFile(tmp_path / "x").read("a")
    assert not array.flags.writeable and array.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


def test_bfloat16(tmp_path):
    """Every one of the 65,536 patterns is widened to the float32 it stands for."""
    bits = np.arange(65536, dtype=np.uint16)
    header = {"x": entry("BF16", [256, 256], 0, 131072), "none": entry("BF16", [0], 131072, 131072)}
    file = SafetensorsFile(write(tmp_path / "x", header, bits.astype("<u2").tobytes()))
    values = file.read("x")
    assert values.dtype == np.float32 and values.shape == (256, 256)
    assert file.read("none").dtype == np.float32
    np.testing.assert_array_equal(values.view(np.uint32).ravel(), bits.astype(np.uint32) << 16)
    known = {0x3F80: 1.0, 0xC000: -2.0, 0x7F80: np.inf, 0x0001: 2.0**-133, 0x4049: 3.140625}
    got = widen_bfloat16(np.array(list(known), dtype=np.uint16))
    assert got.tolist() == list(known.values())


FLOAT4 = entry("F32", [4], 0, 16)
BAD = {
    "no length": (b"\0\0\0", "truncated: 3 bytes"),
    "endless header": ((2**40).to_bytes(8, "little"), "header of 1099511627776 bytes"),
    "header too long": ((MOST_BYTES).to_bytes(8, "little"), "truncated: 8 bytes"),
    "header not JSON": ("{", b"", "not JSON"),
    "header not UTF-8": (b"\x02" + b"\0" * 7 + b"\xff\xff", "not JSON"),
    "header a list": ([], b"", "the header is [], needed: a JSON object"),
    "a name twice": ('{"x":{},"x":{}}', b"", "'x' comes twice"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "__metadata__ is {'a': 1}"),
    "metadata a list": ({"__metadata__": []}, b"", "__metadata__ is []"),
    "entry a list": ({"x": []}, b"", "tensor 'x' is []"),
    "no dtype": ({"x": {"shape": [], "data_offsets": [0, 0]}}, b"", "tensor 'x' is {"),
    "unknown dtype": ({"x": entry("F8_E4M3", [4], 0, 4)}, b"1234", "dtype 'F8_E4M3'"),
    "dtype a number": ({"x": entry(32, [4], 0, 4)}, b"1234", "dtype 32"),
    "negative shape": ({"x": entry("F32", [-1], 0, 4)}, b"1234", "shape [-1]"),
    "fractional shape": ({"x": entry("F32", [1.0], 0, 4)}, b"1234", "shape [1.0]"),
    "shape a number": ({"x": entry("F32", 1, 0, 4)}, b"1234", "shape 1"),
    "shape of booleans": ({"x": entry("F32", [True], 0, 4)}, b"1234", "shape [true]"),
    "offsets swapped": ({"x": entry("F32", [1], 4, 0)}, b"1234", "data_offsets [4, 0]"),
    "one offset": ({"x": {**FLOAT4, "data_offsets": [0]}}, b"", "data_offsets [0]"),
    "negative offset": ({"x": entry("F32", [1], -4, 0)}, b"1234", "data_offsets [-4, 0]"),
    "wrong span": ({"x": entry("F32", [4], 0, 12)}, b"1" * 12, "spans 12 bytes, needed: 16"),
    "truncated": ({"x": FLOAT4}, b"1" * 15, "truncated"),
    "too long": ({"x": FLOAT4}, b"1" * 17, "1 bytes after the last tensor"),
    "overlap": ({"x": FLOAT4, "y": entry("F32", [4], 8, 24)}, b"1" * 24, "'y' overlaps"),
    "gap": ({"x": FLOAT4, "y": entry("F32", [1], 20, 24)}, b"1" * 24, "'y' leaves a gap"),
    "late start": ({"x": entry("F32", [1], 4, 8)}, b"1" * 8, "'x' leaves a gap"),
    "huge shape": ({"x": entry("F32", [2**40, 2**40], 0, 16)}, b"1" * 16, "spans 16 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path, name):
    *parts, message = BAD[name]
    path = tmp_path / "model.safetensors"
    if len(parts) == 1:
        path.write_bytes(parts[0])
    else:
        write(path, *parts)
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_missing_file_folder_and_tensor(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        SafetensorsFile(tmp_path / "none")
    with pytest.raises(CheckpointError, match="cannot be read"):
        SafetensorsFile(tmp_path)
    save_safetensors(tmp_path / "x", {"a": np.ones(3, dtype=np.float32)})
    with pytest.raises(CheckpointError, match="tensor 'b' is not in the file"):
        SafetensorsFile(tmp_path / "x").read("b")


@settings(max_examples=number(quick=20, usual=150, whole=300), deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_within_bounds(tmp_path_factory, data):
    """Cut anywhere or with bytes changed anywhere: CheckpointError, or whole tensors."""
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "x"
    save_safetensors(path, {"a": np.arange(6, dtype=np.float32), "b": np.ones((2, 2), "f2")})
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    path.write_bytes(raw[:cut] if data.draw(st.booleans()) else raw)
    try:
        file = SafetensorsFile(path)
        for name, info in file.tensors.items():
            assert file.read(name).shape == info.shape
    except CheckpointError as error:
        assert str(path) in str(error)
