"""What kvlib's models are compared with: a whole decoder in float64, written out naively."""

import math
from typing import Any

import numpy as np

from kvlib.testing.oracle import Pair, attention, float64

__all__ = [
    "Pair", "activation", "attention", "decoder_logits", "float64", "rope_frequencies", "rotate",
]


def decoder_logits(config: Any, weights: dict[str, Any], tokens: list[int]) -> np.ndarray:
    """Logits (T, V) of a whole text, computed from nothing, in float64."""
    w = {name: float64(x) for name, x in weights.items()}
    heads, kv_heads, dim = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    scale = config.query_pre_attn_scalar
    scores = {
        "sm_scale": None if scale is None else 1 / math.sqrt(scale),
        "softcap": config.attn_logit_softcapping,
    }
    positions = np.arange(len(tokens))
    x = w["embed.weight"][list(tokens)] * config.embedding_scale
    if config.positions == "learned":
        x = x + w["pos_embed.weight"][positions]
    for i in range(config.num_hidden_layers):
        layer = {n.split(".", 2)[2]: a for n, a in w.items() if n.startswith(f"layers.{i}.")}
        h = _norm(config, x, layer, "attn_norm") if config.pre_norms else x
        qkv = _linear(h, layer, "qkv").reshape(len(tokens), heads + 2 * kv_heads, dim)
        q, k, v = np.split(qkv, [heads, heads + kv_heads], axis=1)
        if config.qk_norm:
            wide = (len(tokens), -1) if config.qk_norm_wide else (len(tokens), -1, dim)
            q, k = (
                _rms(config, a.reshape(wide), layer[f"{n}_norm.weight"]).reshape(a.shape)
                for a, n in ((q, "q"), (k, "k"))
            )
        if config.positions == "rope" and i not in config.unrotated:
            q, k = (rotate(a, positions, rope_frequencies(config.rope, dim)) for a in (q, k))
        o, _ = attention(q, k, v, positions, positions, window=config.windows[i], **scores)
        h = _linear(o.reshape(len(tokens), heads * dim), layer, "o")
        h = _norm(config, h, layer, "attn_post_norm") if config.post_norms else h
        x = x + config.residual_scale * h
        h = _mlp(config, _norm(config, x, layer, "mlp_norm") if config.pre_norms else x, layer)
        h = _norm(config, h, layer, "mlp_post_norm") if config.post_norms else h
        x = x + config.residual_scale * h
    x = _norm(config, x, w, "norm")
    logits = x @ w.get("lm_head.weight", w["embed.weight"]).T + w.get("lm_head.bias", 0.0)
    logits = config.logit_scale * logits
    cap = config.final_logit_softcapping
    return logits if cap is None else cap * np.tanh(logits / cap)


def rope_frequencies(rope: Any, dim: int) -> np.ndarray:
    """Angle a token for each of the D/2 pairs, a pair at a time, as the papers word it."""
    result = []
    for i in range(dim // 2):
        frequency = rope.theta ** (-2 * i / dim)
        if rope.kind == "linear":
            frequency /= rope.factor
        if rope.kind == "llama3":
            wavelength = 2 * math.pi / frequency
            length = rope.original_max_position_embeddings
            if wavelength > length / rope.low_freq_factor:
                frequency /= rope.factor
            elif wavelength > length / rope.high_freq_factor:
                part = length / wavelength - rope.low_freq_factor
                part /= rope.high_freq_factor - rope.low_freq_factor
                frequency = (1 - part) * frequency / rope.factor + part * frequency
        result.append(frequency)
    return np.asarray(result)


def rotate(x: np.ndarray, positions: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Pairs (i, i + D/2) as complex numbers, turned by e^(i · position · frequency)."""
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    turned = z * np.exp(1j * positions[:, None, None] * frequencies)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _linear(x: np.ndarray, layer: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ layer[f"{name}.weight"].T + layer.get(f"{name}.bias", 0.0)


def _rms(config: Any, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    if config.norm == "rms_1p":
        weight = weight + 1
    return weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_eps)


def _norm(config: Any, x: np.ndarray, layer: dict[str, np.ndarray], name: str) -> np.ndarray:
    weight = layer[f"{name}.weight"]
    if config.norm in ("rms", "rms_1p"):
        return _rms(config, x, weight)
    x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(
        x.var(axis=-1, keepdims=True) + config.norm_eps
    )
    return weight * x + layer[f"{name}.bias"]


def activation(name: str, x: np.ndarray) -> np.ndarray:
    """silu, gelu, or the tanh forms of gelu, an element at a time."""
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "relu":
        return np.maximum(x, 0.0)
    if name == "gelu":
        return np.vectorize(lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2)(x)
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _mlp(config: Any, h: np.ndarray, layer: dict[str, np.ndarray]) -> np.ndarray:
    if config.gated_mlp:
        gate, up = np.split(_linear(h, layer, "gate_up"), 2, axis=-1)
        return _linear(activation(config.hidden_act, gate) * up, layer, "down")
    return _linear(activation(config.hidden_act, _linear(h, layer, "up")), layer, "down")
