"""MiniMax-M2, whose queries and keys are normed as one vector, and MiniMax-M3.

In M3 an indexer chooses, for each head of keys, blocks of tokens to attend to. It stores a key
beside each token's keys and values, in all but the first layers.
"""

from typing import Any

from kvlib.config import parts
from kvlib.config.families import NUMBERED, Family, Names, classes, llama, wrapping
from kvlib.config.keys import Keys
from kvlib.config.shape import Shape
from kvlib.config.weights import linear, norm


def m2(keys: Keys) -> Shape:
    keys.only("qk_norm_type", "per_layer", "all heads of a layer are normed together")
    full = [1] * keys.count("num_hidden_layers")
    keys.only("attn_type_list", full, "every layer has attention to all tokens")
    for kind in ("full_attention", "linear_attention", "mlp"):
        keys.only(f"layernorm_{kind}_beta", 1.0, "what a layer adds is not scaled")
    keys.seen.update(("rotary_dim", "mlp_intermediate_size", "shared_moe_mode"))
    mixed = llama.experts(keys, router_bias=keys.flag("use_routing_bias", True))
    keys.count("head_dim")
    return parts.decoder(keys, qk_norm=True, qk_norm_wide=True, experts=mixed)


def m2_fields(keys: Keys) -> dict[str, Any]:
    width = keys.count("head_dim")
    partial = keys.count("rotary_dim", width) / width
    return {**parts.llama_fields(keys, 5e6, partial), **parts.sigmoid_router(keys)}


def m3(keys: Keys) -> Shape:
    keys.seen.update(("rotary_dim", "first_k_dense_replace"))
    keys.only("use_gemma_norm", True, "weights of norms are stored as w - 1")
    keys.only("qk_norm_type", "per_head", "queries and keys are normed head by head")
    keys.only("use_routing_bias", True, "experts have a bias for each")
    keys.only("n_shared_experts", 1, "shared_intermediate_size says their width")
    keys.only("moe_intermediate_size", keys.count("intermediate_size"), "as intermediate_size says")
    keys.count("head_dim")
    mixed = [i for i, flag in enumerate(parts.layer_flags(keys, "moe_layer_freq")) if flag]
    shared = keys.count("shared_intermediate_size")
    plain = parts.decoder(
        keys,
        intermediate_size=keys.count("dense_intermediate_size"),
        norm="rms_1p",
        qk_norm=True,
        experts=llama.experts(keys, mixed, shared_width=shared, router_bias=True),
    )
    stated = keys.read("sparse_attention_config", dict, "an object that describes the indexer")
    stated = {**stated, "num_hidden_layers": plain.num_hidden_layers}
    inside = keys.inner("sparse_attention_config", stated)
    inside.only("use_sparse_attention", True, "other keys say where")
    inside.only("sparse_init_block", 0, "no block is always read but a query's")
    sparse = parts.layer_flags(inside, "sparse_attention_freq")
    inside.only("sparse_disable_index_value", sparse, "an indexer has no values")
    index, index_heads = inside.count("sparse_index_dim"), inside.count("sparse_num_index_heads")
    chosen = inside.count("sparse_topk_blocks") * inside.count("sparse_block_size")
    inside.refuse_others()
    indexer = [
        *linear("index_q", {"self_attn.index_q_proj": index_heads * index}, plain.hidden_size),
        *linear("index_k", {"self_attn.index_k_proj": index}, plain.hidden_size),
        *norm(plain, "index_q_norm", "self_attn.index_q_norm", index),
        *norm(plain, "index_k_norm", "self_attn.index_k_norm", index),
    ]
    full = parts.grouped(plain)
    chooses = parts.grouped(plain, extra=indexer, index=index, chosen=chosen)
    return parts.by_layer(plain, [chooses if flag else full for flag in sparse])


OTHERS = ("mlp", "shared_experts")  # which keep the usual names
NAMES = Names(
    tensors={"router": "block_sparse_moe.gate"},
    respelled=(
        ("mlp.experts.", "block_sparse_moe.experts."),
        ("mlp.shared_expert.", "block_sparse_moe.shared_experts."),
        *NUMBERED,
        *((f"{part}.{new}", f"{part}.{old}") for part in OTHERS for old, new in NUMBERED),
    ),
)
TEXT = Family(classes("MiniMaxM3"), m3, lacks="an indexer", names=NAMES)
M2 = Names(
    tensors={"router.bias": "block_sparse_moe.e_score_correction_bias"}, respelled=llama.SPELLED
)
FAMILIES = {
    "minimax_m2": Family(classes("MiniMaxM2"), m2, m2_fields, names=M2),
    "minimax_m3": TEXT,
    "minimax_m3_vl": wrapping(TEXT, "minimax_m3", "MiniMaxM3SparseForConditionalGeneration"),
}
