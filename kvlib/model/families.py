"""The five families of checkpoints that kvlib reads, as their config.json states them.

Both spellings in circulation are read: `rope_theta` with `rope_scaling`, and `rope_parameters`
(flat, or one entry a layer type); windows from `sliding_window`, `use_sliding_window`,
`max_window_layers` or `layer_types`. What is not understood is refused, never ignored: a model that
is nearly right prints fluent nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvlib.errors import CheckpointError
from kvlib.model.keys import FULL, SLIDING, Keys, activation, rope, special_tokens


def arguments(data: Mapping[str, Any], source: str = "config.json") -> dict[str, Any]:
    """What `ModelConfig` takes, by name, of a parsed config.json. Raises CheckpointError (Keys)."""
    if not isinstance(data, Mapping):
        raise TypeError(f"config is a {type(data).__name__}, needed: a mapping of keys to values")
    keys = Keys(data, source)
    family = _family(keys)
    keys.refuse("quantization_config", None, "quantised weights are not read")
    keys.refuse("is_encoder_decoder", False, "decoders only")
    keys.refuse("add_cross_attention", False, "decoders only")
    try:
        return PARSERS[family](keys)
    except CheckpointError:
        raise
    except ValueError as error:  # RopeConfig's own checks do not know the file
        raise CheckpointError(f"{source}: {error}") from None


def _family(keys: Keys) -> str:
    known = f"one of {', '.join(PARSERS)}"
    classes = keys.read("architectures", list, "a list of class names", [])
    by_class = {name: family for family, names in CLASSES.items() for name in names}
    if classes and not all(isinstance(name, str) and name in by_class for name in classes):
        raise keys.error("architectures", f"one of {', '.join(by_class)}")
    family = keys.data.get("model_type")
    if family is None and classes:
        family = by_class[classes[0]]
    if not isinstance(family, str) or family not in PARSERS:
        raise keys.error("model_type", known)
    if any(by_class[name] != family for name in classes):
        raise keys.error("architectures", f"one of {', '.join(CLASSES[family])}")
    return family


def _llama(keys: Keys) -> dict[str, Any]:
    bias = keys.flag("attention_bias")
    keys.refuse("sliding_window", None, "llama has no window")
    windows = _windows(keys, lambda layer: None)
    mlp_bias = keys.flag("mlp_bias")
    return _rotary(keys, windows, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias)


def _mistral(keys: Keys) -> dict[str, Any]:
    window = _stated_window(keys)
    keys.refuse("attention_bias", False, "mistral has none")
    return _rotary(keys, _windows(keys, lambda layer: window))


def _qwen2(keys: Keys) -> dict[str, Any]:
    return _rotary(keys, _qwen_windows(keys), qkv_bias=True)


def _qwen3(keys: Keys) -> dict[str, Any]:
    bias = keys.flag("attention_bias")
    if keys.data.get("head_dim") is None:
        raise keys.error("head_dim", "a whole number of at least 1")
    return _rotary(keys, _qwen_windows(keys), qkv_bias=bias, o_bias=bias, qk_norm=True)


def _gpt2(keys: Keys) -> dict[str, Any]:
    keys.refuse("scale_attn_weights", True, "scores are scaled by 1/sqrt(head_dim)")
    keys.refuse("scale_attn_by_inverse_layer_idx", False, "every layer scales its scores alike")
    hidden, heads = keys.count("n_embd"), keys.count("n_head")
    if hidden % heads:
        raise keys.error("n_embd", f"a multiple of n_head ({heads})")
    return dict(
        model_type="gpt2",
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("n_inner", 4 * hidden),
        num_hidden_layers=keys.count("n_layer"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=keys.count("n_positions"),
        norm="layer",
        norm_eps=keys.number("layer_norm_epsilon", 1e-5),
        positions="learned",
        hidden_act=activation(keys, "activation_function", "gelu_new"),
        gated_mlp=False,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        tie_word_embeddings=keys.flag("tie_word_embeddings", True),
        **special_tokens(keys),
    )


def _rotary(keys: Keys, windows: tuple[int | None, ...], **switches: Any) -> dict[str, Any]:
    """What Llama and its descendants share: RMSNorm, rope, a gated MLP, grouped key/value heads."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    head_dim = keys.count("head_dim", None)
    if head_dim is None and hidden % heads:
        raise keys.error("hidden_size", f"a multiple of num_attention_heads ({heads}), or head_dim")
    family = _family(keys)
    if family != "llama" and "num_key_value_heads" not in keys.data:
        raise keys.error("num_key_value_heads", "a whole number of at least 1")
    return dict(
        model_type=family,
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("intermediate_size"),
        num_hidden_layers=keys.count("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=keys.count("num_key_value_heads", heads),
        head_dim=head_dim or hidden // heads,
        max_position_embeddings=keys.count("max_position_embeddings"),
        norm_eps=keys.number("rms_norm_eps", 1e-6),
        rope=rope(keys),
        hidden_act=activation(keys, "hidden_act", "silu"),
        tie_word_embeddings=keys.flag("tie_word_embeddings"),
        windows=windows,
        **switches,
        **special_tokens(keys),
    )


def _stated_window(keys: Keys) -> int | None:
    """`sliding_window`: null means none, an absent key the 4096 of the first Mistral."""
    return keys.count("sliding_window", None) if "sliding_window" in keys.data else 4096


def _qwen_windows(keys: Keys) -> tuple[int | None, ...]:
    used = keys.flag("use_sliding_window")
    window = _stated_window(keys) if used else None
    first = keys.read("max_window_layers", int, "a whole number", 28)
    listed = keys.read("layer_types", list, "a list with one entry a layer", None)
    if listed is None:
        return _windows(keys, lambda layer: window if layer >= first else None)
    if window is None and SLIDING in listed:
        raise keys.error("layer_types", f"{FULL!r} throughout, since use_sliding_window is false")
    return _windows(keys, lambda layer: window if listed[layer] == SLIDING else None)


def _windows(keys: Keys, window_of: Callable[[int], int | None]) -> tuple[int | None, ...]:
    """One window a layer, checked against `layer_types` where the file has it."""
    layers = keys.count("num_hidden_layers")
    listed = keys.read("layer_types", list, "a list with one entry a layer", None)
    known = [kind for kind in listed or () if kind in (FULL, SLIDING)]
    if listed is not None and not len(known) == len(listed) == layers:
        raise keys.error("layer_types", f"{layers} entries, each {FULL!r} or {SLIDING!r}")
    windows = tuple(window_of(layer) for layer in range(layers))
    if listed is not None:
        expected = [FULL if window is None else SLIDING for window in windows]
        if listed != expected:
            raise keys.error("layer_types", f"{expected!r}, as sliding_window and family say")
    return windows


PARSERS: dict[str, Callable[[Keys], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gpt2": _gpt2,
}

CLASSES = {
    "llama": ("LlamaForCausalLM", "LlamaModel"),
    "mistral": ("MistralForCausalLM", "MistralModel"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Model"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Model"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Model"),
}
