"""Gemma 2 (arXiv:2408.00118): a window in every second layer, four norms a layer, capped scores."""

from __future__ import annotations

from typing import Any

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.options import gemma_fields
from kvlib.config.parts import gemma_hybrid
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.count("head_dim")
    keys.only("sliding_window_size", keys.data.get("sliding_window"), "sliding_window says it")
    return gemma_hybrid(keys, every=2, default=4096)


def forward_fields(keys: Keys) -> dict[str, Any]:
    return {
        **gemma_fields(keys, "hidden_activation"),
        "query_pre_attn_scalar": keys.number("query_pre_attn_scalar", 256.0),
        "attn_logit_softcapping": _cap(keys, "attn_logit_softcapping", 50.0),
        "final_logit_softcapping": _cap(keys, "final_logit_softcapping", 30.0),
    }


def _cap(keys: Keys, key: str, default: float) -> float | None:
    """A cap, or None where the file says null; `default` is for files without the key."""
    return keys.number(key, None if key in keys.data else default)


FAMILY = Family(classes("Gemma2"), shape, forward_fields)
