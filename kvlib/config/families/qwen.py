"""Qwen2 (arXiv:2407.10671) to Qwen3.5, with experts, and wrapped by Qwen2-VL to Qwen3-VL.

MiMo-7B (arXiv:2505.07608) is a Qwen2. In Qwen3-Next and Qwen3.5, three layers of four are of gated
DeltaNet (arXiv:2412.06464), which keep a matrix for each head and a convolution's last inputs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kvlib.config import parts
from kvlib.config.families import WRAPPED, Conversion, Family, Names, classes, wrapping
from kvlib.config.families.gpt_oss import by_expert, stacked
from kvlib.config.keys import Keys
from kvlib.config.rope import FULL, SLIDING
from kvlib.config.shape import Experts, Layer, Shape
from kvlib.config.weights import block, convolution, linear, vector

LINEAR = "linear_attention"


def mimo(keys: Keys) -> Shape:
    names = ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm")
    return parts.drafting(keys, qwen2(keys), tables=(), parts=names, name="model.mtp_layers.{}")


def qwen2_moe(keys: Keys) -> Shape:
    """Small experts, and one that all tokens share."""
    mixed = experts(keys, keys.count("shared_expert_intermediate_size"))
    return parts.decoder(
        keys, windows=moe_windows, qkv_bias=parts.flag("qkv_bias", True), experts=mixed
    )


def windows(keys: Keys) -> tuple[int, ...]:
    """A window from `max_window_layers` on if `use_sliding_window`, or as `layer_types` lists."""
    used = keys.flag("use_sliding_window")
    size = parts.window(keys, 4096) if used else 0
    keys.seen.add("sliding_window")
    layers = keys.count("num_hidden_layers")
    if not used and SLIDING in keys.read("layer_types", list, parts.LISTED, []):
        needed = f"{FULL!r} throughout, since use_sliding_window is false"
        raise keys.error("layer_types", needed)
    stated = parts.listed(keys, size)
    if stated is not None:
        return stated
    first = keys.count("max_window_layers", 28, least=0)
    return tuple(size if i >= first else 0 for i in range(layers))


def moe_windows(keys: Keys) -> tuple[int, ...]:
    """Published mixtures have no window, and which layers would have one differs by version."""
    if keys.flag("use_sliding_window") and keys.data.get("layer_types") is None:
        raise keys.error("use_sliding_window", "false, or layer_types beside it")
    return windows(keys)


def experts(keys: Keys, shared: int = 0) -> Experts:
    """Every `decoder_sparse_step`-th layer but those in `mlp_only_layers`; shared: width, or 0."""
    step = keys.count("decoder_sparse_step", 1)
    dense = parts.layer_numbers(keys, "mlp_only_layers", ())
    layers = range(step - 1, keys.count("num_hidden_layers"), step)
    mixed = [i for i in layers if i not in dense]
    return parts.mixture(keys, mixed, "num_experts", shared_width=shared, shared_gate=shared > 0)


def vision(keys: Keys, inner_type: str, text: Callable[[Keys], Shape]) -> Shape:
    """Return the decoder's shape; older files have its keys beside those of the tower."""
    if "text_config" in keys.data:
        return parts.wrapped(keys, inner_type, text)
    keys.seen.add("vision_config")
    shape = text(keys)
    return shape._replace(uncounted=("vision_config", *shape.uncounted))


def mixed_vision_fields(keys: Keys) -> dict[str, Any]:
    keys.only("norm_topk_prob", True, "the shares of a token's experts add up to 1")
    return parts.llama_fields(keys, 5e5)


def moe_fields(keys: Keys) -> dict[str, Any]:
    return {**parts.llama_fields(keys), "norm_topk_prob": keys.flag("norm_topk_prob", False)}


def qwen_next(keys: Keys) -> Shape:
    keys.only("attn_output_gate", True, "attention has a gate")
    keys.only("output_gate_type", "swish", "a DeltaNet layer's gate is SiLU")
    fields = {**QWEN3, "norm": "rms_1p"}
    if keys.model_type != "qwen3_5_text":
        mixed = experts(keys, keys.count("shared_expert_intermediate_size"))
        fields["experts"] = mixed
        fields["intermediate_size"] = keys.count("intermediate_size", mixed.width)
    if keys.model_type == "qwen3_5_moe_text":
        keys.only("mlp_only_layers", [], "every layer has experts")
        keys.only("decoder_sparse_step", 1, "every layer has experts")
    kinds = parts.pattern(keys, keys.count("full_attention_interval", 4), LINEAR, FULL)
    kinds = parts.layer_kinds(keys, "layer_types", (LINEAR, FULL), kinds)
    plain = parts.decoder(keys, windows=(0,) * len(kinds), **fields)
    attention, delta = parts.grouped(plain, gate=True), _delta(keys, plain)
    mixers = [delta if kind == LINEAR else attention for kind in kinds]
    return parts.by_layer(plain, mixers)._replace(drafts=_drafts(keys, plain, attention))


def _drafts(keys: Keys, plain: Shape, attention: parts.Mixer) -> tuple[Layer, ...]:
    """One projection and three norms before and after layers of attention."""
    count, hidden = keys.count("mtp_num_hidden_layers", 0, least=0), plain.hidden_size
    keys.only("mtp_use_dedicated_embeddings", False, "drafts share the table of embeddings")
    around = parts.joined(hidden, "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    weights = tuple(block(plain, plain.num_hidden_layers - 1, list(attention[0])))
    kinds = [(*around, *weights), *[weights] * (count - 1)] if count else []
    return tuple(Layer(w, attention[1], f"mtp.layers.{i}") for i, w in enumerate(kinds))


def _delta(keys: Keys, plain: Shape) -> parts.Mixer:
    heads, key_heads = keys.count("linear_num_value_heads"), keys.count("linear_num_key_heads")
    key, value = keys.count("linear_key_head_dim"), keys.count("linear_value_head_dim")
    kernel = keys.count("linear_conv_kernel_dim")
    q_k, v, hidden = 2 * key_heads * key, heads * value, plain.hidden_size
    if keys.model_type == "qwen3_next":
        rows = {"in_proj_qkvz": q_k + 2 * v, "in_proj_ba": 2 * heads}
    else:
        rows = {"in_proj_qkv": q_k + v, "in_proj_z": v, "in_proj_b": heads, "in_proj_a": heads}
    weights = [
        *(w for name, n in rows.items() for w in linear(name, {f"linear_attn.{name}": n}, hidden)),
        *convolution({"linear_attn.conv1d": q_k + v}, kernel),
        *(vector(f"linear_attn.{name}", heads) for name in ("A_log", "dt_bias")),
        vector("linear_attn.norm", value),
        *linear("out_proj", {"linear_attn.out_proj": hidden}, v),
    ]
    inputs, each = (q_k + v) * (kernel - 1), parts.state_bytes(keys, "mamba_ssm_dtype")
    return parts.recurrent(weights, (heads, key_heads), heads * key * value, inputs, each)


# hidden / heads is wrong for Qwen3, so head_dim may not be left out
QWEN3: dict[str, Any] = dict(head_dim=parts.count("head_dim"), qk_norm=True)
QWEN3["bias"] = parts.flag("attention_bias")
qwen2 = partial(parts.decoder, windows=windows, qkv_bias=True)
qwen3 = partial(parts.decoder, windows=windows, **QWEN3)
qwen3_moe = partial(parts.decoder, windows=moe_windows, experts=experts, **QWEN3)
MIMO = Names(buffers=rf"{Names().buffers}|mtp_layers\..*")
FUSED = {  # all experts of a layer in one tensor
    f"experts_{part}.weight": Conversion(f"mlp.experts.{part}_proj", stacked, by_expert)
    for part in ("gate_up", "down")
}
NEXT = Family(classes("Qwen3Next"), qwen_next, lacks="layers with a state")
DENSE, MIXED = (NEXT._replace(classes=classes(f"Qwen3_5{kind}")) for kind in ("", "Moe"))
FAMILIES = {
    "qwen2": Family(classes("Qwen2"), qwen2, parts.llama_fields),
    "qwen2_moe": Family(classes("Qwen2Moe"), qwen2_moe, moe_fields),
    "qwen3": Family(classes("Qwen3"), qwen3, parts.llama_fields),
    "qwen3_moe": Family(classes("Qwen3Moe"), qwen3_moe, moe_fields),
    "mimo": Family(classes("MiMo"), mimo, parts.llama_fields, names=MIMO),
    "qwen3_next": NEXT,
    "qwen3_5_text": DENSE,
    "qwen3_5": wrapping(DENSE, "qwen3_5_text", "Qwen3_5ForConditionalGeneration"),
    "qwen3_5_moe_text": MIXED,
    "qwen3_5_moe": wrapping(MIXED, "qwen3_5_moe_text", "Qwen3_5MoeForConditionalGeneration"),
}
for name, title, text, fields in (
    ("qwen2_vl", "Qwen2VL", qwen2, partial(parts.llama_fields, theta=1e6, eps=1e-5)),
    ("qwen2_5_vl", "Qwen2_5_VL", qwen2, partial(parts.llama_fields, theta=1e6, eps=1e-5)),
    ("qwen3_vl", "Qwen3VL", qwen3, partial(parts.llama_fields, theta=5e5)),
    ("qwen3_vl_moe", "Qwen3VLMoe", qwen3_moe, mixed_vision_fields),
):
    lacks = "its wrapper's file"
    FAMILIES[f"{name}_text"] = Family((f"{title}TextModel",), text, lacks=lacks)
    FAMILIES[name] = Family(
        (f"{title}ForConditionalGeneration", f"{title}Model"),
        partial(vision, inner_type=f"{name}_text", text=text),
        fields,
        names=WRAPPED._replace(tensors=FUSED) if text is qwen3_moe else WRAPPED,
    )
