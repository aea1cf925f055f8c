"""GPT-2 (Radford et al., 2019) has learned positions, LayerNorm and an MLP without a gate.

StarCoder2 (arXiv:2402.19173) has LayerNorm and a plain MLP too, with RoPE and grouped heads.
"""

from typing import Any

from kvlib.config import rope
from kvlib.config.families import Family, Names, classes, transposed
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields, decoder, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    hidden, heads = keys.count("n_embd"), keys.count("n_head")
    if hidden % heads:
        raise keys.error("n_embd", f"a multiple of n_head ({heads})")
    layers, positions = keys.count("n_layer"), keys.count("n_positions")
    return Shape(
        model_type="gpt2",
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("n_inner", 4 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=positions,
        windows=(0,) * layers,
        tie_word_embeddings=keys.flag("tie_word_embeddings", True),
        gated_mlp=False,
        norm="layer",
        positions="learned",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
    )


def forward_fields(keys: Keys) -> dict[str, Any]:
    return common_fields(keys, "activation_function", "gelu_new", "layer_norm_epsilon", 1e-5)


def starcoder2(keys: Keys) -> Shape:
    keys.only("norm_type", "layer_norm", "the norm of this family")
    keys.only("mlp_type", "default", "an MLP without a gate")
    bias = keys.flag("use_bias", True)
    return decoder(
        keys,
        tied=True,
        windows=uniform(keys, window(keys, 0)),
        gated_mlp=False,
        norm="layer",
        bias=bias,
        mlp_bias=bias,
    )


def starcoder2_fields(keys: Keys) -> dict[str, Any]:
    keys.only("scale_attn_weights", True, "scores are scaled by 1/sqrt(head_dim)")
    keys.only("layer_norm_epsilon", keys.data.get("norm_epsilon"), "norm_epsilon says it")
    fields = common_fields(keys, "hidden_act", "gelu_pytorch_tanh", "norm_epsilon", 1e-5)
    return {**fields, "rope": rope.read_rope(keys)}


FAMILIES = {
    "gpt2": Family(
        ("GPT2LMHeadModel", "GPT2Model"),
        shape,
        forward_fields,
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
}
