"""What several families of config.json state alike: sizes, experts, windows, the forward pass."""

from collections.abc import Callable, Sequence
from typing import Any

from kvlib.config import rope
from kvlib.config.keys import ACTIVATIONS, Keys
from kvlib.config.ranges import EXPERTS, WHOLE
from kvlib.config.rope import FULL, SLIDING
from kvlib.config.shape import Experts, Layer, Memory, Router, Shape, Weight
from kvlib.config.weights import block, grouped_query, layer_weights, linear, vector

# keys of layers that guess further tokens
DRAFTS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
LISTED = "a list with one entry a layer"
# families in which no key says how long a head is
SQUARE = {"gpt_neox", "falcon", "opt", "stablelm"}
SQUARE |= {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def decoder(
    keys: Keys, *, tied: bool = False, bias: Any = False, multi_head: bool = False, **fields: Any
) -> Shape:
    """Return what Llama and its descendants share; `fields` are what only this family has.

    tied is what a file without `tie_word_embeddings` means, bias that of q, k, v and o. multi_head:
    a file without `num_key_value_heads` has one for each query head. A field may be a function that
    reads it, such as `flag("attention_bias")`.
    """
    bias = bias(keys) if callable(bias) else bias
    fields = {name: read(keys) if callable(read) else read for name, read in fields.items()}
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    family = keys.model_type
    if "head_dim" not in fields:
        head_dim = keys.count("head_dim", None)
        if head_dim is None and hidden % heads:
            needed = f"a multiple of num_attention_heads ({heads}), or head_dim"
            raise keys.error("hidden_size", needed)
        fields["head_dim"] = head_dim or hidden // heads
        if family in SQUARE:
            keys.only("head_dim", hidden // heads, "hidden_size / num_attention_heads")
    if "num_key_value_heads" not in fields:
        if not multi_head and "num_key_value_heads" not in keys.data:
            raise keys.error("num_key_value_heads", "a whole number of at least 1")
        kv_heads = keys.count("num_key_value_heads", heads)
        fields["num_key_value_heads"] = divided(keys, "num_key_value_heads", heads, kv_heads)[1]
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
        intermediate_size=fields.pop("intermediate_size", None) or keys.count("intermediate_size"),
        num_hidden_layers=keys.count("num_hidden_layers"),
        num_attention_heads=heads,
        tie_word_embeddings=keys.flag("tie_word_embeddings", tied),
        uncounted=tuple(key for key in DRAFTS if keys.data.get(key)),
        **{"qkv_bias": bias, "o_bias": bias, **fields},
    )


def flag(key: str, default: bool = False) -> Callable[[Keys], bool]:
    return lambda keys: keys.flag(key, default)


def count(key: str, *default: int) -> Callable[[Keys], int]:
    return lambda keys: keys.count(key, *default)


def attention(shape: Shape, layer: int) -> Memory:
    """Return the memory of a layer as the uniform fields say it."""
    window, latent, heads = shape.windows[layer], shape.latent, shape.num_attention_heads
    if latent is None:
        return Memory.of(heads, shape.num_key_value_heads, shape.head_dim, window=window)
    return latent.memory(heads, window=window)


Mixer = tuple[Sequence[Weight], tuple[Memory, ...]]  # its weights, and what it keeps


def grouped(
    shape: Shape,
    heads: int = 0,
    kv_heads: int = 0,
    head_dim: int = 0,
    v_dim: int | None = None,
    extra: Sequence[Weight] = (),
    gate: bool = False,
    **memory: int,
) -> Mixer:
    """Return attention with heads of these sizes, or the shape's; `extra` are further weights."""
    heads, kv_heads = heads or shape.num_attention_heads, kv_heads or shape.num_key_value_heads
    sizes = heads, kv_heads, head_dim or shape.head_dim, v_dim
    return [*grouped_query(shape, *sizes, gate=gate), *extra], (Memory.of(*sizes, **memory),)


def recurrent(
    weights: Sequence[Weight], heads: tuple[int, int], numbers: int, inputs: int, each: int = 4
) -> Mixer:
    """Return a mixer that keeps a state of `numbers`, of `each` bytes, and convolutions' inputs."""
    return weights, (Memory.of(*heads, 0, state=each * numbers + 2 * inputs),)


def state_bytes(keys: Keys, key: str) -> int:
    """Return the bytes of a number of a state; float32 where the file doesn't say it."""
    return STATE_BYTES[keys.read(key, str, "float32", "float32", STATE_BYTES.__contains__)]


def by_layer(shape: Shape, mixers: Sequence[Mixer]) -> Shape:
    """Return the shape with these mixers, one for each layer; norms and MLPs are as it says.

    Pass the same object for layers that are alike, which are then counted once.
    """
    mixed = frozenset(shape.experts.layers if shape.experts else ())
    made: dict[tuple[int, bool], Layer] = {}
    for i, (weights, memories) in enumerate(mixers):
        kind = id(mixers[i]), i in mixed
        if kind not in made:
            made[kind] = Layer(tuple(block(shape, i, list(weights))), memories)
    return shape._replace(layers=tuple(made[id(m), i in mixed] for i, m in enumerate(mixers)))


def joined(hidden: int, projection: str, *norms: str) -> list[Weight]:
    """Return what makes one vector of an embedding and a hidden state; files keep it in 16 bits."""
    weights = linear(projection, {projection: hidden}, 2 * hidden)
    return [weights[0]._replace(linear=False), *(vector(name, hidden) for name in norms)]


def drafting(
    keys: Keys,
    shape: Shape,
    layer: Layer | None = None,
    tables: Sequence[str] = ("embed_tokens", "shared_head.head"),
    parts: Sequence[str] = ("eh_proj", "enorm", "hnorm", "shared_head.norm"),
    name: str = "",
) -> Shape:
    """Return the shape with the layers that draft tokens, as in DeepSeek-V3 (arXiv:2412.19437).

    layer   each of them, beside `parts`, a projection and norms; the last uniform one if None
    tables  copies of the model's tables that files hold beside each layer. They count among the
            weights, as they are stored, and not among those that a token is multiplied by
    """
    count, last = keys.count("num_nextn_predict_layers", 0, least=0), shape.num_hidden_layers - 1
    rows, hidden = shape.vocab_size, shape.hidden_size
    copies = (Weight(f"embed_{t}.weight", (rows, hidden), {t: rows}) for t in tables)
    layer = layer or Layer(tuple(layer_weights(shape, last)), (attention(shape, last),))
    layer = layer._replace(weights=(*joined(hidden, *parts), *copies, *layer.weights))
    return shape._replace(drafts=tuple(layer._replace(name=name.format(i)) for i in range(count)))


TOWERS = ("vision_config", "audio_config", "sound_config", "vision_encoder_config")
# how images and sounds become tokens
TOKENS = (
    *("ignore_index", "use_unified_vision_chunk", "video_placeholder", "image_placeholder"),
    *("spatial_merge_size", "vision_feature_layer", "vision_feature_select_strategy"),
    *("multimodal_projector_bias", "projector_hidden_act", "projector_hidden_size"),
    *("understand_projector_stride", "projector_bias", "image_token_len", "patch_token_len"),
    *("mm_tokens_per_image", "vision_soft_tokens_per_image", "audio_soft_tokens_per_image"),
    *("img_token_compression_config", "image_grid_pinpoints", "image_seq_length"),
    *("process_image_mode", "language_model_only", "projection_hidden_size"),
    "projection_layer_norm_eps",
)


def wrapped(keys: Keys, inner_type: str, shape: Callable[[Keys], Shape]) -> Shape:
    """Return the shape of the text decoder that a multimodal model wraps; its towers don't count.

    The decoder's keys are in text_config, whose model_type, if it states one, is inner_type.
    """
    towers = tuple(key for key in TOWERS if keys.data.get(key))
    keys.seen.update((*TOWERS, *TOKENS))
    text = keys.read("text_config", dict, "an object with the text decoder's keys")
    inner = {"model_type": inner_type, **text}
    if keys.data.get("tie_word_embeddings") is not None:  # what transformers goes by
        inner["tie_word_embeddings"] = keys.flag("tie_word_embeddings")
    keys.text = inside = keys.inner("text_config", inner)
    inside.only("model_type", inner_type, f"the decoder of {keys.model_type}")
    inside.model_type = inner_type
    sizes = shape(inside)
    sizes = sizes._replace(uncounted=(*towers, *sizes.uncounted))
    inside.refuse_others(sizes)
    return sizes


def respelled(keys: Keys, **names: str) -> None:
    """Let sizes that the file states by these names be read by Llama's."""
    for key, name in names.items():
        if name in keys.data:
            size = keys.count(name)
            keys.only(name, keys.data.get(key, size), f"{key} says it")
            keys.data = {**keys.data, key: size}


def routing(keys: Keys, count: str, chosen: str = "num_experts_per_tok") -> tuple[int, int]:
    """Return the numbers of experts, by `count` or `num_local_experts`, and of a token's."""
    if count not in keys.data and "num_local_experts" in keys.data:
        count = "num_local_experts"
    experts, per_token = keys.count(count), keys.count(chosen)
    if per_token > experts:
        raise keys.error(chosen, f"at most {count} ({experts})")
    layers = keys.count("num_hidden_layers")
    if experts * layers > EXPERTS:
        raise keys.error(count, f"at most {EXPERTS:,} experts in {layers} layers together")
    return experts, per_token


def mixture(
    keys: Keys,
    layers: Sequence[int] | None = None,
    count: str = "n_routed_experts",
    chosen: str = "num_experts_per_tok",
    width: str = "moe_intermediate_size",
    shared: int = 0,
    **fields: Any,
) -> Experts:
    """Return the experts of these layers, or of all, with an MLP as wide as `shared` of them."""
    numbers, size = routing(keys, count, chosen), keys.count(width)
    mixed = range(keys.count("num_hidden_layers")) if layers is None else layers
    return Experts(*numbers, size, tuple(mixed), **{"shared_width": shared * size, **fields})


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
    known = (FULL, SLIDING) if size else (FULL,)
    kinds = layer_kinds(keys, "layer_types", known, [])
    return tuple(size if kind == SLIDING else 0 for kind in kinds) or None


def pattern(keys: Keys, every: int, most: Any, last: Any) -> list[Any]:
    """Return `last` for every `every`-th layer, and `most` for the others."""
    layers = range(1, keys.count("num_hidden_layers") + 1)
    return [most if i % every else last for i in layers]


def sliding(keys: Keys, default: int = 0, every: int = 0) -> tuple[int, ...]:
    """Return the same window in all layers or, with `every`, in those that `layer_types` lists.

    Where a file doesn't list them, every `every`-th layer sees all tokens.
    """
    size = window(keys, default)
    if not every:
        return uniform(keys, size)
    return listed(keys, size) or tuple(pattern(keys, every, size, 0))


def layer_kinds(keys: Keys, key: str, known: Sequence[str], default: list[str]) -> list[str]:
    """Return the kind of each layer, as a list in the file says it, or `default`."""
    layers = keys.count("num_hidden_layers")
    kinds: list[str] = keys.read(key, list, LISTED, default)
    if kinds is default:
        return kinds
    if len(kinds) != layers or any(kind not in known for kind in kinds):
        raise keys.error(key, f"{layers} entries, each {' or '.join(map(repr, known))}")
    return kinds


def layer_flags(keys: Keys, key: str, default: Sequence[int] = ()) -> list[int]:
    """Return a list of 0 and 1, one for each layer; without a default the file must have it."""
    layers = keys.count("num_hidden_layers")
    flags: list[int] = keys.read(key, list, LISTED, default)
    known = all(isinstance(flag, int) and flag in (0, 1) for flag in flags)
    if len(flags) != layers or not known:
        raise keys.error(key, f"{layers} entries, each 0 or 1")
    return flags


def layer_numbers(keys: Keys, key: str, default: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of some layers, as a list in the file says them, or `default`."""
    needed = "a list of layer numbers"
    numbers = keys.read(key, list, needed, default)
    if any(isinstance(i, bool) or not isinstance(i, int) for i in numbers):
        raise keys.error(key, needed)
    some = frozenset(numbers)
    return tuple(i for i in range(keys.count("num_hidden_layers")) if i in some)


def divided(keys: Keys, key: str, heads: int, kv_heads: int) -> tuple[int, int]:
    """Return both numbers of heads if each head of keys has as many query heads."""
    if heads % kv_heads:
        raise keys.error(key, f"a divisor of num_attention_heads ({heads})")
    return heads, kv_heads


def llama_fields(
    keys: Keys, theta: float = 1e4, partial: float | None = None, **common: Any
) -> dict[str, Any]:
    """Return the forward pass of Llama and most of its descendants: RMSNorm, RoPE, a gated MLP.

    theta, partial: defaults as of `read_rope`; common: arguments of `common_fields`.
    """
    return {**common_fields(keys, **common), "rope": rope.read_rope(keys, theta, partial)}


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


def sigmoid_router(
    keys: Keys, groups: int = 1, best: int = 1, scaling: float = 1.0
) -> dict[str, Any]:
    """Return the router of DeepSeek-V3 and its descendants; the numbers are the defaults."""
    keys.only("scoring_func", "sigmoid", f"{keys.model_type} scores each expert alone")
    keys.only("topk_method", "noaux_tc", f"{keys.model_type} chooses with a bias for each expert")
    groups, best = keys.count("n_group", groups), keys.count("topk_group", best)
    router = Router(True, groups, best, keys.number("routed_scaling_factor", scaling))
    return {"router": router, "norm_topk_prob": keys.flag("norm_topk_prob", True)}


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
