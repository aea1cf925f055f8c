"""The text decoder of Gemma 3 (arXiv:2503.19786): five layers with a window, then one without."""

from __future__ import annotations

from typing import Any

from kvlib.config.family import Family
from kvlib.config.keys import Keys
from kvlib.config.parts import gemma_hybrid
from kvlib.config.shape import Shape

# Gemma3TextConfig of transformers; the files of Gemma 3 state only what differs
DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}


def shape(keys: Keys) -> Shape:
    defaults = dict(DEFAULTS)
    if "sliding_window_pattern" not in keys.data and "_sliding_window_pattern" in keys.data:
        defaults["sliding_window_pattern"] = keys.data["_sliding_window_pattern"]
    # a window of null is none at all, any other null is the default
    stated = {k: v for k, v in keys.data.items() if v is not None or k == "sliding_window"}
    keys.data = {**defaults, **stated}
    every = keys.count("sliding_window_pattern")
    return gemma_hybrid(keys, every=every, default=4096, qk_norm=True)


FAMILY = Family(
    ("Gemma3ForCausalLM", "Gemma3Model", "Gemma3TextModel"),
    shape,
    lacks="a RoPE of its own for layers with a window",
)
