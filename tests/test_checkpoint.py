"""Folders load whole or not at all, and the error names the file and the tensor."""

import json
import os
import shutil
from pathlib import Path

import array_api_strict
import hostile
import numpy as np
import pytest
from checkpoint_files import save_safetensors

import kvlib
from kvlib.model import Decoder, checkpoint
from kvlib.model.layers import widened
from kvlib.model.safetensors import SafetensorsFile, widen_bfloat16

GOLDEN = Path(__file__).parent / "golden"
FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    file = SafetensorsFile(folder / FILE)
    return {name: np.array(file.read(name)) for name in file.tensors}


def same(a: kvlib.Decoder, b: kvlib.Decoder) -> bool:
    return a.weights.keys() == b.weights.keys() and all(
        np.array_equal(a.weights[name], b.weights[name]) for name in a.weights
    )


@pytest.fixture
def folder(tmp_path):
    """A copy of a golden folder, to be damaged."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(GOLDEN / name, tmp_path / name))

    return copy


@pytest.fixture(autouse=True)
def no_room_for_damaged_files(monkeypatch, request):
    """Weights are allocated only when all checks have passed."""
    made = []

    def allocate(*args):
        made.append(args)
        return original(*args)

    original = checkpoint.allocate
    monkeypatch.setattr(checkpoint, "allocate", allocate)
    return made


def refused(folder: Path | str, *words: str) -> None:
    hostile.refused(lambda: kvlib.load_model(folder), *words)


def test_one_allocation_float32_and_contiguous():
    weights = kvlib.load_model(GOLDEN / "llama-linear-bias").weights
    bases = {id(w.base if w.base.base is None else w.base.base) for w in weights.values()}
    assert len(bases) == 1
    for weight in weights.values():
        assert weight.dtype == np.float32 and weight.flags.c_contiguous
        assert weight.ctypes.data % 64 == 0 and weight.flags.writeable


@pytest.mark.parametrize("dtype", ["float64", np.float64, np.dtype("float64"), "float16"])
def test_dtype(dtype):
    model = kvlib.load_model(GOLDEN / "mistral-full", dtype=dtype)
    assert {w.dtype for w in model.weights.values()} == {np.dtype(dtype)}
    stored = tensors_of(GOLDEN / "mistral-full")["model.embed_tokens.weight"]
    np.testing.assert_array_equal(model.weights["embed.weight"], stored)


@pytest.mark.parametrize("folder", ["gemma2", "gpt2", "gpt-oss", "qwen3", "deepseek-v2"])
def test_bfloat16_is_kept_as_bits_and_computed_with_in_float32(folder):
    model = kvlib.load_model(GOLDEN / folder, dtype="bfloat16")
    assert {w.dtype for w in model.weights.values() if w.ndim > 1} == {np.dtype(np.uint16)}
    wide = Decoder(model.config, {n: widened(w) for n, w in model.weights.items()})
    assert wide.num_bytes > 1.5 * model.num_bytes and wide.dtype == model.dtype == np.float32
    assert np.array_equal(*(logits_of(m, [1, 2, 3]) for m in (model, wide)))


def logits_of(model, tokens):
    cache = model.new_cache(1, 8)
    cache.add("a")
    return model.forward(tokens, cache, cache.plan(["a"], [len(tokens)]), "all")


@pytest.mark.parametrize("dtype", ["int32", np.uint16, np.int64, "nonsense"])
def test_dtype_refused(dtype):
    with pytest.raises(TypeError, match="needed: one of float32, float64, float16 of numpy"):
        kvlib.load_model(GOLDEN / "llama", dtype=dtype)
    with pytest.raises(TypeError, match="one of float32, float64 of array_api_strict"):
        kvlib.load_model(GOLDEN / "llama", dtype="float16", xp=array_api_strict)


def test_other_library():
    model = kvlib.load_model(GOLDEN / "qwen3", xp=array_api_strict)
    plain = kvlib.load_model(GOLDEN / "qwen3")
    for name, weight in model.weights.items():
        assert weight.dtype == array_api_strict.float32
        np.testing.assert_array_equal(np.asarray(weight), plain.weights[name])


def test_fp8_matrices_are_multiplied_by_the_scales_of_their_blocks(folder):
    """Of 140 units: the last blocks have 12 rows or columns. Codes are those of whole numbers."""
    path, rng, name = folder("qwen3-fp8"), np.random.default_rng(5), "model.layers.0.mlp."
    file = SafetensorsFile(path / FILE)
    tensors = {n: np.array(file.stored(n)) for n in file.tensors}
    codes = {0x00: 0.0, 0x38: 1.0, 0x40: 2.0, 0x44: 3.0, 0x7E: 448.0, 0xB8: -1.0, 0x01: 2.0**-9}
    expected = {}
    for layer, part in np.ndindex(2, 3):
        name = f"model.layers.{layer}.mlp.{('gate', 'up', 'down')[part]}_proj.weight"
        shape = (256, 140) if part == 2 else (140, 256)
        tensors[name] = rng.choice(np.array(list(codes), np.uint8), shape)
        scales = rng.standard_normal((2, 2), np.float32)
        tensors[f"{name}_scale_inv"] = scales
        expected[name] = [
            [np.float32(codes[tensors[name][i, j]]) * scales[i // 128, j // 128]
             for j in range(shape[1])] for i in range(shape[0])
        ]
    save_safetensors(path / FILE, tensors, u16="BF16", u8="F8_E4M3")
    config = json.loads((path / "config.json").read_text()) | {"intermediate_size": 140}
    (path / "config.json").write_text(json.dumps(config))
    weights = kvlib.load_model(path).weights
    gate_up, down = weights["layers.1.gate_up.weight"], weights["layers.1.down.weight"]
    np.testing.assert_array_equal(gate_up[140:], expected["model.layers.1.mlp.up_proj.weight"])
    np.testing.assert_array_equal(down, expected["model.layers.1.mlp.down_proj.weight"])
    for scales, words in ((np.ones((2, 1), np.float32), "shape (2, 1)"), (None, "is missing")):
        tensors[f"{name}_scale_inv"] = scales
        left = {n: x for n, x in tensors.items() if x is not None}
        save_safetensors(path / FILE, left, u16="BF16", u8="F8_E4M3")
        refused(path, f"{name}_scale_inv", words)


def test_float64_files(folder):
    path = folder("llama")
    wide = {name: value.astype(np.float64) for name, value in tensors_of(path).items()}
    save_safetensors(path / FILE, wide)
    assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / "llama"))
    strict = kvlib.load_model(path, dtype="float64", xp=array_api_strict)
    assert strict.dtype == array_api_strict.float64


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_without_prefix_and_with_known_buffers(folder, name):
    path = folder(name)
    tensors = tensors_of(path)
    prefix = "transformer." if name == "gpt2" else "model."
    bare = {key.removeprefix(prefix): value for key, value in tensors.items()}
    save_safetensors(path / FILE, bare)
    assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / name))
    more = {
        "gpt2": {"h.0.attn.bias": np.ones((1, 1, 4, 4), np.uint8)}
        | {"transformer.h.1.attn.masked_bias": np.float32(-1e4)},
        "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)},
    }
    save_safetensors(path / FILE, bare | more[name])
    assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / name))
    for ours in bare:
        if not ours.startswith("lm_head"):
            both = bare | {prefix + ours: bare[ours]}
            save_safetensors(path / FILE, both)
            refused(path, FILE, repr(ours), "again")
            break


def test_tied_or_not(folder):
    tied, untied = folder("qwen2"), folder("llama")
    stored = tensors_of(tied)
    head = stored["model.embed_tokens.weight"]
    save_safetensors(tied / FILE, stored | {"lm_head.weight": head.astype(np.float64)})
    assert same(kvlib.load_model(tied), kvlib.load_model(GOLDEN / "qwen2"))
    bits = {name: np.zeros((64, 32), np.uint16) for name in stored if "embed" in name}
    save_safetensors(
        tied / FILE, stored | bits | {"lm_head.weight": next(iter(bits.values()))}, u16="BF16"
    )
    assert kvlib.load_model(tied).config.tie_word_embeddings
    save_safetensors(tied / FILE, stored | {"lm_head.weight": np.zeros((3, 3), "f4")})
    refused(tied, "'lm_head.weight' has shape (3, 3), needed: (64, 32)")
    save_safetensors(tied / FILE, stored | {"lm_head.weight": np.zeros((64, 32), "i1")})
    refused(tied, "'lm_head.weight' is I8, needed: F64, F32, F16, BF16")
    scale = {"lm_head.weight_scale": np.ones((), "f4")}
    save_safetensors(tied / FILE, stored | {"lm_head.weight": head} | scale)
    refused(tied, "'lm_head.weight_scale' has no place")
    tensors = tensors_of(untied)
    del tensors["lm_head.weight"]
    save_safetensors(untied / FILE, tensors)
    refused(untied, str(untied / FILE), "'lm_head.weight' is missing", "(64, 32)")


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("name", ["qwen2", "gpt2", "gemma2"])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_stored_head_that_differs_from_the_embedding_is_used(folder, name, dtype, sharded):
    """As transformers 5.23.0 does: the config is wrong, and the files are what was trained."""
    path = folder(name)
    plain = tensors_of(path)
    table = next(x for n, x in plain.items() if n.endswith(("embed_tokens.weight", "wte.weight")))
    head = np.roll(table, 1, axis=0)
    head[-1] += 0.5
    kinds = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
    if dtype == "BF16":
        stored = (head.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        expected = widen_bfloat16(stored)
    else:
        expected = stored = head.astype(kinds[dtype])
    extra = {"lm_head.weight": stored}
    if sharded:
        (path / FILE).unlink()
        parts = {"a.safetensors": plain, "head.safetensors": extra}
        for file, tensors in parts.items():
            save_safetensors(path / file, tensors, u16="BF16")
        where = {n: file for file, tensors in parts.items() for n in tensors}
        (path / INDEX).write_text(json.dumps({"weight_map": where}))
    else:
        save_safetensors(path / FILE, plain | extra, u16="BF16")
    model, other = kvlib.load_model(path), kvlib.load_model(GOLDEN / name)
    assert other.config.tie_word_embeddings and not model.config.tie_word_embeddings
    np.testing.assert_array_equal(model.weights["lm_head.weight"], expected)
    np.testing.assert_array_equal(model.weights["embed.weight"], other.weights["embed.weight"])
    assert model.num_parameters == other.num_parameters + head.size
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    assert same(model, kvlib.load_model(path))


def test_the_layer_that_guesses_further_tokens_is_known_by_its_number(folder):
    """DeepSeek-V3's files hold it behind the last; V2's have none, and no other number will do."""
    for name, layer, known in (
        ("deepseek-v3", "layers.2", True), ("deepseek-v3", "layers.61", False),
        ("deepseek-v2", "layers.2", False), ("glm4-moe", "layers.2", True),
        ("kimi-k2", "layers.2", True), ("mimo", "layers.2", False), ("mimo", "mtp_layers.0", True),
    ):
        path = folder(name)
        more = {f"model.{layer}.eh_proj.weight": np.zeros((2, 2), np.float32)}
        save_safetensors(path / FILE, tensors_of(path) | more)
        if known:
            assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / name))
        else:
            refused(path, f"{layer}.eh_proj.weight' has no place in a {name[:4]}")
        shutil.rmtree(path)


@pytest.mark.parametrize("name", ["llama", "qwen3-windows", "gemma2", "gpt2"])
def test_every_missing_or_misshapen_tensor_is_named(folder, name, no_room_for_damaged_files):
    path = folder(name)
    tensors = tensors_of(path)
    for key, value in tensors.items():
        save_safetensors(path / FILE, {k: v for k, v in tensors.items() if k != key})
        refused(path, str(path / FILE), repr(key), "missing")
        save_safetensors(path / FILE, tensors | {key: value[:-1]})
        refused(path, FILE, repr(key), "shape", str(value[:-1].shape), str(value.shape))
        save_safetensors(path / FILE, tensors | {key: value.astype(np.int32)})
        refused(path, FILE, repr(key), "is I32, needed: F64, F32, F16, BF16")
    transposed = tensors | {key: value.T for key, value in tensors.items() if value.ndim == 2}
    save_safetensors(path / FILE, transposed)
    refused(path, "shape")
    assert not no_room_for_damaged_files


def test_only_matrices_of_layers_are_in_fp8(folder, no_room_for_damaged_files):
    path = folder("qwen3-fp8")
    tensors, weight = tensors_of(path), "model.layers.0.mlp.down_proj.weight"
    scale = tensors.pop(f"{weight}_scale_inv")
    right = {f"{weight}_scale_inv": scale}
    for more, words in (
        ({f"{weight}_scale_inv": scale.astype("i4")}, "weight_scale_inv' is I32, needed: F64, F32"),
        (right | {f"{weight}_scale": scale}, "down_proj.weight_scale' has no place"),
        (right | {"model.embed_tokens.weight": np.zeros((64, 256), "u1")}, "is F8_E4M3, needed: F"),
        (right | {"model.layers.0.input_layernorm.weight": np.zeros(256, "u1")}, "is F8_E4M3"),
    ):
        save_safetensors(path / FILE, tensors | more, u8="F8_E4M3")
        refused(path, words)
    assert not no_room_for_damaged_files
    more = {f"{weight}_scale": scale, f"{weight[:-7]}.input_scale": np.ones((), "f4")}
    save_safetensors(path / FILE, tensors | more, u8="F8_E4M3")
    assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / "qwen3-fp8"))


def test_packed_experts_need_their_exponents(folder, no_room_for_damaged_files):
    path = folder("gpt-oss-mxfp4")
    tensors, name = tensors_of(path), "model.layers.0.mlp.experts.down_proj"
    blocks, exponents = tensors[f"{name}_blocks"], tensors[f"{name}_scales"]
    assert blocks.shape == (5, 32, 2, 16) and exponents.shape == (5, 32, 2)
    for more, words in (
        ({f"{name}_scales": exponents.astype("i2")}, "_proj_scales' is I16, needed: U8"),
        ({f"{name}_scales": exponents[:, :, :1]}, "shape (5, 32, 1), needed: (5, 32, 2)"),
        ({f"{name}_blocks": blocks[..., :8]}, "shape (5, 32, 2, 8), needed: (5, 32, 2, 16)"),
        ({name: np.zeros((5, 64, 32), "f4")}, "experts.down_proj' has no place"),
    ):
        save_safetensors(path / FILE, tensors | more)
        refused(path, words)
    save_safetensors(path / FILE, {n: x for n, x in tensors.items() if n != f"{name}_scales"})
    refused(path, "down_proj_scales' is missing, needed: (5, 32, 2)")
    assert not no_room_for_damaged_files


def test_a_tensor_without_use_is_refused(folder, no_room_for_damaged_files):
    path = folder("llama")
    for name in ("model.layers.2.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias"):
        extra = {name: np.ones(32, np.float32)}
        save_safetensors(path / FILE, tensors_of(GOLDEN / "llama") | extra)
        refused(path, FILE, repr(name), "no place in a llama model")
    assert not no_room_for_damaged_files


def test_truncated_file(folder, no_room_for_damaged_files):
    path = folder("mistral") / FILE
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(path.parent, str(path), "truncated")
    assert not no_room_for_damaged_files


def test_nothing_to_load(tmp_path, folder):
    refused(tmp_path / "none", "no such folder")
    refused("no-such/Model-1B", "no such folder. kvlib downloads nothing", "snapshot_download")
    refused(tmp_path, "config.json: no such file")
    path = folder("llama")
    (path / FILE).unlink()
    refused(path, "no weights, needed: model.safetensors or model.safetensors.index.json")


SHARDS = {
    "256 characters": ("x" * 256, "is in 'xxx"),
    "an absolute path": ("/etc/passwd", "is in '/etc/passwd', needed: a file of this folder"),
    "the folder above": ("..", "is in '..', needed: a file of this folder"),
    "the folder itself": (".", "is in '.', needed: a file of this folder"),
    "a file above": ("../model.safetensors", "needed: a file of this folder"),
    "a file below": ("deep/model.safetensors", "needed: a file of this folder"),
    "a path of Windows": ("..\\model.safetensors", "needed: a file of this folder"),
    "a drive of Windows": ("C:model.safetensors", "needed: a file of this folder"),
    "a NUL": ("a\0b", r"is in 'a\x00b', needed: a file of this folder"),
    "escape codes": ("\x1b[2J", r"is in '\x1b[2J', needed: a file of this folder"),
    "a surrogate": ("\ud800", r"is in '\ud800', needed: a file of this folder"),
    "a number": (10**39, "needed: a file of this folder"),
    "nothing": ("", "is in '', needed: a file of this folder"),
    "a missing file": ("none.safetensors", "none.safetensors: no such file"),
    "the index itself": (INDEX, "header of"),
    "a folder": ("folder", "it is a folder, needed: a regular file"),
    "a pipe": ("pipe", "a pipe or a device"),
    "a broken link": ("broken", "broken: no such file"),
}


@pytest.mark.parametrize("shard, words", SHARDS.values(), ids=SHARDS)
def test_names_of_shards(folder, shard, words):
    path = folder("llama-3-old")
    (path / "folder").mkdir()
    os.mkfifo(path / "pipe")
    (path / "broken").symlink_to("nowhere")
    listed = json.loads((path / INDEX).read_text())["weight_map"]
    last = listed["model.norm.weight"]
    index = {"weight_map": {k: shard if file == last else file for k, file in listed.items()}}
    (path / INDEX).write_text(json.dumps(index))
    refused(path, str(path), words)


def test_shards(folder, no_room_for_damaged_files):
    path = folder("llama-3-old")
    index = json.loads((path / INDEX).read_text())
    where = index["weight_map"]
    shard = where["model.norm.weight"]
    bare = {key: value for key, value in where.items() if key != "model.norm.weight"}
    for listed, *words in (
        (None, INDEX, "weight_map"), ({}, INDEX, "weight_map"), (["a"], INDEX, "weight_map"),
        (bare, shard, "'model.norm.weight'", "does not list it"),
        *(({**where, name: shard}, shard, "is missing")
          for name in ("ghost", "x" * 5000, "\x1b[2J", "\ud800")),
        ({str(i): "a" for i in range(120_001)}, INDEX, "120,001 tensors, needed: at most"),
        ({str(i): str(i) for i in range(2_001)}, INDEX, "names 2,001 files, needed: at most"),
        ({str(i): [i] for i in range(2_001)}, INDEX, "names 2,001 files, needed: at most"),
    ):  # fmt: skip
        (path / INDEX).write_text(json.dumps({**index, "weight_map": listed}))
        refused(path, *words)
    (path / INDEX).write_text("{")
    refused(path, INDEX, "not JSON")
    (path / INDEX).write_text(json.dumps(index))
    assert not no_room_for_damaged_files
    assert same(kvlib.load_model(path), kvlib.load_model(GOLDEN / "llama-3-old"))
    whole = (path / shard).read_bytes()
    (path / shard).write_bytes(whole[:-1])
    refused(path, shard, "truncated")
    (path / shard).unlink()
    refused(path, shard, "no such file", INDEX)
    path = folder("llama")
    save_safetensors(path / FILE, {"x" * 5000: np.ones(32, np.float32)})
    refused(path, FILE, "is missing")


def test_config_and_weights_must_agree(folder):
    path = folder("llama")
    config = json.loads((path / "config.json").read_text())
    for change in ({"num_hidden_layers": 3}, {"vocab_size": 65}, {"attention_bias": True}):
        (path / "config.json").write_text(json.dumps(config | change))
        refused(path, "tensor")
    (path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    refused(path, "no place")


def test_tokenizer(folder):
    path = folder("llama")
    assert kvlib.load_model(path).tokenizer is None
    (path / "tokenizer.json").write_text("{}")
    assert kvlib.load_model(path).tokenizer is not None
    assert kvlib.load_model(path, tokenizer=False).tokenizer is None
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByteTokenizer"}')
    refused(path, "tokenizer_config.json", "vocab_size")


def test_progress_bar_where_it_is_long(monkeypatch):
    plain, shown = kvlib.load_model(GOLDEN / "llama"), []

    def watched(progress, total, **words):
        shown.append((progress, total > 0, words["what"]))
        return bar(progress, total, **words)

    bar = checkpoint.bar
    monkeypatch.setattr(checkpoint, "bar", watched)
    for long in (10**9, 0):
        monkeypatch.setattr(checkpoint, "LONG", long)
        assert same(kvlib.load_model(GOLDEN / "llama"), plain)
    assert shown == [(False, True, "reading weights"), (None, True, "reading weights")]
