"""One function a family: what its config.json states, and what it takes for granted.

The defaults are those of transformers' configuration classes where published files rely on them.
"""

from __future__ import annotations

from collections.abc import Callable

from kvlib.costs.keys import Keys
from kvlib.costs.known import GEMMA3_TEXT
from kvlib.costs.parts import (
    decoder,
    gemma_hybrid,
    listed,
    moe_windows,
    qwen_experts,
    qwen_windows,
    routing,
    uniform,
    window,
)
from kvlib.costs.shape import Experts, Latent, Shape


def _llama(keys: Keys) -> Shape:
    bias = keys.flag("attention_bias")
    return decoder(keys, qkv_bias=bias, o_bias=bias, mlp_bias=keys.flag("mlp_bias"))


def _mistral(keys: Keys) -> Shape:
    keys.only("attention_bias", False, "mistral has none")
    return decoder(keys, windows=uniform(keys, window(keys, 4096)))


def _mixtral(keys: Keys) -> Shape:
    layers, width = keys.count("num_hidden_layers"), keys.count("intermediate_size")
    count, chosen = routing(keys, "num_local_experts")
    experts = Experts(count, chosen, width, tuple(range(layers)))
    return decoder(keys, windows=uniform(keys, window(keys, 0)), experts=experts)


def _phi3(keys: Keys) -> Shape:
    keys.only("attention_bias", False, "phi3 has none")
    return decoder(keys, windows=uniform(keys, window(keys, 0)))


def _qwen2(keys: Keys) -> Shape:
    return decoder(keys, windows=qwen_windows(keys), qkv_bias=True)


def _qwen3(keys: Keys) -> Shape:
    bias = keys.flag("attention_bias")
    windows = qwen_windows(keys)
    keys.count("head_dim")  # hidden / heads is wrong for Qwen3, so it may not be left out
    return decoder(keys, windows=windows, qkv_bias=bias, o_bias=bias, qk_norm=True)


def _qwen2_moe(keys: Keys) -> Shape:
    experts = qwen_experts(keys, keys.count("shared_expert_intermediate_size"))
    bias = keys.flag("qkv_bias", True)
    return decoder(keys, windows=moe_windows(keys), qkv_bias=bias, experts=experts)


def _qwen3_moe(keys: Keys) -> Shape:
    bias, experts = keys.flag("attention_bias"), qwen_experts(keys, 0)
    keys.count("head_dim")
    return decoder(
        keys,
        windows=moe_windows(keys),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=True,
        experts=experts,
    )


def _gemma(keys: Keys) -> Shape:
    keys.count("head_dim")
    bias = keys.flag("attention_bias")
    return decoder(keys, tied=True, qkv_bias=bias, o_bias=bias)


def _gemma2(keys: Keys) -> Shape:
    keys.count("head_dim")
    return gemma_hybrid(keys, every=2, default=4096)


def _gemma3_text(keys: Keys) -> Shape:
    """Published files leave out what equals the defaults of Gemma3TextConfig, so those count."""
    defaults = dict(GEMMA3_TEXT)
    if "sliding_window_pattern" not in keys.data and "_sliding_window_pattern" in keys.data:
        defaults["sliding_window_pattern"] = keys.data["_sliding_window_pattern"]
    # a window of null is none at all, any other null is the default
    stated = {k: v for k, v in keys.data.items() if v is not None or k == "sliding_window"}
    keys.data = {**defaults, **stated}
    every = keys.count("sliding_window_pattern")
    return gemma_hybrid(keys, every=every, default=4096, qk_norm=True)


def _gemma3(keys: Keys) -> Shape:
    """A Gemma 3 with its text decoder inside text_config; the vision tower is not counted."""
    why = "the vision tower is not counted; without=['vision_config'] counts the text decoder alone"
    keys.only("vision_config", None, why)
    text = keys.read("text_config", dict, "an object with the text decoder's keys")
    inner = {"model_type": "gemma3_text", **text}
    if keys.data.get("tie_word_embeddings") is not None:
        inner.setdefault("tie_word_embeddings", keys.flag("tie_word_embeddings"))
    for key in ("mm_tokens_per_image", "boi_token_index", "eoi_token_index"):
        keys.seen.add(key)
    inside = Keys(inner, keys.source, "text_config.")
    inside.only("model_type", "gemma3_text", "the decoder of a Gemma 3")
    shape = _gemma3_text(inside)
    inside.refuse_others("gemma3_text")
    return shape


def _gpt2(keys: Keys) -> Shape:
    hidden, heads = keys.count("n_embd"), keys.count("n_head")
    if hidden % heads:
        raise keys.error("n_embd", f"a multiple of n_head ({heads})")
    layers, positions = keys.count("n_layer"), keys.count("n_positions")
    return Shape(
        model_type="gpt2",
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("n_inner", 4 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=positions,
        windows=(0,) * layers,
        tie_word_embeddings=keys.flag("tie_word_embeddings", True),
        gated_mlp=False,
        learned_positions=True,
        norm_bias=True,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
    )


def _deepseek(keys: Keys) -> Shape:
    """DeepSeek-V2 and V3. Layers for multi-token prediction, which decoding skips, do not count."""
    layers = keys.count("num_hidden_layers")
    bias = keys.flag("attention_bias")
    keys.only("mlp_bias", False, "deepseek has none")
    latent = Latent(
        q_lora_rank=keys.count("q_lora_rank", None),
        kv_lora_rank=keys.count("kv_lora_rank"),
        qk_nope_head_dim=keys.count("qk_nope_head_dim"),
        qk_rope_head_dim=keys.count("qk_rope_head_dim"),
        v_head_dim=keys.count("v_head_dim"),
    )
    keys.seen.update(("head_dim", "qk_head_dim"))  # what transformers derives and writes back
    # a dense one keeps the keys of a mixture
    keys.seen.update(("n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"))
    keys.seen.update(("first_k_dense_replace", "moe_layer_freq"))
    experts = None
    if keys.data.get("n_routed_experts") is not None:
        first = keys.count("first_k_dense_replace", least=0)
        every = keys.count("moe_layer_freq", 1)
        count, chosen = routing(keys, "n_routed_experts")
        width = keys.count("moe_intermediate_size")
        experts = Experts(
            count,
            chosen,
            width,
            tuple(i for i in range(first, layers) if i % every == 0),
            shared_width=keys.count("n_shared_experts", 0, least=0) * width,
            # V3 balances its experts with a bias for each, which training moves (2412.19437)
            router_bias=keys.data.get("model_type") == "deepseek_v3",
        )
    heads = keys.count("num_attention_heads")
    return decoder(
        keys,
        num_key_value_heads=keys.count("num_key_value_heads", heads),
        head_dim=latent.qk_head_dim,
        latent=latent,
        qkv_bias=bias,
        o_bias=bias,
        experts=experts,
    )


def _gpt_oss(keys: Keys) -> Shape:
    layers, width = keys.count("num_hidden_layers"), keys.count("intermediate_size")
    count, chosen = routing(keys, "num_local_experts")
    keys.only("experts_per_token", chosen, "as num_experts_per_tok says")
    bias = keys.flag("attention_bias", True)
    size = window(keys, 128)
    alternating = tuple(0 if i % 2 else size for i in range(layers))
    windows = listed(keys, size or None) or alternating
    keys.count("head_dim")
    return decoder(
        keys,
        windows=windows,
        qkv_bias=bias,
        o_bias=bias,
        sinks=True,
        experts=Experts(count, chosen, width, tuple(range(layers)), router_bias=True, bias=True),
    )


FAMILIES: dict[str, Callable[[Keys], Shape]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3_text,
    "gpt2": _gpt2,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_oss": _gpt_oss,
}
