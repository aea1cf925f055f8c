"""Text to tokens and back, whole and as a stream, also where a character spans tokens."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib.errors import CheckpointError
from kvlib.model.tokenizer import ByteTokenizer, JsonTokenizer, load_tokenizer

BYTES = ByteTokenizer()


@pytest.mark.untraced
@given(st.text())
def test_bytes_round_trip(text):
    ids = BYTES.encode(text)
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert BYTES.decode(ids) == text and ids == list(text.encode())


@given(st.lists(st.integers(0, 255)))
def test_any_bytes_decode_and_the_stream_says_the_same(ids):
    stream = BYTES.stream()
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == BYTES.decode(ids)


def test_a_character_in_pieces_is_held_back():
    stream = BYTES.stream()
    pieces = [stream.push(token) for token in BYTES.encode("a😀b")]
    assert pieces == ["a", "", "", "", "😀", "b"] and stream.finish() == ""
    stream.push(0xF0)
    assert stream.finish() == "\ufffd" and stream.finish() == ""


def test_a_stream_does_not_decode_the_whole_text_again_and_again():
    class Counting(ByteTokenizer):
        decoded = 0

        def decode(self, ids):
            self.decoded += len(ids)
            return super().decode(ids)

    tokenizer = Counting()
    stream = tokenizer.stream()
    for token in BYTES.encode("ä" * 500):
        stream.push(token)
    assert tokenizer.decoded < 10 * 1000


def test_bytes_refuse():
    assert BYTES.encode("\ud800") == [63]
    assert BYTES.decode(np.array([104, 105])) == "hi"
    with pytest.raises(ValueError, match="token 1 is 256"):
        BYTES.decode([1, 256])
    with pytest.raises(ValueError, match="token 0 is -1"):
        BYTES.decode([-1])
    with pytest.raises(TypeError):
        BYTES.decode([1.5])
    with pytest.raises(TypeError, match="text is a bytes"):
        BYTES.encode(b"hi")


def test_which_tokenizer_a_folder_has(tmp_path):
    assert load_tokenizer(tmp_path) is None
    stated = tmp_path / "tokenizer_config.json"
    stated.write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    assert load_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert isinstance(load_tokenizer(tmp_path), JsonTokenizer)
    stated.write_text(json.dumps({"tokenizer_class": "ByteTokenizer"}))
    assert isinstance(load_tokenizer(tmp_path, 256), ByteTokenizer)
    with pytest.raises(CheckpointError, match="vocab_size 256 in config.json; it is 64"):
        load_tokenizer(tmp_path, 64)
    stated.write_text("{")
    with pytest.raises(CheckpointError, match="tokenizer_config.json: not JSON"):
        load_tokenizer(tmp_path)


def test_the_extra_is_named_when_text_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(ImportError, match=r"kvlib\[checkpoints\]"):
        tokenizer.encode("text")


# a byte-level tokenizer.json by hand: every byte per token, and one merge
TINY = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [
        {
            "id": 6, "content": "<end>", "special": True, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False,
        },
    ],
    "normalizer": None,
    "pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    },
    "post_processor": None,
    "decoder": {
        "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True,
    },
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ã": 4, "¯": 5},
        "merges": [["a", "b"]],
    },
}


def test_tokenizer_json(tmp_path):
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'kvlib[checkpoints]'")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(TINY))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("abba ï<end>") == [2, 1, 0, 3, 4, 5, 6]
    assert tokenizer.decode(np.array([2, 1, 0, 3, 4, 5, 6])) == "abba ï"
    stream = tokenizer.stream()
    assert [stream.push(token) for token in (2, 3, 4, 5, 6, 1)] == ["ab", " ", "", "ï", "", "b"]
    with pytest.raises(TypeError, match="text is a int"):
        tokenizer.encode(3)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="tokenizer.json: not a tokenizer"):
        load_tokenizer(tmp_path).decode([0])


def test_a_tokenizer_that_names_a_token_which_it_has_not(tmp_path):
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(TINY | {"model": TINY["model"] | {"unk_token": "\x1b[2J"}}))
    with pytest.raises(CheckpointError, match=r"tokenizer.json: cannot encode \(Unk token"):
        load_tokenizer(tmp_path).encode("hello 0")
    path.write_text("{" + "[" * 3000)
    with pytest.raises(CheckpointError, match="tokenizer.json: not a tokenizer") as caught:
        load_tokenizer(tmp_path).encode("hello")
    assert len(str(caught.value)) < 600 and str(caught.value).isprintable()
