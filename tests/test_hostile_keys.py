"""Keys that no family reads, or that contradict one another: refused by name, never ignored."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from costs_configs import DEEPSEEK, GEMMA3, GPT_OSS, MIXTRAL, QWEN2_MOE, QWEN3_MOE
from hostile import count, read
from hostile import refused_without_memory as refused
from repository import ROOT
from test_config import GEMMA, GEMMA2, GPT2, LLAMA, MISTRAL, PHI3, QWEN2, QWEN3, STARCODER2

from kvlib.config import words
from kvlib.config.table import NEUTRAL
from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError
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
    "no_rope_layers": ([1, 0], "no_rope_layers is [1, 0], needed"),
    "no_rope_layer_interval": (4, "a key that"),
    "layer_types": (["sliding_attention"] * 2, "layer_types is"),
    "use_sliding_window": (True, "this family has no such switch"),
    "use_bidirectional_attention": (True, "attention is causal"),
    "is_causal": (False, "attention is causal"),
    "rope_interleaved": (True, "dimension i is rotated with"),
    "qk_norm": (True, "this family has no such norm"),
    "lm_head_bias": (True, "this family has no such bias"),
    "alibi": (True, "scores get no bias"), "attention_sinks": (True, "a key that"),
    "attn_temperature_tuning": (4, "scores do not depend on the position"),
    "num_experts": (9, "num_experts is 9, needed: "),
    "use_mrope": (True, "a position is one number"),
    "shared_expert_intermediate_size": (7, "shared_expert_intermediate_size is 7, needed: "),
    "position_embedding_type": ("relative_key", "a key that"),
    "normalize_decoder": (False, "a key that"), "attn_version": (2, "a key that"),
}
HYBRID = {"gemma2", "gemma3_text"}
WINDOWED = {"mistral", "gpt_oss", *HYBRID}
UNDERSTOOD = {
    "attn_logit_softcapping": {"gemma2"}, "final_logit_softcapping": HYBRID,
    "query_pre_attn_scalar": HYBRID,
    "use_sliding_window": {"qwen2", "qwen3", *WINDOWED},  # with a window, true is right
    "layer_types": {"gemma2", "mistral"},
    "qk_norm": {"qwen3", "qwen3_moe", "gemma3_text"},  # they have such a norm
    "num_experts": {"qwen2_moe", "qwen3_moe"}, "shared_expert_intermediate_size": {"qwen2_moe"},
}
OTHER_WORDS = {
    ("attn_logit_softcapping", "gemma3_text"): "transformers ignores it in Gemma 3",
    ("attention_multiplier", "gemma2"): "query_pre_attn_scalar says it",
    ("attention_multiplier", "gemma3_text"): "query_pre_attn_scalar says it",
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


def of_experts(field: str) -> Callable[[ModelConfig], Any]:
    return lambda config: getattr(config.experts, field) if config.experts else 0


# key → what a family computes anyway, so that a file that says so says nothing new
ANYWAY: dict[str, Callable[[ModelConfig], Any]] = {
    **dict.fromkeys(("qk_norm", "use_qk_norm", "qk_layernorm"), lambda c: c.qk_norm),
    **dict.fromkeys(("attention_bias", "qkv_bias", "use_qkv_bias"), lambda c: c.qkv_bias),
    "mlp_bias": lambda c: c.mlp_bias or bool(c.experts and c.experts.bias),
    "use_bias": lambda c: c.mlp_bias,
    **dict.fromkeys(("num_experts", "num_local_experts"), of_experts("num_experts")),
    "num_experts_per_tok": of_experts("per_token"),
    "moe_intermediate_size": of_experts("width"),
    "shared_expert_intermediate_size": of_experts("shared_width"),
    "n_shared_experts": lambda c: c.experts.shared_width // c.experts.width if c.experts else 0,
    "head_dim": lambda c: c.head_dim,
    "num_key_value_heads": lambda c: c.num_key_value_heads,
    "query_pre_attn_scalar": lambda c: (
        c.query_pre_attn_scalar or (c.head_dim, None)[bool(c.latent)]
    ),
    "attention_multiplier": lambda c: (
        None if c.latent or c.query_pre_attn_scalar else c.head_dim**-0.5
    ),
    "layer_types": lambda c: ["sliding_attention" if w else "full_attention" for w in c.windows],
    "scoring_func": lambda c: "sigmoid" if c.router.sigmoid else "softmax",
    "n_group": lambda c: c.router.groups,
    "topk_group": lambda c: c.router.best_groups,
    "topk_method": lambda c: "noaux_tc" if c.router.sigmoid else "greedy",
    "routed_scaling_factor": lambda c: c.router.scaling,
    "rope_interleave": lambda c: c.latent is not None,
    "attn_logit_softcapping": lambda c: c.attn_logit_softcapping,
    "final_logit_softcapping": lambda c: c.final_logit_softcapping,
}


@pytest.mark.parametrize("key", [*ANYWAY, *sorted(NEUTRAL.keys() - ANYWAY)])
def test_a_key_that_says_what_is_computed_anyway(key: str) -> None:
    for base in RUN:
        plain, family = read(base), base["model_type"]
        value = ANYWAY[key](plain) if key in ANYWAY else NEUTRAL[key][0]
        stated = {key: value}
        if key == "use_sliding_window" and any(plain.windows):
            stated[key] = True  # the window alone says it
        if key == "n_shared_experts" and value and not plain.latent:
            continue  # qwen2_moe states their width
        assert read(base, **stated) == plain, family
        assert count(base, **stated).shape == count(base).shape, family
        if isinstance(value, bool) and key != "use_sliding_window":
            other = {key: not value}
            try:
                assert read(base, **other) != plain, family
            except CheckpointError as error:
                assert f"{key} is {words.stated(not value)}, needed: " in str(error)


def test_true_is_not_one() -> None:
    for key, (allowed, _) in NEUTRAL.items():
        if allowed in (0, 1):
            other = float(allowed) if isinstance(allowed, bool) else bool(allowed)
            came = f"{key} is {words.stated(other)}"
            refused(lambda key=key, other=other: read(LLAMA, **{key: other}), came)
    refused(lambda: read(LLAMA, partial_rotary_factor=True), "partial_rotary_factor is true")


UNKNOWN: dict[str, Any] = {
    "true": True, "false": False, "zero": 0, "zero point zero": 0.0, "a string": "yes",
    "a list": [0], "an object": {"a": None},
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_key_is_named_whatever_it_holds(case: str) -> None:
    value = UNKNOWN[case]
    for base in RUN:
        came = f"strange is {words.stated(value)}"
        refused(lambda base=base: read(base, strange=value), came, "delete it")
    for base in RUN:
        expected = "read the config with without=['strange']"
        came = f"strange is {words.stated(value)}"
        refused(lambda base=base: count(base, strange=value), came, expected)
        assert ModelSpec.from_config({**base, "strange": value}, without=["strange"])
    assert read(LLAMA, strange=None) == read(LLAMA, strange=[]) == read(LLAMA)


def test_values_that_json_does_not_have() -> None:
    """A program may pass what transformers made of a file, or an array."""

    class Dtype:
        pass

    assert read(LLAMA, torch_dtype=Dtype(), _arrays=np.ones(3)) == read(LLAMA)
    refused(lambda: read(LLAMA, strange=np.ones(3)), "strange is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, clip_qkv=np.ones(3)), "clip_qkv is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, rope_theta=np.ones(3)), "rope_theta is array([1., 1., 1.])")
    refused(lambda: read(LLAMA, hidden_size=np.int64(32)), "hidden_size is ")


# What every config of transformers before version 5 has, where it is written whole.
WHOLE = json.loads((ROOT / "tests/golden/every_key.json").read_text(encoding="utf-8"))


def test_a_config_with_every_key() -> None:
    for base in RUN:
        assert read(base, **WHOLE) == read(base)
    for base in RUN:
        assert count(base, **WHOLE).shape == count(base).shape
    text = {**GEMMA3, **WHOLE}
    nested = {"model_type": "gemma3", "text_config": text, **WHOLE}
    assert count(nested).shape == count(GEMMA3).shape
    refused(lambda: count({**nested, "text_config": {**text, "add_cross_attention": True}}), "text")


class Loud:
    def __repr__(self) -> str:
        raise OverflowError("no")


SHOWN: dict[str, tuple[object, str]] = {
    "a long integer": (-(10**5000), "a whole number of about 5,001 digits"),
    "a long string": ("x" * 10**6, "'" + "x" * 56 + "..."),
    "a long list": (
        list(range(10**6)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16...",
    ),
    "depth": ([[[[[[1]]]]]], "[[[[[...]]]]]"),
    "an object that has no words": (Loud(), "a Loud"),
    "a tuple with a long integer": ((10**5000,), "a tuple"),
    "an empty object": ({}, "{}"), "an escape code": ("\x1b[2J", r"'\x1b[2J'"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_how_a_value_is_shown(case: str) -> None:
    value, expected = SHOWN[case]
    assert words.shown(value) == expected


def test_how_a_name_is_shown() -> None:
    shown = {"hidden_size": "hidden_size", 7: "7", "": "''", "a\n": r"'a\n'"}
    assert {key: words.name(key) for key in shown} == shown and len(words.name("x" * 999)) == 60
