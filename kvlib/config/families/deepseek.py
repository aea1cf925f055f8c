"""DeepSeek-V2 (arXiv:2405.04434): latent attention, and small experts beside shared ones.

Kimi K2 (arXiv:2507.20534) is a DeepSeek-V3 (arXiv:2412.19437). In V3.2 (arXiv:2512.02556) and GLM-5
an indexer chooses the tokens that a query attends to. V4 stores one entry, the key and value of all
heads, for each token of a window and, in most layers, one for 4 or 128 tokens.
"""

from functools import cache, partial
from typing import Any

from kvlib.config import parts, rope
from kvlib.config.families import NUMBERED, Conversion, Family, Names, classes
from kvlib.config.keys import Keys
from kvlib.config.shape import Experts, Latent, Layer, Memory, Router, Shape, Weight
from kvlib.config.weights import block, latent, linear, vector

# tokens of an entry of V4; 0 for none but the window's
KINDS = {"sliding_attention": 0, "compressed_sparse_attention": 4}
KINDS["heavily_compressed_attention"] = 128
RATIOS = (*KINDS.values(),)


def shape(keys: Keys, **fields: Any) -> Shape:
    dims = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    for key in ("q_lora_rank", "n_routed_experts", "n_shared_experts"):
        if key not in keys.data and keys.model_type != "kimi_linear":  # then it is not 0
            raise keys.error(key, "a whole number, or null")
    sizes = Latent(keys.count("q_lora_rank", None), *map(keys.count, dims))
    # what transformers derives and writes back
    keys.seen.add("head_dim")
    keys.only("qk_head_dim", sizes.qk_head_dim, "qk_nope_head_dim + qk_rope_head_dim")
    plain = parts.decoder(
        keys,
        num_key_value_heads=keys.count("num_key_value_heads", keys.count("num_attention_heads")),
        head_dim=sizes.qk_head_dim,
        latent=sizes,
        bias=parts.flag("attention_bias"),
        experts=_experts(keys),
        **fields,
    )
    return parts.drafting(keys, plain)


def _experts(keys: Keys) -> Experts | None:
    # a dense one keeps the keys of a mixture
    keys.seen.update(("n_shared_experts", "num_experts_per_tok", "moe_intermediate_size"))
    keys.seen.update(("first_k_dense_replace", "moe_layer_freq"))
    if keys.count("n_routed_experts", None) is None:
        return None
    mixed = after_dense(keys)
    layers = range(keys.count("num_hidden_layers"))
    kinds = ["sparse" if i in mixed else "dense" for i in layers]
    keys.only("mlp_layer_types", kinds, "as first_k_dense_replace says")
    shared = keys.count("n_shared_experts", 0, least=0)
    # V3 balances its experts with a bias for each, which training moves (arXiv:2412.19437)
    return parts.mixture(keys, mixed, shared=shared, router_bias=keys.model_type != "deepseek_v2")


def after_dense(keys: Keys) -> range:
    """Return the layers with experts: every few after the first ones."""
    first, every = keys.count("first_k_dense_replace", least=0), keys.count("moe_layer_freq", 1)
    return range(-(-first // every) * every, keys.count("num_hidden_layers"), every)


def sparse(keys: Keys, **copies: Any) -> Shape:
    """Layers with an indexer, or, in GLM-5.2, with the tokens that a layer before has chosen."""
    queries, layers = keys.count("q_lora_rank"), keys.count("num_hidden_layers")
    parts.layer_kinds(keys, "layer_types", ("indexed_attention", "deepseek_sparse_attention"), [])
    plain = shape(keys, windows=(0,) * layers)
    sizes, heads = plain.latent, plain.num_attention_heads
    index, index_heads = keys.count("index_head_dim"), keys.count("index_n_heads")
    chosen, name = keys.count("index_topk"), "self_attn.indexer."
    assert sizes is not None
    rows = {f"{name}wq_b": index_heads * index}
    indexer = [
        *linear("indexer_q", rows, queries),
        *linear("indexer_k", {f"{name}wk": index}, plain.hidden_size),
        *linear("indexer_weights", {f"{name}weights_proj": index_heads}, plain.hidden_size),
        *(vector(f"{name}k_norm{part}", index) for part in ("", ".bias")),
    ]
    attention = latent(plain, sizes)
    full = [*attention, *indexer], (sizes.memory(heads, index=index, chosen=chosen),)
    shared = attention, (sizes.memory(heads, chosen=chosen),)
    kinds = ["full"] * layers
    if keys.model_type == "glm_moe_dsa":
        if keys.data.get("indexer_types") is None:
            keys.only("index_topk_freq", 1, "indexer_types says which layers have an indexer")
            keys.only("index_topk_pattern", None, "indexer_types says it")
        keys.seen.update(("index_topk_freq", "index_topk_pattern", "index_skip_topk_offset"))
        kinds = parts.layer_kinds(keys, "indexer_types", ("full", "shared"), kinds)
    last = Layer(tuple(block(plain, layers - 1, full[0])), full[1])
    plain = parts.drafting(keys, plain, last, **copies)
    return parts.by_layer(plain, [full if kind == "full" else shared for kind in kinds])


def kimi(keys: Keys) -> Shape:
    """Return the decoder of Kimi K2.5, whose files call it by either name."""
    inner = keys.data.get("text_config")
    named = isinstance(inner, dict) and inner.get("model_type") == "deepseek_v3"
    return parts.wrapped(keys, "deepseek_v3" if named else "kimi_k2", shape)


def forward_fields(keys: Keys) -> dict[str, Any]:
    """Pairs (2i, 2i + 1) of a rotated part are neighbours in the files; `TENSORS` parts them."""
    keys.only("rope_interleave", True, "neighbouring dimensions are rotated together")
    fields, factor = parts.llama_fields(keys), rope.score_factor(keys)
    if factor != 1.0:
        width = keys.count("qk_nope_head_dim") + keys.count("qk_rope_head_dim")
        fields["query_pre_attn_scalar"] = width / factor**2
    if keys.data.get("n_routed_experts") is None:
        # a dense one keeps the keys of a mixture
        keys.seen.update(("n_group", "topk_group", "topk_method", "scoring_func"))
        keys.seen.update(("routed_scaling_factor", "norm_topk_prob"))
    elif keys.model_type == "deepseek_v2":
        fields.update(router=_router_of_v2(keys), norm_topk_prob=False)
    else:
        fields.update(parts.sigmoid_router(keys, 8, 4, 2.5))
    return fields


def _router_of_v2(keys: Keys) -> Router:
    known = ("greedy", "group_limited_greedy")
    needed = "one of " + ", ".join(known)
    # transformers leaves the shares as they are whatever this says, DeepSeek's own code does not
    keys.only("norm_topk_prob", False, "programs differ in what they make of true")
    method = keys.read("topk_method", str, needed, "greedy", known.__contains__)
    scaling = keys.number("routed_scaling_factor", 1.0)
    if method == "greedy":
        keys.seen.update(("n_group", "topk_group"))
        return Router(scaling=scaling)
    return Router(False, keys.count("n_group"), keys.count("topk_group"), scaling)


def _apart(start: int, width: int) -> list[int]:
    """Numbers start, start + 1, ...: every second one from the first on, then the others."""
    return [start + i for first in (0, 1) for i in range(first, width, 2)]


def _queries(values: Any, config: Any) -> Any:
    c, order = config.latent, list[int]()
    for head in range(config.num_attention_heads):
        start = head * c.qk_head_dim
        order += range(start, start + c.qk_nope_head_dim)
        order += _apart(start + c.qk_nope_head_dim, c.qk_rope_head_dim)
    return values[order]


def _latents(values: Any, config: Any) -> Any:
    rank = config.latent.kv_lora_rank
    return values[[*range(rank), *_apart(rank, config.latent.qk_rope_head_dim)]]


# `kvlib.model.rope` rotates number i with number i + R / 2. Queries and keys in another order have
# the same products, so the rows that make them are put in the order that it wants.
TENSORS: dict[str, str | Conversion] = {
    "q": Conversion("self_attn.q_proj", _queries),
    "q_up": Conversion("self_attn.q_b_proj", _queries),
    "kv_down": Conversion("self_attn.kv_a_proj_with_mqa", _latents),
    "router.bias": "mlp.gate.e_score_correction_bias",
}
V2 = Names(tensors=TENSORS, respelled=(("mlp.shared_expert.", "mlp.shared_experts."),))
# V3's files hold one layer more, which guesses the token after the next
V3 = V2._replace(buffers=rf"{V2.buffers}|layers\.LAYERS\..*")
KIMI = "KimiK25ForConditionalGeneration"
GLM = partial(sparse, tables=())  # whose files hold no copies of tables


def v4(keys: Keys) -> Shape:
    keys.seen.add("qk_rope_head_dim")
    keys.only("num_key_value_heads", 1, "an entry is the key and value of all heads")
    keys.only("n_shared_experts", 1, "the shared MLP is as wide as an expert")
    layers, mixed = keys.count("num_hidden_layers"), parts.mixture(keys, shared=1)
    plain = parts.decoder(
        keys,
        head_dim=parts.count("head_dim"),
        intermediate_size=parts.count("moe_intermediate_size"),
        windows=(keys.count("sliding_window"),) * layers,
        experts=mixed,
    )
    ratios, hashed = _as_written(keys)
    drafts = keys.count("num_nextn_predict_layers", 0, least=0)
    if len(ratios) not in (layers, layers + drafts) or any(r not in RATIOS for r in ratios):
        raise keys.error("compress_ratios", f"{layers} entries, each one of {RATIOS}")
    # a table, and no bias, says which experts a token has in the first layers
    hidden, copies = plain.hidden_size, keys.count("hc_mult")
    extra = [w for name in ("attn", "ffn") for w in _mixing(f"hc_{name}", hidden, copies)]

    @cache
    def layer(ratio: int, bias: bool) -> Layer:
        weights, memories = _attention(keys, plain, ratio)
        routed = plain._replace(experts=mixed._replace(router_bias=bias))
        return Layer((*block(routed, 0, [*weights]), *extra), memories)

    made = [layer(ratio, i >= hashed) for i, ratio in enumerate(ratios)]
    head = linear("hc_head_fn", {"hc_head_fn": copies}, copies * hidden)
    others = (*head, vector("hc_head_base", copies), vector("hc_head_scale", 1))
    # a layer that drafts has two projections and three norms, and shares the tables
    around = [w for name in ("e_proj", "h_proj") for w in linear(name, {name: hidden}, hidden)]
    around += [*(vector(name, hidden) for name in ("enorm", "hnorm", "norm")), *others]
    named = [Layer((*around, *w), m, f"mtp.{i}") for i, (w, m, _) in enumerate(made[layers:])]
    return plain._replace(layers=tuple(made[:layers]), others=others, drafts=tuple(named))


def _as_written(keys: Keys) -> tuple[list[int], int]:
    """Return the ratios, and how many layers choose by a table, also as transformers writes it."""
    keys.only("compress_rates", {kind: ratio for kind, ratio in KINDS.items() if ratio}, "as known")
    ratios = [KINDS[kind] for kind in parts.layer_kinds(keys, "layer_types", [*KINDS], [])]
    mixtures = parts.layer_kinds(keys, "mlp_layer_types", ("hash_moe", "moe"), [])
    keys.only("mlp_layer_types", sorted(mixtures), "the first layers have the table")
    hashed = mixtures.count("hash_moe") if mixtures else keys.count("num_hash_layers", least=0)
    keys.only("num_hash_layers", hashed, "as mlp_layer_types says")
    stated: list[int] = keys.read("compress_ratios", list, parts.LISTED, ratios)
    if stated[: len(ratios)] != ratios:
        raise keys.error("compress_ratios", "as layer_types says")
    return stated, hashed


def _attention(keys: Keys, plain: Shape, ratio: int) -> parts.Mixer:
    heads, head_dim, hidden = plain.num_attention_heads, plain.head_dim, plain.hidden_size
    rank, groups = keys.count("q_lora_rank"), keys.count("o_groups")
    if heads % groups:
        raise keys.error("o_groups", f"a divisor of num_attention_heads ({heads})")
    out = groups * keys.count("o_lora_rank")
    weights = [
        *linear("q_down", {"attn.wq_a": rank}, hidden),
        *linear("q_up", {"attn.wq_b": heads * head_dim}, rank),
        *linear("kv", {"attn.wkv": head_dim}, hidden),
        *linear("o_down", {"attn.wo_a": out}, heads * head_dim // groups),
        *linear("o_up", {"attn.wo_b": hidden}, out),
        *(vector(f"attn.{name}_norm", size) for name, size in (("q", rank), ("kv", head_dim))),
        vector("attn.attn_sink", heads),
    ]
    index = keys.count("index_head_dim")
    index_heads, chosen = keys.count("index_n_heads"), keys.count("index_topk")
    entry = Latent(None, head_dim, head_dim, 0, head_dim)
    memories = [entry.memory(heads, window=plain.windows[0])]
    if not ratio:
        return weights, tuple(memories)
    made = [("attn.compressor", head_dim)]
    if ratio == 4:
        made.append(("attn.indexer.compressor", index))
        weights += linear("index_q", {"attn.indexer.wq_b": index_heads * index}, rank)
        weights += linear("index_weights", {"attn.indexer.weights_proj": index_heads}, hidden)
        memories.append(entry.memory(heads, every=ratio, index=index, chosen=chosen))
    else:
        memories.append(entry.memory(heads, every=ratio))
    series = 2 if ratio == 4 else 1  # entries of 4 tokens also take in the 4 before
    for name, size in made:
        rows = series * size
        weights += linear(f"{name}_kv", {f"{name}.wkv": rows}, hidden)
        weights += linear(f"{name}_gate", {f"{name}.wgate": rows}, hidden)
        weights += [vector(f"{name}.ape", ratio * rows), vector(f"{name}.norm", size)]
    # two vectors of each token that no entry has yet and, with two series, of the entry before
    size = sum(size for _, size in made)
    waiting = 2 * size * (series * (ratio - 1) + (series - 1) * ratio)
    memories.append(Memory.of(heads, 1, 0, state=2 * waiting))
    return weights, tuple(memories)


def _mixing(name: str, hidden: int, copies: int) -> list[Weight]:
    rows = copies * (2 + copies)
    matrix = linear(f"{name}_fn", {f"{name}_fn": rows}, copies * hidden)
    return [*matrix, vector(f"{name}_base", rows), vector(f"{name}_scale", 3)]


V4_NAMES = Names(
    prefix="",
    respelled=(
        *(("mlp.", "ffn."), ("shared_expert.", "shared_experts."), *NUMBERED),
        *(("embed_tokens", "embed"), ("lm_head", "head")),
    ),
)
V4 = Family(classes("DeepseekV4"), v4, lacks="compressed entries", names=V4_NAMES)
FAMILIES = {
    "deepseek_v2": Family(classes("DeepseekV2"), shape, forward_fields, names=V2),
    "deepseek_v3": Family(classes("DeepseekV3"), shape, forward_fields, names=V3),
    "kimi_k2": Family(classes("DeepseekV3"), shape, forward_fields, names=V3),
    "kimi_k25": Family((KIMI,), kimi, lacks="its text decoder alone", names=V3),
    "deepseek_v32": Family(classes("DeepseekV32"), sparse, lacks="an indexer", names=V3),
    "glm_moe_dsa": Family(classes("GlmMoeDsa"), GLM, lacks="an indexer", names=V3),
    "deepseek_v4": V4,
    "deepseek_ref": V4,
}
