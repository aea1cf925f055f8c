"""Phi-3 (arXiv:2404.14219), and Phi-4: Llama whose checkpoints hold q, k and v as one tensor.

Files with LongRoPE or with a partial rotation are counted. Running them is refused, because
kvlib turns whole heads at the angles of `kvlib.config.rope`.
"""

from __future__ import annotations

from typing import Any

from kvlib.config.family import Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.options import llama_fields
from kvlib.config.parts import decoder, uniform, window
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.only("attention_bias", False, "phi3 has none")
    return decoder(keys, windows=uniform(keys, window(keys, 0)))


def forward_fields(keys: Keys) -> dict[str, Any]:
    keys.seen.add("original_max_position_embeddings")  # LongRoPE's, and refused with it
    return llama_fields(keys)


FAMILY = Family(
    classes("Phi3"),
    shape,
    forward_fields,
    names=Names(renamed={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"}),
)
