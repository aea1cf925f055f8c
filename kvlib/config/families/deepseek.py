"""DeepSeek-V2 (arXiv:2405.04434): latent attention, and small experts beside shared ones.

DeepSeek-V3 and R1 (arXiv:2412.19437) differ in how they balance their experts.
"""

from typing import Any

from kvlib.config import rope
from kvlib.config.families import Conversion, Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, llama_fields, routing
from kvlib.config.shape import Experts, Latent, Router, Shape


def shape(keys: Keys) -> Shape:
    """Layers for multi-token prediction, which decoding skips, do not count."""
    bias = keys.flag("attention_bias")
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
    if keys.count("n_routed_experts", None) is None:
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


def forward_fields(keys: Keys) -> dict[str, Any]:
    """Pairs (2i, 2i + 1) of a rotated part are neighbours in the files; `TENSORS` parts them."""
    keys.only("rope_interleave", True, "neighbouring dimensions are rotated together")
    fields, factor = llama_fields(keys), rope.score_factor(keys)
    if factor != 1.0:
        width = keys.count("qk_nope_head_dim") + keys.count("qk_rope_head_dim")
        fields["query_pre_attn_scalar"] = width / factor**2
    third = keys.model_type == "deepseek_v3"
    if keys.data.get("n_routed_experts") is None:
        keys.seen.update(ROUTED)
    else:
        fields["router"] = _router_of_v3(keys) if third else _router_of_v2(keys)
        fields["norm_topk_prob"] = keys.flag("norm_topk_prob", True) if third else False
    return fields


ROUTED = frozenset(
    ("n_group", "topk_group", "topk_method", "scoring_func")
    + ("routed_scaling_factor", "norm_topk_prob")
)


def _router_of_v2(keys: Keys) -> Router:
    known = ("greedy", "group_limited_greedy")
    needed = "one of " + ", ".join(known)
    # transformers leaves the shares as they are whatever this says, DeepSeek's own code does not
    keys.only("norm_topk_prob", False, "programs differ in what they make of true")
    method = keys.read("topk_method", str, needed, "greedy", known.__contains__)
    scaling = keys.number("routed_scaling_factor", 1.0)
    if method == "greedy":
        keys.seen.update(("n_group", "topk_group"))
        return Router(scaling=scaling)
    return Router(False, keys.count("n_group"), keys.count("topk_group"), scaling)


def _router_of_v3(keys: Keys) -> Router:
    keys.only("scoring_func", "sigmoid", "deepseek_v3 scores each expert alone")
    keys.only("topk_method", "noaux_tc", "deepseek_v3 chooses with a bias for each expert")
    groups, best = keys.count("n_group", 8), keys.count("topk_group", 4)
    return Router(True, groups, best, keys.number("routed_scaling_factor", 2.5))


def _apart(start: int, width: int) -> list[int]:
    """Numbers start, start + 1, ...: every second one from the first on, then the others."""
    return [start + i for first in (0, 1) for i in range(first, width, 2)]


def _queries(values: Any, config: Any) -> Any:
    c, order = config.latent, list[int]()
    for head in range(config.num_attention_heads):
        start = head * c.qk_head_dim
        order += range(start, start + c.qk_nope_head_dim)
        order += _apart(start + c.qk_nope_head_dim, c.qk_rope_head_dim)
    return values[order]


def _latents(values: Any, config: Any) -> Any:
    rank = config.latent.kv_lora_rank
    return values[[*range(rank), *_apart(rank, config.latent.qk_rope_head_dim)]]


# `kvlib.model.rope` rotates number i with number i + R / 2. Queries and keys in another order have
# the same products, so the rows that make them are put in the order that it wants.
TENSORS: dict[str, str | Conversion] = {
    "q": Conversion("self_attn.q_proj", _queries),
    "q_up": Conversion("self_attn.q_b_proj", _queries),
    "kv_down": Conversion("self_attn.kv_a_proj_with_mqa", _latents),
    "router.bias": "mlp.gate.e_score_correction_bias",
}
V2 = Names(tensors=TENSORS, respelled=(("mlp.shared_expert.", "mlp.shared_experts."),))
# V3's files hold one layer more, which guesses the token after the next
V3 = V2._replace(buffers=rf"{V2.buffers}|layers\.LAYERS\..*")
FAMILIES = {
    "deepseek_v2": Family(classes("DeepseekV2"), shape, forward_fields, names=V2),
    "deepseek_v3": Family(classes("DeepseekV3"), shape, forward_fields, names=V3),
}
