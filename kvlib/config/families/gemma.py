"""Gemma 1 to 4: GeGLU, scaled embeddings, and layers with a window between those without.

Gemma (arXiv:2403.08295), Gemma 2 (arXiv:2408.00118), Gemma 3 (arXiv:2503.19786), and 3n and 4,
whose heads have another size where they see all tokens, and whose last layers share keys.
"""

import math
from functools import cache, partial
from typing import Any

from kvlib.config import parts, rope
from kvlib.config.families import WRAPPED, Family, Names, classes, wrapping
from kvlib.config.keys import Keys
from kvlib.config.rope import FULL, SLIDING
from kvlib.config.shape import Layer, Memory, Shape, Weight
from kvlib.config.weights import block, experts, grouped_query, linear, vector

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
gemma = partial(
    parts.decoder,
    tied=True,
    norm="rms_1p",
    bias=parts.flag("attention_bias"),
    head_dim=parts.count("head_dim"),
)
hybrid = partial(gemma, post_norms=True)  # four norms a layer


def gemma2(keys: Keys) -> Shape:
    keys.only("sliding_window_pattern", 2, "every second layer has a window")
    keys.only("sliding_window_size", keys.data.get("sliding_window"), "sliding_window says it")
    return hybrid(keys, windows=parts.sliding(keys, 4096, 2))


def gemma3(keys: Keys) -> Shape:
    defaults = dict(DEFAULTS)
    if "sliding_window_pattern" not in keys.data and "_sliding_window_pattern" in keys.data:
        defaults["sliding_window_pattern"] = keys.data["_sliding_window_pattern"]
    # a window of null is none at all, any other null is the default
    stated = {k: v for k, v in keys.data.items() if v is not None or k == "sliding_window"}
    keys.data = {**defaults, **stated}
    windows = parts.sliding(keys, 4096, keys.count("sliding_window_pattern"))
    # the stretched length already, so vLLM, too, leaves it as it is (see `rope.longest`)
    length = keys.count("max_position_embeddings")
    return hybrid(keys, windows=windows, qk_norm=True, max_position_embeddings=length)


def forward_fields(keys: Keys, act_key: str = "hidden_activation") -> dict[str, Any]:
    """What all Gemmas share but the rope."""
    keys.seen.update(("hidden_act", "hidden_activation"))  # files state both and mean one of them
    return {
        **parts.common_fields(keys, act_key, "gelu_pytorch_tanh"),
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


def gemma3_fields(keys: Keys) -> dict[str, Any]:
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


def gemma4(keys: Keys) -> Shape:
    plain, kinds = _hybrid(keys, every=6)
    if written := keys.read("per_layer_config", dict, "an object", {}):
        # transformers writes by their numbers what layers that see all tokens have in common
        digits = len(str(len(kinds) - 1))
        numbers = [f"{i:0{digits}}" for i, kind in enumerate(kinds) if kind == FULL]
        first = keys.inner("per_layer_config", written).read(numbers[0], dict, "an object")
        keys.only("per_layer_config", dict.fromkeys(numbers, first), "alike in these layers")
        one = keys.inner("per_layer_config", first)
        sizes = {"global_head_dim": one.count("head_dim", plain.head_dim)}
        sizes["num_global_key_value_heads"] = one.count("num_key_value_heads", None)
        one.refuse_others()
        keys.data = {**keys.data, **sizes}
    keys.only("use_bidirectional_attention", "vision", "attention is causal among texts")
    keys.seen.update(("top_k_experts", "num_experts", "moe_intermediate_size"))
    keys.seen.add("expert_intermediate_size")
    hidden, extra = plain.hidden_size, list[Weight]()
    if keys.flag("enable_moe_block"):
        mixed = parts.mixture(keys, None, "num_experts", "top_k_experts")
        plain = plain._replace(experts=mixed)
        norms = (("post", 1), ("post", 2), ("pre", 2))
        extra += [
            *experts(hidden, mixed),
            vector("router.scale", hidden),
            vector("router.per_expert_scale", mixed.num_experts),
            # of the MLP, and of experts beside it
            *(vector(f"{n}_feedforward_layernorm_{i}", hidden) for n, i in norms),
        ]
    wide = plain.intermediate_size * (1 + keys.flag("use_double_wide_mlp"))
    storing = len(kinds) - keys.count("num_kv_shared_layers", least=0)
    widths = [plain.intermediate_size if i < storing else wide for i in range(len(kinds))]
    return _layers(keys, plain, kinds, widths, extra)


def gemma3n(keys: Keys) -> Shape:
    """AltUp (arXiv:2301.13310) keeps several copies of x; LAuReL (arXiv:2411.07501) adds to it."""
    widths = keys.data.get("intermediate_size")
    if isinstance(widths, list) and widths:
        key = "intermediate_size"
        widths = [keys.inner(key, {key: width}).count(key) for width in widths]
        keys.data = {**keys.data, key: widths[0]}
    plain, kinds = _hybrid(keys, every=5)
    widths = widths if isinstance(widths, list) else [widths] * len(kinds)
    if len(widths) != len(kinds):
        raise keys.error("intermediate_size", f"a number, or one for each of {len(kinds)} layers")
    copies, rank = keys.count("altup_num_inputs"), keys.count("laurel_rank")
    hidden = plain.hidden_size
    extra = [
        *linear("correction", {"altup.correction_coefs": copies}, copies),
        *linear("prediction", {"altup.prediction_coefs": copies**2}, copies),
        *linear("modality", {"altup.modality_router": copies}, hidden),
        *(vector(f"altup.{name}", hidden) for name in ("correct_output_scale", "router_norm")),
        *linear("laurel_in", {"laurel.linear_left": rank}, hidden),
        *linear("laurel_out", {"laurel.linear_right": hidden}, rank),
        vector("laurel.post_laurel_norm", hidden),
    ]
    kinds_of = ("projections", "unembed_projections")  # what makes the copies of x, and one of them
    tables = [f"altup_{kind}.{i}" for kind in kinds_of for i in range(copies - 1)]
    others = tuple(w for name in tables for w in linear(name, {name: hidden}, hidden))
    return _layers(keys, plain, kinds, widths, extra, others)


def _hybrid(keys: Keys, every: int) -> tuple[Shape, list[str]]:
    """Return the shape without its layers, and their kinds."""
    size = parts.window(keys, 512)
    kinds = parts.pattern(keys, every, SLIDING, FULL)
    kinds = parts.layer_kinds(keys, "layer_types", (FULL, SLIDING), kinds)
    if kinds[-1] != FULL:
        raise keys.error("layer_types", f"{FULL!r} in the last layer")
    plain = parts.decoder(
        keys,
        tied=True,
        bias=parts.flag("attention_bias"),
        head_dim=parts.count("head_dim", 256),
        windows=tuple(size if kind == SLIDING else 0 for kind in kinds),
        max_position_embeddings=parts.count("max_position_embeddings"),
        post_norms=True,
        qk_norm=True,
    )
    return plain, kinds


def _layers(
    keys: Keys,
    plain: Shape,
    kinds: list[str],
    widths: list[int],
    extra: list[Weight],
    others: tuple[Weight, ...] = (),
) -> Shape:
    storing = len(kinds) - keys.count("num_kv_shared_layers", least=0)
    if storing < 1 or not {*kinds} <= {*kinds[:storing]}:
        raise keys.error("num_kv_shared_layers", "a layer of each kind that stores keys")
    hidden, rows = plain.hidden_size, keys.count("vocab_size_per_layer_input", 262_144)
    size, table = keys.count("hidden_size_per_layer_input", least=0), "embed_tokens_per_layer"
    if size:  # each layer adds the row of a table to a token
        width = size * plain.num_hidden_layers
        extra = [
            *linear("per_layer_gate", {"per_layer_input_gate": size}, hidden),
            *linear("per_layer_out", {"per_layer_projection": hidden}, size),
            vector("post_per_layer_input_norm", hidden),
            *extra,
        ]
        others = (
            *linear(table, {table: rows}, width),
            *linear("per_layer", {"per_layer_model_projection": width}, hidden),
            vector("per_layer_projection_norm", size),
            *others,
        )

    @cache
    def layer(kind: str, window: int, width: int, shared: bool) -> Layer:
        mixer, memory = _attention(keys, plain, kind, window, shared)
        weights = block(plain._replace(intermediate_size=width, experts=None), 0, mixer)
        return Layer((*weights, *extra), (memory,))

    sizes = enumerate(zip(kinds, plain.windows, widths))
    layers = tuple(layer(*size, i >= storing) for i, size in sizes)
    return plain._replace(layers=layers, others=others)


def _attention(
    keys: Keys, plain: Shape, kind: str, window: int, shared: bool
) -> tuple[list[Weight], Memory]:
    heads, kv_heads, head_dim = plain.num_attention_heads, plain.num_key_value_heads, plain.head_dim
    values = None
    if kind == FULL and keys.model_type == "gemma4_text":
        head_dim = keys.count("global_head_dim", 512)
        if keys.flag("attention_k_eq_v"):  # before its norm, a key is the value
            name, values = "num_global_key_value_heads", 0
            heads, kv_heads = parts.divided(keys, name, heads, keys.count(name, kv_heads))
    weights = grouped_query(plain, heads, kv_heads, head_dim, values)
    if shared:
        weights = [w for w in weights if not w.name.startswith(("qkv", "k_norm"))]
        rows = {"self_attn.q_proj": heads * head_dim}
        weights += linear("q", rows, plain.hidden_size, plain.qkv_bias)
    return weights, Memory.of(heads, kv_heads, head_dim, window=window, shared=shared)


GEMMA3 = Family((*classes("Gemma3"), "Gemma3TextModel"), gemma3, gemma3_fields)
WRAPPER = ("Gemma3ForConditionalGeneration", *classes("Gemma3"))
NAMES = Names(tensors={"router": "router.proj"}, respelled=(("mlp.experts.", "experts."),))
GEMMA3N = Family((*classes("Gemma3n"), "Gemma3nTextModel"), gemma3n, lacks="layers that share keys")
GEMMA4 = Family(
    (*classes("Gemma4"), "Gemma4TextModel"), gemma4, lacks="heads of two sizes", names=NAMES
)
FAMILIES = {
    "gemma": Family(classes("Gemma"), gemma, gemma_fields),
    "gemma2": Family(classes("Gemma2"), gemma2, gemma2_fields),
    "gemma3": wrapping(GEMMA3, "gemma3_text", *WRAPPER, names=WRAPPED),
    "gemma3_text": GEMMA3,
    "gemma3n_text": GEMMA3N,
    "gemma3n": wrapping(GEMMA3N, "gemma3n_text", "Gemma3nForConditionalGeneration"),
    "gemma4_text": GEMMA4,
    "gemma4": wrapping(GEMMA4, "gemma4_text", "Gemma4ForConditionalGeneration"),
}
