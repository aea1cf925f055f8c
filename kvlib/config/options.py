"""What several families state alike about their forward pass: activation, norm, end tokens."""

from __future__ import annotations

import math
from typing import Any

from kvlib.config import rope
from kvlib.config.keys import Keys
from kvlib.config.values import ACTIVATIONS


def llama_fields(keys: Keys, act_key: str = "hidden_act", act: str = "silu") -> dict[str, Any]:
    """The forward pass of Llama and most of its descendants: RMSNorm, RoPE, a gated MLP."""
    return {
        "norm_eps": keys.number("rms_norm_eps", 1e-6),
        "rope": rope.read(keys),
        "hidden_act": activation(keys, act_key, act),
        **special_tokens(keys),
    }


def gemma_fields(keys: Keys, act_key: str) -> dict[str, Any]:
    """The forward pass of Gemma 1 and 2: GeGLU, scaled embeddings, norms stored as w − 1."""
    keys.only("use_bidirectional_attention", False, "attention is causal")
    keys.seen.update(("hidden_act", "hidden_activation"))  # files state both and mean one of them
    return {
        **llama_fields(keys, act_key, "gelu_pytorch_tanh"),
        "norm": "rms_1p",
        "embedding_scale": math.sqrt(keys.count("hidden_size")),
    }


def activation(keys: Keys, key: str, default: str) -> str:
    """The name of an activation that kvlib has."""
    name = keys.read(key, str, f"one of {', '.join(ACTIVATIONS)}", default)
    if name == "swish":  # the same function under its older name
        return "silu"
    if name not in ACTIVATIONS:
        raise keys.error(key, f"one of {', '.join(ACTIVATIONS)}")
    return name


def special_tokens(keys: Keys) -> dict[str, Any]:
    """The token that begins a text, and those at which generation ends."""
    bos = token_ids(keys, "bos_token_id")
    return {
        "bos_token_id": bos[0] if bos else None,
        "eos_token_ids": token_ids(keys, "eos_token_id"),
    }


def token_ids(keys: Keys, key: str) -> tuple[int, ...]:
    """One id, a list of ids or null, as a tuple."""
    value = keys.data.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int) or one < 0:
            raise keys.error(key, "a token id, a list of token ids or null")
    return tuple(values)
