"""Qwen3 (arXiv:2505.09388): queries and keys are normed, head by head."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import llama_fields
from kvlib.config.parts import decoder, qwen_windows
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    bias = keys.flag("attention_bias")
    windows = qwen_windows(keys)
    keys.count("head_dim")  # hidden / heads is wrong for Qwen3, so it may not be left out
    return decoder(keys, windows=windows, qkv_bias=bias, o_bias=bias, qk_norm=True)


FAMILY = Family(classes("Qwen3"), shape, llama_fields)
