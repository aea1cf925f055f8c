"""Keys that no family reads, or that contradict one another: refused by name, never ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from costs_configs import DEEPSEEK, GEMMA3, GPT_OSS, MIXTRAL, QWEN2_MOE, QWEN3_MOE
from hostile import count, read
from hostile import refused_without_memory as refused
from test_config import GEMMA, GEMMA2, GPT2, LLAMA, MISTRAL, PHI3, QWEN2, QWEN3, STARCODER2

from kvlib.config.table import NEUTRAL
from kvlib.costs import ModelSpec
from kvlib.model.config import ModelConfig

RUN = (
    *(LLAMA, MISTRAL, PHI3, QWEN2, QWEN3, GEMMA, GEMMA2, STARCODER2, GPT2),
    *(MIXTRAL, QWEN2_MOE, QWEN3_MOE, GEMMA3, GPT_OSS, DEEPSEEK),
)
CHANGES: dict[str, tuple[Any, str]] = {
    # key: a value that changes the result, and what a family without it must say
    "attn_logit_softcapping": (50.0, "scores are not capped"),
    "final_logit_softcapping": (30.0, "logits are not capped"),
    "query_pre_attn_scalar": (144, "scores are scaled by 1/sqrt(head_dim)"),
    "attention_multiplier": (0.0156, "scores are scaled by 1/sqrt(head_dim)"),
    "clip_qkv": (8.0, "queries, keys and values are not clipped"),
    "logit_scale": (0.0625, "logits are not scaled"),
    "logits_scaling": (8.0, "logits are not scaled"),
    "embedding_multiplier": (12.0, "embeddings are not scaled"),
    "residual_multiplier": (0.22, "what a layer adds is not scaled"),
    "attention_chunk_size": (8192, "a key that"),
    "no_rope_layers": ([1, 0], "a key that"),
    "no_rope_layer_interval": (4, "a key that"),
    "layer_types": (["sliding_attention"] * 2, "layer_types is"),
    "use_sliding_window": (True, "this family has no such switch"),
    "use_bidirectional_attention": (True, "attention is causal"),
    "is_causal": (False, "attention is causal"),
    "rope_interleaved": (True, "dimension i is rotated with"),
    "qk_norm": (True, "this family has no such norm"),
    "lm_head_bias": (True, "this family has no such bias"),
    "alibi": (True, "scores get no bias"),
    "attention_sinks": (True, "a key that"),
    "attn_temperature_tuning": (4, "a key that"),
    "num_experts": (8, "a key that"),
    "position_embedding_type": ("relative_key", "a key that"),
    "normalize_decoder": (False, "a key that"),
    "attn_version": (2, "a key that"),
}
HYBRID = {"gemma2", "gemma3_text"}
WINDOWED = {"mistral", "gpt_oss", *HYBRID}
UNDERSTOOD = {
    "attn_logit_softcapping": {"gemma2"},
    "final_logit_softcapping": HYBRID,
    "query_pre_attn_scalar": HYBRID,
    "use_sliding_window": {"qwen2", "qwen3", *WINDOWED},  # with a window, true is right
    "layer_types": {"gemma2", "mistral"},
    "num_experts": {"qwen2_moe", "qwen3_moe"},
}
OTHER_WORDS = {
    ("attn_logit_softcapping", "gemma3_text"): "transformers ignores it in Gemma 3",
    ("use_sliding_window", "qwen2_moe"): "needed: false, or layer_types beside it",
    ("use_sliding_window", "qwen3_moe"): "needed: false, or layer_types beside it",
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_that_changes_the_result_is_read_or_refused(key: str) -> None:
    value, expected = CHANGES[key]
    for base in RUN:
        family = base["model_type"]
        if family in UNDERSTOOD.get(key, ()):
            read(base, **{key: value})
        else:
            found = OTHER_WORDS.get((key, family), expected)
            refused(lambda base=base: read(base, **{key: value}), f"{key} is", found)


CHANGES_SIZE = ("attention_chunk_size", "num_kv_shared_layers", "cross_layer_attention")


@pytest.mark.parametrize("key", CHANGES_SIZE)
def test_a_key_that_changes_a_size_is_refused_where_models_are_counted(key: str) -> None:
    for base in RUN:
        refused(lambda base=base: count(base, **{key: 2}), f"{key} is 2, needed")


@pytest.mark.parametrize("key", NEUTRAL)
def test_the_value_at_which_a_key_changes_nothing(key: str) -> None:
    allowed, _ = NEUTRAL[key]
    read_by = {
        "qkv_bias": {"qwen2", "qwen2_moe"},
        "attention_bias": {"qwen2", "gpt_oss"},
        "use_bias": {"starcoder2"},
    }
    for base in RUN:
        if base["model_type"] in read_by.get(key, ()):
            continue
        stated = {key: allowed}
        if key == "use_sliding_window" and base["model_type"] in WINDOWED:
            stated["sliding_window"] = None
            assert set(read(base, **stated).windows) == {None}
        else:
            assert read(base, **stated) == read({**base, key: None}), base["model_type"]


def test_true_is_not_one() -> None:
    for key, (allowed, _) in NEUTRAL.items():
        if allowed in (0, 1):
            other = float(allowed) if isinstance(allowed, bool) else bool(allowed)
            refused(lambda key=key, other=other: read(LLAMA, **{key: other}), f"{key} is {other}")
    refused(lambda: read(LLAMA, partial_rotary_factor=True), "partial_rotary_factor is True")


UNKNOWN: dict[str, Any] = {
    "true": True,
    "false": False,
    "zero": 0,
    "zero point zero": 0.0,
    "a string": "yes",
    "a list": [0],
    "an object": {"a": None},
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_key_is_named_whatever_it_holds(case: str) -> None:
    value = UNKNOWN[case]
    for base in RUN:
        refused(lambda base=base: read(base, strange=value), f"strange is {value!r}", "delete it")
    for base in RUN:
        expected = "read the config with without=['strange']"
        refused(lambda base=base: count(base, strange=value), f"strange is {value!r}", expected)
        assert ModelSpec.from_config({**base, "strange": value}, without=["strange"])
    assert read(LLAMA, strange=None) == read(LLAMA, strange=[]) == read(LLAMA)


CONFLICTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "Mistral whose window is switched off": (
        MISTRAL,
        {"sliding_window": 8, "use_sliding_window": False},
        "use_sliding_window is False, needed: True or no such key (sliding_window alone says it)",
    ),
    "Mistral that relies on the default window": (
        MISTRAL,
        {"use_sliding_window": False},
        "use_sliding_window is False, needed: True",
    ),
    "Qwen2 without biases": (QWEN2, {"qkv_bias": False}, "qwen2 has biases on q, k and v"),
    "Qwen2 without attention_bias": (QWEN2, {"attention_bias": False}, "qwen2 has biases on q, k"),
    "a key that is a number": (LLAMA, {}, "7 is 1, needed: a key that llama is known to have"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_statements_that_contradict_one_another(case: str) -> None:
    base, keys, expected = CONFLICTS[case]
    more: dict[Any, Any] = {7: 1} if "number" in case else {}
    refused(lambda: ModelConfig.from_dict({**base, **keys, **more}), expected)


def test_values_that_json_does_not_have() -> None:
    """A program may hand over what transformers made of a file, or an array."""

    class Dtype:
        pass

    assert read(LLAMA, torch_dtype=Dtype(), _arrays=np.ones(3)) == read(LLAMA)
    refused(lambda: read(LLAMA, strange=np.ones(3)), "strange is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, clip_qkv=np.ones(3)), "clip_qkv is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, rope_theta=np.ones(3)), "rope_theta is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, hidden_size=np.int64(32)), "hidden_size is ")


# What every config of transformers before version 5 has, where it is written whole.
WHOLE: dict[str, Any] = {
    **dict.fromkeys(("return_dict", "use_cache"), True),
    **dict.fromkeys(("output_hidden_states", "output_attentions", "torchscript"), False),
    **dict.fromkeys(("use_bfloat16", "tf_legacy_loss", "is_encoder_decoder", "is_decoder"), False),
    **dict.fromkeys(("add_cross_attention", "tie_encoder_decoder", "do_sample"), False),
    **dict.fromkeys(("early_stopping", "output_scores", "return_dict_in_generate"), False),
    **dict.fromkeys(("remove_invalid_values",), False),
    **dict.fromkeys(("cross_attention_hidden_size", "bad_words_ids", "forced_bos_token_id"), None),
    **dict.fromkeys(("forced_eos_token_id", "exponential_decay_length_penalty", "prefix"), None),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "finetuning_task"), None),
    **dict.fromkeys(("tokenizer_class", "sep_token_id", "decoder_start_token_id"), None),
    **dict.fromkeys(("task_specific_params", "problem_type", "pad_token_id"), None),
    **dict.fromkeys(("chunk_size_feed_forward", "min_length", "no_repeat_ngram_size"), 0),
    **dict.fromkeys(("encoder_no_repeat_ngram_size",), 0),
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences"), 1),
    **dict.fromkeys(("temperature", "top_p", "typical_p", "repetition_penalty"), 1.0),
    "length_penalty": 1.0,
    "diversity_penalty": 0.0,
    "max_length": 20,
    "top_k": 50,
    "pruned_heads": {},
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
    "_name_or_path": "",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.0",
}


def test_a_config_written_whole() -> None:
    for base in RUN:
        assert read(base, **WHOLE) == read(base)
    for base in RUN:
        assert count(base, **WHOLE).shape == count(base).shape
    text = {**GEMMA3, **WHOLE}
    nested = {"model_type": "gemma3", "text_config": text, **WHOLE}
    assert count(nested).shape == count(GEMMA3).shape
    refused(lambda: count({**nested, "text_config": {**text, "add_cross_attention": True}}), "text")


def test_keys_of_files_in_circulation() -> None:
    """Of Phi-4-mini, and of Unsloth."""
    phi4 = dict(full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False)
    phi4 |= dict(attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0)
    assert read(PHI3, **phi4) == read(PHI3)
    assert read(LLAMA, unsloth_version="2026.4.7", unsloth_fixed=True) == read(LLAMA)
