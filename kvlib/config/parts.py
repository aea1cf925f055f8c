"""What several families of config.json state alike: sizes, experts, windows, the forward pass."""

from typing import Any

from kvlib.config import rope
from kvlib.config.keys import ACTIVATIONS, Keys
from kvlib.config.ranges import EXPERTS, WHOLE
from kvlib.config.rope import FULL, SLIDING
from kvlib.config.shape import Shape

LISTED = "a list with one entry a layer"


def decoder(
    keys: Keys, *, tied: bool = False, bias: bool = False, multi_head: bool = False, **fields: Any
) -> Shape:
    """Return what Llama and its descendants share; `fields` are what only this family has.

    tied is what a file without `tie_word_embeddings` means, bias that of q, k, v and o. multi_head:
    a file without `num_key_value_heads` has one for each query head.
    """
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    family = keys.model_type
    if "head_dim" not in fields:
        head_dim = keys.count("head_dim", None)
        if head_dim is None and hidden % heads:
            needed = f"a multiple of num_attention_heads ({heads}), or head_dim"
            raise keys.error("hidden_size", needed)
        fields["head_dim"] = head_dim or hidden // heads
    if "num_key_value_heads" not in fields:
        if not multi_head and "num_key_value_heads" not in keys.data:
            raise keys.error("num_key_value_heads", "a whole number of at least 1")
        kv_heads = keys.count("num_key_value_heads", heads)
        if heads % kv_heads:
            raise keys.error("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
        fields["num_key_value_heads"] = kv_heads
    if "max_position_embeddings" not in fields:
        fields["max_position_embeddings"] = rope.longest(keys)
    if "windows" not in fields:
        if keys.data.get("use_sliding_window") is False or keys.data.get("sliding_window") == 0:
            keys.seen.add("sliding_window")  # it says that there is none
        else:
            keys.only("sliding_window", None, f"{family} has no window")
        fields["windows"] = uniform(keys, 0)
    return Shape(
        model_type=family,
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("intermediate_size"),
        num_hidden_layers=keys.count("num_hidden_layers"),
        num_attention_heads=heads,
        tie_word_embeddings=keys.flag("tie_word_embeddings", tied),
        **{"qkv_bias": bias, "o_bias": bias, **fields},
    )


def routing(keys: Keys, count: str) -> tuple[int, int]:
    """Return the numbers of experts, by `count` or `num_local_experts`, and of a token's."""
    if count not in keys.data and "num_local_experts" in keys.data:
        count = "num_local_experts"
    experts, chosen = keys.count(count), keys.count("num_experts_per_tok")
    if chosen > experts:
        raise keys.error("num_experts_per_tok", f"at most {count} ({experts})")
    layers = keys.count("num_hidden_layers")
    if experts * layers > EXPERTS:
        raise keys.error(count, f"at most {EXPERTS:,} experts in {layers} layers together")
    return experts, chosen


def window(keys: Keys, default: int) -> int:
    """Return `sliding_window`: 0 where it is null, the family's default where it is absent."""
    if keys.data.get("sliding_window", default):
        keys.only("use_sliding_window", True, "sliding_window alone says it")
    if "sliding_window" not in keys.data:
        keys.not_left_out("sliding_window")
        return default
    return keys.count("sliding_window", 0)


def uniform(keys: Keys, size: int) -> tuple[int, ...]:
    """Return the same window in every layer."""
    windows = (size,) * keys.count("num_hidden_layers")
    stated = listed(keys, size)
    if stated is not None and stated != windows:
        kind = SLIDING if size else FULL
        raise keys.error("layer_types", f"{kind!r} throughout, as sliding_window says")
    return windows


def listed(keys: Keys, size: int) -> tuple[int, ...] | None:
    """Return windows by `layer_types`, `size` in the sliding layers; None without the key."""
    kinds = keys.read("layer_types", list, LISTED, None)
    if kinds is None:
        return None
    layers = keys.count("num_hidden_layers")
    known = (FULL, SLIDING) if size else (FULL,)
    if len(kinds) != layers or any(kind not in known for kind in kinds):
        names = " or ".join(repr(kind) for kind in known)
        raise keys.error("layer_types", f"{layers} entries, each {names}")
    return tuple(size if kind == SLIDING else 0 for kind in kinds)


def llama_fields(keys: Keys) -> dict[str, Any]:
    """Return the forward pass of Llama and most of its descendants: RMSNorm, RoPE, a gated MLP."""
    return {**common_fields(keys), "rope": rope.read_rope(keys)}


def common_fields(
    keys: Keys,
    act_key: str = "hidden_act",
    act: str = "silu",
    eps_key: str = "rms_norm_eps",
    eps: float = 1e-6,
) -> dict[str, Any]:
    """Return the activation, the eps of norms, and end tokens; `act` and `eps` are the defaults."""
    needed = f"one of {', '.join(ACTIVATIONS)}"
    name = keys.read(act_key, str, needed, act, lambda name: name in (*ACTIVATIONS, "swish"))
    bos = token_ids(keys, "bos_token_id")
    return {
        "norm_eps": keys.number(eps_key, eps),
        "hidden_act": "silu" if name == "swish" else name,  # one function by two names
        "bos_token_id": bos[0] if bos else None,
        "eos_token_ids": token_ids(keys, "eos_token_id"),
    }


def token_ids(keys: Keys, key: str) -> tuple[int, ...]:
    """Return one id, a list of ids or null, as a tuple."""
    value = keys.data.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    for token in values:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= WHOLE:
            raise keys.error(key, "a token id, a list of token ids or null")
    return tuple(values)
