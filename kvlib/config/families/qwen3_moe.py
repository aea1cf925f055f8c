"""Qwen3 with a mixture of experts (arXiv:2505.09388)."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, moe_windows, qwen_experts
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    bias, experts = keys.flag("attention_bias"), qwen_experts(keys, 0)
    keys.count("head_dim")
    return decoder(
        keys,
        windows=moe_windows(keys),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
        experts=experts,
    )


FAMILY = Family(classes("Qwen3Moe"), shape, lacks="a mixture of experts")
