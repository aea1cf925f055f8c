"""The safetensors reader believes no header that does not fit its file, and reads every dtype."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import save_safetensors
from effort import number
from hostile import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlib.config.json_files import MOST_BYTES, PARTS
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


BIG = 10**39  # the longest integer that a header may hold
FLOAT4 = entry("F32", [4], 0, 16)
BAD = {
    "no length": (b"\0\0\0", "truncated: 3 bytes"),
    "header of 3": ((3).to_bytes(8, "little") + b"{}", "truncated: 10 bytes"),
    "header too long": ((MOST_BYTES).to_bytes(8, "little"), "truncated: 8 bytes"),
    **{f"header of {n}": (n.to_bytes(8, "little") + b"{}", "header of ")
       for n in (MOST_BYTES + 1, 2**40, 2**63, 2**64 - 1)},
    "header not JSON": ("{", b"", "not JSON"),
    "header a list": ([], b"", "the header is [], needed: a JSON object"),
    "a name twice": ('{"x":{},"x":{}}', b"", "'x' comes twice"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "__metadata__ is {'a': 1}"),
    "metadata a list": ({"__metadata__": []}, b"", "__metadata__ is []"),
    "entry a list": ({"x": []}, b"", "tensor 'x' is []"),
    "no dtype": ({"x": {"shape": [], "data_offsets": [0, 0]}}, b"", "tensor 'x' is {"),
    "unknown dtype": ({"x": entry("F8_E5M2", [4], 0, 4)}, "dtype 'F8_E5M2'"),
    "dtype a number": ({"x": entry(32, [4], 0, 4)}, "dtype 32"),
    "negative shape": ({"x": entry("F32", [-1], 0, 4)}, "shape [-1]"),
    "fractional shape": ({"x": entry("F32", [1.0], 0, 4)}, "shape [1.0]"),
    "shape a number": ({"x": entry("F32", 1, 0, 4)}, "shape 1"),
    "shape of booleans": ({"x": entry("F32", [True], 0, 4)}, "shape [true]"),
    "offsets swapped": ({"x": entry("F32", [1], 4, 0)}, "data_offsets [4, 0]"),
    "one offset": ({"x": {**FLOAT4, "data_offsets": [0]}}, b"", "data_offsets [0]"),
    "negative offset": ({"x": entry("F32", [1], -4, 0)}, "data_offsets [-4, 0]"),
    "wrong span": ({"x": entry("F32", [4], 0, 12)}, b"1" * 12, "spans 12 bytes, needed: 16"),
    "truncated": ({"x": FLOAT4}, b"1" * 15, "truncated"),
    "too long": ({"x": FLOAT4}, b"1" * 17, "1 bytes after the last tensor"),
    "overlap": ({"x": FLOAT4, "y": entry("F32", [4], 8, 24)}, b"1" * 24, "'y' overlaps"),
    "gap": ({"x": FLOAT4, "y": entry("F32", [1], 20, 24)}, b"1" * 24, "'y' leaves a gap"),
    "late start": ({"x": entry("F32", [1], 4, 8)}, b"1" * 8, "'x' leaves a gap"),
    "huge shape": ({"x": entry("F32", [2**40, 2**40], 0, 16)}, b"1" * 16, "spans 16 bytes"),
    "8,000 long integers as a shape": ({"x": entry("F32", [BIG] * 8000, 0, 4)}, "8,000 axes"),
    "integers too long": ({"x": entry("F32", [10**50] * 9, 0, 4)}, "x.shape[0] is a whole number"),
    "33 axes": ({"x": entry("F32", [1] * 33, 0, 4)}, "has 33 axes, needed: at most 32"),
    "a product that overflows": ({"x": entry("F32", [2**62, 4], 0, 4)}, "spans 4 bytes, needed"),
    "a product of 1,200 digits": ({"x": entry("F32", [BIG] * 31, 0, 4)}, "of about 1,210 digits"),
    "an empty axis beside a huge one": ({"x": entry("F32", [0, 2**62], 0, 0)}, "at most 2^59"),
    "an empty axis beside a product": ({"x": entry("F32", [2**40, 0, 2**40], 0, 0)}, "at most"),
    "offsets beyond the file": ({"x": entry("F32", [1], BIG, BIG + 4)}, "truncated, or a wrong"),
    "offsets as floats": ({"x": entry("F32", [1], 0.0, 4.0)}, "data_offsets [0.0, 4.0]"),
    "offsets as booleans": ({"x": entry("F32", [], False, True)}, "data_offsets [false, true]"),
    "offsets as strings": ({"x": entry("F32", [1], "0", "4")}, "data_offsets ['0', '4']"),
    "offsets as an object": ({"x": {**entry("F32", [], 0, 4), "data_offsets": {}}}, "offsets {}"),
    "8,000 offsets": ({"x": {**entry("F32", [1], 0, 4), "data_offsets": [0] * 8000}}, "[start,"),
    "infinite offset": ('{"x":{"dtype":"F32","shape":[],"data_offsets":[0,1e999]}}', "[1] is inf"),
    "a key beside the three": ({"x": {**entry("F32", [1], 0, 4), "order": "F"}}, "offsets alone"),
    "a name of 5,000 characters": ({"x" * 5000: []}, "xxx... is [], needed"),
    "a name with escape codes": ({"\x1b[2J": []}, r"tensor '\x1b[2J' is []"),
    "a surrogate as a name": (r'{"\ud800": []}', r"tensor '\ud800' is []"),
    "long metadata": ({"__metadata__": ["x" * 10**6]}, "__metadata__ is ['xxx"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path, name):
    header, *data, message = BAD[name]
    path = tmp_path / "model.safetensors"
    if isinstance(header, bytes):
        path.write_bytes(header)
    else:
        write(path, header, *(data or [b"1234"]))
    refused(lambda: SafetensorsFile(path), str(path), message)


def test_a_long_header_takes_linear_time(tmp_path):
    def seconds(names: int, twice: bool = False) -> float:
        header = {f"{i}": entry("U8", [], i, i + 1) for i in range(names)}
        text = json.dumps(header, separators=(",", ":"))
        if twice:
            text = text[:-1] + f',"{names - 1}":{{}}}}'
        path = write(tmp_path / "x", text, bytes(names))
        start = time.thread_time()
        if twice:
            refused(lambda: SafetensorsFile(path), f"'{names - 1}' comes twice")
        else:
            assert len(SafetensorsFile(path).tensors) == names
        return time.thread_time() - start

    for twice in (False, True):
        assert seconds(20_000, twice) < 0.2 + 30 * seconds(2_000, twice)
    header = '{"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},' * PARTS["objects"][1] + "{}"
    path = write(tmp_path / "x", header)
    refused(lambda: SafetensorsFile(path), "('{' comes 100,001 times), needed: at most 50,000")
    path = write(tmp_path / "x", header * 4)  # 200,000 tensors
    refused(lambda: SafetensorsFile(path), "needed: at most 5000000")


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
