"""Phi-3 (arXiv:2404.14219)."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.only("attention_bias", False, "phi3 has none")
    return decoder(keys, windows=uniform(keys, window(keys, 0)))


FAMILY = Family(classes("Phi3"), shape, lacks="its own scaling of RoPE (LongRoPE)")
