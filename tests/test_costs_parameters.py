"""Parameters to the unit, bytes of weights and of caches, against published and counted figures."""

import math
import re
from typing import Any

import numpy as np
import pytest
from costs_configs import GEMMA3, LLAMA
from hypothesis import given
from hypothesis import strategies as st
from test_config import DEEPSEEK2
from test_costs_catalogue import MODEL_TABLE
from test_hostile_keys import RUN

from kvlib import Decoder, Meter, ModelConfig
from kvlib.config.families import family
from kvlib.config.quantised import Format
from kvlib.costs import formulas
from kvlib.costs.catalogue import CODECS, read_data
from kvlib.costs.spec import MODELS, ModelSpec, catalogued
from kvlib.costs.units import Bytes, Tokens
from kvlib.costs.weights import modules
from kvlib.model import random_weights
from kvlib.model.checkpoint import sources
from kvlib.model.weights import num_parameters

PARTS = ("products", "head", "expert", "embedding")


# models that are not in the catalogue, with the sizes that their checkpoints have
OTHERS: dict[str, tuple[dict[str, Any], int]] = {
    "gemma-7b": (
        dict(
            model_type="gemma", vocab_size=256_000, hidden_size=3072, intermediate_size=24_576,
            num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=16, head_dim=256,
            max_position_embeddings=8192,
        ), 8_537_680_896,
    ),
    "Qwen1.5-MoE-A2.7B": (
        dict(
            model_type="qwen2_moe", vocab_size=151_936, hidden_size=2048, intermediate_size=5632,
            num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=16, head_dim=128,
            max_position_embeddings=8192, num_experts=60, num_experts_per_tok=4,
            moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
        ), 14_315_784_192,
    ),
}


def check_of_a_model_to_run(config: dict[str, Any], parameters: int) -> None:
    if family(config["model_type"]).forward_fields:
        runs = {key: value for key, value in config.items() if key != "quantization_config"}
        others = ModelSpec.from_config(runs).shape.others  # OPT's rows that no position has
        unused = sum(math.prod(weight.shape) for weight in others)
        assert num_parameters(ModelConfig.from_dict(runs)) + unused == parameters


@pytest.mark.parametrize("title", MODEL_TABLE)
def test_parameters_and_bytes_a_token(title: str) -> None:
    parameters, kv = (int(MODEL_TABLE[title][name]) for name in ("parameters", "kv_bytes"))
    spec = MODELS[title]
    counted, published = spec.num_parameters, spec.value("parameters").value
    assert counted == parameters
    if published != counted:  # a round figure, or one with a tower or layers that draft
        assert published % 1_000_000 == 0 and published == pytest.approx(counted, rel=0.03)
    check_of_a_model_to_run(catalogued(read_data("models.toml")[spec.name]), counted)
    assert spec.kv_bytes_per_token() == Bytes(kv)
    assert spec.kv_bytes_per_token("float32") == Bytes(2 * kv)
    assert spec.weight_bytes() == Bytes(2 * counted) and spec.weight_bytes("fp8") == Bytes(counted)
    assert spec.weight_bytes("int4") == Bytes(-(-counted // 2))


def test_experts_may_be_stored_in_another_format() -> None:
    """gpt-oss: 4 bits and a scale of 8 bits per 32 weights of the experts (arXiv:2508.10925)."""
    mxfp4 = Format("mxfp4", "groups of 32", bits=4, scale_bits=8, group=32)
    oss = MODELS["gpt-oss-120b"]
    routed = 36 * 128 * 3 * 2880 * 2880
    by_hand = routed * 4.25 / 8 + 2 * (oss.num_parameters - routed)
    assert oss.weight_bytes(experts=mxfp4).value == by_hand
    assert f"{oss.weight_bytes(experts=mxfp4):.1f GiB}" == "60.8 GiB"
    assert oss.weight_bytes(experts="bfloat16") == oss.weight_bytes()
    with pytest.raises(ValueError, match="llama-3.1-8b has no experts, got experts='mxfp4'"):
        MODELS["llama-3.1-8b"].weight_bytes(experts=mxfp4)
    with pytest.raises(ValueError, match="codec 'int8' has one scale per vector"):
        oss.weight_bytes(experts="int8")


@pytest.mark.parametrize("name", OTHERS)
def test_parameters_of_models_outside_the_catalogue(name: str) -> None:
    config, parameters = OTHERS[name]
    assert ModelSpec.from_config(config).num_parameters == parameters
    check_of_a_model_to_run(config, parameters)


def test_active_parameters() -> None:
    """Without the experts that are not chosen, and without the table that is only looked up."""
    assert round(MODELS["gpt-oss-120b"].active_parameters / 1e9, 1) == 5.1
    assert MODELS["gpt-oss-120b"].value("active").value == 5_100_000_000
    mixtral, table = MODELS["mixtral-8x7b"], 32000 * 4096
    assert round((mixtral.active_parameters + table) / 1e9, 1) == 12.9  # as its makers count
    llama, tied = MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"]
    assert llama.active_parameters == llama.num_parameters - 128256 * 4096
    assert tied.active_parameters == tied.num_parameters


SMALL = {**LLAMA, "tie_word_embeddings": False, "hidden_size": 48, "num_attention_heads": 4}
GPT2 = dict(model_type="gpt2", vocab_size=90, n_embd=32, n_head=4, n_layer=3, n_positions=64)
RUNNABLE: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "llama, tied": {**SMALL, "tie_word_embeddings": True, "head_dim": 20},
    "llama, biases": {**SMALL, "attention_bias": True, "mlp_bias": True},
    "mistral": {**SMALL, "model_type": "mistral", "sliding_window": 3},
    "qwen2": {**SMALL, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**SMALL, "model_type": "qwen3", "head_dim": 20},
    "qwen3, biases": {**SMALL, "model_type": "qwen3", "head_dim": 6, "attention_bias": True},
    "gemma": {**SMALL, "model_type": "gemma", "head_dim": 20, "tie_word_embeddings": True},
    "gemma2": {**SMALL, "model_type": "gemma2", "head_dim": 20, "sliding_window": 3},
    "phi3": {**SMALL, "model_type": "phi3"},
    "starcoder2": {**SMALL, "model_type": "starcoder2", "sliding_window": 3},
    "gpt2": GPT2, "gpt2, inner size": {**GPT2, "n_inner": 50},
}


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_a_decoder_holds_and_multiplies(name: str) -> None:
    config = ModelConfig.from_dict(RUNNABLE[name])
    model, spec = Decoder(config, random_weights(config)), ModelSpec.from_config(RUNNABLE[name])
    assert spec.num_parameters == model.num_parameters
    assert spec.weight_bytes("float32") == Bytes(model.num_bytes)
    assert [w or None for w in np.asarray(spec.shape.windows).tolist()] == list(config.windows)
    cache = model.new_cache(1, 16)
    cache.add(0)
    for tokens in (5, 1):
        with Meter() as meter:
            model.forward([7] * tokens, cache, cache.plan([0], [tokens]), rows="all")
        expected = formulas.linear_flops(spec.facts, tokens, tokens)
        assert meter.by_label["linear"].flops == expected
    assert Bytes(cache.memory().payload) == spec.kv_bytes(1, 6, "float32")


def test_dense_facts_say_so() -> None:
    facts = ModelSpec.from_config(LLAMA).facts
    assert facts["experts"] == facts["experts_per_token"] == facts["expert_weights"] == 0
    assert (facts["kv_heads"], facts["max_context"]) == (2, 512)
    facts["layers"][0]["count"] = 99  # a copy: changing it changes no model
    assert ModelSpec.from_config(LLAMA).facts["layers"][0]["count"] == 4


def test_codecs_by_hand() -> None:
    spec = MODELS["llama-3.1-8b"]  # 32 layers; a token has 16 vectors of 128 numbers in each
    assert spec.kv_bytes(1, 10, "fp8") == Bytes(10 * 32 * 2048)
    assert spec.kv_bytes(1, 10, "int8") == Bytes(10 * 32 * (2048 + 16 * 4))
    assert spec.kv_bytes(3, 100, "int4") == spec.kv_bytes(3, 100)  # all of it in the residual
    coded = 2048 // 2 + 2048 // 32 * 4
    assert spec.kv_bytes(2, 1000, "int4") == Bytes(2 * 32 * (128 * 4096 + 872 * coded))
    assert spec.kv_bytes_per_token("int4") == Bytes(32 * coded)
    own = Format("int4-g64", "int4, groups of 64", 4, scale_bits=32, group=64)
    assert spec.kv_bytes(1, 10, own) == Bytes(10 * 32 * (1024 + 32 * 4))


def test_blocks_are_rounded_up_in_every_layer() -> None:
    spec = ModelSpec.from_config(GEMMA3)  # six layers with a window of 32, one without
    a_token = 2 * 2 * 16 * 2
    assert spec.kv_bytes(1, 40) == Bytes((6 * 32 + 40) * a_token)
    # a window of 32 tokens touches up to three blocks of 16, and up to three of 20
    assert spec.kv_bytes(1, 40, block_size=16) == Bytes((6 * 48 + 48) * a_token)
    assert spec.kv_bytes(2, 33, block_size=20) == Bytes(2 * (6 * 40 + 40) * a_token)
    assert spec.kv_bytes(2, 41, block_size=20) == Bytes(2 * (6 * 60 + 60) * a_token)
    assert spec.kv_bytes(2, 33, block_size=20, keep_all=True) == Bytes(2 * 7 * 40 * a_token)
    assert spec.kv_bytes(1, 40, block_size=1) == spec.kv_bytes(1, Tokens(40))


@given(
    name=st.sampled_from(list(MODELS)), dtype=st.sampled_from(list(CODECS)),
    batch=st.integers(1, 64), seq=st.integers(1, 200_000),
    block=st.sampled_from([None, 1, 16, 128]),
)
def test_more_is_never_less(name: str, dtype: str, batch: int, seq: int, block: int | None) -> None:
    spec = MODELS[name]
    held = spec.kv_bytes(batch, seq, dtype, block)
    assert held == batch * spec.kv_bytes(1, seq, dtype, block)
    assert held <= spec.kv_bytes(batch, seq + 1, dtype, block)
    assert spec.kv_bytes(batch, seq, dtype) <= held
    assert held <= spec.kv_bytes(batch, seq, dtype, block, keep_all=True)
    assert isinstance(held.value, int)
    if dtype in ("float16", "bfloat16"):
        states = batch * spec.state_bytes
        assert 2 * held == spec.kv_bytes(batch, seq, "float32", block) + states
        if all(group.every == 1 for group in spec.layers):
            tokens = batch * seq * spec.kv_bytes_per_token(dtype)
            assert spec.kv_bytes(batch, seq, dtype, keep_all=True) == tokens + states


@pytest.mark.parametrize("base", (*RUN, DEEPSEEK2), ids=lambda base: base["model_type"])
def test_the_matrices_of_a_checkpoint_by_name(base: dict[str, Any]) -> None:
    """Names are those of the files, and their numbers are those that `Counts` has together."""
    spec = ModelSpec.from_config(base)
    counts, found = spec.counts, list(modules(spec.shape))
    sums = {part: sum(m.numbers for m in found if m.part == part) for part in PARTS}
    head = 0 if counts.tied else counts.head
    expected = (counts.products, head, counts.expert * counts.experts, counts.embedding)
    assert tuple(sums.values()) == expected
    if base["model_type"] == "gpt_oss":  # its files hold all experts of a layer in one tensor
        found = [m for m in found if m.part != "expert"]
    config = ModelConfig.from_dict(base)
    prefix = family(config.model_type).names.prefix
    stored = {
        source.name if source.name == "lm_head.weight" else prefix + source.name: source.shape
        for parts in sources(config).values()
        for source in parts
    }
    numbers = {name: math.prod(shape) for name, shape in stored.items()}
    assert spec.num_parameters == sum(numbers.values())
    facts, parts = spec.facts, ("product", "head", "expert")
    weights = [facts[f"{part}_weights"] for part in parts]
    assert weights == [counts.products, counts.head, counts.expert]
    routed = sum(n for name, n in numbers.items() if re.search(r"(?<!shared_)experts\.", name))
    idle = routed * (facts["experts"] - facts["experts_per_token"]) // max(facts["experts"], 1)
    table = (0 if counts.tied else counts.embedding) + counts.positions
    assert spec.active_parameters == spec.num_parameters - idle - table
    for module in found:
        assert math.prod(stored[f"{module.name}.weight"]) == module.numbers, module.name


def test_an_unknown_dtype_gets_the_nearest() -> None:
    spec = MODELS["llama-2-7b"]
    for call in (spec.weight_bytes, spec.kv_bytes_per_token, lambda d: spec.kv_bytes(1, 1, d)):
        with pytest.raises(ValueError, match=r"unknown dtype 'bfloat'; did you mean bfloat16"):
            call("bfloat")
        with pytest.raises(TypeError, match="dtype must be a name"):
            call(16)  # type: ignore[arg-type]


def test_a_spec_on_one_screen() -> None:
    text = repr(MODELS["gemma-3-27b"])
    for part in ("27,009,002,240 parameters", "54.02 GB", "131,072 tokens", "window 1,024"):
        assert part in text
    assert len(text.splitlines()) < 10 and max(map(len, text.splitlines())) <= 80
    assert "16 heads on one latent vector of 576" in repr(MODELS["deepseek-v2-lite"])
    assert "5,132,849,472 active" in repr(MODELS["gpt-oss-120b"])
    assert "KV cache  31,104 B a token" in repr(MODELS["deepseek-v2-lite"])
