"""Mistral 7B (arXiv:2310.06825): Llama with a window in every layer, or in none."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import llama_fields
from kvlib.config.parts import decoder, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.only("attention_bias", False, "mistral has none")
    return decoder(keys, windows=uniform(keys, window(keys, 4096)))


FAMILY = Family(classes("Mistral"), shape, llama_fields)
