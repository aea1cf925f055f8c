"""Heads that differ by layer: Step-3.5, Step-3.7 and MiMo-V2-Flash (arXiv:2601.02780).

Step has a gate for each head, and layers with experts share an MLP. MiMo has longer keys than
values, sinks, and experts in all layers but the first.
"""

import re
from typing import Any

from kvlib.config import parts
from kvlib.config.families import Family, Names, classes, wrapping
from kvlib.config.keys import Keys
from kvlib.config.rope import FULL, SLIDING
from kvlib.config.shape import Layer, Shape
from kvlib.config.weights import block, linear

# sizes that aren't read, and what transformers writes beside the same in other keys
SEEN = ("max_seq_len", "zero_centered", "per_layer_config", "mtp_layer_types", "sliding_window")
PARTS = ("eh_proj", "enorm", "hnorm", "transformer.shared_head.norm")
COPY = ("transformer.shared_head.output",)
FIXED: dict[str, Any] = {"att_impl_type": "GQA", "sink": False, "use_moe": True}
FIXED |= {"moe_layer_offset": 0, "moe_every_n_layer": 1}
NUMBERS = re.compile(r"\d{1,4}(,\d{1,4})*")


def step(keys: Keys) -> Shape:
    """Lists of layers may continue with those that draft tokens."""
    for key, value in FIXED.items():
        keys.only(key, value, "as in published files")
    keys.seen.update(SEEN)
    layers, listed = keys.count("num_hidden_layers"), keys.data.get("layer_types")
    if isinstance(listed, list):
        keys.data = {**keys.data, "layer_types": listed[:layers]}
    kinds = parts.layer_kinds(keys, "layer_types", (FULL, SLIDING), [FULL] * layers)
    size = keys.count("sliding_window") if SLIDING in kinds else 0
    number, chosen = ("moe_num_experts", "moe_top_k")
    if number not in keys.data:  # as transformers writes it
        number, chosen = ("n_routed_experts", "num_experts_per_tok")
    mixed = parts.mixture(
        keys,
        _mixed(keys, layers),
        number,
        chosen,
        shared_width=keys.count("share_expert_dim"),
        router_bias=keys.read("use_moe_router_bias", bool, "true or false"),
    )
    few = "num_attention_groups" if "num_attention_groups" in keys.data else "num_key_value_heads"
    heads, kv_heads = parts.divided(keys, few, keys.count("num_attention_heads"), keys.count(few))
    plain = parts.decoder(
        keys,
        norm="rms_1p",
        qk_norm=True,
        num_key_value_heads=kv_heads,
        windows=tuple(size if kind == SLIDING else 0 for kind in kinds),
        experts=mixed,
    )
    gate, mixers = keys.read("use_head_wise_attn_gate", bool, "true or false"), {}
    for kind, window, count in ((FULL, 0, heads), (SLIDING, size, _heads(keys, plain))):
        gates = linear("gate", {"self_attn.g_proj": count}, plain.hidden_size) if gate else []
        mixers[kind] = parts.grouped(plain, count, extra=gates, window=window)
    drafted = listed[layers:] if isinstance(listed, list) else []
    count = keys.count("num_nextn_predict_layers", 0, least=0)
    keys.only("mtp_mlp_layer_types", ["dense"] * count, "layers that draft have no experts")
    if size and (drafted or keys.data.get("mtp_layer_types")) == [SLIDING] * count:
        dense = block(plain._replace(experts=None), 0, list(mixers[SLIDING][0]))
        plain = parts.drafting(keys, plain, Layer(tuple(dense), mixers[SLIDING][1]), COPY, PARTS)
    return parts.by_layer(plain, [mixers[kind] for kind in kinds])


def _mixed(keys: Keys, layers: int) -> list[int]:
    """Return the layers with experts; transformers writes a list of kinds."""
    if kinds := parts.layer_kinds(keys, "mlp_layer_types", ("dense", "sparse"), []):
        keys.seen.add("moe_layers_enum")
        return [i for i, kind in enumerate(kinds) if kind == "sparse"]
    needed = "layer numbers and commas"
    text = keys.read("moe_layers_enum", str, needed, valid=lambda t: bool(NUMBERS.fullmatch(t)))
    numbers = {int(number) for number in text.split(",")}
    return [i for i in range(layers) if i in numbers]


def _heads(keys: Keys, plain: Shape) -> int:
    """Return how many query heads a layer with a window has; its keys are as in the others."""
    stated = keys.read("attention_other_setting", dict, "an object or null", {})
    inside = keys.inner("attention_other_setting", stated)
    inside.only("attention_type", SLIDING, "these layers differ")
    inside.only("num_attention_groups", plain.num_key_value_heads, "as in the other layers")
    for key in ("head_dim", "true_head_dim"):
        inside.only(key, plain.head_dim, "as in the other layers")
    heads = keys.count("num_sliding_attention_heads", plain.num_attention_heads)
    heads = inside.count("num_attention_heads", heads)
    inside.refuse_others()
    return parts.divided(inside, "num_attention_heads", heads, plain.num_key_value_heads)[0]


def mimo_v2(keys: Keys) -> Shape:
    stated = keys.count("sliding_window")
    size = keys.count("sliding_window_size", stated)
    # vLLM and MLX count the query in sliding_window_size; transformers 5.23 writes one more
    if stated not in (size, size + 1):
        raise keys.error("sliding_window_size", "as sliding_window says")
    keys.only("attention_chunk_size", size, "as sliding_window_size says")
    sliding = parts.layer_flags(keys, "hybrid_layer_pattern")
    mixed = parts.layer_flags(keys, "moe_layer_freq")
    kinds = [SLIDING if flag else FULL for flag in sliding]
    keys.only("layer_types", kinds, "as other keys say")
    kinds = ["sparse" if flag else "dense" for flag in mixed]
    keys.only("mlp_layer_types", kinds, "as other keys say")
    keys.only("n_shared_experts", None, "no expert is shared")
    keys.seen.update(("swa_rope_theta", "attention_value_scale", "layernorm_epsilon"))
    plain = parts.decoder(
        keys,
        qkv_bias=parts.flag("attention_bias"),
        windows=tuple(size if flag else 0 for flag in sliding),
        experts=parts.mixture(keys, [i for i, flag in enumerate(mixed) if flag], router_bias=True),
    )
    full = _mixer(keys, plain, "", keys.flag("add_full_attention_sink_bias"), 0)
    swa = _mixer(keys, plain, "swa_", keys.flag("add_swa_attention_sink_bias", True), size)
    return parts.by_layer(plain, [swa if flag else full for flag in sliding])


def _mixer(keys: Keys, plain: Shape, start: str, sinks: bool, window: int) -> parts.Mixer:
    heads, few = keys.count(f"{start}num_attention_heads"), f"{start}num_key_value_heads"
    heads, kv_heads = parts.divided(keys, few, heads, keys.count(few))
    head_dim, v_dim = keys.count(f"{start}head_dim"), keys.count(f"{start}v_head_dim")
    shape = plain._replace(sinks=sinks)
    return parts.grouped(shape, heads, kv_heads, head_dim, v_dim, window=window)


STEP = Names(
    respelled=(
        ("mlp.shared_expert.", "share_expert."),
        ("mlp.experts.", "moe.experts."),
        ("mlp.gate", "moe.gate"),
        ("moe.gate_", "mlp.gate_"),
    )
)
TEXT = Family(classes("Step3p5"), step, lacks="heads that differ by layer", names=STEP)
SINKS = Names(respelled=(("self_attn.sinks", "self_attn.attention_sink_bias"),))
FLASH = Family(classes("MiMoV2Flash"), mimo_v2, lacks="heads that differ by layer", names=SINKS)
FAMILIES = {
    "step3p5": TEXT,
    "step3p7": wrapping(TEXT, "step3p5", "Step3p7ForConditionalGeneration", "Step3p7Model"),
    "mimo_v2_flash": FLASH,
}
