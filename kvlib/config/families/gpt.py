"""GPT-2 (Radford et al., 2019), OPT, StarCoder2, GPT-NeoX, Falcon, BLOOM, Phi and StableLM.

They norm by LayerNorm, and most have an MLP without a gate: arXiv:2205.01068, 2402.19173,
2204.06745, 2311.16867, 2211.05100, 2309.05463, 2402.17834.
"""

from functools import partial
from typing import Any

from kvlib.config.families import Conversion, Family, Names, classes, like_llama, transposed
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields, count, decoder, flag, llama_fields, respelled, sliding
from kvlib.config.shape import Shape, Weight
from kvlib.config.weights import norm

ACT = "activation_function"
PLAIN: dict[str, Any] = dict(tied=True, norm="layer", gated_mlp=False)


def multi_head(keys: Keys, wide: str, many: str, **fields: Any) -> Shape:
    """Return a decoder with biases everywhere; the file calls width and heads `wide` and `many`."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    if hidden % heads:
        raise keys.error(wide, f"a multiple of {many} ({heads})")
    fields.update(num_key_value_heads=heads, head_dim=hidden // heads, bias=True, mlp_bias=True)
    return decoder(keys, **PLAIN, **fields)


def gpt2(keys: Keys) -> Shape:
    hidden, _, _ = map(keys.count, ("n_embd", "n_head", "n_layer"))
    respelled(keys, hidden_size="n_embd", num_attention_heads="n_head", num_hidden_layers="n_layer")
    sizes = dict(intermediate_size=keys.count("n_inner", 4 * hidden), positions="learned")
    return multi_head(
        keys, "n_embd", "n_head", max_position_embeddings=count("n_positions"), **sizes
    )


def starcoder2_fields(keys: Keys) -> dict[str, Any]:
    keys.only("scale_attn_weights", True, "scores are scaled by 1/sqrt(head_dim)")
    keys.only("layer_norm_epsilon", keys.data.get("norm_epsilon"), "norm_epsilon says it")
    return llama_fields(keys, act="gelu_pytorch_tanh", eps_key="norm_epsilon", eps=1e-5)


def starcoder2(keys: Keys) -> Shape:
    keys.only("norm_type", "layer_norm", "the norm of this family")
    keys.only("mlp_type", "default", "an MLP without a gate")
    bias = keys.flag("use_bias", True)
    return decoder(keys, windows=sliding, bias=bias, mlp_bias=bias, **PLAIN)


def opt(keys: Keys) -> Shape:
    keys.only("word_embed_proj_dim", keys.data.get("hidden_size"), "embeddings are not projected")
    keys.only("do_layer_norm_before", True, "norms come before attention and MLP")
    keys.only("_remove_final_layer_norm", False, "there is a norm before the head")
    keys.only("layer_norm_elementwise_affine", True, "norms have weights")
    bias, rows = keys.flag("enable_bias", True), {"embed_positions": OFFSET}
    return decoder(
        keys,
        num_key_value_heads=count("num_attention_heads"),
        intermediate_size=count("ffn_dim"),
        positions="learned",
        bias=bias,
        mlp_bias=bias,
        others=(Weight("embed_offset.weight", (OFFSET, keys.count("hidden_size")), rows),),
        **PLAIN,
    )


def gpt_neox_fields(keys: Keys) -> dict[str, Any]:
    theta, rotated = keys.number("rotary_emb_base", 10000.0), keys.number("rotary_pct", 0.25)
    return llama_fields(keys, theta, rotated, act="gelu", eps_key="layer_norm_eps", eps=1e-5)


def falcon(keys: Keys) -> Shape:
    keys.only("apply_residual_connection_post_layernorm", False, "x is added as it was")
    respelled(keys, num_attention_heads="n_head", num_hidden_layers="n_layer")
    heads, new = keys.count("num_attention_heads"), keys.flag("new_decoder_architecture")
    parallel, one_head = keys.flag("parallel_attn", True), keys.flag("multi_query", True)
    stated = keys.count("num_kv_heads", heads)
    norms = keys.count("num_ln_in_parallel_attn", 1 + new)
    if new and not parallel:
        raise keys.error("parallel_attn", "true, or new_decoder_architecture false")
    if heads % stated:
        raise keys.error("num_kv_heads", f"a divisor of num_attention_heads ({heads})")
    if norms > 1 + new:
        raise keys.error("num_ln_in_parallel_attn", f"at most {1 + new}")
    bias = keys.flag("bias")
    return decoder(
        keys,
        num_key_value_heads=stated if new else 1 if one_head else heads,
        intermediate_size=keys.count("ffn_hidden_size", 4 * keys.count("hidden_size")),
        max_position_embeddings=keys.count("max_position_embeddings", 2048),
        parallel_residual=parallel,
        shared_norm=parallel and norms == 1,
        bias=bias,
        mlp_bias=bias,
        **PLAIN,
    )


def bloom(keys: Keys) -> Shape:
    respelled(
        keys, hidden_size="n_embed", num_attention_heads="n_head", num_hidden_layers="n_layer"
    )
    wide = "n_embed" if "n_embed" in keys.data else "hidden_size"
    inner = 4 * keys.count("hidden_size")
    keys.only("n_inner", inner, "an MLP has 4 units for each number of a token")
    keys.seen.add("apply_residual_connection_post_layernorm")
    sizes = dict(intermediate_size=inner, max_position_embeddings=count("seq_length", 2048))
    plain = multi_head(keys, wide, "num_attention_heads", positions="alibi", **sizes)
    return plain._replace(others=tuple(norm(plain, "embed_norm", "word_embeddings_layernorm")))


def by_kind(values: Any, config: Any) -> Any:
    """Rows of q, of k and of v of each group of heads → all queries', all keys', all values'."""
    kv_heads, width = config.num_key_value_heads, config.head_dim
    size = config.num_attention_heads // kv_heads + 2
    heads = range(kv_heads * size)
    order = [i for i in heads if i % size < size - 2] + [*heads[size - 2 :: size]]
    order += heads[size - 1 :: size]
    return values.reshape(-1, width, *values.shape[1:])[order].reshape(values.shape)


def phi(keys: Keys) -> Shape:
    keys.only("tie_word_embeddings", False, "the head has a bias")
    block = dict(gated_mlp=False, parallel_residual=True, shared_norm=True)
    biases = dict(bias=True, mlp_bias=True, head_bias=True)
    return decoder(keys, multi_head=True, norm="layer", **block, **biases)


def stablelm(keys: Keys) -> Shape:
    parallel, bias = keys.flag("use_parallel_residual"), keys.flag("use_qkv_bias")
    fields = dict(parallel_residual=parallel, shared_norm=parallel, qkv_bias=bias)
    return decoder(keys, norm="layer", **fields)


OFFSET = 2  # rows of OPT's table that no position has
OPT: dict[str, str | Conversion] = {
    "pos_embed": Conversion(
        "embed_positions",
        lambda values, config: values[OFFSET:],
        lambda shape, config: (shape[0] + OFFSET, shape[1]),
    ),
    "attn_norm": "self_attn_layer_norm",
    "o": "self_attn.out_proj",
    "mlp_norm": "final_layer_norm",
    "up": "fc1",
    "down": "fc2",
    "norm": "final_layer_norm",
}
BLOOM: dict[str, str | Conversion] = {
    "embed": "word_embeddings",
    "qkv": "self_attention.query_key_value",
    "o": "self_attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
    "norm": "ln_f",
}
NEOX: dict[str, str | Conversion] = {
    "embed": "embed_in",
    "qkv": Conversion("attention.query_key_value", by_kind),
    "o": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
    "norm": "final_layer_norm",
    "lm_head": "embed_out",
}
BLOOM_NAMES = Names(prefix="transformer.", layers="h", tensors=BLOOM)
FALCON = BLOOM_NAMES._replace(
    tensors={**BLOOM, "qkv": Conversion("self_attention.query_key_value", by_kind)},
    aliases=(("ln_attn", "input_layernorm"), ("ln_mlp", "post_attention_layernorm")),
)
PHI = {"o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2", "norm": "final_layernorm"}
falcon_fields = partial(
    llama_fields, act_key="activation", act="gelu", eps_key="layer_norm_epsilon", eps=1e-5
)
fields = partial(llama_fields, eps_key="layer_norm_eps", eps=1e-5)
FAMILIES = {
    "opt": Family(
        classes("OPT"),
        opt,
        lambda keys: common_fields(keys, ACT, "relu", eps=1e-5),
        names=Names(prefix="model.decoder.", tensors=OPT),
    ),
    "gpt2": Family(
        ("GPT2LMHeadModel", "GPT2Model"),
        gpt2,
        lambda keys: common_fields(keys, ACT, "gelu_new", "layer_norm_epsilon", 1e-5),
        names=Names(
            prefix="transformer.",
            layers="h",
            tensors={
                "embed": "wte",
                "pos_embed": "wpe",
                "attn_norm": "ln_1",
                "qkv": transposed("attn.c_attn"),
                "o": transposed("attn.c_proj"),
                "mlp_norm": "ln_2",
                "up": transposed("mlp.c_fc"),
                "down": transposed("mlp.c_proj"),
                "norm": "ln_f",
            },
            buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
        ),
    ),
    "starcoder2": Family(
        classes("Starcoder2"),
        starcoder2,
        starcoder2_fields,
        names=Names(tensors={"up": "mlp.c_fc", "down": "mlp.c_proj"}),
    ),
    "gpt_neox": like_llama(
        "GPTNeoX",
        gpt_neox_fields,
        Names(
            prefix="gpt_neox.",
            tensors=NEOX,
            buffers=r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
        ),
        num_key_value_heads=count("num_attention_heads"),
        parallel_residual=flag("use_parallel_residual", True),
        bias=flag("attention_bias", True),
        mlp_bias=True,
        **dict(PLAIN, tied=False),
    ),
    "falcon": Family(classes("Falcon"), falcon, falcon_fields, names=FALCON),
    "bloom": Family(
        classes("Bloom"), bloom, lacks="scores that fall with distance", names=BLOOM_NAMES
    ),
    "phi": Family(
        classes("Phi"), phi, partial(fields, partial=0.5, act="gelu_new"), names=Names(tensors=PHI)
    ),
    "stablelm": Family(classes("StableLm"), stablelm, partial(fields, partial=0.25)),
}
