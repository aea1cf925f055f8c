"""Llama 1 to 3 (arXiv:2302.13971, arXiv:2407.21783), and what has its architecture."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import llama_fields
from kvlib.config.parts import decoder
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    bias = keys.flag("attention_bias")
    return decoder(keys, qkv_bias=bias, o_bias=bias, mlp_bias=keys.flag("mlp_bias"))


FAMILY = Family(classes("Llama"), shape, llama_fields)
