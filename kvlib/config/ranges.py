"""How large each number of a model may be; a key that is not listed has WHOLE or REAL."""

import math
from operator import index

from kvlib.config import words

LAYERS, WIDTH, POSITIONS = 1_000, 2**22, 2**31 - 1
EXPERTS = 2**15  # in all layers together; DeepSeek-V3 has 14,848
WHOLE = 2**31 - 1
REAL = (1e-30, 1e30)
COUNT = 10**15  # requests, tokens or GPUs; the products of a few such numbers are still floats

# whole numbers: the most
MOST = {
    "vocab_size": 2**24,
    # Llama 3.1 405B has 126 layers; a file of kvlib's families with 1,000 would be a deep one
    **dict.fromkeys(("num_hidden_layers", "n_layer", "first_k_dense_replace"), LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "q_lora_rank", "kv_lora_rank"), WIDTH),
    **dict.fromkeys(("intermediate_size", "n_inner", "moe_intermediate_size"), WIDTH),
    "shared_expert_intermediate_size": WIDTH,
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head"), 2**14),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim"), 2**14),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 2**14),
    **dict.fromkeys(("num_experts_per_tok", "n_shared_experts"), 2**14),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "sliding_window"), POSITIONS),
    "original_max_position_embeddings": POSITIONS,
}

# other numbers: the least and the most
BETWEEN = {
    **dict.fromkeys(("rope_theta", "rope_local_base_freq"), (1e-3, 1e18)),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "norm_eps"), (1e-30, 1.0)),
    **dict.fromkeys(("layer_norm_epsilon", "norm_epsilon"), (1e-30, 1.0)),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct"), (1e-3, 1.0)),
    **dict.fromkeys(("factor", "low_freq_factor", "high_freq_factor"), (1e-6, 1e6)),
    **dict.fromkeys(("beta_fast", "beta_slow"), (1e-6, 1e6)),
    **dict.fromkeys(("attention_factor", "mscale", "mscale_all_dim"), (1e-3, 1e3)),
    **dict.fromkeys(("swiglu_limit", "swiglu_alpha"), (1e-3, 1e6)),
    "routed_scaling_factor": (1e-6, 1e6),
    "query_pre_attn_scalar": (1e-6, 1e9),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (1e-6, 1e9)),
    "embedding_scale": (1e-9, 1e9),
}


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
