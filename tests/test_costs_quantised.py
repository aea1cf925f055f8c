"""Quantised weights: bytes of published files, of every format, and the names of modules."""

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from costs_configs import (
    CATALOGUE,
    DEEPSEEK,
    GPT_OSS,
    LLAMA,
    MIXTRAL,
    PUBLISHED,
    QWEN3_MOE,
)

from kvlib.config.quantised import Packing
from kvlib.config.read import read_model
from kvlib.costs import ModelSpec
from kvlib.costs.weights import modules
from kvlib.errors import CheckpointError

# ---------------------------------------------------------------------------- published files

LLAMA_8B, LLAMA_70B = CATALOGUE["llama-3.1-8b"], CATALOGUE["llama-3.1-70b"]
LLAMA_3B, QWEN_30B = CATALOGUE["llama-3.2-3b"], CATALOGUE["qwen3-30b-a3b"]
GPT_OSS_120B, GPT_OSS_20B = PUBLISHED["gpt-oss-120b"], CATALOGUE["gpt-oss-20b"]
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
MLX = {"bits": 4, "group_size": 64}
EIGHT = {"bits": 8, "group_size": 64}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}


def mlx_gpt_oss(layers: int) -> dict[str, Any]:
    """MXFP4 experts, and all else in 8 bits."""
    inside = (*(f"self_attn.{n}_proj" for n in "qkvo"), "mlp.router")
    names = [f"model.layers.{i}.{name}" for i in range(layers) for name in inside]
    others = dict.fromkeys((*names, "model.embed_tokens", "lm_head"), EIGHT)
    return {"bits": 4, "group_size": 32, "mode": "mxfp4", **others}


def compressed(form: str = "pack-quantized", **weights: Any) -> dict[str, Any]:
    """What compressed-tensors writes for all linear modules but the head."""
    group = {"targets": ["Linear"], "weights": {"type": "int", "num_bits": 4, **weights}}
    said = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"]}
    group["input_activations"] = {"num_bits": 8, "strategy": "token", "dynamic": True}
    said |= {"sparsity_config": {"format": "dense", "ignore": []}, "quantization_status": "frozen"}
    return {**said, "config_groups": {"group_0": group}}


CHANNEL = compressed("float-quantized", type="float", num_bits=8, strategy="channel")
ORDERED = compressed(strategy="group", group_size=128, symmetric=True, actorder="group")
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
PER_MATRIX = 80 * 7  # matrices of a 70B model
ROWS = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)  # of those of an 8B model


@pytest.mark.parametrize(("config", "said", "published", "once"), [
    # total_size of model.safetensors.index.json
    (GPT_OSS_120B, GPT_OSS_120B["quantization_config"], 65_248_815_744, 0),  # openai/gpt-oss-120b
    (GPT_OSS_20B, GPT_OSS_120B["quantization_config"], 13_761_264_768, 0),  # openai/gpt-oss-20b
    (LLAMA_70B, AWQ, 39_767_785_472, 0),  # of a 70B model of Llama 3
    # of mlx-community, as exo's cards of models have them
    (LLAMA_3B, MLX, 1_807_423_488, 0),  # Llama-3.2-3B-Instruct-4bit
    (LLAMA_8B, MLX, 4_517_404_672, 0),  # Llama-3.1-8B-Instruct-4bit
    (LLAMA_70B, MLX, 39_688_355_840, 0),  # Llama-3.3-70B-Instruct-4bit
    (
        QWEN_30B, MLX | {f"model.layers.{i}.mlp.gate": EIGHT for i in range(48)},
        17_180_913_664, 0,  # Qwen3-Coder-30B-A3B-Instruct-4bit
    ),
    (GPT_OSS_20B, mlx_gpt_oss(24), 12_076_119_168, 0),  # gpt-oss-20b-MXFP4-Q8
    # sums of all tensors, from the headers of the files; once: what a matrix has but once
    (LLAMA_8B, CHANNEL, 9_083_953_152, 0),  # RedHatAI, Llama-3.1-8B FP8-dynamic
    (LLAMA_70B, ORDERED, 39_525_311_232, 16 * PER_MATRIX),  # w4a16: the shape, two int64
    (LLAMA_70B, NVFP4, 42_709_045_632, 8 * PER_MATRIX),  # nvidia, Llama-3.3-70B: two scales
    # Llama-3.1-8B w4a16: AutoGPTQ adds a bias of zeros to each, which loaders skip
    (LLAMA_8B, GPTQ, 5_735_587_840, 2 * ROWS),
])  # fmt: skip
def test_bytes_of_published_files(config, said, published, once) -> None:
    spec = ModelSpec.from_config({**config, "quantization_config": said})
    assert spec.weight_bytes().value == published - once


def test_blocks_of_deepseek() -> None:
    spec = ModelSpec.from_config(PUBLISHED["deepseek-v3"])
    rows = {m.rows for m in modules(spec.shape) if m.name.endswith(".kv_a_proj_with_mqa")}
    assert rows == {576}  # 4.5 blocks
    assert Packing(8, 32, 128, 128).bytes(576, 7168) == 576 * 7168 + 4 * 5 * 56
    # files of DeepSeek-V4 have these in bfloat16
    for name in ("indexer.weights_proj", "compressor.wgate", "indexer.compressor.wkv"):
        assert spec.quantised and not spec.quantised.packing_of(f"layers.2.attn.{name}", "linear")


# ---------------------------------------------------------------------------- formats

GROUP = {"strategy": "group", "group_size": 32}
BITSANDBYTES = {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}
LINEAR, HEAD, ALL = ("linear",), ("linear", "head"), ("linear", "head", "embedding")


Size = Callable[[int, int], int]


def grouped(bits: int, more: int, group: int) -> Size:
    """Bits of a number, and those of a group."""
    return lambda rows, columns: rows * columns * (bits * group + more) // (8 * group)


def blocks(height: int, width: int, more: int) -> Size:
    """A byte for each number, and `more` for each block."""
    return lambda r, c: r * c + more * math.ceil(r / height) * math.ceil(c / width)


def in_rows(bits: int, more: int) -> Size:
    return lambda rows, columns: rows * (columns * bits + more) // 8


def ordered(size: Size) -> Size:
    """With an int32 for each column."""
    return lambda rows, columns: size(rows, columns) + 4 * columns


FLOAT = {"type": "float", "num_bits": 8}
NF4 = {**BITSANDBYTES, "load_in_4bit": True}


@pytest.mark.parametrize(("said", "kinds", "size", "name"), [
    ({"quant_method": "fp8"}, LINEAR, grouped(8, 0, 1), "fp8"),
    (
        {"quant_method": "fp8", "weight_block_size": [24, 40], "scale_fmt": "ue8m0"},
        LINEAR, blocks(24, 40, 4), "fp8",
    ),
    ({**AWQ, "group_size": 32}, LINEAR, grouped(4, 20, 32), "AWQ int4"),
    ({**AWQ, "group_size": -1, "lm_head": True}, HEAD, in_rows(4, 20), "AWQ int4"),
    ({**AWQ, "bits": 8, "group_size": 32}, LINEAR, grouped(8, 24, 32), "AWQ int8"),
    ({**GPTQ, "group_size": 32, "sym": False}, LINEAR, ordered(grouped(4, 20, 32)), "GPTQ int4"),
    ({**GPTQ, "bits": 3, "group_size": -1}, LINEAR, ordered(in_rows(3, 19)), "GPTQ int3"),
    ({**GPTQ, "bits": 8, "group_size": 32, "lm_head": True}, HEAD,
     ordered(grouped(8, 24, 32)), "GPTQ int8"),
    (NF4, LINEAR, lambda r, c: r * c // 2 + 4 * r * math.ceil(c / 64), "nf4"),
    ({**BITSANDBYTES, "load_in_8bit": True}, LINEAR, in_rows(8, 32), "int8"),
    (compressed(**GROUP), LINEAR, grouped(4, 16, 32), "int4"),
    (compressed(**GROUP, symmetric=False), LINEAR, grouped(4, 20, 32), "int4"),
    (compressed(group_size=32, scale_dtype="torch.uint8"), LINEAR, grouped(4, 8, 32), "int4"),
    (compressed(num_bits=8, strategy="channel"), LINEAR, in_rows(8, 16), "int8"),
    (compressed(num_bits=3, group_size=-1), LINEAR, in_rows(3, 16), "int3"),
    (compressed("int-quantized", strategy="channel", symmetric=False), LINEAR,
     in_rows(8, 24), "int4"),
    (compressed("naive-quantized", **FLOAT, strategy="tensor"), LINEAR, in_rows(8, 0), "float8"),
    (compressed("float-quantized", **FLOAT, strategy="block", block_structure=[48, 32]), LINEAR,
     blocks(48, 32, 2), "float8"),
    (compressed("nvfp4-pack-quantized", type="float", strategy="tensor_group", group_size=16),
     LINEAR, grouped(4, 8, 16), "nvfp4"),
    (compressed("mxfp4-pack-quantized", type="float", **GROUP), LINEAR, grouped(4, 8, 32), "mxfp4"),
    ({"bits": 6, "group_size": 32}, ALL, grouped(6, 32, 32), "MLX int6"),
    (MLX, ALL, lambda r, c: r * c * 9 // 16 if c == 64 else 2 * r * c, "MLX int4"),
    ({"bits": 8, "group_size": 32, "mode": "mxfp8"}, ALL, grouped(8, 8, 32), "MLX int8"),
])  # fmt: skip
def test_bytes_of_a_format(said, kinds, size, name) -> None:
    """Of a model whose matrices have 64 or 96 columns, against a sum over its matrices."""
    spec = ModelSpec.from_config({**LLAMA, "quantization_config": said})
    sides = [(64, 64), (16, 64), (16, 64), (64, 64), (96, 64), (96, 64), (64, 96)] * 4
    shapes = {"linear": sides, "head": [(100, 64)], "embedding": [(100, 64)]}
    plain = 2 * sum(r * c for kind, m in shapes.items() if kind not in kinds for r, c in m)
    expected = plain + 2 * 9 * 64 + sum(size(r, c) for kind in kinds for r, c in shapes[kind])
    assert (spec.weight_bytes().value, spec.weight_codec().name) == (expected, name)


def test_double_quantisation_has_two_scales() -> None:
    said = {**BITSANDBYTES, "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    spec = ModelSpec.from_config({**LLAMA_8B, "quantization_config": said})
    linear = spec.num_parameters - 2 * 128_256 * 4096 - 65 * 4096
    plain = 2 * (spec.num_parameters - linear)
    assert spec.weight_bytes().value == plain + linear // 2 + linear // 64 + linear // (64 * 64)


# ---------------------------------------------------------------------------- names of modules

ATTENTION, MLP = 64 * (2 * 64 + 2 * 16), 3 * 64 * 96  # numbers in a layer of LLAMA
GATE = 64 * 96


def marked(*ignore: str) -> dict[str, Any]:
    return {**compressed("float-quantized", **FLOAT, strategy="tensor"), "ignore": [*ignore]}


def kept_8(*names: str, key: str = "modules_to_not_convert") -> dict[str, Any]:
    return {"quant_method": "fp8", key: [*names]}


@pytest.mark.parametrize(("said", "plain"), [
    (kept_8("lm_head", "model.layers.0.mlp", "model.norm"), MLP),
    (kept_8("model.layers.1", key="ignored_layers"), ATTENTION + MLP),
    (kept_8("gate", "e_score_correction_bias"), 0),  # whole parts: not gate_proj
    (kept_8("gate_proj", "model.language_model.layers.2.mlp.up_proj"), 5 * GATE),
    (kept_8("model.layers.*.self_attn", "model.layers.3.mlp.gate_proj"), 4 * ATTENTION + GATE),
    (kept_8(r".*layers\.(0|1)\.mlp\.(gate|up)_proj"), 4 * GATE),
    (marked("lm_head", "re:.*self_attn.*", r"re:.*mlp\.(gate|up|gate_up)_proj$"),
     4 * (ATTENTION + 2 * GATE)),
    (marked("lm_head", "re:.*gate", "re:self_attn.*"), 4 * GATE),  # from the first letter on
    (marked("lm_head", "re:.*gate$", "re:^model.layers.1.*"), ATTENTION + MLP),
    (marked("lm_head", r"re:model\.language_model\.layers\.\d+\.mlp\.up_proj"), 4 * GATE),
    (marked("re:visual.*"), -6400),  # the head is linear, too
    ({**GPTQ, "dynamic": {}, "modules_in_block_to_quantize": None}, 0),
])  # fmt: skip
def test_names_that_stay_in_16_bits(said: dict[str, Any], plain: int) -> None:
    spec = ModelSpec.from_config({**LLAMA, "quantization_config": said})
    assert spec.quantised is not None
    found = [m for m in modules(spec.shape) if not spec.quantised.packing_of(m.name, m.kind)]
    assert sum(m.numbers for m in found) == plain + 2 * 6400


GROUPS = {**compressed("float-quantized"), "config_groups": {
    "a": {"targets": ["re:.*self_attn.*"], "weights": {**FLOAT, "strategy": "tensor"}},
    "b": {"targets": ["model.layers.1.mlp.up_proj"], "weights": {**FLOAT, "strategy": "channel"}},
}}  # fmt: skip
NAMED = {"model.layers.0.mlp.switch_mlp.up_proj": EIGHT, "model.layers.1.self_attn": False, **MLX}
FOURTH = {**FP8, "expert_dtype": "fp4", "scale_fmt": "ue8m0"}
# Model Optimizer, on files that had been quantised before
AGAIN = {**FP8, "quant_algo": "MIXED_PRECISION", "ignore": ["*q*"], "quantized_layers": {
    f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in (1, 2)
}}  # fmt: skip
TENSOR, BLOCK = Packing(8), Packing(8, 32, 128, 128)
AFFINE, LESS = Packing(4, 32, 1, 64, whole=True), Packing(4, 8, 1, 32)


@pytest.mark.parametrize(("config", "said", "name", "expected"), [
    (LLAMA, GROUPS, "up_proj", [None, Packing(8, 16), None, None]),
    (LLAMA, GROUPS, "q_proj", [TENSOR] * 4),
    (QWEN3_MOE, NAMED, "7.up_proj", [AFFINE._replace(bits=8), *[AFFINE] * 3]),
    (QWEN3_MOE, NAMED, "o_proj", [AFFINE, None, AFFINE, AFFINE]),
    (QWEN3_MOE, MLX, "mlp.gate", [AFFINE] * 4),  # a Linear
    (DEEPSEEK, MLX, "mlp.gate", [None] * 3),  # a plain parameter
    (MIXTRAL, NF4, "block_sparse_moe.gate", [Packing(4, 32, 1, 64)] * 4),
    (GPT_OSS, {"quant_method": "mxfp4"}, "experts.7.up_proj", [LESS] * 4),  # experts alone
    (GPT_OSS, {"quant_method": "mxfp4"}, "q_proj", [None] * 4),
    (DEEPSEEK, FOURTH, "experts.3.up_proj", [LESS] * 3),
    (DEEPSEEK, FOURTH, "shared_experts.up_proj", [BLOCK] * 3),
    (DEEPSEEK, AGAIN, "experts.3.up_proj", [*[Packing(4, 8, 1, 16)] * 2, BLOCK]),
    (DEEPSEEK, AGAIN, "q_b_proj", [BLOCK] * 4),
])  # fmt: skip
def test_names_that_have_sizes_of_their_own(config, said, name, expected) -> None:
    spec = ModelSpec.from_config({**config, "quantization_config": said})
    assert spec.quantised is not None
    found = [module for module in modules(spec.shape) if module.name.endswith(name)]
    assert [spec.quantised.packing_of(m.name, m.kind) for m in found] == expected
    assert not any(spec.quantised.packing_of(module.name, "other") for module in found)


# ---------------------------------------------------------------------------- files and refusals


def test_files_of_other_programs_and_objects_of_a_text_decoder(tmp_path: Path) -> None:
    scheme = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor"}
    said = {**compressed(**GROUP), "kv_cache_scheme": scheme}
    text = {**LLAMA, "model_type": "gemma3_text", "head_dim": 8, "sliding_window": 32}
    nested = {"model_type": "gemma3", "text_config": {**text, "quantization_config": said}}
    spec = ModelSpec.from_config(nested)
    alone = ModelSpec.from_config({**text, "quantization_config": said})
    assert spec.weight_bytes() == alone.weight_bytes() and spec.kv_codec().name == "fp8"
    assert ModelSpec.from_config(nested, without=["quantization_config"]).stored is None
    for file, value, inside in (
        ("quantize_config", {"bits": 4, "group_size": 32, "desc_act": True}, GPTQ),
        ("quant_config", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}, AWQ),
    ):
        path = tmp_path / f"{file}.json"
        path.write_text(json.dumps(value))
        both = {**LLAMA, "quantization_config": {**inside, "group_size": 32}}
        expected = ModelSpec.from_config(both).weight_bytes()
        for config in (LLAMA, both):
            (tmp_path / "config.json").write_text(json.dumps(config))
            assert ModelSpec.from_config(tmp_path).weight_bytes() == expected
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": inside}))
        with pytest.raises(CheckpointError, match="for other modules; keep one"):
            ModelSpec.from_config(tmp_path)
        path.unlink()


@pytest.mark.parametrize(("said", "words"), [
    ({"quant_method": "exl3", "bits": 4}, "needed: null or no such key (kvlib does not count"),
    ({**FP8, "modules_to_convert": ["embed"]}, "modules_to_convert is ['embed'], needed: no such"),
    ({**FP8, "weight_block_size": [128, 0]}, "weight_block_size is [128, 0], needed: rows and"),
    ({**FP8, "scale_fmt": "e4m3"}, "scale_fmt is 'e4m3', needed: one of float, ue8m0"),
    ({**FP8, "quant_algo": "NVFP4"}, "quant_algo is 'NVFP4', needed: MIXED_PRECISION or no such"),
    ({**FP8, "kv_cache_scheme": {"num_bits": 4}}, "kv_cache_scheme.num_bits is 4, needed: 8"),
    (kept_8("(a+)+$"), "needed: names, or patterns of letters"),
    (kept_8("*"), "needed: names, or patterns of letters"),
    (marked(r"re:.*experts\.7\..*"), "no number but the layer's"),
    (marked("re:" + "(a|b)" * 9), "needed: names, or patterns of letters"),
    (marked(*[f"re:.*{i}x.*" for i in range(501)]), "at most 500 names with wildcards"),
    (marked("re:.*"), "covers nothing as float8, needed: modules of a llama model"),
    ({**AWQ, "version": "gemv"}, "version is 'gemv', needed: 'gemm'"),
    ({**AWQ, "zero_point": False}, "zero_point is false, needed: true"),
    ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format is 'marlin', needed: one of gptq"),
    ({**GPTQ, "group_size": 0}, "group_size is 0, needed: a whole number of at least 1"),
    ({**GPTQ, "dynamic": {"+:.*": {"bits": 8}}}, "dynamic is {'+:.*'"),
    ({**GPTQ, "modules_in_block_to_quantize": [["q"]]}, "needed: no such key"),
    (BITSANDBYTES, "load_in_4bit is missing, needed: true, or load_in_8bit: true"),
    (compressed("marlin-24"), "format is 'marlin-24', needed: one of pack-quantized"),
    (compressed(type="float"), "weights.type is 'float', needed: one of int"),
    (compressed(strategy="token"), "strategy is 'token', needed: one of tensor, channel"),
    (compressed(scale_shape=3), "scale_shape is 3, needed: no such key"),
    ({**compressed(), "sparsity_config": {"format": "2:4"}}, "format is '2:4', needed: 'dense'"),
    ({**compressed(), "quantization_status": "calibration"}, "status is 'calibration', need"),
    ({**compressed(), "config_groups": {}}, "config_groups is {}, needed: 1 to 64 groups"),
    ({**MLX, "mode": "nf4"}, "mode is 'nf4', needed: one of affine, mxfp4"),
    ({**MLX, "model.layers.0.mlp": 8}, "model.layers.0.mlp is 8, needed: the sizes of a module"),
    ({**MLX, "*": False}, "needed: the sizes of a module, or false"),
    ({**MLX, "lm_head": {**EIGHT, "rank": 8}}, "lm_head.rank is 8, needed: no such key"),
    ({**GPTQ, "scale_dtype": "float32"}, "scale_dtype is 'float32', needed: no such key"),
    ({**MLX, "model.layers.0.attention": EIGHT}, "names 'model.layers.0.attention', needed"),
])  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(said: dict[str, Any], words: str) -> None:
    config = {**LLAMA, "quantization_config": said}
    with pytest.raises(CheckpointError) as error:
        ModelSpec.from_config(config)
    assert words in str(error.value) and "quantization_config" in str(error.value)
    plain = ModelSpec.from_config(config, without=["quantization_config"])
    assert plain == ModelSpec.from_config(LLAMA)
    not_read = f"quantised weights are not read|quant_algo|{re.escape(words)}"
    with pytest.raises(CheckpointError, match=not_read):
        read_model(config, "config")


def test_patterns_of_a_file_take_no_time_of_their_own() -> None:
    """Python's `re` needs 2 ** n steps for some of these."""
    weights = {"type": "float", "num_bits": 8, "strategy": "tensor"}
    many = {f"{i}": {"targets": [f"re:.*{i}"], "weights": weights} for i in range(501)}
    for said in (
        marked("re:" + ".*a" * 5), marked(*["re:(a|b|c|d|e|f|g|h)(a|b|c|d|e|f|g|h)"] * 500),
        {**marked(), "config_groups": many},
        kept_8(*["(a|b)(c|d)"] * 100_000), kept_8("(a" + "|a" * 100_000 + ")"),
        kept_8("x" * 10**6 + "*"),
    ):  # fmt: skip
        begun = time.thread_time()
        with pytest.raises(CheckpointError, match="needed: "):
            ModelSpec.from_config({**LLAMA, "quantization_config": said})
        assert time.thread_time() - begun < 1
    begun = time.thread_time()
    many = [f"re:.*e.*r.*{i}x.*" for i in range(250)]
    said = marked(*many, "re:.*lm_head", "model.layers.3.mlp.experts.5.up_proj")
    config = {**DEEPSEEK, "num_hidden_layers": 60, "n_routed_experts": 256}
    spec = ModelSpec.from_config({**config, "quantization_config": said})
    assert spec.stored is not None and time.thread_time() - begun < 1
