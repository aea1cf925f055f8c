"""Qwen2 and Qwen2.5 (arXiv:2407.10671, arXiv:2412.15115): biases on q, k and v."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import llama_fields
from kvlib.config.parts import decoder, qwen_windows
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    return decoder(keys, windows=qwen_windows(keys), qkv_bias=True)


FAMILY = Family(classes("Qwen2"), shape, llama_fields)
