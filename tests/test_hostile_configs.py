"""Configs with numbers that no model has and keys that no family reads: each refused by name."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from costs_configs import DEEPSEEK, GEMMA3, GPT_OSS, MIXTRAL, QWEN2_MOE, QWEN3_MOE
from test_config import GEMMA, GEMMA2, GPT2, LLAMA, LLAMA3, MISTRAL, PHI3, QWEN2, QWEN3, STARCODER2

from kvlib.config import ranges
from kvlib.config.shape import Experts
from kvlib.config.table import NEUTRAL
from kvlib.config.words import name, shown
from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig, RopeConfig

RUN = (
    *(LLAMA, MISTRAL, PHI3, QWEN2, QWEN3, GEMMA, GEMMA2, STARCODER2, GPT2),
    *(MIXTRAL, QWEN2_MOE, QWEN3_MOE, GEMMA3, GPT_OSS),
)
COUNTED = (DEEPSEEK,)
HUGE = 10**400


def refused(call: Callable[[], object], *expected: str) -> str:
    """The message of the CheckpointError, which comes at once and before memory is taken."""
    tracemalloc.start()
    start = time.thread_time()
    try:
        with pytest.raises(CheckpointError) as caught:
            call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert time.thread_time() - start < 1 and peak < 2e6
    assert all(one in message for one in expected), message
    assert message.isprintable() and len(message) < 600, message
    return message


def read(base: dict[str, Any], **keys: Any) -> ModelConfig:
    return ModelConfig.from_dict({**base, **keys})


def count(base: dict[str, Any], **keys: Any) -> ModelSpec:
    return ModelSpec.from_config({**base, **keys})


# ------------------------------------------------------------------------------------- numbers

SCALED = {"rope_type": "llama3", **LLAMA3}
NUMBERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    **{
        f"{key} of 10^400": (LLAMA, {key: HUGE}, f"{key} is a whole number of about 401 digits")
        for key in (
            *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
            *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
            *("rope_theta", "rms_norm_eps", "eos_token_id", "bos_token_id", "initializer_range"),
        )
    },
    **{
        f"rope {key} of 10^400": (
            LLAMA,
            {"rope_scaling": {**SCALED, key: HUGE}},
            f"rope_scaling.{key} is a whole number of about 401 digits",
        )
        for key in LLAMA3
    },
    "a million layers": (LLAMA, {"num_hidden_layers": 10**6}, "1000000, needed: at most 1,000"),
    "a million layers of GPT-2": (GPT2, {"n_layer": 10**6}, "n_layer is 1000000, needed: at most"),
    "a million layers of Qwen": (QWEN3, {"num_hidden_layers": 10**6}, "at most 1,000"),
    "2^24 + 1 words": (LLAMA, {"vocab_size": 2**24 + 1}, "needed: at most 16,777,216"),
    "hidden_size of 2^30": (LLAMA, {"hidden_size": 2**30}, "hidden_size is 1073741824, needed: at"),
    "a million heads": (LLAMA, {"num_attention_heads": 10**6}, "needed: at most 16,384"),
    "head_dim of 2^20": (LLAMA, {"head_dim": 2**20}, "head_dim is 1048576, needed: at most 16,384"),
    "2^31 positions": (LLAMA, {"max_position_embeddings": 2**31}, "at most 2,147,483,647"),
    "a window of 2^40": (MISTRAL, {"sliding_window": 2**40}, "sliding_window is 1099511627776"),
    "a token id of 2^31": (LLAMA, {"eos_token_id": [2, 2**31]}, "eos_token_id is [2, 2147483648]"),
    "rope_theta of 10^20": (LLAMA, {"rope_theta": 1e20}, "a number from 0.001 to 1e+18"),
    "rope_theta of 10^39": (LLAMA, {"rope_theta": 10**39}, "a number from 0.001 to 1e+18"),
    "rope_theta of 10^-9": (LLAMA, {"rope_theta": 1e-9}, "a number from 0.001 to 1e+18"),
    "rope_theta below zero": (LLAMA, {"rope_theta": -1e4}, "rope_theta is -10000.0, needed: a num"),
    "rms_norm_eps of 2": (LLAMA, {"rms_norm_eps": 2}, "rms_norm_eps is 2, needed: a number from"),
    "rms_norm_eps of 10^-310": (LLAMA, {"rms_norm_eps": 1e-310}, "a number from 1e-30 to 1"),
    "layer_norm_epsilon of 2": (GPT2, {"layer_norm_epsilon": 2}, "a number from 1e-30 to 1"),
    "norm_epsilon of 2": (STARCODER2, {"norm_epsilon": 2}, "a number from 1e-30 to 1"),
    "factor of 10^9": (
        LLAMA,
        {"rope_scaling": {"type": "linear", "factor": 1e9}},
        "rope_scaling.factor is 1000000000.0, needed: a number from 1e-06 to 1e+06",
    ),
    "original positions of 2^31": (
        LLAMA,
        {"rope_scaling": {**SCALED, "original_max_position_embeddings": 2**31}},
        "rope_scaling.original_max_position_embeddings is 2147483648, needed: at most",
    ),
    "original positions of 0.5": (
        LLAMA,
        {"rope_scaling": {**SCALED, "original_max_position_embeddings": 0.5}},
        "rope_scaling.original_max_position_embeddings is 0.5, needed: a whole number",
    ),
    "a softcap of 10^10": (GEMMA2, {"final_logit_softcapping": 1e10}, "a number from 1e-06 to"),
    "a factor of attention of 10^30": (
        LLAMA,
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e30}},
        "rope_scaling.attention_factor is 1e+30, needed: a number from 0.001 to 1000",
    ),
    "beta_fast of 10^9": (
        LLAMA,
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e9}},
        "rope_scaling.beta_fast is 1000000000.0, needed: a number from 1e-06 to 1e+06",
    ),
    "an unknown key of YaRN": (
        LLAMA,
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "finetuned": True}},
        "rope_scaling.finetuned is True, needed: a key that llama is known to have",
    ),
    "the other rope of Gemma 3": (GEMMA3, {"rope_local_base_freq": 1e20}, "from 0.001 to 1e+18"),
    "a limit of gpt-oss": (GPT_OSS, {"swiglu_limit": 1e9}, "swiglu_limit is 1000000000.0, needed"),
    "experts beyond what layers can have": (
        MIXTRAL,
        {"num_hidden_layers": 1000, "num_local_experts": 33},
        "num_local_experts is 33, needed: at most 32,768 experts in 1000 layers together",
    ),
    "a scalar of 10^-9": (GEMMA2, {"query_pre_attn_scalar": 1e-9}, "a number from 1e-06 to"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers(case: str) -> None:
    base, keys, expected = NUMBERS[case]
    refused(lambda: read(base, **keys), "config.json: ", expected)


COSTED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a million layers": (MIXTRAL, {"num_hidden_layers": 10**6}, "needed: at most 1,000"),
    "a million experts": (MIXTRAL, {"num_local_experts": 10**6}, "needed: at most 16,384"),
    "experts of 10^400": (QWEN3_MOE, {"moe_intermediate_size": HUGE}, "of about 401 digits"),
    "a latent rank of 10^9": (DEEPSEEK, {"kv_lora_rank": 10**9}, "needed: at most 4,194,304"),
    "the first million layers dense": (
        DEEPSEEK,
        {"first_k_dense_replace": 10**6},
        "first_k_dense_replace is 1000000, needed: at most 1,000",
    ),
    "every 10^400th layer": (GEMMA3, {"sliding_window_pattern": HUGE}, "of about 401 digits"),
    "a harmless key of 10^400": (MIXTRAL, {"router_aux_loss_coef": HUGE}, "of about 401 digits"),
    "NaN in a harmless key": (MIXTRAL, {"rope_theta": float("nan")}, "rope_theta is nan"),
    "lists in lists": (MIXTRAL, {"auto_map": [[[]]] * 3}, "DEEP"),
    "a key that does not fit the latent": (
        DEEPSEEK,
        {"qk_head_dim": 25},
        "qk_head_dim is 25, needed: 24 or no such key (qk_nope_head_dim + qk_rope_head_dim)",
    ),
}


@pytest.mark.parametrize("case", COSTED)
def test_numbers_of_models_that_are_counted(case: str) -> None:
    base, keys, expected = COSTED[case]
    if expected == "DEEP":
        inner: list[Any] = []
        for _ in range(500_000):
            inner = [inner]
        keys, expected = {"auto_map": inner}, "needed: a depth of at most 32"
    refused(lambda: count(base, **keys), "config: ", expected)


def test_a_cycle_is_too_deep() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    refused(lambda: read(LLAMA, task_specific_params=ring), "task_specific_params.ring.ring")


def test_a_million_dense_layers_take_linear_time() -> None:
    start = time.thread_time()
    many = count(QWEN3_MOE, num_hidden_layers=1000, mlp_only_layers=list(range(500, 400_000)))
    assert many.shape.experts is not None and len(many.shape.experts.layers) == 500
    assert time.thread_time() - start < 1


LARGEST = {  # what is published, and a little more, lies within the ranges
    "Llama 3.1 405B": dict(num_hidden_layers=126, hidden_size=16384, num_attention_heads=128),
    "a context of 10 million": dict(max_position_embeddings=10_485_760),
    "a large base": dict(rope_theta=3_580_165_449.0),
    "a vocabulary of a million": dict(vocab_size=1_000_000),
    "a small eps": dict(rms_norm_eps=1e-12),
    "a thousand layers": dict(num_hidden_layers=1000),
}


@pytest.mark.parametrize("case", LARGEST)
def test_large_models_are_read(case: str) -> None:
    config = read({**LLAMA, "num_key_value_heads": 1}, **LARGEST[case])
    assert all(getattr(config, k, v) == v for k, v in LARGEST[case].items() if k != "rope_theta")


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, needed: at most"),
    "a size of 10^400": ({"hidden_size": HUGE}, "hidden_size is a whole number of about 401"),
    "eps": ({"norm_eps": 10**39}, "norm_eps is 1000000000000000000000"),
    "a softcap of 10^400": ({"attn_logit_softcapping": HUGE}, "attn_logit_softcapping is a whole"),
    "an embedding scale": ({"embedding_scale": 1e300}, "embedding_scale is 1e+300, needed"),
    "a billion experts": (
        {"experts": Experts(10**9, 1, 8, (0,))},
        "experts.num_experts is 1000000",
    ),
    "experts in all layers": (
        {"experts": Experts(16384, 1, 8, (0,)), "num_hidden_layers": 3},
        "experts.num_experts is 16384, needed: at most 32,768 experts in 3 layers together",
    ),
    "more chosen than there are": ({"experts": Experts(2, 3, 8, (0,))}, "experts.per_token is 3"),
    "no experts": ({"experts": Experts(0, 0, 8, (0,))}, "experts.num_experts is 0, needed"),
    "an expert of 10^400": ({"experts": Experts(2, 1, HUGE, (0,))}, "experts.width is a whole"),
    "a window of 10^400": ({"windows": (HUGE, None)}, "window is a whole number of about 401"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_same_ranges_where_a_program_states_a_model(case: str) -> None:
    keys, expected = FIELDS[case]
    sizes = dict(num_key_value_heads=4, head_dim=8)
    with pytest.raises(ValueError) as caught:
        ModelConfig(**{**LLAMA, **sizes, **keys})
    assert expected in str(caught.value)
    for key in ("theta", "factor", "original_max_position_embeddings"):
        with pytest.raises(ValueError, match=f"rope {key} is a whole number of about 401 digits"):
            RopeConfig(**{key: HUGE})


def test_every_range_is_of_a_key_that_some_family_reads() -> None:
    """A range that no key uses is a misspelt one."""
    from repository import ROOT

    text = "".join(p.read_text() for p in (ROOT / "kvlib" / "config").rglob("*.py"))
    text = text.replace((ROOT / "kvlib" / "config" / "ranges.py").read_text(), "")
    fields = set(ModelConfig.__dataclass_fields__)
    for key in (*ranges.MOST, *ranges.BETWEEN):
        assert f'"{key}"' in text or key in fields, key
    assert set(re.findall(r'number\(\s*"(\w+)"', text)) <= ranges.BETWEEN.keys()


# ---------------------------------------------------------------------------------------- keys

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
    for base in (*RUN, *COUNTED):
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
    for base in (*RUN, *COUNTED):
        expected = "read the config with without=['strange']"
        refused(lambda base=base: count(base, strange=value), f"strange is {value!r}", expected)
        assert ModelSpec.from_config({**base, "strange": value}, without=["strange"])
    assert read(LLAMA, strange=None) == read(LLAMA, strange=[]) == read(LLAMA)


BOTH = {"full_attention": {"rope_theta": 1e4}}
ROPES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an unknown key": (LLAMA, {"rope_theta": 1e4, "twist": 2}, "rope_parameters.twist is 2"),
    "an unknown switch": (LLAMA, {"rope_theta": 1e4, "twist": False}, "rope_parameters.twist is F"),
    "an unknown key of a layer type": (
        LLAMA,
        {"full_attention": {"rope_theta": 1e4, "twist": 2}},
        "rope_parameters.full_attention.twist is 2, needed: a key that llama is known to have",
    ),
    "an unknown key beside a layer type": (
        LLAMA,
        {**BOTH, "twist": 2},
        "rope_parameters.full_attention is {'rope_theta': 10000.0}, needed",
    ),
    "an unknown layer type": (
        LLAMA,
        {**BOTH, "linear_attention": {"rope_theta": 2.0}},
        "rope_parameters.linear_attention is {'rope_theta': 2.0}, needed: no such key",
    ),
    "an unknown key of another layer type": (
        {**QWEN2, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2},
        {**BOTH, "sliding_attention": {"twist": 1}},
        "rope_parameters.sliding_attention.twist is 1",
    ),
    "a layer type that is missing": (
        {**QWEN2, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2},
        BOTH,
        "an entry for each layer type of ['sliding_attention']",
    ),
    "two types": (
        LLAMA,
        {"rope_type": "linear", "type": "llama3", "factor": 2},
        "rope_parameters.type is 'llama3', needed: 'linear' or no such key (as rope_type says)",
    ),
    "a factor without a type": (LLAMA, {"factor": 4}, "rope_parameters.factor is 4, needed: 1.0"),
    "a key of another type": (
        LLAMA,
        {"rope_type": "linear", "factor": 2, "high_freq_factor": 4},
        "rope_parameters.high_freq_factor is 4",
    ),
    "sections": (LLAMA, {"mrope_section": [8, 12, 12]}, "mrope_section is [8, 12, 12]"),
    "an attention factor": (LLAMA, {"attention_factor": 0.5}, "rope_parameters.attention_factor"),
    "a type that is a list": (LLAMA, {"rope_type": ["linear"]}, "rope_type is ['linear']"),
    "a part that is a list": (LLAMA, {"full_attention": [1]}, "rope_parameters.full_attention is"),
    "layer types that are no strings": ({**LLAMA, "layer_types": [[1]] * 2}, BOTH, "layer_types"),
}


@pytest.mark.parametrize("case", ROPES)
def test_rope(case: str) -> None:
    base, rope, expected = ROPES[case]
    for key in ("rope_parameters", "rope_scaling"):
        expected = expected.replace("rope_parameters", key)
        refused(lambda key=key: read(base, **{key: rope}), expected)


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
    for base in (*RUN, *COUNTED):
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


# ---------------------------------------------------------------------------------- their words


class Loud:
    def __repr__(self) -> str:
        raise OverflowError("no")


SHOWN: dict[str, tuple[object, str]] = {
    "a long integer": (-(10**5000), "a whole number of about 5,001 digits"),
    "a long string": ("x" * 10**6, "'" + "x" * 56 + "..."),
    "a long list": (
        list(range(10**6)),
        "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16...",
    ),
    "depth": ([[[[[[1]]]]]], "[[[[[...]]]]]"),
    "an object that has no words": (Loud(), "a Loud"),
    "a tuple with a long integer": ((10**5000,), "a tuple"),
    "an empty object": ({}, "{}"),
    "an escape code": ("\x1b[2J", r"'\x1b[2J'"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_how_a_value_is_shown(case: str) -> None:
    value, expected = SHOWN[case]
    assert shown(value) == expected


def test_how_a_name_is_shown() -> None:
    assert name("hidden_size") == "hidden_size" and name(7) == "7" and name("") == "''"
    assert name("a\n") == r"'a\n'" and len(name("x" * 999)) == 60
