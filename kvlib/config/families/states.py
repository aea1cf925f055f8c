"""Layers with a state beside a few of attention: Nemotron-H, Granite 4, Bamba, Jamba, Kimi Linear.

arXiv:2504.03624, arXiv:2403.19887, arXiv:2510.26692. Mamba-2 (arXiv:2405.21060) keeps a matrix
(head dim, state) for each head; delta attention a square one; both the inputs of convolutions. In
Kimi K3 (arXiv:2607.24653) a sublayer reads a mixture of what blocks of layers before have made.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from kvlib.config import parts, weights
from kvlib.config.families import Family, Names, classes, deepseek, minimax, wrapping
from kvlib.config.keys import Keys
from kvlib.config.shape import Layer, Shape
from kvlib.config.weights import block, convolution, latent, linear, mlp, norm, vector

KINDS = {
    **dict.fromkeys(("M", "mamba", "linear_attention"), "mamba"),
    **dict.fromkeys(("*", "attention", "full_attention"), "attention"),
    **dict.fromkeys(("-", "mlp"), "mlp"),
    **dict.fromkeys(("E", "moe"), "moe"),
}
WIDTH = "intermediate_size"  # of an expert, too
KINDS_IN = ("hybrid_override_pattern", "layer_types", "layers_block_type")
DRAFTED = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
NUMBERS, RESIDUAL = "a list of layer numbers from 1 on", ("norm", "proj")  # of Kimi
# with Mamba-2, other keys say these; and one key says how all layers compute
COMPUTES = ("expand", "time_step_rank", "chunk_size", "normalization_function")


def nemotron_h(keys: Keys) -> Shape:
    """A layer is one of Mamba-2, attention, MLP or experts."""
    keys.seen.update((*COMPUTES, *DRAFTED))
    kinds = _kinds(keys, "mlp", "moe")
    keys.data = {"num_hidden_layers": len(kinds), **keys.data}
    keys.only("num_hidden_layers", len(kinds), "as the list of layers says")
    head_dim = keys.count("head_dim" if "head_dim" in keys.data else "attention_head_dim")
    keys.only("attention_head_dim", head_dim, "as head_dim says")
    keys.only("n_shared_experts", 1, "moe_shared_expert_intermediate_size says their width")
    keys.only("mamba_proj_bias", False, "use_bias says it")
    keys.only("tie_word_embeddings", False, "the head has a matrix")
    mixed = None
    if "moe" in kinds:
        mixed = parts.mixture(
            keys,
            [i for i, kind in enumerate(kinds) if kind == "moe"],
            shared_width=keys.count("moe_shared_expert_intermediate_size"),
            router_bias=True,
            gated=False,
            latent_width=keys.count("moe_latent_size", 0),
        )
    else:  # transformers writes its defaults
        keys.seen.update(("moe_intermediate_size", "moe_shared_expert_intermediate_size"))
        keys.seen.update(("n_routed_experts", "num_experts_per_tok", "moe_latent_size"))
    fields: dict[str, Any] = dict(gated_mlp=False, head_dim=head_dim, experts=mixed)
    plain = parts.decoder(keys, windows=(0,) * len(kinds), **fields)
    names = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")
    mixers: dict[str, parts.Mixer] = {
        "mamba": _mamba2(keys, plain, "mixer", names, "use_conv_bias"),
        "attention": parts.grouped(plain),
        "mlp": (mlp(plain, plain.intermediate_size), ()),
        "moe": (weights.experts(plain.hidden_size, mixed) if mixed else [], ()),
    }
    first = norm(plain, "mixer_norm", "norm")
    made = {k: Layer((*first, *mixers[k][0]), mixers[k][1]) for k in kinds}
    return plain._replace(layers=tuple(made[kind] for kind in kinds), drafts=_drafts(keys, made))


def _drafts(keys: Keys, made: dict[str, Layer]) -> tuple[Layer, ...]:
    """Return the layers that draft tokens; () for more steps than published files have."""
    steps = keys.count("num_nextn_predict_layers", 0, least=0)
    kinds = _kinds(keys, "moe", names=DRAFTED) if any(map(keys.data.get, DRAFTED)) else []
    if steps != 1 or not kinds or not made.keys() >= set(kinds):
        return ()
    layers = [made[kind]._replace(name=f"mtp.layers.{i}") for i, kind in enumerate(kinds)]
    around = parts.joined(keys.count("hidden_size"), "eh_proj", "enorm", "hnorm", "final_layernorm")
    for i, more in ((0, around[:-1]), (-1, around[-1:])):
        layers[i] = layers[i]._replace(weights=(*more, *layers[i].weights))
    return tuple(layers)


def bamba(keys: Keys) -> Shape:
    numbers = parts.layer_numbers(keys, "attn_layer_indices", ())
    full = [i in numbers for i in range(keys.count("num_hidden_layers"))]
    return _beside_mlp(keys, full, mlp_bias=parts.flag("mlp_bias"))


def granite(keys: Keys) -> Shape:
    """Experts in all layers or in none, beside the MLP that all tokens share."""
    kinds, shared = _kinds(keys), keys.count("shared_intermediate_size")
    keys.only("num_hidden_layers", len(kinds), "as the list of layers says")
    keys.seen.update(("num_experts_per_tok", "intermediate_size", "position_embedding_type"))
    mixed = None
    if keys.count("num_local_experts", least=0):
        mixed = parts.mixture(keys, None, "num_local_experts", width=WIDTH, shared_width=shared)
    full = [kind == "attention" for kind in kinds]
    return _beside_mlp(keys, full, intermediate_size=shared, experts=mixed)


def _beside_mlp(keys: Keys, full: list[bool], **fields: Any) -> Shape:
    """Layers of Mamba-2 or, where `full`, of attention, each with an MLP or experts."""
    keys.seen.update(COMPUTES)
    bias = keys.flag("attention_bias")
    plain = parts.decoder(keys, windows=(0,) * len(full), bias=bias, **fields)
    inner = keys.count("mamba_expand", 2) * plain.hidden_size
    heads = keys.count("mamba_n_heads")
    if keys.data.get("mamba_d_head") in (None, "auto"):
        keys.data = {**keys.data, "mamba_d_head": inner // heads}
    keys.only("mamba_d_head", inner // heads, "mamba_expand * hidden_size / mamba_n_heads")
    if inner % heads:
        raise keys.error("mamba_n_heads", f"a divisor of mamba_expand * hidden_size ({inner})")
    names = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")
    projects = keys.flag("mamba_proj_bias")
    mamba = _mamba2(keys, plain, "mamba", names, "mamba_conv_bias", projects)
    attention = parts.grouped(plain)
    return parts.by_layer(plain, [attention if attends else mamba for attends in full])


def jamba(keys: Keys) -> Shape:
    """Every few layers attention, the others Mamba (arXiv:2312.00752); every few have experts."""
    layers = range(keys.count("num_hidden_layers"))
    every, first = keys.count("attn_layer_period"), keys.count("attn_layer_offset", least=0)
    period, offset = keys.count("expert_layer_period"), keys.count("expert_layer_offset", least=0)
    mixed = [i for i in layers if i % period == offset]
    keys.seen.add("num_experts_per_tok")
    routed = keys.count("num_experts") > 1 and mixed
    experts = parts.mixture(keys, mixed, "num_experts", width=WIDTH) if routed else None
    keys.only("mamba_inner_layernorms", True, "B, C and dt are normed")
    length = keys.count("max_position_embeddings", keys.count("n_ctx", 262_144))
    plain = parts.decoder(keys, experts=experts, max_position_embeddings=length)
    attention, mamba = parts.grouped(plain), _mamba1(keys, plain)
    return parts.by_layer(plain, [attention if i % every == first else mamba for i in layers])


def _mamba1(keys: Keys, plain: Shape) -> parts.Mixer:
    hidden, state = plain.hidden_size, keys.count("mamba_d_state")
    inner, kernel = keys.count("mamba_expand") * hidden, keys.count("mamba_d_conv")
    rank, bias = keys.data.get("mamba_dt_rank"), keys.flag("mamba_proj_bias")
    rank = -(-hidden // 16) if rank in (None, "auto") else keys.count("mamba_dt_rank")
    keys.seen.add("mamba_dt_rank")
    conv_bias = keys.flag("mamba_conv_bias", True)
    weights = [
        *linear("in_proj", {"mamba.in_proj": 2 * inner}, hidden, bias),
        *convolution({"mamba.conv1d": inner}, kernel, conv_bias),
        *linear("x_proj", {"mamba.x_proj": rank + 2 * state}, inner),
        *linear("dt_proj", {"mamba.dt_proj": inner}, rank, bias=True),
        vector("mamba.A_log", inner * state),
        vector("mamba.D", inner),
        *linear("out_proj", {"mamba.out_proj": hidden}, inner, bias),
        *(vector(f"mamba.{name}_layernorm", state) for name in "bc"),
        vector("mamba.dt_layernorm", rank),
    ]
    return parts.recurrent(weights, (inner, 1), inner * state, inner * (kernel - 1))


def _kinds(keys: Keys, *others: str, names: Sequence[str] = KINDS_IN) -> list[str]:
    """Return "mamba", "attention" or one of the others for each layer, in the words of KINDS."""
    known = {name for name, kind in KINDS.items() if kind in ("mamba", "attention", *others)}
    key = next((name for name in names if keys.data.get(name)), names[-1])
    pattern = isinstance(keys.data.get(key), str)
    kinds = keys.read(key, str if pattern else list, parts.LISTED, valid=bool)
    if any(not isinstance(kind, str) or kind not in known for kind in kinds):
        raise keys.error(key, f"layers that are each one of {', '.join(sorted(known))}")
    return [KINDS[kind] for kind in kinds]


def _mamba2(
    keys: Keys, plain: Shape, prefix: str, names: tuple[str, ...], conv: str, bias: bool = False
) -> parts.Mixer:
    """names: keys of heads, head dim, state, groups and kernel; conv: of the convolution's bias."""
    heads, head_dim, state, groups, kernel = map(keys.count, names)
    inner = heads * head_dim
    width = inner + 2 * groups * state
    rows = {f"{prefix}.in_proj": inner + width + heads}
    weights = [
        *linear("in_proj", rows, plain.hidden_size, bias),
        *convolution({f"{prefix}.conv1d": width}, kernel, keys.flag(conv, True)),
        *(vector(f"{prefix}.{name}", heads) for name in ("A_log", "D", "dt_bias")),
        vector(f"{prefix}.norm", inner),
        *linear("out_proj", {f"{prefix}.out_proj": plain.hidden_size}, inner, bias),
    ]
    each = parts.state_bytes(keys, "mamba_ssm_cache_dtype")
    return parts.recurrent(weights, (heads, groups), inner * state, width * (kernel - 1), each)


def kimi(keys: Keys) -> Shape:
    if keys.data.get("max_position_embeddings") is None:
        keys.data = {**keys.data, "max_position_embeddings": keys.count("model_max_length")}
    plain = deepseek.shape(keys)
    mixed = parts.mixture(
        keys,
        deepseek.after_dense(keys),
        "num_experts",
        "num_experts_per_token",
        shared=keys.count("num_shared_experts", 0, least=0),
        router_bias=True,
        latent_width=keys.count("routed_expert_hidden_size", 0),
    )
    plain, hidden = plain._replace(experts=mixed), plain.hidden_size
    inside = keys.inner("linear_attn_config", keys.read("linear_attn_config", dict, "an object"))
    layers = range(1, plain.num_hidden_layers + 1)
    full = inside.read("full_attn_layers", list, NUMBERS)
    delta = inside.read("kda_layers", list, NUMBERS)
    if any((i in full) == (i in delta) for i in layers):
        raise inside.error("kda_layers", "the layers that full_attn_layers doesn't name")
    sizes, heads = plain.latent, plain.num_attention_heads
    assert sizes is not None
    rows = {"self_attn.g_proj": heads * sizes.v_head_dim}
    gate = linear("gate", rows, hidden) if keys.flag("mla_use_output_gate") else []
    attention = [*latent(plain, sizes), *gate], (sizes.memory(heads),)
    mixers: dict[bool, parts.Mixer] = {True: attention, False: _delta(inside, hidden)}
    inside.refuse_others()
    residual = ("self_attention", "mlp") if keys.count("attn_res_block_size", 0) else ()
    extra = [vector(f"{name}_res_{part}", hidden) for name in residual for part in RESIDUAL]
    normed = [vector("block_sparse_moe.routed_expert_norm", mixed.latent_width)]
    normed = normed if keys.flag("latent_moe_use_norm") and mixed.latent_width else []

    @cache
    def layer(full: bool, routed: bool) -> Layer:
        experts = mixed._replace(layers=(0,) if routed else ())
        weights = block(plain._replace(experts=experts), 0, [*mixers[full][0]])
        return Layer((*weights, *extra, *(normed if routed else ())), mixers[full][1])

    last = tuple(vector(f"output_attn_res_{part}", hidden) for part in RESIDUAL)
    made = tuple(layer(i in full, i - 1 in mixed.layers) for i in layers)
    return plain._replace(layers=made, others=last if residual else ())


def _delta(inside: Keys, hidden: int) -> parts.Mixer:
    """A layer keeps a matrix for each head, and inputs of three convolutions."""
    heads, head_dim = inside.count("num_heads"), inside.count("head_dim")
    kernel, width = inside.count("short_conv_kernel_size"), heads * head_dim
    weights = [
        *linear("qkv", {f"self_attn.{name}_proj": width for name in "qkv"}, hidden),
        *convolution({f"self_attn.{name}_conv1d": width for name in "qkv"}, kernel),
        *linear("forget_in", {"self_attn.f_a_proj": head_dim}, hidden),
        *linear("forget_out", {"self_attn.f_b_proj": width}, head_dim),
        *linear("beta", {"self_attn.b_proj": heads}, hidden),
        *(vector(f"self_attn.{name}", n) for name, n in (("A_log", heads), ("dt_bias", width))),
        vector("self_attn.o_norm", head_dim),
        *linear("o", {"self_attn.o_proj": hidden}, width),
    ]
    if inside.flag("use_full_rank_gate"):
        weights += linear("gate", {"self_attn.g_proj": width}, hidden)
    else:
        weights += linear("gate_in", {"self_attn.g_a_proj": head_dim}, hidden)
        weights += linear("gate_out", {"self_attn.g_b_proj": width}, head_dim)
    return parts.recurrent(weights, (heads, heads), heads * head_dim**2, 3 * width * (kernel - 1))


NEMOTRON = Names(
    prefix="backbone.",
    respelled=(
        *(("self_attn.", "mixer."), ("mlp.", "mixer."), ("shared_expert.", "shared_experts.")),
        ("embed_tokens", "embeddings"),
    ),
)
BAMBA = Names(tensors={"router": "feed_forward.router"}, respelled=(("mlp.", "feed_forward."),))
GRANITE = Names(
    tensors={"router": "block_sparse_moe.router.layer"},
    respelled=(
        *(("mlp.shared_expert.", "mlp."), ("mlp.experts.", "block_sparse_moe.experts.")),
        ("mlp.", "shared_mlp."),
    ),
)
LACKS = "layers with a state"
KIMI = minimax.NAMES._replace(
    respelled=(
        *minimax.NAMES.respelled,
        ("mlp.fc1_latent_proj", "block_sparse_moe.routed_expert_down_proj"),
        ("mlp.fc2_latent_proj", "block_sparse_moe.routed_expert_up_proj"),
    )
)
KIMI_LINEAR = Family(classes("KimiLinear"), kimi, lacks=LACKS, names=KIMI)
FAMILIES = {
    "nemotron_h": Family(classes("NemotronH"), nemotron_h, lacks=LACKS, names=NEMOTRON),
    "bamba": Family(classes("Bamba"), bamba, lacks=LACKS, names=BAMBA),
    "granitemoehybrid": Family(classes("GraniteMoeHybrid"), granite, lacks=LACKS, names=GRANITE),
    "jamba": Family(classes("Jamba"), jamba, lacks=LACKS, names=BAMBA),
    "kimi_linear": KIMI_LINEAR,
    "kimi_k3": wrapping(KIMI_LINEAR, "kimi_linear", "KimiK3ForConditionalGeneration"),
}
