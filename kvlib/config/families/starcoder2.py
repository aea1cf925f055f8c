"""StarCoder2 (arXiv:2402.19173): LayerNorm and a plain MLP as in GPT-2, RoPE and grouped heads."""

from __future__ import annotations

from typing import Any

from kvlib.config import rope
from kvlib.config.families import Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields, decoder, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
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


def forward_fields(keys: Keys) -> dict[str, Any]:
    keys.only("scale_attn_weights", True, "scores are scaled by 1/sqrt(head_dim)")
    keys.only("layer_norm_epsilon", keys.data.get("norm_epsilon"), "norm_epsilon says it")
    fields = common_fields(keys, "hidden_act", "gelu_pytorch_tanh", "norm_epsilon", 1e-5)
    return {**fields, "rope": rope.read_rope(keys)}


FAMILIES = {
    "starcoder2": Family(
        classes("Starcoder2"),
        shape,
        forward_fields,
        names=Names(tensors={"up": "mlp.c_fc", "down": "mlp.c_proj"}),
    )
}
