"""Gemma (arXiv:2403.08295): GeGLU, scaled embeddings, norms whose weights are stored as w − 1."""

from __future__ import annotations

from typing import Any

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import gemma_fields
from kvlib.config.parts import decoder
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.count("head_dim")
    bias = keys.flag("attention_bias")
    return decoder(keys, tied=True, qkv_bias=bias, o_bias=bias)


def forward_fields(keys: Keys) -> dict[str, Any]:
    fields = gemma_fields(keys, "hidden_act")
    if fields["hidden_act"] == "gelu":  # what its first files say, and do not mean
        fields["hidden_act"] = "gelu_pytorch_tanh"
    return fields


FAMILY = Family(classes("Gemma"), shape, forward_fields)
