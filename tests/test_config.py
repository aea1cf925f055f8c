"""config.json in every spelling in circulation, and refusals that name file, key and value."""

import json
import re
from pathlib import Path

import pytest
from costs_configs import PUBLISHED as FILES
from repository import ROOT

from kvlib.config import families
from kvlib.config.families import FAMILIES, family
from kvlib.config.shape import Router
from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig, RopeConfig

LLAMA = dict(
    model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=128,
)
GPT2 = dict(model_type="gpt2", vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128)
QWEN2 = {**LLAMA, "model_type": "qwen2", "num_key_value_heads": 2}
QWEN3 = {**QWEN2, "model_type": "qwen3", "head_dim": 16}
GEMMA = {**QWEN3, "model_type": "gemma"}
PHI3 = {**LLAMA, "model_type": "phi3"}
STARCODER2 = {**QWEN2, "model_type": "starcoder2"}
GEMMA2 = {**QWEN3, "model_type": "gemma2", "sliding_window": 8}
GEMMA3 = {**GEMMA2, "model_type": "gemma3_text"}
MISTRAL = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 2}
MIXTRAL = {**MISTRAL, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
GPT_OSS = {**MIXTRAL, "model_type": "gpt_oss", "head_dim": 8}
QWEN3_MOE = {**QWEN3, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
QWEN3_MOE |= {"moe_intermediate_size": 16}
DEEPSEEK2 = {
    **MISTRAL, "model_type": "deepseek_v2", "num_key_value_heads": 4, "q_lora_rank": None,
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1,
}
DEEPSEEK3 = {**DEEPSEEK2, "model_type": "deepseek_v3", "n_group": 4, "topk_group": 2}
OLMO3, SMOLLM3, STABLELM, PHI = (
    {**MISTRAL, "model_type": name} for name in ("olmo3", "smollm3", "stablelm", "phi")
)
FALCON = {**LLAMA, "model_type": "falcon", "intermediate_size": 128}
OPT = {**FALCON, "model_type": "opt", "ffn_dim": 128}
LLAMA3 = dict(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192,
)


def read(base: dict, **keys) -> ModelConfig:
    return ModelConfig.from_dict({**base, **keys})


def test_starcoder2():
    config = read(STARCODER2)
    assert (config.norm, config.norm_eps, config.gated_mlp) == ("layer", 1e-5, False)
    assert config.qkv_bias and config.o_bias and config.mlp_bias
    assert config.hidden_act == "gelu_pytorch_tanh" and config.tie_word_embeddings
    config = read(STARCODER2, use_bias=False, sliding_window=8, norm_epsilon=1e-6)
    assert config.windows == (8, 8) and config.norm_eps == 1e-6
    assert not (config.qkv_bias or config.o_bias or config.mlp_bias)


def test_llama_2():
    assert ModelConfig(**{**LLAMA, "num_key_value_heads": 4, "head_dim": 8}) == read(LLAMA)
    config = read(LLAMA, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)
    assert (config.head_dim, config.num_key_value_heads) == (8, 4)
    assert config.rope == RopeConfig(theta=10000.0)
    assert config.windows == (None, None) and config.norm_eps == 1e-5
    assert (config.bos_token_id, config.eos_token_ids) == (1, (2,))
    assert not (config.qkv_bias or config.o_bias or config.mlp_bias or config.qk_norm)


def test_biases_and_own_head_dim():
    config = read(LLAMA, attention_bias=True, mlp_bias=True, head_dim=12)
    assert config.qkv_bias and config.o_bias and config.mlp_bias and config.head_dim == 12
    config = read(QWEN3, attention_bias=True)
    assert config.qkv_bias and config.o_bias and config.qk_norm
    config = read(QWEN2)
    assert config.qkv_bias and not config.o_bias and not config.mlp_bias


def test_gpt2():
    config = read(GPT2, layer_norm_epsilon=1e-6, n_inner=None)
    assert (config.norm, config.positions, config.rope) == ("layer", "learned", None)
    assert (config.intermediate_size, config.head_dim) == (128, 8)
    assert config.qkv_bias and config.o_bias and config.mlp_bias and not config.gated_mlp
    assert config.tie_word_embeddings and config.hidden_act == "gelu_new"
    assert read(GPT2, n_inner=40).intermediate_size == 40


def test_gemma():
    config = read(GEMMA)
    assert (config.norm, config.hidden_act) == ("rms_1p", "gelu_pytorch_tanh")
    assert config.embedding_scale == 32**0.5 and config.tie_word_embeddings
    assert read(GEMMA, hidden_act="gelu").hidden_act == "gelu_pytorch_tanh"  # its legacy spelling
    assert read(GEMMA, hidden_act="silu").hidden_act == "silu"
    assert not config.post_norms and config.windows == (None, None)


def test_gemma_2():
    config = read(GEMMA2)
    assert config.post_norms and config.windows == (8, None)
    assert (config.query_pre_attn_scalar, config.attn_logit_softcapping) == (256.0, 50.0)
    assert config.final_logit_softcapping == 30.0 and config.head_dim == 16
    config = read(GEMMA2, query_pre_attn_scalar=144, attn_logit_softcapping=None)
    assert (config.query_pre_attn_scalar, config.attn_logit_softcapping) == (144.0, None)
    assert read(GEMMA2, final_logit_softcapping=None).final_logit_softcapping is None
    listed = ["full_attention", "sliding_attention"]
    assert read(GEMMA2, layer_types=listed).windows == (None, 8)


@pytest.mark.parametrize("keys", [
    {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
    {
        "rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3},
        "original_max_position_embeddings": 8192,
    },
    {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
    {"rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", **LLAMA3}},
    {"rope_parameters": {"full_attention": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}},
    {
        "rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3},
        "rope_scaling": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3},
    },
])
def test_rope_in_every_spelling(keys):
    assert read(LLAMA, **keys).rope == RopeConfig(theta=5e5, kind="llama3", **LLAMA3)


def test_rope_linear_default_and_null():
    linear = {"type": "linear", "factor": 2}
    assert read(LLAMA, rope_scaling=linear).rope == RopeConfig(kind="linear", factor=2.0)
    assert read(LLAMA, rope_theta=1e6, rope_scaling=None).rope == RopeConfig(theta=1e6)
    assert read(LLAMA, rope_parameters={"rope_theta": 1e6}).rope == RopeConfig(theta=1e6)
    assert read(LLAMA, rope_parameters={}).rope == RopeConfig()
    with_fraction = {"rope_type": "default", "partial_rotary_factor": 1.0}
    assert read(LLAMA, rope_parameters=with_fraction).rope == RopeConfig()


def test_heads_stated_as_null_are_one_for_each_query_head():
    for base in (LLAMA, MISTRAL, QWEN2, QWEN3):
        assert read(base, num_key_value_heads=None).num_key_value_heads == 4


def test_activations_and_family_by_class():
    assert read(LLAMA, hidden_act="swish").hidden_act == "silu"
    assert read(LLAMA, hidden_act="gelu").hidden_act == "gelu"
    config = dict(LLAMA, architectures=["LlamaForCausalLM"])
    del config["model_type"]
    assert ModelConfig.from_dict(config).model_type == "llama"


@pytest.mark.parametrize(("base", "keys"), [
    (
        LLAMA,  # SmolLM's, and older ones
        {
            "is_llama_config": True, "rope_interleaved": False, "max_sequence_length": 2048,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
            "pretraining_tp": 1, "initializer_range": 0.02, "transformers_version": "4.42.3",
        },
    ),
    (QWEN2, {"use_sliding_window": False, "sliding_window": 32, "max_window_layers": 28}),
    (GEMMA, {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}),
    (
        GEMMA2,
        {
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window_size": 8, "cache_implementation": "hybrid",
        },
    ),
    # Phi-4-mini's, Unsloth's, Qwen3-Coder's, and of a Llama that was a Qwen2
    (QWEN2, dict(use_mrope=False)),
    (QWEN3_MOE, dict(shared_expert_intermediate_size=0, use_qk_norm=True, qkv_bias=False)),
    (LLAMA, dict(use_sliding_window=False, sliding_window=32)),
    (PHI3, dict(full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False)),
    (PHI3, dict(attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0)),
    (LLAMA, dict(unsloth_version="2026.4.7", unsloth_fixed=True)),
    *[(base, {"original_max_position_embeddings": 4096}) for base in (LLAMA, QWEN2, PHI3)],
    (PHI3, {"bias": False, "model_max_length": 4096, "seq_length": 4096}),
    (GEMMA2, {"sliding_window_pattern": 2}),
    (GPT2, {"n_special": 0, "predict_special_tokens": True, "num_labels": 1}),  # gpt2-medium's
    (
        STARCODER2,
        {
            "norm_epsilon": 1e-5, "layer_norm_epsilon": 1e-5, "norm_type": "layer_norm",
            "mlp_type": "default", "scale_attn_weights": True, "attention_softmax_in_fp32": True,
            "scale_attention_softmax_in_fp32": True, "embedding_dropout": 0.1,
        },
    ),
    (
        GPT2,
        {
            "n_ctx": 48, "resid_pdrop": 0.1, "summary_proj_to_labels": True,
            "summary_type": "cls_index",
            "task_specific_params": {"text-generation": {"do_sample": True}},
            "reorder_and_upcast_attn": True,
        },
    ),
], ids=lambda x: x.get("model_type"))
def test_keys_of_published_files_that_decide_nothing(base, keys):
    assert read(base, **keys) == read(base)
    assert ModelSpec.from_config({**base, **keys}).shape == ModelSpec.from_config(base).shape


def test_a_model_that_is_counted_and_not_run_says_so():
    config = {**MISTRAL, "model_type": "ministral3", "head_dim": 128}
    assert ModelSpec.from_config(config).num_parameters > 0
    with pytest.raises(CheckpointError) as caught:
        ModelConfig.from_dict(config)
    assert str(caught.value) == (
        "config.json: model_type is 'ministral3'. kvlib can count this model's bytes (kvlib.costs) "
        "but cannot run it: it would need scores scaled by position. "
        "It can run " + ", ".join(name for name in FAMILIES if family(name).forward_fields)
    )
    with pytest.raises(CheckpointError, match=r"'bert', needed: one of llama, mistral, "):
        ModelConfig.from_dict({**LLAMA, "model_type": "bert"})


def test_each_family_is_one_file_and_one_line():
    files = {path.stem for path in Path(families.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(FAMILIES.values())
    for name in FAMILIES:
        found = family(name)
        assert found.classes and bool(found.lacks) == (found.forward_fields is None), name


def test_readme_names_the_families_whose_config_is_read():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"reads the `config.json` of (.*?)\. If the family", readme, re.S)
    words = set(re.findall(r"[a-z]+", sentence.lower()))
    assert {re.match("[a-z]+", name)[0] for name in FAMILIES} <= words


def test_from_folder(tmp_path):
    for reader in (ModelConfig.from_folder, ModelSpec.from_config):
        with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
            reader(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "eos_token_id": 2}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (2,)
    generation = tmp_path / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (7, 9)
    generation.write_text(json.dumps({"eos_token_id": None}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (2,)
    generation.write_text(json.dumps({"eos_token_id": "end"}))
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id is 'end'"):
        ModelConfig.from_folder(tmp_path)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48}
LENGTHS = {
    # rope: (keys, tokens to be counted, tokens that kvlib runs), of 128 in the file
    "none": ({}, 128, 128),
    "default": ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 128, 128),
    "yarn": ({"rope_scaling": YARN}, 192, 192),
    "yarn of transformers 5": ({"rope_parameters": {**YARN, "rope_theta": 1e6}}, 192, 192),
    "yarn by its older name": (
        {"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 48}},
        192, 192,
    ),
    "yarn whose length is stretched already": (
        {"rope_scaling": {**YARN, "original_max_position_embeddings": 32}}, 128, 128,
    ),
    "yarn without the first length": ({"rope_scaling": {"type": "yarn", "factor": 4}}, 512, 512),
    "yarn with the first length outside": (
        {
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
            "original_max_position_embeddings": 48,
        }, 192, 192,
    ),
    "yarn with keys of other programs": (
        {"rope_scaling": {**YARN, "finetuned": True, "attn_factor": 1, "extrapolation_factor": 1}},
        192, 192,
    ),
    "yarn of each layer type": ({"rope_parameters": {"full_attention": YARN}}, 192, 192),
    "linear": ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 320, 320),
    "dynamic": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 256, 128),
    "llama3": ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 128, 128),
    "longrope": (
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}}, 128,
        None,
    ),
}


@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize("base", [LLAMA, QWEN3, PHI3], ids=lambda base: base["model_type"])
def test_how_long_a_stretched_rope_reads(base, case):
    """As model cards state it; vLLM 0.33.0 reads YaRN's length from the file as it is."""
    keys, counted, run = LENGTHS[case]
    assert ModelSpec.from_config({**base, **keys}).max_context == counted
    if run is not None:
        assert read(base, **keys).max_position_embeddings == run


def test_a_length_that_is_stretched_already_or_that_nothing_can_stretch():
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert read(GEMMA3, **linear).max_position_embeddings == 128
    assert ModelSpec.from_config({**GEMMA3, **linear}).max_context == 128
    assert ModelSpec.from_config({**GPT2, "rope_scaling": YARN}).max_context == 128
    for factor, first in ((1e6, 2**20), (1e-6, 48), ("4", 48), (True, 48)):
        stretched = {**YARN, "factor": factor, "original_max_position_embeddings": first}
        with pytest.raises(CheckpointError, match="rope_scaling.factor is"):
            ModelSpec.from_config({**LLAMA, "rope_scaling": stretched})
    both = {"rope_scaling": YARN, "original_max_position_embeddings": 32}
    with pytest.raises(CheckpointError, match="48, needed: 32 or no such key"):
        read(LLAMA, **both)


@pytest.mark.parametrize("text", ['"limits": [0.0, Infinity]', '"size": {"a": 1e999}'])
def test_the_family_is_the_first_reason(text, tmp_path):
    """A key that kvlib could not read in any file is not why it does not know Mamba-2."""
    path = tmp_path / "config.json"
    path.write_text(f'{{"model_type": "mamba2", {text}}}')
    for reader in (ModelConfig.from_folder, ModelSpec.from_config):
        with pytest.raises(CheckpointError, match="model_type is 'mamba2', needed: one of"):
            reader(tmp_path)
    for reader in (ModelConfig.from_dict, ModelSpec.from_config):
        with pytest.raises(CheckpointError, match="model_type is 'mamba2', needed: one of"):
            reader(json.loads(path.read_text()))
    path.write_text(f'{{"model_type": "llama", {text}}}')
    with pytest.raises(CheckpointError, match="is inf, needed: a finite number"):
        ModelConfig.from_folder(tmp_path)


@pytest.mark.parametrize("more, runs", [
    ({}, True), ({"weight_block_size": None}, True), ({"fmt": "float8_e4m3fn"}, True),
    ({"quant_method": "fbgemm_fp8"}, False), ({"quant_algo": "MIXED_PRECISION"}, False),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, True),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, False),
    ({"quant_method": "mxfp4", "weight_block_size": None}, True),
])
def test_weights_in_fp8_and_mxfp4_run(more, runs):
    stated = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]} | more
    if runs:
        assert read(LLAMA | {"quantization_config": stated}) == read(LLAMA)
    else:
        with pytest.raises(CheckpointError, match="quantization_config"):
            read(LLAMA | {"quantization_config": stated})


@pytest.mark.parametrize("file", ["hf_quant_config.json", "quantize_config.json"])
def test_a_folder_whose_weights_are_quantised_is_not_run(file, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert ModelConfig.from_folder(tmp_path) == read(LLAMA)
    said = {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}}}
    said["quantize_config.json"] = {"bits": 4, "group_size": 128}
    (tmp_path / file).write_text(json.dumps(said[file]))
    with pytest.raises(CheckpointError, match=f"{file}: .*quantised weights are not read"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / file).write_text('{"quantization": {"quant_algo": null}}')
    if file == "hf_quant_config.json":
        assert ModelConfig.from_folder(tmp_path) == read(LLAMA)


def test_ropes_by_type_of_layer_in_both_spellings():
    """Gemma 3: files of transformers 5 state two ropes in one key, older ones in three."""
    linear = {"rope_type": "linear", "factor": 8.0}
    new = {
        "full_attention": {**linear, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    old = {"rope_theta": 1e6, "rope_scaling": linear, "rope_local_base_freq": 1e4}
    for keys in ({"rope_parameters": new}, old, {**old, "rope_parameters": new}):
        config = read(GEMMA3, layer_types=["sliding_attention", "full_attention"], **keys)
        assert config.rope == RopeConfig(theta=1e6, kind="linear", factor=8.0)
        assert config.window_rope == RopeConfig(theta=1e4)
        assert [config.rope_of(i) for i in range(2)] == [config.window_rope, config.rope]
    assert read(GEMMA3).rope == RopeConfig(theta=1e6)  # the family's own, where a file is silent
    assert read(GEMMA3).window_rope == RopeConfig(theta=1e4)


def test_deepseek_reads_what_transformers_reads():
    yarn = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1}
    yarn |= {"original_max_position_embeddings": 4096}
    sizes = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}

    def scale(base, mscale):
        both = {"mscale": mscale, "mscale_all_dim": mscale}
        config = read(base, **sizes, rope_scaling={**yarn, **both})
        assert config.rope.attention_factor == 1.0 and config.rope_dim == 64
        return config.query_pre_attn_scalar**-0.5

    assert abs(scale(DEEPSEEK2, 0.707) - 0.1147214) < 1e-7  # V2-Lite
    assert abs(scale(DEEPSEEK3, 1.0) - 0.1352338) < 1e-7
    assert read(DEEPSEEK2).query_pre_attn_scalar is None
    assert read(DEEPSEEK2).router == Router() and not read(DEEPSEEK2).norm_topk_prob
    groups = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 3}
    grouped = read(DEEPSEEK2, **groups, routed_scaling_factor=16.0)
    assert grouped.router == Router(False, 4, 3, 16.0)
    assert read(DEEPSEEK3).router == Router(True, 4, 2, 2.5) and read(DEEPSEEK3).norm_topk_prob
    whole = {**FILES["deepseek-v3"]}
    del whole["quantization_config"]
    assert read(whole).router == Router(True, 8, 4, 2.5)
    dense = read({**DEEPSEEK3, "n_routed_experts": None})
    assert dense.experts is None and dense.router == Router()


def test_yarn_reads_what_transformers_reads():
    yarn = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    config = read(GPT_OSS, rope_scaling={**yarn, "beta_fast": 32, "beta_slow": 1})
    assert config.rope.theta == 150_000.0 and config.rope.truncate
    # gpt-oss: cos and sin times 0.1 ln 32 + 1, so scores times its square
    assert abs(config.rope.attention_factor - 1.346574) < 1e-6
    assert read(GPT_OSS, rope_scaling={**yarn, "truncate": False}).rope.truncate is False
    stated = read(LLAMA, rope_scaling={**yarn, "attention_factor": 1.5})
    assert stated.rope.attention_factor == 1.5
    both = read(LLAMA, rope_scaling={**yarn, "mscale": 0.707, "mscale_all_dim": 0.707})
    assert both.rope.attention_factor == 1.0  # DeepSeek-V2: the two cancel
    del yarn["original_max_position_embeddings"]
    length = LLAMA["max_position_embeddings"]
    assert read(LLAMA, rope_scaling=yarn).rope.original_max_position_embeddings == length
