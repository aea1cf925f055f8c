"""Models of 2025 and 2026, by the keys of their published files that decide something.

Parameters are those of the class that transformers 5.23 builds from the file, with the router
biases that it keeps as buffers, without towers and heads of other modalities; bytes of a token and
a state are those of its cache, whose convolutions keep one input more than they need. Layers that
draft tokens are that class's last layer, or those of the kinds that vLLM's and SGLang's loaders
make of the file, two square matrices, three norms, and one or two tables where the files have them.
"""

import json
import re
from typing import Any, NamedTuple

import pytest
from repository import ROOT

from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError


class Counts(NamedTuple):
    """What a file has to give: numbers of weights, bytes of a token in 16 bits, of the state."""

    parameters: int
    token: int
    state: int = 0
    drafts: int = 0  # numbers in layers that draft tokens, and the bytes of a token in them
    draft_token: int = 0


SLIDING, FULL = "sliding_attention", "full_attention"


def nas(group: int | None, width: float) -> dict[str, Any]:
    """Return a layer of Nemotron-NAS: query heads to a key (None: no attention), factor of MLP."""
    attention = dict(n_heads_in_group=group, no_op=group is None, replace_with_linear=False)
    ffn = dict(ffn_mult=width, no_op=False, replace_with_linear=False, sparsify=None)
    return {"attention": {**attention, "window_length": None, "unshifted_sink": False}, "ffn": ffn}


NEMOTRON_NAS: dict[str, Any] = dict(
    model_type="nemotron-nas", vocab_size=128_256, hidden_size=8192, intermediate_size=None,
    num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=None,
    max_position_embeddings=131_072, block_configs=[
        nas(8, 2.625), *[nas(8, 5.25)] * 48, *[nas(None, 2.625)] * 5, nas(None, 3.28125),
        *[nas(None, 1.3125)] * 10, nas(None, 5.25), *[nas(None, 1.0)] * 8, *[nas(None, 0.5)] * 6,
    ],
)  # fmt: skip
READ = json.loads((ROOT / "tests/golden/families.json").read_text(encoding="utf-8"))
FILES = {name: (entry["config"], Counts(*entry["counts"])) for name, entry in READ.items()}
FILES["Nemotron-Super-49B"] = (NEMOTRON_NAS, Counts(49_867_145_216, 200_704))
STEP = FILES["Step-3.5-Flash"][0]
V4 = FILES["deepseek-v4-flash"][0]
KINDS = {0: SLIDING, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
WRITTEN: dict[str, dict[str, Any]] = {  # as transformers 5.23 writes these files again
    "deepseek-v4-flash": {
        "compress_ratios": None, "num_hash_layers": None, "num_nextn_predict_layers": None,
        "layer_types": [KINDS[ratio] for ratio in V4["compress_ratios"][:43]],
        "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40,
        "compress_rates": {KINDS[ratio]: ratio for ratio in (4, 128)},
    },
    "gemma-4-26b-a4b": {
        "global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": {
            f"{i:02}": {"head_dim": 512, "num_key_value_heads": 2} for i in range(5, 30, 6)
        },
    },
    "nemotron-h-8b": {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    },
}  # fmt: skip
for name, changes in WRITTEN.items():
    config, counts = FILES[name]
    config = {**config.get("text_config", config), **changes}
    FILES[f"{name}, written"] = config, Counts(*counts[:3])
# name → changes to its file (to the decoder's keys, if it has a tower; ...: without the key), and
# what the error says
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("GLM-4.5", {"num_nextn_predict_layers": 17}, "is 17, needed: at most 16"),
    ("Step-3.5-Flash", {"mtp_mlp_layer_types": ["sparse"] * 3}, "have no experts"),
    ("Qwen2.5-VL-3B", {"sliding_window": 0, "use_sliding_window": True}, "sliding_window is 0"),
    ("Qwen3-VL-8B", {"model_type": "qwen3_vl_moe_text"}, "the decoder of qwen3_vl"),
    ("Devstral-Small-2", {"model_type": "gemma3_text"}, "the decoder of mistral3"),
    ("Devstral-Small-2", {"head_dim": ...}, "head_dim is missing"),
    ("Qwen2.5-VL-3B", {"head_dim": 64}, "head_dim is 64, needed: 128"),
    ("EXAONE-4.0-32B", {"layer_types": None}, "sliding_window_pattern is 'LLLG'"),
    ("Llama-4-Scout", {"no_rope_layers": [1, 0]}, "48 entries, each 0 or 1"),
    ("Llama-4-Scout", {"moe_layers": ["1"]}, "a list of layer numbers"),
    ("Llama-4-Scout", {"layer_types": [SLIDING] * 48}, "'chunked_attention' or 'full_attention'"),
    ("Llama-4-Scout", {"intermediate_size_mlp": None}, "intermediate_size_mlp is null"),
    ("MiniMax-M2.5", {"qk_norm_type": "per_head"}, "all heads of a layer are normed together"),
    ("MiniMax-M2.5", {"attn_type_list": [0] * 62}, "every layer has attention to all tokens"),
    ("MiniMax-M2.5", {"shared_intermediate_size": 64}, "shared_intermediate_size is 64"),
    ("GLM-4.5", {"n_shared_experts": None}, "n_shared_experts is null"),
    ("MiMo-V2-Flash", {"hybrid_layer_pattern": [0, 1]}, "48 entries, each 0 or 1"),
    ("MiMo-V2-Flash", {"moe_layer_freq": 1}, "moe_layer_freq is 1"),
    ("MiMo-V2-Flash", {"moe_layer_freq": [0.0] * 48}, "48 entries, each 0 or 1"),
    ("MiMo-V2-Flash", {"sliding_window_size": 256}, "as sliding_window says"),
    ("MiMo-V2-Flash", {"sliding_window": 130}, "as sliding_window says"),
    ("MiMo-V2-Flash", {"layer_types": [FULL] * 48}, "as other keys say"),
    ("MiMo-V2-Flash", {"n_shared_experts": 1}, "no expert is shared"),
    ("MiMo-V2-Flash", {"swa_num_key_value_heads": 7}, "swa_num_key_value_heads is 7"),
    ("Step-3.5-Flash", {"moe_layers_enum": "3-44"}, "layer numbers and commas"),
    ("Step-3.5-Flash", {"use_head_wise_attn_gate": None}, "use_head_wise_attn_gate is null"),
    ("Step-3.5-Flash", {"attention_other_setting": {"head_dim": 64}}, "as in the other layers"),
    ("Step-3.5-Flash", {"sink": True}, "sink is true"),
    ("Nemotron-Super-49B", {"num_hidden_layers": 79}, "79 objects, one a layer"),
    ("Nemotron-Super-49B", {"num_key_value_heads": 8}, "block_configs says it for each layer"),
    ("Nemotron-Super-49B", {"block_configs": [nas(None, 1.0)] * 80}, "a layer with attention"),
    ("BLOOM", {"n_inner": 64}, "n_inner is 64"),
    ("BLOOM", {"n_embed": 14_337}, "a multiple of num_attention_heads (112)"),
    ("glm-5", {"index_topk_freq": 4}, "index_topk_freq is 4, needed: 1"),
    ("glm-5", {"mlp_layer_types": ["sparse"] * 78}, "as first_k_dense_replace says"),
    ("glm-5.2", {"indexer_types": ["none"] * 78}, "78 entries, each 'full' or 'shared'"),
    ("deepseek-v3.2", {"indexer_types": ["shared"] * 61}, "indexer_types is "),
    ("deepseek-v3.2", {"q_lora_rank": None}, "q_lora_rank is null"),
    *(("deepseek-v3", {key: ...}, f"{key} is missing")
      for key in ("q_lora_rank", "n_routed_experts", "n_shared_experts")),
    ("deepseek-v4-flash", {"head_dim": ...}, "head_dim is missing"),
    ("deepseek-v4-flash", {"n_shared_experts": 2}, "n_shared_experts is 2, needed: 1"),
    ("kimi-k2.5", {"model_type": "llama"}, "the decoder of kimi_k25"),
    ("nemotron-h-8b", {"hybrid_override_pattern": "M-M+"}, "each one of *, -, E, M, attention"),
    ("nemotron-h-8b", {"num_hidden_layers": 51}, "num_hidden_layers is 51, needed: 52"),
    ("nemotron-h-8b", {"mamba_ssm_cache_dtype": "int8"}, "mamba_ssm_cache_dtype is 'int8'"),
    ("nemotron-3-nano", {"n_shared_experts": 2}, "n_shared_experts is 2, needed: 1"),
    ("nemotron-3-nano", {"tie_word_embeddings": True}, "the head has a matrix"),
    ("nemotron-3-nano", {"use_bias": True}, "use_bias is true, needed: false"),
    ("deepseek-v4-flash", {"compress_ratios": [8] * 43}, "each one of (0, 4, 128)"),
    ("deepseek-v4-flash", {"num_key_value_heads": 2}, "num_key_value_heads is 2, needed: 1"),
    ("deepseek-v4-flash", {"layer_types": [KINDS[4]] * 43}, "as layer_types says"),
    ("deepseek-v4-flash, written", {"num_hash_layers": 4}, "as mlp_layer_types says"),
    ("gemma-4-26b-a4b", {"per_layer_config": {"05": {"head_dim": 256}}}, "alike in these layers"),
    ("minimax-m3", {"moe_layer_freq": [1] * 59}, "60 entries, each 0 or 1"),
    (
        "minimax-m3",
        {
            "sparse_attention_config": FILES["minimax-m3"][0]["sparse_attention_config"]
            | {"sparse_disable_index_value": [0] * 60}
        },
        "an indexer has no values",
    ),
    ("granite-4-h-small", {"layer_types": ["moe"] * 40}, "each one of *, M, attention"),
    ("granite-4, no experts", {"mamba_d_head": 8}, "mamba_d_head is 8, needed: 16"),
    ("bamba", {"mamba_conv_bias": None}, "mamba_conv_bias is null, needed: true or false"),
    ("jamba", {"mamba_inner_layernorms": False}, "mamba_inner_layernorms is false"),
    ("kimi linear", {"num_hidden_layers": 5}, "the layers that full_attn_layers doesn't name"),
    ("gemma-4, shared keys", {"num_kv_shared_layers": 8}, "a layer of each kind"),
    ("gemma-4, shared keys", {"use_bidirectional_attention": "all"}, "causal among texts"),
    ("gemma-4-31b", {"layer_types": ["sliding_attention"] * 60}, "in the last layer"),
    ("gemma-3n-e4b", {"intermediate_size": [8192] * 3}, "one for each of 35 layers"),
    ("Qwen3.5-35B-A3B", {"mlp_only_layers": [1]}, "every layer has experts"),
    ("Qwen3.5-35B-A3B", {"decoder_sparse_step": 2}, "every layer has experts"),
    ("Qwen3.5-27B", {"mtp_num_hidden_layers": 2**31 - 1}, "is 2147483647, needed: at most 16"),
]


@pytest.mark.parametrize("name", FILES)
def test_a_published_file_is_counted_to_the_unit(name: str) -> None:
    config, counts = FILES[name]
    spec = ModelSpec.from_config(config)
    found = spec.num_parameters, int(spec.kv_bytes_per_token()), int(spec.state_bytes)
    assert found == counts[:3]
    if counts.drafts:
        more = ModelSpec.from_config(config, drafts=True)
        assert more.num_parameters - spec.num_parameters == counts.drafts
        token = more.kv_bytes_per_token().value - spec.kv_bytes_per_token().value
        assert (token, more.state_bytes) == (counts.draft_token, spec.state_bytes)
        assert len(spec.uncounted) == len(more.uncounted) + 1
        assert len({spec, more, ModelSpec.from_config(config, drafts=True)}) == 2
    else:
        with pytest.raises(CheckpointError, match="drafts"):
            ModelSpec.from_config(config, drafts=True)


def test_deepseek_v3_with_drafts_weighs_as_much_as_its_published_files() -> None:
    blocks = dict(quant_method="fp8", weight_block_size=[128, 128], activation_scheme="dynamic")
    file = {**FILES["deepseek-v3"][0], "quantization_config": blocks}
    plain, drafting = (ModelSpec.from_config(file, drafts=drafts) for drafts in (False, True))
    # total_size of its index, with the names of tensors, and with router biases in 32 bits
    names = 688_586_727_753 - drafting.weight_bytes().value - 2 * 59 * 256
    assert 0 < names < 12_000_000
    # copies of tables take memory, and are neither looked up nor multiplied by
    assert drafting.counts.embedding == 3 * plain.counts.embedding == 3 * 129_280 * 7168
    assert drafting.counts.head == plain.counts.head


@pytest.mark.parametrize("changes", [
    dict(layer_types=STEP["layer_types"][:45]), dict(num_nextn_predict_layers=2),
    dict(mtp_layer_types=["full_attention"] * 3, layer_types=STEP["layer_types"][:45]),
])  # fmt: skip
def test_layers_that_draft_count_only_where_a_file_says_their_kinds(changes) -> None:
    assert ModelSpec.from_config({**STEP, **changes}).num_parameters
    with pytest.raises(CheckpointError, match="num_nextn_predict_layers, of which kvlib doesn't"):
        ModelSpec.from_config({**STEP, **changes}, drafts=True)


@pytest.mark.parametrize(("name", "changes", "words"), REFUSED)
def test_a_value_that_would_change_a_size_is_refused(name, changes, words) -> None:
    config = FILES[name][0]
    if inner := config.get("text_config"):
        inner = {key: value for key, value in {**inner, **changes}.items() if value is not ...}
        changes = {"text_config": inner}
    config = {key: value for key, value in {**config, **changes}.items() if value is not ...}
    with pytest.raises(CheckpointError, match=re.escape(words)):
        ModelSpec.from_config(config)


def test_a_chunk_of_llama_4_has_8192_tokens_unless_the_file_says_another() -> None:
    stated = FILES["Llama-4-Scout"][0]["text_config"]
    plain = {key: value for key, value in stated.items() if key != "attention_chunk_size"}
    groups = [ModelSpec.from_config(config).layers for config in (plain, stated)]
    assert groups[0] == groups[1]


def test_a_layer_of_nemotron_nas_may_be_one_matrix_or_nothing() -> None:
    def parameters(**changes: dict[str, Any]) -> int:
        plain = nas(8, 5.25)
        block = {part: {**keys, **changes.get(part, {})} for part, keys in plain.items()}
        config = {**NEMOTRON_NAS, "num_hidden_layers": 2, "block_configs": [plain, block]}
        return ModelSpec.from_config(config).num_parameters

    attention, mlp = 2 * 8192 * (8192 + 1024), 3 * 8192 * 28_672
    for part, numbers in (("attention", attention), ("ffn", mlp)):
        assert parameters() - parameters(**{part: {"no_op": True}}) == numbers + 8192
        single = parameters(**{part: {"replace_with_linear": True}})
        assert parameters() - single == numbers - 8192**2
        with pytest.raises(CheckpointError, match="sparsify"):
            parameters(**{part: {"sparsify": ["x"]}})


def test_drafts_whose_format_is_unknown_are_refused() -> None:
    config, _ = FILES["deepseek-v4-flash"]
    layers = {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}}
    stored = dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128])
    stored |= dict(quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert ModelSpec.from_config({**config, "quantization_config": stored}).stored
    with pytest.raises(CheckpointError, match="drafts: .* MIXED_PRECISION"):
        ModelSpec.from_config({**config, "quantization_config": stored}, drafts=True)
