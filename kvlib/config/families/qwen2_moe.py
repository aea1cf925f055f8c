"""Qwen1.5-MoE and Qwen2-MoE (arXiv:2407.10671): small experts, and one that all tokens share."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, moe_windows, qwen_experts
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    experts = qwen_experts(keys, keys.count("shared_expert_intermediate_size"))
    bias = keys.flag("qkv_bias", True)
    return decoder(keys, windows=moe_windows(keys), qkv_bias=bias, experts=experts)


FAMILY = Family(classes("Qwen2Moe"), shape, lacks="a mixture of experts")
