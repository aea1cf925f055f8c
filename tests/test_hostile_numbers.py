"""Configs with numbers that no model has: each refused with its key, before memory is taken."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from costs_configs import DEEPSEEK, GEMMA3, GPT_OSS, MIXTRAL, QWEN3_MOE
from hostile import count, read
from hostile import refused_without_memory as refused
from repository import ROOT
from test_config import GEMMA2, GPT2, LLAMA, LLAMA3, MISTRAL, QWEN3, STARCODER2

from kvlib.config import ranges
from kvlib.config.shape import Experts
from kvlib.model.config import ModelConfig, RopeConfig

HUGE = 10**400
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
        LLAMA, {"rope_scaling": {"type": "linear", "factor": 1e9}},
        "rope_scaling.factor is 1000000000.0, needed: a number from 1e-06 to 1e+06",
    ),
    "original positions of 2^31": (
        LLAMA, {"rope_scaling": {**SCALED, "original_max_position_embeddings": 2**31}},
        "rope_scaling.original_max_position_embeddings is 2147483648, needed: at most",
    ),
    "original positions of 0.5": (
        LLAMA, {"rope_scaling": {**SCALED, "original_max_position_embeddings": 0.5}},
        "rope_scaling.original_max_position_embeddings is 0.5, needed: a whole number",
    ),
    "a softcap of 10^10": (GEMMA2, {"final_logit_softcapping": 1e10}, "a number from 1e-06 to"),
    "a factor of attention of 10^30": (
        LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e30}},
        "rope_scaling.attention_factor is 1e+30, needed: a number from 0.001 to 1000",
    ),
    "beta_fast of 10^9": (
        LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e9}},
        "rope_scaling.beta_fast is 1000000000.0, needed: a number from 1e-06 to 1e+06",
    ),
    "an unknown key of YaRN": (
        LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "ramp": True}},
        "rope_scaling.ramp is true, needed: a key that llama is known to have",
    ),
    "the other rope of Gemma 3": (GEMMA3, {"rope_local_base_freq": 1e20}, "from 0.001 to 1e+18"),
    "a limit of gpt-oss": (GPT_OSS, {"swiglu_limit": 1e9}, "swiglu_limit is 1000000000.0, needed"),
    "experts beyond what layers can have": (
        MIXTRAL, {"num_hidden_layers": 1000, "num_local_experts": 33},
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
        DEEPSEEK, {"first_k_dense_replace": 10**6},
        "first_k_dense_replace is 1000000, needed: at most 1,000",
    ),
    "every 10^400th layer": (GEMMA3, {"sliding_window_pattern": HUGE}, "of about 401 digits"),
    "a harmless key of 10^400": (MIXTRAL, {"router_aux_loss_coef": HUGE}, "of about 401 digits"),
    "NaN in a harmless key": (MIXTRAL, {"rope_theta": float("nan")}, "rope_theta is nan"),
    "lists in lists": (MIXTRAL, {"auto_map": [[[]]] * 3}, "DEEP"),
    "a key that does not fit the latent": (
        DEEPSEEK, {"qk_head_dim": 25},
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
        {"experts": Experts(10**9, 1, 8, (0,))}, "experts.num_experts is 1000000",
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
    text = "".join(p.read_text() for p in (ROOT / "kvlib" / "config").rglob("*.py"))
    text = text.replace((ROOT / "kvlib" / "config" / "ranges.py").read_text(), "")
    fields = set(ModelConfig.__dataclass_fields__)
    for key in (*ranges.MOST, *ranges.BETWEEN):
        assert f'"{key}"' in text or key in fields, key
    assert set(re.findall(r'number\(\s*"(\w+)"', text)) <= ranges.BETWEEN.keys()
