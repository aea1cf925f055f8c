"""GLM-4 (arXiv:2406.12793): half of each head is rotated, neighbours together.

GLM-4-0414 (`glm4`) norms what attention and MLP add, too. GLM-4.5 to 4.7 (arXiv:2508.06471) have
experts as in DeepSeek-V3.
"""

from functools import partial
from typing import Any

from kvlib.config.families import Family, Names, classes, deepseek, like_llama
from kvlib.config.keys import Keys
from kvlib.config.parts import count, decoder, drafting, flag, llama_fields, mixture, sigmoid_router
from kvlib.config.shape import Shape


def halves(values: Any, config: Any) -> Any:
    """Rows of heads (H · D, ...): of the rotated ones every second, the others, then the rest."""
    width, rotated = config.head_dim, config.rope.rotated(config.head_dim)
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, width)]
    return values.reshape(-1, width, *values.shape[1:])[:, order].reshape(values.shape)


def glm_moe(keys: Keys) -> Shape:
    """Dense layers first; queries, keys and values may have biases, the output has none."""
    first = keys.count("first_k_dense_replace", 1, least=0)
    mixed = range(first, keys.count("num_hidden_layers"))
    shared = keys.count("n_shared_experts", least=0)
    plain = decoder(
        keys,
        head_dim=count("head_dim"),
        qkv_bias=flag("attention_bias"),
        qk_norm=flag("use_qk_norm"),
        experts=mixture(keys, mixed, shared=shared, router_bias=True),
    )
    return drafting(keys, plain)


def moe_fields(keys: Keys) -> dict[str, Any]:
    return {**llama_fields(keys, partial=0.5, eps=1e-5), **sigmoid_router(keys)}


MLP = {"gate_up": "mlp.gate_up_proj"}
NORMS = {
    "attn_post_norm": "post_self_attn_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "mlp_post_norm": "post_mlp_layernorm",
}
NAMES = Names(tensors=MLP, reordered={"self_attn.q_proj": halves, "self_attn.k_proj": halves})
FOUR_NORMS = NAMES._replace(tensors={**MLP, **NORMS})
MOE = deepseek.V3._replace(tensors={"router.bias": "mlp.gate.e_score_correction_bias"})
BIAS: dict[str, Any] = dict(qkv_bias=flag("attention_bias", True))
fields = partial(llama_fields, partial=0.5, eps=1.5625e-7)
FAMILIES = {
    "glm": like_llama("Glm", fields, NAMES, **BIAS),
    "glm4": like_llama("Glm4", fields, FOUR_NORMS, post_norms=True, **BIAS),
    "glm4_moe": Family(classes("Glm4Moe"), glm_moe, moe_fields, names=MOE),
}
