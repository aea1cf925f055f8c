"""A Gemma 3 with its text decoder inside text_config; the vision tower is not counted."""

from __future__ import annotations

from kvlib.config.families import gemma3_text
from kvlib.config.family import Family
from kvlib.config.keys import Keys
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    why = "the vision tower is not counted; without=['vision_config'] counts the text decoder alone"
    keys.only("vision_config", None, why)
    text = keys.read("text_config", dict, "an object with the text decoder's keys")
    inner = {"model_type": "gemma3_text", **text}
    if keys.data.get("tie_word_embeddings") is not None:
        inner.setdefault("tie_word_embeddings", keys.flag("tie_word_embeddings"))
    keys.seen.update(("mm_tokens_per_image", "boi_token_index", "eoi_token_index"))
    inside = Keys(inner, keys.source, "text_config.")
    inside.only("model_type", "gemma3_text", "the decoder of a Gemma 3")
    inside.model_type = "gemma3_text"
    found = gemma3_text.shape(inside)
    inside.refuse_others()
    return found


FAMILY = Family(
    ("Gemma3ForConditionalGeneration", "Gemma3ForCausalLM", "Gemma3Model"),
    shape,
    lacks="a RoPE of its own for layers with a window",
)
