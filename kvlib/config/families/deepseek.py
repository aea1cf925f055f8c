"""DeepSeek-V2 (arXiv:2405.04434): latent attention, and small experts beside shared ones.

DeepSeek-V3 and R1 (arXiv:2412.19437) differ in how they balance their experts.
"""

from __future__ import annotations

from kvlib.config.families import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, routing
from kvlib.config.shape import Experts, Latent, Shape


def shape(keys: Keys) -> Shape:
    """Layers for multi-token prediction, which decoding skips, do not count."""
    bias = keys.flag("attention_bias")
    keys.only("mlp_bias", False, "deepseek has none")
    latent = Latent(
        q_lora_rank=keys.count("q_lora_rank", None),
        kv_lora_rank=keys.count("kv_lora_rank"),
        qk_nope_head_dim=keys.count("qk_nope_head_dim"),
        qk_rope_head_dim=keys.count("qk_rope_head_dim"),
        v_head_dim=keys.count("v_head_dim"),
    )
    # what transformers derives and writes back
    keys.seen.add("head_dim")
    keys.only("qk_head_dim", latent.qk_head_dim, "qk_nope_head_dim + qk_rope_head_dim")
    heads = keys.count("num_attention_heads")
    return decoder(
        keys,
        num_key_value_heads=keys.count("num_key_value_heads", heads),
        head_dim=latent.qk_head_dim,
        latent=latent,
        bias=bias,
        experts=_experts(keys),
    )


def _experts(keys: Keys) -> Experts | None:
    # a dense one keeps the keys of a mixture
    keys.seen.update(("n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"))
    keys.seen.update(("first_k_dense_replace", "moe_layer_freq"))
    if keys.data.get("n_routed_experts") is None:
        return None
    layers = keys.count("num_hidden_layers")
    first = keys.count("first_k_dense_replace", least=0)
    every = keys.count("moe_layer_freq", 1)
    count, chosen = routing(keys, "n_routed_experts")
    width = keys.count("moe_intermediate_size")
    return Experts(
        count,
        chosen,
        width,
        tuple(i for i in range(first, layers) if i % every == 0),
        shared_width=keys.count("n_shared_experts", 0, least=0) * width,
        # V3 balances its experts with a bias for each, which training moves (arXiv:2412.19437)
        router_bias=keys.model_type == "deepseek_v3",
    )


LACKS = "multi-head latent attention and a mixture of experts"
FAMILIES = {
    "deepseek_v2": Family(classes("DeepseekV2"), shape, lacks=LACKS),
    "deepseek_v3": Family(classes("DeepseekV3"), shape, lacks=LACKS),
}
