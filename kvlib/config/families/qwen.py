"""Qwen2, Qwen2.5 and Qwen3, plain and with a mixture of experts.

arXiv:2407.10671, arXiv:2412.15115, arXiv:2505.09388. Qwen2 has biases on q, k and v; Qwen3 norms
queries and keys, head by head.
"""

from typing import Any

from kvlib.config.families import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import FULL, LISTED, SLIDING, decoder, listed, llama_fields, routing, window
from kvlib.config.shape import Experts, Shape


def qwen2(keys: Keys) -> Shape:
    return decoder(keys, windows=windows(keys), qkv_bias=True)


def qwen2_moe(keys: Keys) -> Shape:
    """Small experts, and one that all tokens share."""
    mixture = experts(keys, keys.count("shared_expert_intermediate_size"))
    bias = keys.flag("qkv_bias", True)
    return decoder(keys, windows=moe_windows(keys), qkv_bias=bias, experts=mixture)


def qwen3(keys: Keys) -> Shape:
    bias, layer_windows = keys.flag("attention_bias"), windows(keys)
    keys.count("head_dim")  # hidden / heads is wrong for Qwen3, so it may not be left out
    return decoder(keys, windows=layer_windows, bias=bias, qk_norm=True)


def qwen3_moe(keys: Keys) -> Shape:
    bias, mixture = keys.flag("attention_bias"), experts(keys, shared=0)
    keys.count("head_dim")
    return decoder(keys, windows=moe_windows(keys), bias=bias, qk_norm=True, experts=mixture)


def windows(keys: Keys) -> tuple[int, ...]:
    """A window from `max_window_layers` on if `use_sliding_window`, or as `layer_types` lists."""
    used = keys.flag("use_sliding_window")
    size = window(keys, 4096) if used else 0
    keys.seen.add("sliding_window")
    layers = keys.count("num_hidden_layers")
    if not used and SLIDING in keys.read("layer_types", list, LISTED, []):
        needed = f"{FULL!r} throughout, since use_sliding_window is false"
        raise keys.error("layer_types", needed)
    stated = listed(keys, size)
    if stated is not None:
        return stated
    first = keys.count("max_window_layers", 28, least=0)
    return tuple(size if i >= first else 0 for i in range(layers))


def moe_windows(keys: Keys) -> tuple[int, ...]:
    """Published mixtures have no window, and which layers would have one differs by version."""
    if keys.flag("use_sliding_window") and keys.data.get("layer_types") is None:
        raise keys.error("use_sliding_window", "false, or layer_types beside it")
    return windows(keys)


def experts(keys: Keys, shared: int) -> Experts:
    """Every `decoder_sparse_step`-th layer but those in `mlp_only_layers`; shared: width, or 0."""
    step = keys.count("decoder_sparse_step", 1)
    needed = "a list of layer numbers"
    dense = keys.read("mlp_only_layers", list, needed, [])
    if any(isinstance(i, bool) or not isinstance(i, int) for i in dense):
        raise keys.error("mlp_only_layers", needed)
    alone = frozenset(dense)
    count, chosen = routing(keys, "num_experts")
    layers = range(keys.count("num_hidden_layers"))
    mixed = tuple(i for i in layers if i not in alone and (i + 1) % step == 0)
    width = keys.count("moe_intermediate_size")
    return Experts(count, chosen, width, mixed, shared_width=shared, shared_gate=shared > 0)


def moe_fields(keys: Keys) -> dict[str, Any]:
    return {**llama_fields(keys), "norm_topk_prob": keys.flag("norm_topk_prob", False)}


FAMILIES = {
    "qwen2": Family(classes("Qwen2"), qwen2, llama_fields),
    "qwen2_moe": Family(classes("Qwen2Moe"), qwen2_moe, moe_fields),
    "qwen3": Family(classes("Qwen3"), qwen3, llama_fields),
    "qwen3_moe": Family(classes("Qwen3Moe"), qwen3_moe, moe_fields),
}
