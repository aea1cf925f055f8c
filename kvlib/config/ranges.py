"""How large each number of a model may be; a key that is not listed has WHOLE or REAL."""

import math
from operator import index

from kvlib.config import words

LAYERS, WIDTH, POSITIONS = 1_000, 2**22, 2**31 - 1
EXPERTS = 2**17  # in all layers together; Kimi K3 has 82,432
WHOLE = 2**31 - 1
REAL = (1e-30, 1e30)
COUNT = 10**15  # requests, tokens or GPUs; the products of a few such numbers are still floats

# whole numbers: the most, and the keys. Llama 3.1 405B has 126 layers
_MOST = {
    2**24: "vocab_size",
    LAYERS: "num_hidden_layers n_layer first_k_dense_replace",
    WIDTH: "hidden_size n_embd q_lora_rank kv_lora_rank intermediate_size n_inner ffn_dim n_embed "
    "moe_intermediate_size shared_expert_intermediate_size intermediate_size_mlp share_expert_dim "
    "ffn_hidden_size",
    2**14: "num_attention_heads num_key_value_heads n_head num_kv_heads head_dim v_head_dim "
    "qk_nope_head_dim qk_rope_head_dim num_local_experts num_experts n_routed_experts "
    "num_experts_per_tok n_shared_experts moe_num_experts",
    POSITIONS: "max_position_embeddings n_positions sliding_window "
    "original_max_position_embeddings",
    64: "altup_num_inputs",
    16: "num_nextn_predict_layers mtp_num_hidden_layers",
}
MOST = {key: most for most, keys in _MOST.items() for key in keys.split()}

# other numbers: the least and the most, and the keys
_BETWEEN = {
    (1e-3, 1e18): "rope_theta rope_local_base_freq rotary_emb_base",
    (1e-30, 1.0): "rms_norm_eps layer_norm_eps norm_eps layer_norm_epsilon norm_epsilon",
    (1e-3, 1.0): "partial_rotary_factor rotary_pct",
    (1e-6, 1e6): "factor low_freq_factor high_freq_factor beta_fast beta_slow "
    "routed_scaling_factor",
    (1e-3, 1e3): "attention_factor mscale mscale_all_dim ffn_mult",
    (1e-3, 1e6): "swiglu_limit swiglu_alpha",
    (1e-6, 1e9): "query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping",
    (1e-9, 1e9): "embedding_scale residual_scale logit_scale embedding_multiplier "
    "residual_multiplier",
    (1e-4, 1e4): "attention_multiplier logits_scaling",
}
BETWEEN = {key: bounds for bounds, keys in _BETWEEN.items() for key in keys.split()}


def most(key: str) -> int:
    """Return the largest whole number that the key may hold."""
    return MOST.get(key, WHOLE)


def between(key: str) -> tuple[float, float]:
    """Return the least and the largest number that the key may hold."""
    return BETWEEN.get(key, REAL)


def count(name: str, value: object, least: int = 1, most: int = COUNT) -> int:
    """Return the value as an int from `least` to `most`; TypeError or ValueError for any other."""
    needed = f"a whole number of at least {least}"
    try:
        if type(value).__name__.startswith("bool"):  # NumPy 2.0 takes its own bool as an index
            raise TypeError
        integer = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {words.shown(value)}, needed: {needed}") from None
    if not least <= integer <= most:
        needed = needed if integer < least else f"at most {most:,}"
        raise ValueError(f"{name} is {words.shown(value)}, needed: {needed}")
    return integer


def number(name: str, value: object, key: str) -> None:
    """Raise ValueError for what is no finite number above 0, or outside the range of the key."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    least, most = between(key)
    if not good or not 0 < value < math.inf:  # type: ignore[operator]
        needed = "a number above 0"
    elif not least <= value <= most:  # type: ignore[operator]
        needed = f"a number from {least:g} to {most:g}"
    else:
        return
    raise ValueError(f"{name} is {words.shown(value)}, needed: {needed}")


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Raise ValueError for what is none of the names that are known."""
    if value not in known:
        raise ValueError(f"{name} is {words.shown(value)}, needed: one of {', '.join(known)}")
