"""Configs that kvlib does not understand: both readers name the key, at once and in few words."""

import re
import time
from functools import partial
from typing import Any

import pytest
from costs_configs import QWEN2_MOE
from hostile import count, read
from hostile import refused_without_memory as refused
from repository import ROOT
from test_config import (
    DEEPSEEK2,
    DEEPSEEK3,
    FALCON,
    GEMMA2,
    GEMMA3,
    GPT2,
    GPT_OSS,
    LLAMA,
    LLAMA3,
    MISTRAL,
    MIXTRAL,
    OLMO3,
    OPT,
    PHI,
    PHI3,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    SMOLLM3,
    STABLELM,
    STARCODER2,
)  # fmt: skip
from test_costs_families import FILES

from kvlib.config import ranges
from kvlib.config.shape import Experts
from kvlib.costs import ModelSpec
from kvlib.model.config import ModelConfig, RopeConfig

HUGE = 10**400
GLM45, MINIMAX_M2 = FILES["GLM-4.5"][0], FILES["MiniMax-M2.5"][0]
QWEN3_VL_MOE = FILES["Qwen3-VL-30B-A3B"][0]["text_config"]
SCALED = {"rope_type": "llama3", **LLAMA3}
BOTH = {"full_attention": {"rope_theta": 1e4}}


def deep() -> list[Any]:
    inner: list[Any] = []
    for _ in range(500_000):
        inner = [inner]
    return inner


# A config, what is changed in it (... for a key that is missing), and what the refusal says.
REFUSED = [
    (LLAMA, {"model_type": ["llama"]}, "model_type is ['llama']"),
    (LLAMA, {"architectures": ["GPT2LMHeadModel"]}, "architectures is"),
    (LLAMA, {"architectures": [["LlamaForCausalLM"]]}, "architectures is"),
    (LLAMA, {"architectures": "LlamaForCausalLM"}, "architectures is"),
    (LLAMA, {"hidden_size": None}, "hidden_size is null"),
    (LLAMA, {"hidden_size": 0}, "hidden_size is 0, needed: a whole number of at least 1"),
    (LLAMA, {"hidden_size": True}, "hidden_size is true, needed: a whole number of at least 1"),
    (LLAMA, {"hidden_size": 33}, "hidden_size is 33, needed: a multiple of num_attention_heads"),
    (LLAMA, {"num_key_value_heads": 3},
     "num_key_value_heads is 3, needed: a divisor of num_attention_heads (4)"),
    (LLAMA, {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    (LLAMA, {"attention_bias": 1}, "attention_bias is 1"),
    (LLAMA, {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
    (LLAMA, {"layer_types": ["full_attention"]}, "layer_types is"),
    (LLAMA, {"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
    (LLAMA, {"rope_scaling": {"type": "yarn", "factor": "2"}}, "factor is '2'"),
    (DEEPSEEK2, {"qk_head_dim": 13},
     "qk_head_dim is 13, needed: 12 or no such key (qk_nope_head_dim + qk_rope_head_dim)"),
    (DEEPSEEK2, {"sliding_window": 8}, "sliding_window is 8"),
    (MISTRAL, {"sliding_window": 0}, "sliding_window is 0"),
    (MISTRAL, {"attention_bias": True},
     "attention_bias is true, needed: false or no such key (this family has no such bias)"),
    (MISTRAL, {"layer_types": ["full_attention"] * 2},
     "needed: 'sliding_attention' throughout, as sliding_window says"),
    (QWEN2, {"layer_types": ["full_attention", "sliding_attention"]},
     "use_sliding_window is false"),
    (QWEN2, {"layer_types": "full_attention"}, "layer_types is"),
    (QWEN2, {"use_sliding_window": True, "layer_types": ["sliding_attention"]}, "layer_types is"),
    (QWEN3, {"head_dim": None}, "head_dim is null"),
    (GEMMA2, {"head_dim": None}, "head_dim is null"),
    (STARCODER2, {"norm_type": "rms_norm"}, "norm_type is 'rms_norm', needed: 'layer_norm'"),
    (STARCODER2, {"mlp_type": "gated"}, "mlp_type is 'gated'"),
    (GPT2, {"n_special": 2}, "n_special is 2, needed: 0"),
    (GEMMA2, {"sliding_window_pattern": 6}, "sliding_window_pattern is 6, needed: 2"),
    (GEMMA2, {"sliding_window_size": 9}, "sliding_window_size is 9, needed: 8 or no such key"),
    (LLAMA, {"model_type": ...}, "model_type is missing, needed: one of llama,"),
    (LLAMA, {"architectures": ["LlamaForSequenceClassification"]},
     "architectures is ['LlamaForSequenceClassification'], needed: ['LlamaForCausalLM'"),
    (LLAMA, {"quantization_config": {"quant_method": "exl3", "bits": 4}},
     "quantization_config is {'quant_method': 'exl3', 'bits': 4}, needed: null or no such key"),
    (QWEN3, {"layer_types": ["linear_attention", "full_attention"]},
     "layer_types is ['linear_attention', 'full_attention'], needed: 2 entries, each 'full_att"),
    (LLAMA, {"sliding_window": 64}, "llama has no window"),
    (GEMMA2, {"layer_types": ["full_attention"]},
     "layer_types is ['full_attention'], needed: 2 entries"),
    (QWEN3_MOE, {"use_sliding_window": True},
     "use_sliding_window is true, needed: false, or layer_types beside it"),
    (QWEN3, {"use_sliding_window": 1}, "needed: true or false"),
    (MIXTRAL, {"num_experts_per_tok": 9},
     "num_experts_per_tok is 9, needed: at most num_local_experts (8)"),
    (MIXTRAL, {"num_local_experts": ...}, "num_local_experts is missing"),
    (SMOLLM3, {"use_sliding_window": True}, "use_sliding_window is true, needed: false"),
    (FALCON, {"alibi": True}, "alibi is true, needed: false or no such key"),
    (FALCON, {"n_head": 8}, "n_head is 8, needed: 4"),
    (FALCON, {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn is false"),
    (FALCON, {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn is 2, needed: at most 1"),
    (FALCON, {"new_decoder_architecture": True, "num_kv_heads": 3}, "num_kv_heads is 3, needed"),
    (PHI, {"qk_layernorm": True}, "qk_layernorm is true, needed: false"),
    (PHI, {"tie_word_embeddings": True}, "tie_word_embeddings is true, needed: false"),
    (STABLELM, {"qk_layernorm": True}, "qk_layernorm is true, needed: false"),
    (OPT, {"head_dim": 4}, "head_dim is 4, needed: 8"),
    (OPT, {"num_key_value_heads": 1}, "num_key_value_heads is 1, needed: 4"),
    (OPT, {"word_embed_proj_dim": 16}, "word_embed_proj_dim is 16, needed: 32"),
    (OPT, {"do_layer_norm_before": False}, "do_layer_norm_before is false, needed: true"),
    (OPT, {"_remove_final_layer_norm": True}, "_remove_final_layer_norm is true"),
    (OPT, {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine is false"),
    (GPT_OSS, {"experts_per_token": 4},
     "experts_per_token is 4, needed: 2 or no such key (as num_experts_per_tok says)"),
    (QWEN3_MOE, {"moe_intermediate_size": ...}, "moe_intermediate_size"),
    (QWEN2_MOE, {"shared_expert_intermediate_size": ...},
     "shared_expert_intermediate_size is missing"),
    (QWEN3_MOE, {"mlp_only_layers": ["0"]},
     "mlp_only_layers is ['0'], needed: a list of layer numbers"),
    (DEEPSEEK3, {"first_k_dense_replace": ...},
     "first_k_dense_replace is missing, needed: a whole number of at least 0"),
    (DEEPSEEK3, {"kv_lora_rank": ...}, "kv_lora_rank is missing"),
    (GPT2, {"n_head": 5}, "n_embd is 32, needed: a multiple of n_head (5)"),
    (LLAMA, {"hidden_size": 64.0}, "hidden_size is 64.0, needed: a whole number of at least 1"),
    (LLAMA, {"hidden_size": "64"}, "hidden_size is '64', needed: a whole number of at least 1"),
    (LLAMA, {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, needed: at most 1,000"),
    (GPT2, {"n_layer": 10**6}, "n_layer is 1000000, needed: at most"),
    (LLAMA, {"vocab_size": 2**24 + 1}, "needed: at most 16,777,216"),
    (LLAMA, {"hidden_size": 2**30}, "hidden_size is 1073741824, needed: at"),
    (LLAMA, {"num_attention_heads": 10**6}, "needed: at most 16,384"),
    (LLAMA, {"head_dim": 2**20}, "head_dim is 1048576, needed: at most 16,384"),
    (LLAMA, {"max_position_embeddings": 2**31}, "at most 2,147,483,647"),
    (MISTRAL, {"sliding_window": 2**40}, "sliding_window is 1099511627776"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 1e9}},
     "rope_scaling.factor is 1000000000.0, needed: a number from 1e-06 to 1e+06"),
    (MIXTRAL, {"num_hidden_layers": 1000, "num_local_experts": 132},
     "num_local_experts is 132, needed: at most 131,072 experts in 1000 layers together"),
    (MIXTRAL, {"num_local_experts": 10**6}, "needed: at most 16,384"),
    (DEEPSEEK3, {"kv_lora_rank": 10**9}, "needed: at most 4,194,304"),
    (DEEPSEEK3, {"first_k_dense_replace": 10**6},
     "first_k_dense_replace is 1000000, needed: at most 1,000"),
    (MISTRAL, {"sliding_window": 8, "use_sliding_window": False},
     "use_sliding_window is false, needed: true or no such key (sliding_window alone says it)"),
    (QWEN2, {"qkv_bias": False}, "this family has such a bias"),
    (LLAMA, {7: 1}, "7 is 1, needed: a key that llama is known to have"),
    (LLAMA, {"task_specific_params": deep()}, "needed: a depth of at most 32"),
    ({**LLAMA, "layer_types": [[1]] * 2}, {"rope_parameters": BOTH}, "layer_types"),
    *((LLAMA, {key: HUGE}, f"{key} is a whole number of about 401 digits")
      for key in ("hidden_size", "rms_norm_eps", "eos_token_id", "initializer_range")),
]  # fmt: skip
TO_RUN = [
    (GLM45, {"scoring_func": "softmax"}, "scoring_func is 'softmax', needed: 'sigmoid'"),
    (GLM45, {"n_group": 3}, "router.groups (n_group) is 3, needed: a number that divides 160"),
    (MINIMAX_M2, {"topk_method": "greedy"}, "topk_method is 'greedy', needed: 'noaux_tc'"),
    (MINIMAX_M2, {"rotary_dim": 256}, "partial_rotary_factor is 2.0, needed"),
    ({"model_type": "qwen3_vl_moe", "text_config": QWEN3_VL_MOE},
     {"text_config": {**QWEN3_VL_MOE, "norm_topk_prob": False}}, "norm_topk_prob is false, needed"),
    (LLAMA, {"head_dim": 7}, "head_dim is 7"),
    (LLAMA, {"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    (LLAMA, {"hidden_act": "tanh"}, "hidden_act is 'tanh'"),
    (LLAMA, {"rope_theta": 0}, "rope_theta is 0"),
    (LLAMA, {"rope_scaling": {"type": "dynamic"}}, "rope_scaling.factor is missing"),
    (LLAMA, {"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 0.5}}, "beta_fast is 0.5"),
    (LLAMA, {"rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1}}, "truncate is 1"),
    (DEEPSEEK2, {"qk_rope_head_dim": 5}, "latent.qk_rope_head_dim is 5, needed: an even number"),
    (DEEPSEEK2, {"norm_topk_prob": True}, "norm_topk_prob is true, needed: false"),
    (DEEPSEEK2, {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid', needed: 'softmax'"),
    (DEEPSEEK2, {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc', needed: one of greedy"),
    (DEEPSEEK2, {"topk_method": "group_limited_greedy"}, "n_group is missing"),
    (DEEPSEEK2, {"routed_scaling_factor": 0}, "routed_scaling_factor is 0"),
    (DEEPSEEK3, {"rope_interleave": False}, "rope_interleave is false, needed: true"),
    (DEEPSEEK3, {"scoring_func": "softmax"}, "scoring_func is 'softmax', needed: 'sigmoid'"),
    (DEEPSEEK3, {"topk_method": "greedy"}, "topk_method is 'greedy', needed: 'noaux_tc'"),
    (DEEPSEEK3, {"n_group": 3}, "(n_group) is 3, needed: a number that divides 8 experts"),
    (DEEPSEEK3, {"topk_group": 5}, "(topk_group) is 5, needed: at most 4 groups"),
    (GEMMA3, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    (GEMMA3, {"rope_local_base_freq": -1}, "rope_local_base_freq is -1"),
    (GEMMA3, {"rope_parameters": {"chunked_attention": {}}}, "an entry for each layer type"),
    (GEMMA3, {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}},
              "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
     "the rope of 'full_attention' stated once"),
    ({"model_type": "mistral3"},
     {"text_config": {**MISTRAL, "model_type": "ministral3", "head_dim": 8}},
     "text_config.model_type is 'ministral3', needed: 'mistral'"),
    (OLMO3, {"rope_theta": 1e4}, "rope_theta is 10000.0, needed: 500000.0"),
    (SMOLLM3, {"no_rope_layers": [1]}, "no_rope_layers is [1], needed: 2 entries, each 0 or 1"),
    (SMOLLM3, {"no_rope_layers": [1, 2]}, "no_rope_layers is [1, 2], needed: 2 entries"),
    (GPT_OSS, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    (GPT_OSS, {"swiglu_limit": 0}, "swiglu_limit is 0"),
    (GPT_OSS, {"initial_context_length": 8192,
               "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                                "original_max_position_embeddings": 4096}},
     "initial_context_length is 8192"),
    (QWEN3_MOE, {"norm_topk_prob": 1}, "norm_topk_prob is 1"),
    (LLAMA, {"rope_parameters": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor is miss"),
    (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    (LLAMA, {"rope_parameters": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}},
     "high_freq_factor is 1.0"),
    (QWEN2, {"layer_types": ["full_attention", "sliding_attention"],
             "use_sliding_window": True,
             "rope_parameters": {"full_attention": {"rope_theta": 1e6},
                                 "sliding_attention": {"rope_theta": 1e4}}},
     "one and the same rope"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2},
             "rope_parameters": {"rope_theta": 1e4}},
     "one and the same rope"),
    (LLAMA, {"eos_token_id": "2"}, "eos_token_id is '2'"),
    (LLAMA, {"eos_token_id": [2, -1]}, "eos_token_id is [2, -1]"),
    (LLAMA, {"eos_token_id": True}, "eos_token_id is true"),
    (GEMMA2, {"final_logit_softcapping": 0}, "final_logit_softcapping is 0"),
    (GEMMA2, {"query_pre_attn_scalar": "256"}, "query_pre_attn_scalar is '256'"),
    (GEMMA2, {"hidden_activation": "tanh"}, "hidden_activation is 'tanh'"),
    (GPT2, {"scale_attn_weights": False}, "scale_attn_weights is false"),
    (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is true"),
    (GPT2, {"activation_function": "tanh"}, "activation_function is 'tanh'"),
    (PHI3, {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}},
     "rope_scaling.type is 'longrope', needed: one of default, linear, dynamic, llama3, yarn"),
    (PHI3, {"partial_rotary_factor": 0.75}, "partial_rotary_factor is 0.75, needed: 1.0"),
    (LLAMA, {"residual_multiplier": 0.22}, "residual_multiplier is 0.22, needed: 1.0 or no such"),
    (LLAMA, {"query_pre_attn_scalar": 144}, "query_pre_attn_scalar is 144"),
    (QWEN3, {"norm_topk_prob": True}, "if it does not change what a forward pass computes, delete"),
    (GPT2, {"rope_theta": 500000.0}, "rope_theta is 500000.0"),
    (LLAMA, {"rope_scaling": SCALED, "original_max_position_embeddings": 4096},
     "rope_scaling.original_max_position_embeddings is 8192, needed: 4096"),
    (LLAMA, {"rope_scaling": {"type": "yarn", "factor": 2, "attn_factor": 0.8}}, "attn_factor is"),
    (LLAMA, {"eos_token_id": [2, 2**31]}, "eos_token_id is [2, 2147483648]"),
    (LLAMA, {"rope_theta": 1e20}, "a number from 0.001 to 1e+18"),
    (LLAMA, {"rope_theta": 1e-9}, "a number from 0.001 to 1e+18"),
    (LLAMA, {"rms_norm_eps": 2}, "rms_norm_eps is 2, needed: a number from"),
    (LLAMA, {"rms_norm_eps": 1e-310}, "a number from 1e-30 to 1"),
    (GPT2, {"layer_norm_epsilon": 2}, "a number from 1e-30 to 1"),
    (STARCODER2, {"norm_epsilon": 2}, "a number from 1e-30 to 1"),
    (LLAMA, {"rope_scaling": {**SCALED, "original_max_position_embeddings": 2**31}},
     "rope_scaling.original_max_position_embeddings is 2147483648, needed: at most"),
    (LLAMA, {"rope_scaling": {**SCALED, "original_max_position_embeddings": 0.5}},
     "rope_scaling.original_max_position_embeddings is 0.5, needed: a whole number"),
    (GEMMA2, {"final_logit_softcapping": 1e10}, "a number from 1e-06 to"),
    (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e30}},
     "rope_scaling.attention_factor is 1e+30, needed: a number from 0.001 to 1000"),
    (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e9}},
     "rope_scaling.beta_fast is 1000000000.0, needed: a number from 1e-06 to 1e+06"),
    (GEMMA3, {"rope_local_base_freq": 1e20}, "from 0.001 to 1e+18"),
    (GPT_OSS, {"swiglu_limit": 1e9}, "swiglu_limit is 1000000000.0, needed"),
    (GEMMA2, {"query_pre_attn_scalar": 1e-9}, "a number from 1e-06 to"),
]  # fmt: skip
# The same under rope_parameters and under rope_scaling.
WINDOWS = {**QWEN2, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2}
ROPES = [
    (LLAMA, {"rope_theta": 1e4, "twist": 2}, "KEY.twist is 2"),
    (LLAMA, {"rope_theta": 1e4, "twist": False}, "KEY.twist is f"),
    (LLAMA, {"full_attention": {"rope_theta": 1e4, "twist": 2}},
     "KEY.full_attention.twist is 2, needed: a key that llama is known to have"),
    (LLAMA, {**BOTH, "twist": 2}, "KEY.full_attention is {'rope_theta': 10000.0}, needed"),
    (LLAMA, {**BOTH, "linear_attention": {"rope_theta": 2.0}},
     "KEY.linear_attention is {'rope_theta': 2.0}, needed: no such key"),
    (WINDOWS, {**BOTH, "sliding_attention": {"twist": 1}}, "KEY.sliding_attention.twist is 1"),
    (WINDOWS, BOTH, "an entry for each layer type of ['sliding_attention']"),
    (LLAMA, {"rope_type": "linear", "type": "llama3", "factor": 2},
     "KEY.type is 'llama3', needed: 'linear' or no such key (as rope_type says)"),
    (LLAMA, {"factor": 4}, "KEY.factor is 4, needed: 1.0"),
    (LLAMA, {"rope_type": "linear", "factor": 2, "high_freq_factor": 4},
     "KEY.high_freq_factor is 4"),
    (LLAMA, {"mrope_section": [8, 12, 12]}, "mrope_section is [8, 12, 12]"),
    (LLAMA, {"attention_factor": 0.5}, "KEY.attention_factor"),
    (LLAMA, {"rope_type": ["linear"]}, "rope_type is ['linear']"),
    (LLAMA, {"full_attention": [1]}, "KEY.full_attention is"),
]  # fmt: skip
TO_RUN += [
    (base, {key: rope}, words.replace("KEY", key))
    for base, rope, words in ROPES for key in ("rope_parameters", "rope_scaling")
]  # fmt: skip
TO_COUNT = [
    ({}, "text_config is missing"),
    ({"text_config": LLAMA}, "text_config.model_type is 'llama', needed: 'gemma3_text'"),
]  # fmt: skip


def changed(base: dict[str, Any], keys: dict[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**base, **keys}.items() if value is not ...}


@pytest.mark.parametrize(("base", "keys", "words"), REFUSED)
def test_refused(base: dict[str, Any], keys: dict[Any, Any], words: str) -> None:
    config = changed(base, keys)
    message = refused(lambda: ModelConfig.from_dict(config, "some/config.json"), words)
    assert message.startswith("some/config.json: ")
    assert refused(lambda: ModelSpec.from_config(config), words).startswith("config: ")


@pytest.mark.parametrize(("base", "keys", "words"), TO_RUN)
def test_refused_to_run(base: dict[str, Any], keys: dict[Any, Any], words: str) -> None:
    """No size depends on these keys, so that the model can be counted."""
    refused(lambda: read(changed(base, keys)), "config.json: ", words)
    assert count(changed(base, keys)).num_parameters > 0


@pytest.mark.parametrize(("keys", "words"), TO_COUNT)
def test_refused_to_count(keys: dict[str, Any], words: str) -> None:
    refused(lambda: count({"model_type": "gemma3", **keys}), "config: ", words)


@pytest.mark.parametrize("base", [LLAMA, QWEN2, QWEN3, GPT2], ids=lambda base: base["model_type"])
def test_every_size_is_needed(base: dict[str, Any]) -> None:
    for key in base:
        for reader in (read, count):
            config = changed(base, {key: ...})
            refused(partial(reader, config), f"{key} is missing, needed: ")


def test_a_cycle_is_too_deep() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    for reader in (read, count):
        deep = partial(reader, LLAMA, task_specific_params=ring)
        refused(deep, "task_specific_params.ring.ring")


@pytest.mark.parametrize("config", [None, 7, ["llama"], b"config.json"])
def test_neither_mapping_nor_path(config: Any) -> None:
    for reader in (ModelSpec.from_config, ModelConfig.from_dict):
        with pytest.raises(TypeError, match="needed: a mapping of keys to values"):
            reader(config)


def test_a_million_dense_layers_take_linear_time() -> None:
    start = time.thread_time()
    many = count(QWEN3_MOE, num_hidden_layers=1000, mlp_only_layers=list(range(500, 400_000)))
    assert many.shape.experts is not None and len(many.shape.experts.layers) == 500
    assert time.thread_time() - start < 1


# What is published, and a little more, is within the ranges.
LARGEST = [
    dict(num_hidden_layers=126, hidden_size=16384, num_attention_heads=128),  # Llama 3.1 405B
    dict(max_position_embeddings=10_485_760), dict(rope_theta=3_580_165_449.0),
    dict(vocab_size=1_000_000), dict(rms_norm_eps=1e-12), dict(num_hidden_layers=1000),
]


@pytest.mark.parametrize("keys", LARGEST, ids=lambda keys: next(iter(keys)))
def test_large_models_are_read(keys: dict[str, Any]) -> None:
    config = read({**LLAMA, "num_key_value_heads": 1}, **keys)
    assert all(getattr(config, k, v) == v for k, v in keys.items() if k != "rope_theta")


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(("stated", "words"), [
    ({"weight_block_size": [64, 128]}, " is {'quant_method': 'fp8', "),
    ({"expert_dtype": "fp4"}, " is {"),
    ({"rotation": True}, ".rotation is true, needed: no such key"),
])
def test_fp8_of_other_kinds_is_refused(stated: dict[str, Any], words: str) -> None:
    assert read(LLAMA, quantization_config={**BLOCKS, "fmt": "e4m3"}) == read(LLAMA)
    changed = {"quantization_config": {**BLOCKS, **stated}}
    refused(lambda: read(LLAMA, **changed), f"quantization_config{words}")


# A model that a program states, not a file.
SIZES = {**LLAMA, "num_key_value_heads": 4, "head_dim": 8}
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"windows": (8,)}, "windows has 1 entries"),
    ({"windows": (8, 0)}, "window is 0"),
    ({"windows": (HUGE, None)}, "window is a whole number of about 401"),
    ({"norm": "batch"}, "norm is 'batch'"),
    ({"pre_norms": False}, "pre_norms is False, needed: post_norms, and no parallel_residual"),
    ({"pre_norms": False, "post_norms": True, "parallel_residual": True}, "pre_norms is False"),
    ({"unrotated": (2,)}, "unrotated must be 0 ... 1, got 2"),
    ({"residual_scale": 0.5, "parallel_residual": True}, "residual_scale is 0.5, needed with"),
    ({"qk_norm_wide": True}, "qk_norm_wide is True, needed with it: qk_norm"),
    ({"positions": "alibi"}, "positions is 'alibi'"),
    ({"positions": "learned", "rope": RopeConfig()}, "rope is given"),
    ({"positions": "learned", "rope": None, "window_rope": RopeConfig()}, "window_rope is given"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, needed: at most"),
    ({"hidden_size": HUGE}, "hidden_size is a whole number of about 401"),
    ({"norm_eps": -1.0}, "norm_eps is -1.0"),
    ({"norm_eps": None}, "norm_eps is None"),
    ({"norm_eps": 10**39}, "norm_eps is 1000000000000000000000"),
    ({"embedding_scale": 0}, "embedding_scale is 0"),
    ({"embedding_scale": 1e300}, "embedding_scale is 1e+300, needed"),
    ({"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1.0"),
    ({"attn_logit_softcapping": HUGE}, "attn_logit_softcapping is a whole"),
    ({"experts": Experts(10**9, 1, 8, (0,))}, "experts.num_experts is 1000000"),
    ({"experts": Experts(16384, 1, 8, (0,)), "num_hidden_layers": 9},
     "experts.num_experts is 16384, needed: at most 131,072 experts in 9 layers together"),
    ({"experts": Experts(2, 3, 8, (0,))}, "experts.per_token is 3"),
    ({"experts": Experts(0, 0, 8, (0,))}, "experts.num_experts is 0, needed"),
    ({"experts": Experts(2, 1, HUGE, (0,))}, "experts.width is a whole"),
]  # fmt: skip
ROPE_FIELDS = [
    ({"kind": "longrope"}, "rope kind is 'longrope'"),
    ({"kind": "yarn", "theta": 1.0}, "rope theta is 1.0"),
    *(({key: HUGE}, f"rope {key} is a whole number of about 401 digits")
      for key in ("theta", "factor", "original_max_position_embeddings")),
]  # fmt: skip


@pytest.mark.parametrize(("form", "keys", "words"), [
    *((lambda **keys: ModelConfig(**{**SIZES, **keys}), *case) for case in FIELDS),
    *((RopeConfig, *case) for case in ROPE_FIELDS),
])  # fmt: skip
def test_fields_that_no_model_has(form: Any, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        form(**keys)


def test_every_range_is_of_a_key_that_some_family_reads() -> None:
    """A range that no key uses is a misspelt one."""
    text = "".join(p.read_text() for p in (ROOT / "kvlib" / "config").rglob("*.py"))
    text = text.replace((ROOT / "kvlib" / "config" / "ranges.py").read_text(), "")
    fields = set(ModelConfig.__dataclass_fields__)
    for key in (*ranges.MOST, *ranges.BETWEEN):
        assert f'"{key}"' in text or key in fields, key
    assert set(re.findall(r'number\(\s*"(\w+)"', text)) <= ranges.BETWEEN.keys()
