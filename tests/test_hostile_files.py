"""Files of a checkpoint as an attacker would write them: each refused by name, at once, unread."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import save_safetensors
from hostile import refused
from test_config import LLAMA

import kvlib
from kvlib.config.json_files import DEEPEST, MOST_BYTES, read_json
from kvlib.costs import ModelSpec
from kvlib.model.config import ModelConfig
from kvlib.model.safetensors import SafetensorsFile
from kvlib.model.tokenizer import load_tokenizer

GOLDEN = Path(__file__).parent / "golden"
FILE = "model.safetensors"


def config(**keys: object) -> str:
    return json.dumps({**LLAMA, **keys})


def spliced(key: str, text: str) -> str:
    """A config whose key holds what json.dumps would not write."""
    return config(**{key: "HERE"}).replace('"HERE"', text)


def nested(depth: int, left: str = "[", right: str = "]") -> str:
    return left * depth + right * depth


TEXTS: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "not JSON in UTF-8"), "a brace": ("{", "not JSON in UTF-8"),
    "two objects": ("{}{}", "not JSON in UTF-8 (Extra data"),
    "a list": ("[1]", "holds [1], needed: a JSON object"),
    "null": ("null", "holds null, needed: a JSON object"),
    "Latin-1": ('{"a": "\xe9"}'.encode("latin-1"), "not JSON in UTF-8"),
    "UTF-16": (config().encode("utf-16"), "not JSON in UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + config().encode(), "byte order mark; save it without"),
    "a surrogate in bytes": (b'{"\xed\xa0\x80": 1}', "not JSON in UTF-8"),
    "a surrogate as a name": (r'{"\ud800": 1, "model_type": "llama"}', "hidden_size is missing"),
    "a key twice": (config()[:-1] + ', "hidden_size": 64}', "'hidden_size' comes twice"),
    "an inner key twice": (spliced("rope_scaling", '{"a": 1, "a": 1}'), "'a' comes twice"),
    "NaN": (spliced("rms_norm_eps", "NaN"), "rms_norm_eps is nan, needed: a finite number"),
    "Infinity": (spliced("rope_theta", "Infinity"), "rope_theta is inf, needed: a finite"),
    "infinity as transformers 5 writes it": (
        config(rope_theta={"__float__": "Infinity"}),
        "rope_theta is {'__float__': 'Infinity'}, needed: a finite number",
    ),
    "41 digits": (spliced("vocab_size", "9" * 41), "vocab_size is a whole number of 41 digits"),
    "5,000 digits": (
        spliced("vocab_size", "1" * 5000),
        "vocab_size is a whole number of 5,000 digits, needed: at most 40 digits",
    ),
    "a million digits": (spliced("hidden_size", "-" + "7" * 10**6), "of 1,000,000 digits"),
    "digits where no key is read": (
        spliced("top_k", "1" * 5000), "top_k is a whole number of 5,000 digits",
    ),
    "digits in a list": (spliced("eos_token_id", f"[2, {'1' * 99}]"), "eos_token_id[1] is a whole"),
    "digits in an object": (
        spliced("rope_scaling", f'{{"factor": {"1" * 99}}}'),
        "rope_scaling.factor is a whole number of 99 digits",
    ),
    "lists in lists": (spliced("torch_dtype", nested(DEEPEST)), "a depth of at most 32"),
    "objects in objects": (
        spliced("id2label", nested(DEEPEST, '{"a":', "").rstrip(":") + ":1" + "}" * DEEPEST),
        "id2label.a.a.a.a.a.a.a... is",
    ),
    "a hundred thousand lists in lists": (spliced("a", nested(10**5 - 2)), "not JSON in UTF-8"),
    "too many lists": (
        spliced("a", nested(2 * 10**5)), "('[' comes 200,000 times), needed: at most",
    ),
    "too many objects": (spliced("a", f"[{'{},' * 60_000}1]"), "('{' comes 60,001 times"),
    "too many keys": (json.dumps({f"{i}": 0 for i in range(210_000)}), "(':' comes 210,000 times"),
    "too many values": (spliced("a", f"[{'0,' * 500_000}0]"), "(',' comes 500,007 times"),
    "too many bytes": (spliced("a", '"' + "x" * MOST_BYTES + '"'), "needed: at most 5,000,000"),
    "a name of 5,000 characters": (config(**{"x" * 5000: 1}), "xxx... is 1, needed: a key that"),
    "a name with a NUL": (config(**{"a\0b": 1}), r"'a\x00b' is 1, needed: a key that llama"),
    "a name with escape codes": (config(**{"\x1b[2J": 1}), r"'\x1b[2J' is 1, needed: a key that"),
    "a value with escape codes": (config(hidden_act="\x1b[2J"), r"hidden_act is '\x1b[2J'"),
    "a value of a million characters": (config(model_type="x" * 10**6), "model_type is 'xxx"),
    "a list of a million characters": (config(hidden_size=[1] * 300_000), "hidden_size is [1, 1"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_of_a_config(case: str, tmp_path: Path) -> None:
    text, expected = TEXTS[case]
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(lambda: ModelConfig.from_folder(tmp_path), str(path), expected)
    if case != "a value with escape codes":  # no size depends on the activation
        refused(lambda: ModelSpec.from_config(path), str(path), expected)


def test_long_but_harmless_text_is_read(tmp_path: Path) -> None:
    """For example, int(1e30) stands for "no limit" in files of tokenizers."""
    path = tmp_path / "config.json"
    (deep,) = json.loads(f"[{nested(DEEPEST - 1)}]")
    text = config(model_max_length=int(1e30), chat_template="[{:," * 10_000, _deep=deep)
    path.write_text(text)
    assert read_json(path) == json.loads(text)
    path.write_text(config(top_k=10**39, _note="\ud800 \x1b", label2id={"x" * 9999: 0}))
    assert ModelConfig.from_folder(tmp_path) == ModelConfig.from_dict(LLAMA)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere.json")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_suffix(".pipe"))
    path.symlink_to(path.with_suffix(".pipe").name)


KINDS = {
    fifo: "a pipe or a device", folder: "it is a folder, needed: a regular file",
    dangling: "a link to a file that does not exist", loop: "cannot be read",
    device: "a pipe or a device", link_to_fifo: "a pipe or a device",
}
NAMES = ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", FILE]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_regular_file(kind: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "llama", path)
    (path / name).unlink(missing_ok=True)
    kind(path / name)
    refused(lambda: kvlib.load_model(path), str(path / name), KINDS[kind])
    if name == "config.json":
        refused(lambda: ModelSpec.from_config(path), str(path / name), KINDS[kind])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_five_gigabytes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "llama", path)
    with open(path / name, "wb") as file:
        file.truncate(5 * 10**9)  # without a byte on the disk
    expected = "the header is not JSON" if name == FILE else "5,000,000,000 bytes"
    refused(lambda: kvlib.load_model(path), str(path / name), expected)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    path = tmp_path / "snapshot"
    path.mkdir()
    for one in (GOLDEN / "llama-3-old").iterdir():
        shutil.copy(one, tmp_path / "blobs")
        (path / one.name).symlink_to(f"../blobs/{one.name}")
    assert kvlib.load_model(path).num_parameters > 0


FOLDERS = {
    "300 characters": "x" * 300, "5,000 characters": "x" * 5000, "a NUL": "a\0b",
    "a surrogate": "\ud800", "escape codes": "\x1b[2J",
    "a path of 40,000 characters": "x/" * 20_000, "nothing": "",
}


@pytest.mark.parametrize("case", FOLDERS)
def test_names_of_folders(case: str) -> None:
    name = FOLDERS[case]
    refused(lambda: kvlib.load_model(name))
    refused(lambda: ModelConfig.from_folder(name))
    refused(lambda: ModelSpec.from_config(name))
    refused(lambda: SafetensorsFile(name))
    if "\ud800" not in name:
        refused(lambda: kvlib.load_model(os.fsencode(name)))


def test_a_file_that_changes_between_header_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_safetensors(path, {"a": kvlib.load_model(GOLDEN / "llama").weights["norm.weight"]})
    file = SafetensorsFile(path)
    path.write_bytes(path.read_bytes()[:-8])
    refused(lambda: file.read("a"), "its size has changed since its header was read")
    path.unlink()
    refused(lambda: file.read("a"), "no such file")


def test_tokenizer_config(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"model_max_length": int(1e30), "tokenizer_class": ["x"]}))
    assert load_tokenizer(tmp_path) is None
    path.write_text('{"model_max_length": ' + "1" * 5000 + "}")
    refused(lambda: load_tokenizer(tmp_path), str(path), "model_max_length is a whole number")
