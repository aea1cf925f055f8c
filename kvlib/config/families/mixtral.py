"""Mixtral (arXiv:2401.04088): Mistral with a mixture of experts in every layer."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, routing, uniform, window
from kvlib.config.shape import Experts, Shape


def shape(keys: Keys) -> Shape:
    layers, width = keys.count("num_hidden_layers"), keys.count("intermediate_size")
    count, chosen = routing(keys, "num_local_experts")
    experts = Experts(count, chosen, width, tuple(range(layers)))
    return decoder(keys, windows=uniform(keys, window(keys, 0)), experts=experts)


FAMILY = Family(classes("Mixtral"), shape, lacks="a mixture of experts")
