"""Llama 1 to 4 (arXiv:2302.13971, arXiv:2407.21783), and what has its architecture.

Mistral (arXiv:2310.06825), Phi-3 (arXiv:2404.14219), Mixtral (arXiv:2401.04088), EXAONE 4
(arXiv:2507.11407), OLMo 2 (arXiv:2501.00656) and 3 (arXiv:2512.13961), Granite 3, SmolLM3, and
Llama-Nemotron (arXiv:2505.00949), in which a search removed or narrowed layers.
"""

from functools import partial
from typing import Any

from kvlib.config import parts, rope
from kvlib.config.families import NUMBERED, WRAPPED, Family, Names, classes, like_llama, wrapping
from kvlib.config.keys import Keys
from kvlib.config.ranges import WIDTH
from kvlib.config.rope import FULL
from kvlib.config.shape import Layer, Memory, Shape, Weight
from kvlib.config.weights import linear, mlp, norm

CHUNKED = "chunked_attention"
BIASED: dict[str, Any] = dict(bias=parts.flag("attention_bias"), mlp_bias=parts.flag("mlp_bias"))


def mistral3(keys: Keys) -> Shape:
    text = keys.read("text_config", dict, "an object with the text decoder's keys")
    kind = "mistral" if text.get("model_type", "mistral") == "mistral" else "ministral3"
    return parts.wrapped(keys, kind, FAMILIES[kind].shape)


def mistral3_fields(keys: Keys) -> dict[str, Any]:
    if keys.model_type != "mistral":
        raise keys.error("model_type", "'mistral', or kvlib.costs, which counts the other")
    return parts.llama_fields(keys)


def exaone4_windows(keys: Keys) -> tuple[int, ...]:
    """A window in three of four layers, or in none; layer_types says in which."""
    listed = keys.data.get("layer_types") is not None
    every = 4 if listed else keys.count("sliding_window_pattern", 4)
    keys.seen.add("sliding_window_pattern")
    return parts.sliding(keys, 4096, every)


def exaone4_fields(keys: Keys) -> dict[str, Any]:
    """Layers that see all have no rope if others have a window."""
    windows = exaone4_windows(keys)
    unrotated = tuple(i for i, window in enumerate(windows) if not window and any(windows))
    return {**parts.llama_fields(keys, eps=1e-5), "unrotated": unrotated}


def ministral_windows(keys: Keys) -> tuple[int, ...]:
    size = parts.window(keys, 4096)
    return parts.listed(keys, size) or parts.uniform(keys, size)


def smollm3(keys: Keys) -> Shape:
    keys.only("use_sliding_window", False, "published files have no window")
    keys.seen.update(("no_rope_layers", "no_rope_layer_interval"))  # no size depends on them
    return parts.decoder(keys, tied=True, windows=parts.uniform(keys, 0), **BIASED)


def smollm3_fields(keys: Keys) -> dict[str, Any]:
    """The file lists, under a name that says the opposite, 1 for each layer with rope."""
    default = parts.pattern(keys, keys.count("no_rope_layer_interval", 4), 1, 0)
    rotated = parts.layer_flags(keys, "no_rope_layers", default)
    unrotated = tuple(i for i, one in enumerate(rotated) if not one)
    return {**parts.llama_fields(keys, 2e6), "unrotated": unrotated}


def granite_fields(keys: Keys) -> dict[str, Any]:
    return {
        **parts.llama_fields(keys),
        "embedding_scale": keys.number("embedding_multiplier", 1.0),
        "residual_scale": keys.number("residual_multiplier", 1.0),
        "query_pre_attn_scalar": keys.number("attention_multiplier", 1.0) ** -2,
        "logit_scale": 1 / keys.number("logits_scaling", 1.0),
    }


def olmo3_fields(keys: Keys) -> dict[str, Any]:
    """Only layers that see all tokens have stretched positions."""
    keys.only("rope_theta", 5e5, "transformers takes another for full layers alone")
    full, sliding = rope.read_by_type(keys, 5e5, 5e5)
    return {**parts.common_fields(keys, eps=1e-5), "rope": full, "window_rope": sliding}


def llama4(keys: Keys) -> Shape:
    """A chunk counts like a window: a query sees at most so many tokens."""
    rotated = parts.pattern(keys, keys.count("no_rope_layer_interval", 4), 1, 0)
    if keys.data.get("no_rope_layers") != []:
        rotated = parts.layer_flags(keys, "no_rope_layers", rotated)
    default = [CHUNKED if flag else FULL for flag in rotated]
    kinds = parts.layer_kinds(keys, "layer_types", (CHUNKED, FULL), default)
    usual = 0 if "attention_chunk_size" in keys.data else 8192  # null: no chunks
    size = keys.count("attention_chunk_size", usual)
    step = keys.count("interleave_moe_layer_step", 1)
    mixed = parts.layer_numbers(keys, "moe_layers", range(step - 1, len(kinds), step))
    keys.seen.update(("use_qk_norm", "attn_temperature_tuning"))
    return parts.decoder(
        keys,
        bias=parts.flag("attention_bias"),
        intermediate_size=keys.count("intermediate_size_mlp"),
        windows=tuple(size if kind == CHUNKED else 0 for kind in kinds),
        experts=experts(keys, mixed, shared=1),
    )


def nemotron_nas(keys: Keys) -> Shape:
    layers, blocks = keys.count("num_hidden_layers"), keys.read("block_configs", list, parts.LISTED)
    if len(blocks) != layers or not all(isinstance(block, dict) for block in blocks):
        raise keys.error("block_configs", f"{layers} objects, one a layer")
    for key in ("num_key_value_heads", "intermediate_size"):
        keys.only(key, None, "block_configs says it for each layer")
    plain = parts.decoder(
        keys,
        bias=parts.flag("attention_bias"),
        mlp_bias=parts.flag("mlp_bias"),
        num_key_value_heads=parts.count("num_attention_heads"),
        intermediate_size=parts.count("hidden_size"),
    )
    made: dict[str, Layer] = {}
    for i, block in enumerate(blocks):
        if str(block) not in made:
            made[str(block)] = _layer(keys.inner(f"block_configs[{i}]", block), plain)
    if not any(layer.memories for layer in made.values()):
        raise keys.error("block_configs", "a layer with attention")
    return plain._replace(layers=tuple(made[str(block)] for block in blocks))


def _layer(keys: Keys, plain: Shape) -> Layer:
    hidden, heads = plain.hidden_size, plain.num_attention_heads
    weights, memories = list[Weight](), tuple[Memory, ...]()
    attention, ffn = _part(keys, "attention"), _part(keys, "ffn")
    keys.refuse_others()
    if not attention.flag("no_op"):
        weights += norm(plain, "attn_norm", "input_layernorm")
        if attention.flag("replace_with_linear"):
            weights += linear("attention", {"self_attn.linear_attn": hidden}, hidden)
        else:
            group = attention.count("n_heads_in_group")
            parts.divided(attention, "n_heads_in_group", heads, group)
            mixer, memories = parts.grouped(plain, kv_heads=heads // group)
            weights += mixer
    if not ffn.flag("no_op"):
        weights += norm(plain, "mlp_norm", "post_attention_layernorm")
        if ffn.flag("replace_with_linear"):
            weights += linear("mlp", {"mlp.linear_mlp": hidden}, hidden)
        else:
            inner = int(2 * ffn.number("ffn_mult") * hidden / 3)
            if inner > WIDTH:
                needed = f"a number that makes an MLP of at most {WIDTH:,} units"
                raise ffn.error("ffn_mult", needed)
            weights += mlp(plain, -(-inner // 256) * 256)
    return Layer(tuple(weights), memories)


def _part(keys: Keys, name: str) -> Keys:
    """Return the keys of attention or MLP."""
    part = keys.inner(name, keys.read(name, dict, "an object"))
    for key in ("unshifted_sink", "use_prefill_window_in_sink_attention"):
        part.only(key, False, "attention has no sinks")
    part.seen.update(("no_op", "replace_with_linear", "n_heads_in_group", "ffn_mult"))
    part.refuse_others()
    return part


WINDOW = partial(parts.sliding, default=4096)
experts = partial(parts.mixture, count="num_local_experts", width="intermediate_size")
SPELLED = (("mlp.", "block_sparse_moe."), *NUMBERED)
FUSED = Names(tensors={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"})
# outputs alone are normed, and queries and keys; OLMo norms all of their heads together
EXAONE: dict[str, Any] = dict(pre_norms=False, post_norms=True, qk_norm=True)
OLMO = dict(EXAONE, qk_norm_wide=True, multi_head=True, bias=parts.flag("attention_bias"))
OLMO3 = dict(OLMO, windows=partial(WINDOW, every=4))
# "mlp.gate" is the router, "mlp.gate_proj" a part of an MLP
LLAMA4 = Names(
    respelled=(("mlp.gate", "mlp.router"), ("mlp.router_", "mlp.gate_"), ("mlp.", "feed_forward."))
)
CHUNKS = Family(
    (*classes("Llama4"), "Llama4TextModel"),
    llama4,
    lacks="layers that see a chunk of the text",
    names=LLAMA4,
)
WRAPPER = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
FAMILIES = {
    "llama": like_llama("Llama", multi_head=True, **BIASED),
    "phi3": like_llama("Phi3", windows=parts.sliding, multi_head=True, names=FUSED),
    "mistral": like_llama("Mistral", windows=WINDOW),
    "ministral": like_llama("Ministral", windows=ministral_windows),
    "smollm3": Family(classes("SmolLM3"), smollm3, smollm3_fields),
    "granite": like_llama("Granite", granite_fields, multi_head=True, **BIASED),
    "mixtral": like_llama(
        "Mixtral", windows=parts.sliding, experts=experts, names=Names(respelled=SPELLED)
    ),
    "mistral3": Family(
        ("Mistral3ForConditionalGeneration", "Mistral3Model"),
        mistral3,
        mistral3_fields,
        names=WRAPPED,
    ),
    "ministral3": Family(
        classes("Ministral3"),
        # 128 where the file has no head_dim, whatever hidden / heads is
        partial(parts.decoder, windows=parts.sliding, head_dim=parts.count("head_dim")),
        lacks="scores scaled by position",
    ),
    "exaone4": like_llama("Exaone4", exaone4_fields, windows=exaone4_windows, **EXAONE),
    "olmo2": like_llama("Olmo2", partial(parts.llama_fields, eps=1e-5), **OLMO),
    "olmo3": like_llama("Olmo3", olmo3_fields, **OLMO3),
    "llama4_text": CHUNKS,
    "llama4": wrapping(CHUNKS, "llama4_text", *WRAPPER),
    "nemotron-nas": Family(classes("DeciLM"), nemotron_nas, lacks="layers without attention"),
}
