"""Llama 1 to 3 (arXiv:2302.13971, arXiv:2407.21783), and what has its architecture.

Phi-3 (arXiv:2404.14219) and Phi-4 are Llamas whose checkpoints hold q, k and v as one tensor,
Mistral 7B (arXiv:2310.06825) has a window, and Mixtral (arXiv:2401.04088) experts.
"""

from kvlib.config.families import Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, llama_fields, routing, uniform, window
from kvlib.config.shape import Experts, Shape


def shape(keys: Keys) -> Shape:
    bias, mlp_bias = keys.flag("attention_bias"), keys.flag("mlp_bias")
    return decoder(keys, bias=bias, mlp_bias=mlp_bias, multi_head=True)


def phi3(keys: Keys) -> Shape:
    return decoder(keys, windows=uniform(keys, window(keys, 0)), multi_head=True)


def mistral(keys: Keys) -> Shape:
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
    "llama": Family(classes("Llama"), shape, llama_fields),
    "phi3": Family(
        classes("Phi3"),
        phi3,
        llama_fields,
        names=Names(tensors={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"}),
    ),
    "mistral": Family(classes("Mistral"), mistral, llama_fields),
    "mixtral": Family(classes("Mixtral"), mixtral, llama_fields, names=Names(respelled=SPELLED)),
}
