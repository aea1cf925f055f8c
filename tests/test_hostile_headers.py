"""Headers of safetensors files, and indices of shards, as an attacker would write them."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from checkpoint_files import save_safetensors
from hostile import refused
from test_safetensors import entry, write

import kvlib
from kvlib.config.door import MOST_BYTES, PARTS
from kvlib.model.safetensors import SafetensorsFile

GOLDEN = Path(__file__).parent / "golden"
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
BIG = 10**39  # the longest integer that the door lets through
HEADERS: dict[str, tuple[object, str]] = {
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
    "a float of infinity": ('{"x":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', "is nan"),
    "a key beside the three": ({"x": {**entry("F32", [1], 0, 4), "order": "F"}}, "offsets alone"),
    "a name of 5,000 characters": ({"x" * 5000: []}, "xxx... is [], needed"),
    "a name with escape codes": ({"\x1b[2J": []}, r"tensor '\x1b[2J' is []"),
    "a surrogate as a name": (r'{"\ud800": []}', r"tensor '\ud800' is []"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, "__metadata__ is {'a': 1}"),
    "long metadata": ({"__metadata__": ["x" * 10**6]}, "__metadata__ is ['xxx"),
    "deep": ('{"x":' + "[" * 40 + "]" * 40 + "}", "a depth of at most 32"),
    "deeper than Python recurses": ('{"x":' + "[" * 90_000 + "]" * 90_000 + "}", "not JSON"),
    "byte order mark": ("\ufeff{}", "byte order mark"),
    "a number": ("7", "the header is 7, needed: a JSON object"),
    "empty": ("", "the header is not JSON"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_header(case: str, tmp_path: Path) -> None:
    header, expected = HEADERS[case]
    path = write(tmp_path / FILE, header, b"1234")
    refused(lambda: SafetensorsFile(path), str(path), expected)


def test_header_in_utf_16(tmp_path: Path) -> None:
    path, text = tmp_path / FILE, "{}".encode("utf-16")
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    refused(lambda: SafetensorsFile(path), "the header is not JSON in UTF-8")


@pytest.mark.parametrize("length", [3, MOST_BYTES, MOST_BYTES + 1, 2**40, 2**63, 2**64 - 1])
def test_length_of_a_header(length: int, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    refused(lambda: SafetensorsFile(path), str(path))


def test_a_long_header_takes_linear_time(tmp_path: Path) -> None:
    def seconds(names: int, twice: bool = False) -> float:
        header = {f"{i}": entry("U8", [], i, i + 1) for i in range(names)}
        text = json.dumps(header, separators=(",", ":"))
        if twice:
            text = text[:-1] + f',"{names - 1}":{{}}}}'
        path = write(tmp_path / FILE, text, bytes(names))
        start = time.thread_time()
        if twice:
            refused(lambda: SafetensorsFile(path), f"'{names - 1}' comes twice")
        else:
            assert len(SafetensorsFile(path).tensors) == names
        return time.thread_time() - start

    for twice in (False, True):
        assert seconds(20_000, twice) < 0.2 + 30 * seconds(2_000, twice)
    header = '{"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},' * PARTS["objects"][1] + "{}"
    path = write(tmp_path / FILE, header)
    refused(lambda: SafetensorsFile(path), "('{' comes 100,001 times), needed: at most 50,000")
    path = write(tmp_path / FILE, header * 4)  # 200,000 tensors
    refused(lambda: SafetensorsFile(path), "needed: at most 5000000")


# ---------------------------------------------------------------------------- the index of shards

SHARDS: dict[str, tuple[object, str]] = {
    "5,000 characters": ("x" * 5000, "is in 'xxx"),
    "256 characters": ("x" * 256, "is in 'xxx"),
    "an absolute path": ("/etc/passwd", "is in '/etc/passwd', needed: a file of this folder"),
    "the folder above": ("..", "is in '..', needed: a file of this folder"),
    "the folder itself": (".", "is in '.', needed: a file of this folder"),
    "a file above": ("../model.safetensors", "needed: a file of this folder"),
    "a file below": ("deep/model.safetensors", "needed: a file of this folder"),
    "a path of Windows": ("..\\model.safetensors", "needed: a file of this folder"),
    "a drive of Windows": ("C:model.safetensors", "needed: a file of this folder"),
    "a NUL": ("a\0b", r"is in 'a\x00b', needed: a file of this folder"),
    "a line break": ("a\nb", r"is in 'a\nb', needed: a file of this folder"),
    "escape codes": ("\x1b[2J", r"is in '\x1b[2J', needed: a file of this folder"),
    "a surrogate": ("\ud800", r"is in '\ud800', needed: a file of this folder"),
    "a list": (["a"], "is in ['a'], needed: a file of this folder"),
    "a number": (10**39, "needed: a file of this folder"),
    "nothing": ("", "is in '', needed: a file of this folder"),
    "a missing file": ("none.safetensors", "none.safetensors: no such file"),
    "the index itself": (INDEX, "header of"),
    "a folder": ("folder", "it is a folder, needed: a regular file"),
    "a pipe": ("pipe", "a pipe or a device"),
    "a broken link": ("broken", "broken: no such file"),
}


@pytest.mark.parametrize("case", SHARDS)
def test_index(case: str, tmp_path: Path) -> None:
    shard, expected = SHARDS[case]
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "llama-3-old", path)
    (path / "folder").mkdir()
    os.mkfifo(path / "pipe")
    (path / "broken").symlink_to("nowhere")
    index = json.loads((path / INDEX).read_text())
    listed = index["weight_map"]
    last = listed["model.norm.weight"]
    index["weight_map"] = {k: shard if file == last else file for k, file in listed.items()}
    (path / INDEX).write_text(json.dumps(index))
    refused(lambda: kvlib.load_model(path), str(path), expected)


def test_too_many_tensors_and_too_many_shards(tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "llama", path)
    (path / FILE).unlink()
    for found, expected in (
        ({str(i): "a" for i in range(60_001)}, "weight_map has 60,001 tensors, needed: at most"),
        ({str(i): str(i) for i in range(2_001)}, "weight_map names 2,001 files, needed: at most"),
        ({str(i): [i] for i in range(2_001)}, "weight_map names 2,001 files, needed: at most"),
    ):
        (path / INDEX).write_text(json.dumps({"weight_map": found}))
        refused(lambda: kvlib.load_model(path), INDEX, expected)


def test_long_names_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "llama-3-old", path)
    index = json.loads((path / INDEX).read_text())
    shard = index["weight_map"]["model.norm.weight"]
    for name in ("x" * 5000, "\x1b[2J", "\ud800"):
        found = {**index["weight_map"], name: shard}
        (path / INDEX).write_text(json.dumps({"weight_map": found}))
        refused(lambda: kvlib.load_model(path), shard, "is missing")
    save_safetensors(
        path / FILE, {"x" * 5000: kvlib.load_model(GOLDEN / "llama").weights["norm.weight"]}
    )
    refused(lambda: kvlib.load_model(path), FILE, "is missing")
