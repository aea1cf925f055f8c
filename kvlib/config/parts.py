"""What several families of config.json state alike: sizes, windows, experts."""

from __future__ import annotations

from typing import Any

from kvlib.config.keys import Keys
from kvlib.config.shape import Experts, Shape

FULL, SLIDING = "full_attention", "sliding_attention"
LISTED = "a list with one entry a layer"


def decoder(keys: Keys, *, tied: bool = False, **fields: Any) -> Shape:
    """What Llama and its descendants share; `fields` are what a family has of its own."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    family = keys.model_type
    if "head_dim" not in fields:
        head_dim = keys.count("head_dim", None)
        if head_dim is None and hidden % heads:
            needed = f"a multiple of num_attention_heads ({heads}), or head_dim"
            raise keys.error("hidden_size", needed)
        fields["head_dim"] = head_dim or hidden // heads
    if "num_key_value_heads" not in fields:
        if family not in ("llama", "phi3") and "num_key_value_heads" not in keys.data:
            # the first Llama and Phi-3 files alone have no grouped heads and no key for them
            raise keys.error("num_key_value_heads", "a whole number of at least 1")
        kv_heads = keys.count("num_key_value_heads", heads)
        if heads % kv_heads:
            raise keys.error("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
        fields["num_key_value_heads"] = kv_heads
    if "windows" not in fields:
        keys.only("sliding_window", None, f"{family} has no window")
        fields["windows"] = uniform(keys, 0)
    return Shape(
        model_type=family,
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.count("intermediate_size"),
        num_hidden_layers=keys.count("num_hidden_layers"),
        num_attention_heads=heads,
        max_position_embeddings=keys.count("max_position_embeddings"),
        tie_word_embeddings=keys.flag("tie_word_embeddings", tied),
        **fields,
    )


def routing(keys: Keys, count: str) -> tuple[int, int]:
    """Experts, and how many of them a token passes."""
    experts, chosen = keys.count(count), keys.count("num_experts_per_tok")
    if chosen > experts:
        raise keys.error("num_experts_per_tok", f"at most {count} ({experts})")
    return experts, chosen


def qwen_experts(keys: Keys, shared: int) -> Experts:
    """Qwen's mixture: every `decoder_sparse_step`-th layer but those in `mlp_only_layers`."""
    step = keys.count("decoder_sparse_step", 1)
    needed = "a list of layer numbers"
    dense = keys.read("mlp_only_layers", list, needed, [])
    if any(isinstance(i, bool) or not isinstance(i, int) for i in dense):
        raise keys.error("mlp_only_layers", needed)
    count, chosen = routing(keys, "num_experts")
    layers = range(keys.count("num_hidden_layers"))
    mixed = tuple(i for i in layers if i not in dense and (i + 1) % step == 0)
    width = keys.count("moe_intermediate_size")
    return Experts(count, chosen, width, mixed, shared_width=shared, shared_gate=shared > 0)


# ------------------------------------------------------------------------------------ windows


def window(keys: Keys, default: int) -> int:
    """`sliding_window`: 0 where it is null, the family's own default where it is absent."""
    if "sliding_window" not in keys.data:
        return default
    return keys.count("sliding_window", 0)


def uniform(keys: Keys, size: int) -> tuple[int, ...]:
    """The same window in every layer."""
    found = (size,) * keys.count("num_hidden_layers")
    stated = listed(keys, size or None)
    if stated is not None and stated != found:
        kind = SLIDING if size else FULL
        raise keys.error("layer_types", f"{kind!r} throughout, as sliding_window says")
    return found


def listed(keys: Keys, size: int | None) -> tuple[int, ...] | None:
    """Windows as `layer_types` lists them, `size` in the sliding layers; None without the key."""
    kinds = keys.read("layer_types", list, LISTED, None)
    if kinds is None:
        return None
    layers = keys.count("num_hidden_layers")
    known = (FULL, SLIDING) if size else (FULL,)
    if len(kinds) != layers or any(kind not in known for kind in kinds):
        names = " or ".join(repr(kind) for kind in known)
        raise keys.error("layer_types", f"{layers} entries, each {names}")
    return tuple((size or 0) if kind == SLIDING else 0 for kind in kinds)


def qwen_windows(keys: Keys) -> tuple[int, ...]:
    """A window from `max_window_layers` on if `use_sliding_window`, or as `layer_types` lists."""
    used = keys.flag("use_sliding_window")
    size = window(keys, 4096) if used else 0
    keys.seen.add("sliding_window")
    layers = keys.count("num_hidden_layers")
    if not used and SLIDING in keys.read("layer_types", list, LISTED, []):
        needed = f"{FULL!r} throughout, since use_sliding_window is false"
        raise keys.error("layer_types", needed)
    stated = listed(keys, size or None)
    if stated is not None:
        return stated
    first = keys.count("max_window_layers", 28, least=0)
    return tuple(size if i >= first else 0 for i in range(layers))


def moe_windows(keys: Keys) -> tuple[int, ...]:
    """Published mixtures of Qwen have no window, and how one would lie differs by version."""
    if keys.flag("use_sliding_window") and keys.data.get("layer_types") is None:
        raise keys.error("use_sliding_window", "false, or layer_types beside it")
    return qwen_windows(keys)


def gemma_hybrid(keys: Keys, every: int, default: int, **fields: Any) -> Shape:
    """Gemma 2 and 3: every `every`-th layer sees all, the others a window; four norms a layer."""
    size = window(keys, default)
    layers, bias = keys.count("num_hidden_layers"), keys.flag("attention_bias")
    windows = listed(keys, size or None)
    if windows is None:
        windows = tuple(0 if (i + 1) % every == 0 else size for i in range(layers))
    return decoder(
        keys,
        tied=True,
        windows=windows,
        post_norms=True,
        qkv_bias=bias,
        o_bias=bias,
        **fields,
    )
