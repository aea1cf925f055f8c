"""Mistral 7B (arXiv:2310.06825), Llama with a window, and Mixtral (arXiv:2401.04088)."""

from __future__ import annotations

from kvlib.config.families import Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, llama_fields, routing, uniform, window
from kvlib.config.shape import Experts, Shape


def shape(keys: Keys) -> Shape:
    """A window in every layer, or in none."""
    return decoder(keys, windows=uniform(keys, window(keys, 4096)))


def mixtral(keys: Keys) -> Shape:
    """A mixture of experts in every layer."""
    layers, width = keys.count("num_hidden_layers"), keys.count("intermediate_size")
    count, chosen = routing(keys, "num_local_experts")
    experts = Experts(count, chosen, width, tuple(range(layers)))
    return decoder(keys, windows=uniform(keys, window(keys, 0)), experts=experts)


# Mixtral's own words for the router and for an expert's gate, up and down
SPELLED = (
    ("mlp.", "block_sparse_moe."),
    ("gate_proj", "w1"),
    ("up_proj", "w3"),
    ("down_proj", "w2"),
)
FAMILIES = {
    "mistral": Family(classes("Mistral"), shape, llama_fields),
    "mixtral": Family(classes("Mixtral"), mixtral, llama_fields, names=Names(respelled=SPELLED)),
}
