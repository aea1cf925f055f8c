"""Small random models of every kind."""

from typing import Any

import numpy as np

from kvlib import Decoder, ModelConfig
from kvlib.model import RopeConfig, random_weights

SMALL: dict[str, Any] = dict(
    vocab_size=31, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=48,
)
KINDS: dict[str, dict[str, Any]] = {
    "llama": dict(),
    "llama3": dict(
        rope=RopeConfig(500.0, "llama3", 8.0, 1.0, 4.0, original_max_position_embeddings=16),
        tie_word_embeddings=True,
    ),
    "linear rope": dict(rope=RopeConfig(kind="linear", factor=2.0), num_key_value_heads=4),
    "mistral": dict(windows=(5, 5), num_key_value_heads=1),
    "hybrid": dict(windows=(3, None, 7), num_hidden_layers=3),
    "qwen2": dict(qkv_bias=True, tie_word_embeddings=True),
    "qwen3": dict(qk_norm=True, head_dim=10),
    "gemma2": dict(
        norm="rms_1p", post_norms=True, windows=(5, None), query_pre_attn_scalar=20.0,
        attn_logit_softcapping=1.5, final_logit_softcapping=4.0, embedding_scale=24**0.5,
        hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True,
    ),
    "gpt2": dict(
        norm="layer", norm_eps=1e-5, positions="learned", hidden_act="gelu_new", gated_mlp=False,
        qkv_bias=True, o_bias=True, mlp_bias=True, tie_word_embeddings=True, num_key_value_heads=4,
    ),
    "olmo": dict(pre_norms=False, post_norms=True, qk_norm=True, qk_norm_wide=True),
    "granite": dict(
        unrotated=(0,), residual_scale=0.6, embedding_scale=1.5, logit_scale=0.8, head_bias=True,
        hidden_act="relu",
    ),
    "gelu": dict(hidden_act="gelu", mlp_bias=True, num_hidden_layers=1),
}


def config(kind: str, **changes: Any) -> ModelConfig:
    return ModelConfig(model_type=kind, **{**SMALL, **KINDS[kind], **changes})


def decoder(kind, seed=0, xp=np, dtype=None, tokenizer=None, **changes) -> Decoder:
    c = config(kind, **changes)
    return Decoder(c, random_weights(c, seed, xp=xp, dtype=dtype), tokenizer)


def text(seed: int, length: int) -> list[int]:
    """Random token ids of the small vocabulary."""
    return np.random.default_rng(seed).integers(0, SMALL["vocab_size"], length).tolist()
