"""Gemma (arXiv:2403.08295)."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.count("head_dim")
    bias = keys.flag("attention_bias")
    return decoder(keys, tied=True, qkv_bias=bias, o_bias=bias)


FAMILY = Family(classes("Gemma"), shape, lacks="its norms, whose weights are stored as w − 1")
