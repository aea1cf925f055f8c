"""Config files of every family: what is read from them, and what is refused in which words."""

import json
from pathlib import Path
from typing import Any

import pytest
from costs_configs import (
    CATALOGUE,
    DEEPSEEK,
    GEMMA2,
    GEMMA3,
    GPT2,
    GPT_OSS,
    LLAMA,
    MIXTRAL,
    PUBLISHED,
    QWEN2_MOE,
    QWEN3,
    QWEN3_MOE,
)
from hostile import count, read

from kvlib.costs import decode, fit
from kvlib.costs.spec import MODELS, ModelSpec
from kvlib.costs.units import Bytes
from kvlib.errors import CheckpointError


def refused(config: Any, **keywords: Any) -> str:
    with pytest.raises(CheckpointError) as error:
        ModelSpec.from_config(config, **keywords)
    assert isinstance(error.value, ValueError)
    return str(error.value)


# --------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_give_the_same_model_as_the_catalogue(name: str) -> None:
    config = dict(PUBLISHED[name])
    spec = ModelSpec.from_config(config)
    expected = MODELS[name]
    if name == "gemma-3-27b":  # the file leaves the padded table of transformers' class in force
        assert spec.shape.vocab_size == 262_208
        assert spec.num_parameters - expected.num_parameters == 64 * 5376
        config["text_config"]["vocab_size"] = 262_144
        spec = ModelSpec.from_config(config)
        assert spec.uncounted == ["vision_config is not counted."]
    assert spec.shape._replace(uncounted=(), drafts=()) == expected.shape
    assert spec.num_parameters == expected.num_parameters
    assert spec.layers == expected.layers


def test_a_dict_a_file_and_a_folder_are_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "other.json").write_text(json.dumps(LLAMA))
    specs = [
        ModelSpec.from_config(LLAMA), ModelSpec.from_config(folder),
        ModelSpec.from_config(str(folder / "config.json")),
        ModelSpec.from_config(tmp_path / "other.json", name="mine"),
    ]
    assert len({spec.shape for spec in specs}) == 1
    assert [spec.name for spec in specs] == ["llama", "tiny-llama", "tiny-llama", "mine"]
    with pytest.raises(ValueError, match="tiny-llama was read from a config"):
        specs[1].value("head_dim")


def test_head_dim_is_its_own_field() -> None:
    assert count(LLAMA).shape.head_dim == count(LLAMA, head_dim=None).shape.head_dim == 64 // 8
    assert count(LLAMA, hidden_size=60, head_dim=32).shape.head_dim == 32


MISTRAL, QWEN2, PHI3 = ({**LLAMA, "model_type": name} for name in ("mistral", "qwen2", "phi3"))
ON = dict(use_sliding_window=True, sliding_window=16)
LISTED = ["sliding_attention", "full_attention"] * 2
FULL = ["full_attention"] * 4
WINDOWS: list[tuple[dict[str, Any], dict[str, Any], list[int]]] = [
    (LLAMA, dict(layer_types=FULL, sliding_window=None), [0] * 4),
    (MISTRAL, {}, [4096] * 4),  # the first Mistral's, where the key is missing
    (MISTRAL, dict(sliding_window=None), [0] * 4),
    (MISTRAL, dict(sliding_window=8), [8] * 4),
    (MISTRAL, dict(sliding_window=8, layer_types=["sliding_attention"] * 4), [8] * 4),
    (MIXTRAL, {}, [0] * 4), (MIXTRAL, dict(sliding_window=16), [16] * 4),
    (PHI3, {}, [0] * 4), (PHI3, dict(sliding_window=2047), [2047] * 4),
    *((base, *case) for base in (QWEN2, QWEN3) for case in (
        ({}, [0] * 4), (dict(sliding_window=16), [0] * 4),  # switched off
        ({**ON, "max_window_layers": 3}, [0, 0, 0, 16]),
        ({**ON, "max_window_layers": 0}, [16] * 4),
        (ON, [0] * 4),  # from layer 28 on
        ({**ON, "layer_types": LISTED}, [16, 0, 16, 0]),
        ({**ON, "sliding_window": None, "max_window_layers": 0}, [0] * 4))),
    (QWEN3_MOE, {**ON, "layer_types": LISTED}, [16, 0, 16, 0]),
    (GEMMA2, {}, [32, 0, 32, 0]), (GEMMA2, dict(layer_types=LISTED[::-1]), [0, 32, 0, 32]),
    (GEMMA3, {}, [32] * 5 + [0, 32]),
    (GEMMA3, dict(sliding_window_pattern=2), [32, 0, 32, 0, 32, 0, 32]),
    (GEMMA3, dict(_sliding_window_pattern=3), [32, 32, 0, 32, 32, 0, 32]),
    (GEMMA3, dict(sliding_window=None), [0] * 7),
    (GPT_OSS, {}, [32, 0, 32, 0]), (GPT_OSS, dict(layer_types=FULL), [0] * 4),
]  # fmt: skip


@pytest.mark.parametrize(("base", "keys", "windows"), WINDOWS)
def test_windows(base: dict[str, Any], keys: dict[str, Any], windows: list[int]) -> None:
    assert list(count(base, **keys).shape.windows) == windows
    assert [w or 0 for w in read(base, **keys).windows] == windows


def test_gemma_3_files_rely_on_defaults() -> None:
    text = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=6)
    nested = {"model_type": "gemma3", "text_config": {**text, "model_type": "gemma3_text"}}
    shape = ModelSpec.from_config(nested).shape
    assert shape == ModelSpec.from_config({"model_type": "gemma3_text", **text}).shape
    assert (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim) == (8, 4, 256)
    assert (shape.max_position_embeddings, shape.vocab_size) == (131_072, 262_208)
    assert shape.windows == (4096,) * 5 + (0,) and shape.tie_word_embeddings
    untied = ModelSpec.from_config({**nested, "tie_word_embeddings": False})
    assert not untied.shape.tie_word_embeddings


def test_which_layers_are_mixtures() -> None:
    def layers(config: dict[str, Any], **changes: Any) -> tuple[int, ...]:
        experts = count(config, **changes).shape.experts
        return experts.layers if experts else ()

    assert layers(QWEN3_MOE) == (0, 1, 2, 3)
    assert layers(QWEN3_MOE, decoder_sparse_step=2) == (1, 3)
    assert layers(QWEN3_MOE, mlp_only_layers=[0, 2]) == (1, 3)
    assert layers(DEEPSEEK) == (1, 2, 3)
    assert layers(DEEPSEEK, first_k_dense_replace=0, moe_layer_freq=2) == (0, 2)
    assert layers(DEEPSEEK, n_routed_experts=None) == ()
    plain = count(QWEN2_MOE, decoder_sparse_step=1, mlp_only_layers=[])
    assert plain.shape.experts == count(QWEN2_MOE).shape.experts


def test_what_is_left_out_on_request() -> None:
    strange = {**LLAMA, "loop_count": 3}
    assert "config: loop_count is 3, needed: a key that llama is known to have" in refused(strange)
    assert ModelSpec.from_config(strange, without={"loop_count"}) == ModelSpec.from_config(LLAMA)
    nested = {"model_type": "gemma3", "text_config": {"hidden_size": 8, "loop_count": 3}}
    assert "text_config.loop_count is 3" in refused(
        {**nested, "text_config": {**GEMMA3, **strange, "model_type": "gemma3_text"}}
    )
    assert "config: 1 is 2, needed: a key that llama" in refused({**LLAMA, 1: 2})
    with pytest.raises(TypeError, match="without is the string 'loop_count'"):
        ModelSpec.from_config(strange, without="loop_count")


# ---------------------------------------------------------------------------- quantised weights

LLAMA_70B = CATALOGUE["llama-3.1-70b"]
HEAD, NORMS = 128256 * 8192, (2 * 80 + 1) * 8192
LINEAR = 70_553_706_496 - 2 * HEAD - NORMS


def folder(path: Path, config: dict[str, Any], **files: Any) -> Path:
    for name, value in {"config": config, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def modelopt(quant_algo: str | None, **others: Any) -> dict[str, Any]:
    said = {"quant_algo": quant_algo, "kv_cache_quant_algo": None, **others}
    return {"producer": {"name": "modelopt", "version": "0.17"}, "quantization": said}


@pytest.mark.parametrize(("algo", "bits", "kept", "plain"), [
    ("FP8", 8, [], HEAD), ("fp8", 8, ["lm_head"], 2 * HEAD), ("NVFP4", 4.5, ["lm_head"], 2 * HEAD),
    ("NVFP4", 4.5, ["*lm_head*", "model.embed_tokens"], 2 * HEAD),
    ("W4A16_NVFP4", 4.5, ["lm_head"], 2 * HEAD), ("MXFP8", 8.25, ["lm_head"], 2 * HEAD),
    # 10,240 numbers per row of q and o, 2,048 of k and v
    ("FP8", 8, ["lm_head", "*self_attn*"], 2 * HEAD + 80 * 8192 * 18_432),
    ("FP8", 8, ["lm_head", "model.layers.1"], 2 * HEAD + LINEAR // 80),
    ("FP8", 8, ["lm_head", "model.layers.1*"], 2 * HEAD + 11 * (LINEAR // 80)),
    (
        "FP8", 8, ["lm_head", "q_proj", "language_model.model.layers.9.mlp.up_proj"],
        2 * HEAD + 80 * 8192**2 + 8192 * 28672,
    ),
])  # fmt: skip
def test_weights_of_a_file_of_model_optimizer(tmp_path, algo, bits, kept, plain) -> None:
    """Bits of a format, with its scales, for all linear modules that the file does not keep."""
    said = modelopt(algo, exclude_modules=kept)
    spec = ModelSpec.from_config(folder(tmp_path, LLAMA_70B, hf_quant_config=said))
    quantised = LINEAR + 2 * HEAD - plain
    assert spec.weight_bytes() == Bytes(int(2 * (plain + NORMS) + quantised * bits / 8))
    assert spec.num_parameters == 70_553_706_496
    beside = ModelSpec.from_config(tmp_path / "config.json")  # the file is beside it
    inside = ModelSpec.from_config(
        {
            **LLAMA_70B,
            "quantization_config": {"quant_method": "modelopt", "quant_algo": algo, "ignore": kept},
        }
    )
    assert spec.weight_bytes() == beside.weight_bytes() == inside.weight_bytes()
    asked = ModelSpec.from_config(tmp_path, without=["quantization_config"])
    assert asked.weight_bytes() == spec.weight_bytes("bfloat16") == Bytes(2 * 70_553_706_496)
    # a step reads the head, and not the table
    read = decode(spec, 1, 8).weights
    assert read == Bytes(spec.weight_bytes().value - 2 * HEAD - 2 * NORMS)


def test_what_the_issue_says_of_llama_70b(tmp_path: Path) -> None:
    said = modelopt("FP8", kv_cache_quant_algo="FP8", exclude_modules=["lm_head"])
    spec = ModelSpec.from_config(folder(tmp_path, LLAMA_70B, hf_quant_config=said))
    assert f"{spec.weight_bytes():.2f GiB}" == "67.67 GiB"
    found = fit(spec, "h100-sxm", 1, 8192)
    assert found.fits and found.share.kv_dtype.name == "fp8"
    assert found.to_dict()["weight_dtype"] == "FP8" and "hf_quant_config.json" in repr(found)
    assert fit(spec, "h100-sxm", 1, 8192, kv_dtype="bfloat16").kv == 2 * found.kv
    assert spec.kv_bytes_per_token() * 2 == spec.kv_bytes_per_token("bf16")
    plain = fit(spec, "h100-sxm", 1, 8192, weight_dtype="bfloat16")
    assert not plain.fits and "Weights are" not in repr(plain)


@pytest.mark.parametrize(
    ("said", "inside"),
    [(modelopt("FP8"), "quantization of "), (modelopt("FP8")["quantization"], "")],
)
def test_a_bill_names_the_file(tmp_path: Path, said: dict[str, Any], inside: str) -> None:
    spec = ModelSpec.from_config(folder(tmp_path, LLAMA, hf_quant_config=said))
    where = f"{inside}{tmp_path / 'hf_quant_config.json'}"
    assert f"Weights are FP8, as {where} says." in repr(fit(spec, "l4", 1, 8))


def test_experts_and_mixed_precision(tmp_path: Path) -> None:
    routers = [f"model.layers.{i}.mlp.gate" for i in range(4)]
    said = modelopt("NVFP4", exclude_modules=["lm_head", "model.layers.0.self_attn*", *routers])
    spec = ModelSpec.from_config(folder(tmp_path, QWEN3_MOE, hf_quant_config=said))
    attention, expert = 64 * (2 * 128 + 2 * 32), 3 * 64 * 32
    small = 3 * attention + 4 * 8 * expert
    plain = spec.num_parameters - small
    assert spec.weight_bytes() == Bytes(2 * plain + small * 9 // 16)
    assert decode(spec, 1, 8).weights == Bytes(
        2 * (attention + 4 * 8 * 64 + 100 * 64) + (3 * attention + 4 * 2 * expert) * 9 // 16
    )
    layers = {f"model.layers.0.self_attn.{n}_proj": {"quant_algo": "FP8"} for n in "qkvo"}
    layers["model.language_model.layers.1.mlp.experts"] = {"quant_algo": "NVFP4", "group_size": 16}
    layers["model.layers.2.mlp.experts.5.up_proj"] = {"quant_algo": "W4A16_NVFP4"}
    layers["model.visual.blocks.0.attn.qkv"] = {"quant_algo": "FP8"}  # of parts not counted here
    layers["model.layers.4.mlp.down_proj"] = {"quant_algo": "FP8"}
    mixed = modelopt("MIXED_PRECISION", quantized_layers=layers)
    spec = ModelSpec.from_config(folder(tmp_path, QWEN3_MOE, hf_quant_config=mixed))
    four = 8 * expert + 64 * 32
    plain = spec.num_parameters - attention - four
    assert spec.weight_bytes() == Bytes(2 * plain + attention + four * 9 // 16)


def test_a_cache_alone_may_be_quantised(tmp_path: Path) -> None:
    said = modelopt(None, kv_cache_quant_algo="NVFP4")
    spec = ModelSpec.from_config(folder(tmp_path, LLAMA, hf_quant_config=said))
    plain = ModelSpec.from_config(LLAMA)
    assert spec.weight_bytes() == plain.weight_bytes()
    assert spec.kv_bytes_per_token().value == 4 * (2 * 2 * 8) * 9 // 16
    silent = {"producer": {"name": "modelopt"}, "quantization": {}}
    for said in (silent, {"quantization": None}, modelopt(None)):
        assert not ModelSpec.from_config(folder(tmp_path, LLAMA, hf_quant_config=said)).stored
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    for kv, kept, name in (("FP8", scheme, "fp8"), ("NVFP4", "NVFP4", "nvfp4")):
        # as Model Optimizer's convert_hf_quant_config_format writes both files
        inside = {"ignore": [], "kv_cache_scheme": kept, "quant_method": "modelopt"}
        config = {**LLAMA, "quantization_config": inside}
        for said in (
            modelopt(None, kv_cache_quant_algo=kv), {"quantization": {"kv_cache_quant_algo": kv}},
        ):
            spec = ModelSpec.from_config(folder(tmp_path, config, hf_quant_config=said))
            assert (spec.kv_codec().name, spec.stored) == (name, None)
    config = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme}
    spec = ModelSpec.from_config({**LLAMA, "quantization_config": config})
    assert spec.kv_codec().name == "fp8" and spec.kv_codec("int8").name == "int8"


@pytest.mark.parametrize(("file", "value", "words"), [
    ("quantize_config", {"bits": 5, "group_size": 128}, "bits is 5, needed: one of 2, 3, 4, 8"),
    ("quantize_config", {"quant_method": "exl3", "bits": 4}, "are quantised ({'quant_method': 'ex"),
    ("quant_config", {"w_bit": 4, "q_group_size": 128, "version": "GEMV"}, "version is 'GEMV'"),
    ("hf_quant_config", modelopt("W4A8_AWQ"), "quant_algo is 'W4A8_AWQ', needed: one of FP8, FP"),
    ("hf_quant_config", {"quantization": "FP8"}, "FP8"),
    ("hf_quant_config", modelopt("FP8", exclude_modules="lm_head"), "exclude_modules is 'lm_h"),
    ("hf_quant_config", modelopt("FP8", exclude_modules=[3]), "exclude_modules is [3]"),
    (
        "hf_quant_config", modelopt("FP8", exclude_modules=["*.experts.7.up_proj"]),
        "exclude_modules is ['*.experts.7.up_proj'], needed: names with at most 4 of *",
    ),
    ("hf_quant_config", modelopt("FP8", exclude_modules=["*" * 5]), "names with at most 4 of"),
    ("hf_quant_config", modelopt("FP8", exclude_modules=["*"] * 501), "at most 500 names"),
    ("hf_quant_config", modelopt("NVFP4", group_size=32), "group_size is 32, needed: 16"),
    ("hf_quant_config", modelopt("FP8", kv_cache_quant_algo="INT4"), "is 'INT4', needed: one"),
    ("hf_quant_config", modelopt("MIXED_PRECISION"), "quantized_layers is missing"),
    (
        "hf_quant_config",
        modelopt("MIXED_PRECISION", quantized_layers={"backbone.0": {"quant_algo": "FP8"}}),
        "names 'backbone.0', needed: modules of a llama model, such as lm_head",
    ),
    (
        "hf_quant_config",
        modelopt("MIXED_PRECISION", quantized_layers={
            f"model.layers.{name}": {"quant_algo": "FP8"}
            for name in ("0.mlp", "1.self_attn.qkv_proj")
        }), "names 'model.layers.1.self_attn.qkv_proj', needed",
    ),
    (
        "hf_quant_config", modelopt("MIXED_PRECISION", quantized_layers={}),
        "quantized_layers is {}, needed: the format of each module",
    ),
    (
        "hf_quant_config",
        modelopt("MIXED_PRECISION", quantized_layers={"model": {"quant_algo": "INT4"}}),
        "quantized_layers.model.quant_algo is 'INT4'",
    ),
])
def test_quantised_weights_that_are_not_counted(tmp_path, file, value, words) -> None:
    message = refused(folder(tmp_path, LLAMA, **{file: value}))
    assert words in message and f"{file}.json" in message
    assert message.count("without=['quantization_config'] counts the plain model") <= 1
    plain = ModelSpec.from_config(tmp_path, without=["quantization_config"])
    assert plain == ModelSpec.from_config(LLAMA, name=plain.name)


def test_two_files_that_disagree_and_files_that_are_broken(tmp_path: Path) -> None:
    inside = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    config = {**LLAMA, "quantization_config": inside}
    said = modelopt("NVFP4", exclude_modules=["lm_head"])
    same = ModelSpec.from_config(folder(tmp_path, config, hf_quant_config=said))
    assert same.weight_bytes() == ModelSpec.from_config(config).weight_bytes()
    message = refused(folder(tmp_path, config, hf_quant_config=modelopt("FP8")))
    assert "hf_quant_config.json says FP8 weights and a cache in 16 bits, quant" in message
    assert message.endswith("config.json NVFP4 weights and a cache in 16 bits; keep one")
    said = modelopt(None, kv_cache_quant_algo="FP8")
    message = refused(folder(tmp_path, config, hf_quant_config=said))
    assert "says weights in 16 bits and a cache in fp8, quantization_config of" in message
    for kv, name in (("FP8", "fp8"), ("NVFP4", "nvfp4")):  # one file may not mention the cache
        said = modelopt("NVFP4", exclude_modules=["lm_head"], kv_cache_quant_algo=kv)
        spec = ModelSpec.from_config(folder(tmp_path, config, hf_quant_config=said))
        assert (spec.kv_codec().name, spec.weight_bytes()) == (name, same.weight_bytes())
        assert spec.quantised and spec.quantised.source.endswith("hf_quant_config.json")
    config["quantization_config"]["kv_cache_quant_algo"] = "FP8"
    message = refused(folder(tmp_path, config, hf_quant_config=said))
    assert "says NVFP4 weights and a cache in nvfp4, quantization_config of" in message
    (tmp_path / "hf_quant_config.json").write_text("{")
    assert "hf_quant_config.json: not JSON" in refused(folder(tmp_path, LLAMA))


def test_mlx_says_it_twice_and_gets_one_answer() -> None:
    said = {"group_size": 64, "bits": 4}
    for keys in (("quantization", "quantization_config"), ("quantization",)):
        config = {**LLAMA, **dict.fromkeys(keys, said)}
        assert ModelSpec.from_config(config).weight_codec().name == "MLX int4"
        other = {**LLAMA, "quantization": said, "quantization_config": {**said, "group_size": 32}}
        assert refused(other).endswith("a cache in 16 bits, for other modules; keep one")
        for key in ("quantization", "quantization_config"):
            assert ModelSpec.from_config(config, without=[key]) == ModelSpec.from_config(LLAMA)
    assert "has no key 'quantization' to leave out" in refused(LLAMA, without=["quantization"])


def test_what_cannot_be_left_out() -> None:
    """A key that the family reads: something else would silently be used instead."""
    for base in (LLAMA, GEMMA3, DEEPSEEK, GPT2, QWEN3_MOE, GPT_OSS):
        for key in base.keys() - {"n_group", "topk_group"}:  # no size depends on these two
            assert f"{key} cannot be left out" in refused(base, without=[key])
    nested = {"model_type": "gemma3", "text_config": GEMMA3}
    assert "text_config.sliding_window cannot be" in refused(nested, without=["sliding_window"])
    assert "text_config cannot be left out" in refused(nested, without=["text_config"])
    typo = {**LLAMA, "quantization_config": {"bits": 4}}
    message = refused(typo, without=["quantisation_config"])
    assert "no key 'quantisation_config' to leave out" in message
    assert "did you mean 'quantization_config'" in message
    odd = {**LLAMA, "architectures": ["LlamaForSequenceClassification"], "sliding_window": 9}
    spec = ModelSpec.from_config(odd, without=["architectures", "sliding_window"])
    assert spec == ModelSpec.from_config(LLAMA)
