"""GPT-2 (Radford et al., 2019): learned positions, LayerNorm, an MLP without a gate."""

from __future__ import annotations

from typing import Any

from kvlib.config.families import Family, Names, transposed
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields
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
    )
}
