"""Gemma 1 to 3: GeGLU, scaled embeddings, norms whose weights are stored as w − 1.

Gemma (arXiv:2403.08295) sees all tokens in each layer. Gemma 2 (arXiv:2408.00118) has a window in
every second layer, four norms a layer and capped scores; Gemma 3 (arXiv:2503.19786) five layers
with a window, then one without.
"""

import math
from typing import Any

from kvlib.config import rope, words
from kvlib.config.families import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields, decoder, listed, window
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


def gemma(keys: Keys) -> Shape:
    keys.count("head_dim")
    return decoder(keys, tied=True, norm="rms_1p", bias=keys.flag("attention_bias"))


def gemma2(keys: Keys) -> Shape:
    keys.count("head_dim")
    keys.only("sliding_window_pattern", 2, "every second layer has a window")
    keys.only("sliding_window_size", keys.data.get("sliding_window"), "sliding_window says it")
    return hybrid(keys, every=2)


def gemma3_text(keys: Keys) -> Shape:
    defaults = dict(DEFAULTS)
    if "sliding_window_pattern" not in keys.data and "_sliding_window_pattern" in keys.data:
        defaults["sliding_window_pattern"] = keys.data["_sliding_window_pattern"]
    # a window of null is none at all, any other null is the default
    stated = {k: v for k, v in keys.data.items() if v is not None or k == "sliding_window"}
    keys.data = {**defaults, **stated}
    every = keys.count("sliding_window_pattern")
    # the stretched length already, so vLLM, too, leaves it as it is (see `rope.longest`)
    length = keys.count("max_position_embeddings")
    return hybrid(keys, every, qk_norm=True, max_position_embeddings=length)


def gemma3(keys: Keys) -> Shape:
    """The text decoder is inside text_config; the vision tower is not counted."""
    if keys.data.get("vision_config") is not None:
        needed = "null or no such key (the vision tower is not counted; "
        needed += f"{words.without('vision_config')} counts the text decoder alone)"
        raise keys.error("vision_config", needed, without="vision_config")
    keys.seen.add("vision_config")
    text = keys.read("text_config", dict, "an object with the text decoder's keys")
    inner = {"model_type": "gemma3_text", **text}
    if keys.data.get("tie_word_embeddings") is not None:
        inner.setdefault("tie_word_embeddings", keys.flag("tie_word_embeddings"))
    keys.seen.update(("mm_tokens_per_image", "boi_token_index", "eoi_token_index"))
    inside = keys.inner("text_config", inner)
    inside.only("model_type", "gemma3_text", "the decoder of a Gemma 3")
    inside.model_type = "gemma3_text"
    shape = gemma3_text(inside)
    inside.refuse_others(shape)
    return shape


def hybrid(keys: Keys, every: int, **fields: Any) -> Shape:
    """Every `every`-th layer sees all, the others a window; four norms a layer."""
    size = window(keys, 4096)
    layers, bias = keys.count("num_hidden_layers"), keys.flag("attention_bias")
    windows = listed(keys, size)
    if windows is None:
        windows = tuple(0 if (i + 1) % every == 0 else size for i in range(layers))
    fields.update(windows=windows, norm="rms_1p", post_norms=True)
    return decoder(keys, tied=True, bias=bias, **fields)


def forward_fields(keys: Keys, act_key: str = "hidden_activation") -> dict[str, Any]:
    """What all Gemmas share but the rope."""
    keys.seen.update(("hidden_act", "hidden_activation"))  # files state both and mean one of them
    return {
        **common_fields(keys, act_key, "gelu_pytorch_tanh"),
        "embedding_scale": math.sqrt(keys.count("hidden_size")),
    }


def gemma_fields(keys: Keys) -> dict[str, Any]:
    fields = forward_fields(keys, "hidden_act")
    if fields["hidden_act"] == "gelu":  # what its first files say, and do not mean
        fields["hidden_act"] = "gelu_pytorch_tanh"
    return {**fields, "rope": rope.read_rope(keys)}


def gemma2_fields(keys: Keys) -> dict[str, Any]:
    return {
        **forward_fields(keys),
        "rope": rope.read_rope(keys),
        "query_pre_attn_scalar": keys.number("query_pre_attn_scalar", 256.0),
        "attn_logit_softcapping": _cap(keys, "attn_logit_softcapping", 50.0),
        "final_logit_softcapping": _cap(keys, "final_logit_softcapping", 30.0),
    }


def gemma3_text_fields(keys: Keys) -> dict[str, Any]:
    """Its scores have no cap: transformers reads `attn_logit_softcapping` and never applies it."""
    full, sliding = rope.read_by_type(keys, full=1e6, sliding=1e4)
    keys.only("attn_logit_softcapping", None, "transformers ignores it in Gemma 3")
    return {
        **forward_fields(keys),
        "rope": full,
        "window_rope": sliding,
        "query_pre_attn_scalar": keys.number("query_pre_attn_scalar", 256.0),
        "final_logit_softcapping": _cap(keys, "final_logit_softcapping", None),
    }


def _cap(keys: Keys, key: str, default: float | None) -> float | None:
    """A cap, or None where the file says null; `default` is for files without the key."""
    return keys.number(key, None if key in keys.data else default)


FAMILIES = {
    "gemma": Family(classes("Gemma"), gemma, gemma_fields),
    "gemma2": Family(classes("Gemma2"), gemma2, gemma2_fields),
    "gemma3": Family(
        ("Gemma3ForConditionalGeneration", *classes("Gemma3")),
        gemma3,
        lacks="its text decoder as a separate model",
    ),
    "gemma3_text": Family((*classes("Gemma3"), "Gemma3TextModel"), gemma3_text, gemma3_text_fields),
}
