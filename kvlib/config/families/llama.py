"""Llama 1 to 3 (arXiv:2302.13971, arXiv:2407.21783), and what has its architecture.

Phi-3 (arXiv:2404.14219) and Phi-4 are Llamas whose checkpoints hold q, k and v as one tensor.
"""

from __future__ import annotations

from kvlib.config.families import Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, llama_fields, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    bias, mlp_bias = keys.flag("attention_bias"), keys.flag("mlp_bias")
    return decoder(keys, bias=bias, mlp_bias=mlp_bias, multi_head=True)


def phi3(keys: Keys) -> Shape:
    return decoder(keys, windows=uniform(keys, window(keys, 0)), multi_head=True)


FAMILIES = {
    "llama": Family(classes("Llama"), shape, llama_fields),
    "phi3": Family(
        classes("Phi3"),
        phi3,
        llama_fields,
        names=Names(tensors={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"}),
    ),
}
