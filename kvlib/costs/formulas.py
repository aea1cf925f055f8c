"""Every formula of the bill, on plain numbers (one file, because one file becomes JavaScript).

The sliders of the rendered book run these very functions, translated (tools/build_explorers.py), so
they keep to a small language: numbers, lists, dicts, loops.

`layers` is a list of dicts, one for each group of layers that are alike:

    count         layers in the group
    window        tokens a query sees, itself included; 0 for all
    values        numbers of a stored entry in one layer: 2 H_kv D, or with MLA its latent vector
    vectors       how many vectors those are: 2 H_kv, or 1 with MLA
    every         tokens that an entry is made of
    index         those of its numbers by which an indexer chooses entries
    chosen        entries that a query reads at most; 0 for all
    state         bytes of a request in one layer, whatever its length
    num_qo_heads, qk_dim, v_dim     query heads, and the lengths of what they multiply and sum
    full_qk_dim, full_v_dim         the same in a prefill, where MLA expands its latent vectors

`codec` is a `kvlib.costs.Format` as a dict. A multiplication or an addition is an operation, so a
product of T rows with N weights costs 2 T N.
"""

from typing import Any, TypeAlias

Facts: TypeAlias = dict[str, Any]
Layers: TypeAlias = list[Facts]


def whole(value: float) -> float:
    """The smallest whole number not below `value` (which is not negative)."""
    return -((-value) // 1)


def visible(position: float, window: float) -> float:
    """Keys that the token at 1-based `position` sees: all up to itself, or the last `window`."""
    return min(position, window) if window > 0 else position


def triangle(n: float) -> float:
    """1 + 2 + ... + n."""
    return n * (n + 1) / 2


def pairs(fresh: float, seq: float, window: float) -> float:
    """(query, key) pairs that causal attention needs for the last `fresh` of `seq` tokens."""
    if window <= 0 or seq <= window:
        return triangle(seq) - triangle(seq - fresh)
    short = max(0, window - (seq - fresh))  # queries that see less than a whole window
    return triangle(seq - fresh + short) - triangle(seq - fresh) + (fresh - short) * window


def vector_bytes(values: float, vectors: float, codec: Facts) -> float:
    """Bytes of one token in one layer, its scales included, each part in whole bytes."""
    groups = values / codec["group"] if codec["group"] > 0 else vectors
    if codec["scale_bits"] == 0:
        groups = 0
    return whole(values * codec["bits"] / 8) + whole(groups * codec["scale_bits"] / 8)


def token_bytes(layers: Layers, codec: Facts) -> float:
    """Bytes that one more token adds while no window is full (and no residual is kept)."""
    total = 0.0
    for g in layers:
        total += g["count"] * vector_bytes(g["values"], g["vectors"], codec) / g["every"]
    return total


def group_bytes(g: Facts, codec: Facts, entries: float) -> float:
    """Bytes of `entries` entries in all layers of a group, the last of them in 16 bits."""
    plain = min(entries, codec["residual"])
    coded = (entries - plain) * vector_bytes(g["values"], g["vectors"], codec)
    return g["count"] * (coded + plain * g["values"] * 2)  # type: ignore[no-any-return]


def stored_bytes(layers: Layers, codec: Facts, seq: float) -> float:
    """Bytes that one request of `seq` tokens needs: what a window has passed is forgotten."""
    return reserved_bytes(layers, codec, seq, 0)


def in_blocks(tokens: float, block: float) -> float:
    """Tokens that whole blocks of `block` take to hold `tokens`; block 0 counts single tokens."""
    return whole(tokens / block) * block if block > 1 else tokens


def reserved_bytes(layers: Layers, codec: Facts, seq: float, block: float) -> float:
    """Bytes of the whole blocks that hold one request of `seq` tokens."""
    total = 0.0
    for g in layers:
        entries = visible(seq, g["window"]) // g["every"]
        total += group_bytes(g, codec, in_blocks(entries, block)) + g["count"] * g["state"]
    return total


def state_bytes(layers: Layers) -> float:
    """Bytes of one request that do not depend on its length."""
    total = 0.0
    for g in layers:
        total += g["count"] * g["state"]
    return total


def longest(layers: Layers, codec: Facts, block: float, batch: float, budget: float) -> float:
    """The most tokens of each of `batch` requests in `budget` bytes together, up to 2^40."""
    if batch * reserved_bytes(layers, codec, 1, block) > budget:
        return 0
    low, high = 1, 2**40
    if batch * reserved_bytes(layers, codec, high, block) <= budget:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if batch * reserved_bytes(layers, codec, middle, block) <= budget:
            low = middle
        else:
            high = middle
    return low


def experts_read(experts: float, chosen: float, tokens: float) -> float:
    """Experts that at least one of `tokens` tokens chooses, on average, if all are as likely."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def weights_read(facts: Facts, tokens: float) -> float:
    """Weights that a pass over `tokens` tokens reads: all products, and the experts in use.

    The embedding counts only where the output product shares it.
    """
    read = facts["product_weights"] + facts["head_weights"]
    if facts["experts"] > 0:
        used = experts_read(facts["experts"], facts["experts_per_token"], tokens)
        read += used * facts["expert_weights"]
    return read


def linear_flops(facts: Facts, tokens: float, rows: float) -> float:
    """Operations of all products with weights for `tokens` tokens, `rows` of which want logits."""
    active = facts["product_weights"] + facts["experts_per_token"] * facts["expert_weights"]
    return 2 * (tokens * active + rows * facts["head_weights"])


def head_dims(g: Facts, fresh: float, seq: float) -> float:
    """Numbers of a head's query and output; a prefill has them expanded."""
    if fresh >= seq and fresh > 1:
        return g["full_qk_dim"] + g["full_v_dim"]  # type: ignore[no-any-return]
    return g["qk_dim"] + g["v_dim"]  # type: ignore[no-any-return]


def attention_flops(layers: Layers, fresh: float, seq: float) -> float:
    """Operations of causal attention for the last `fresh` of `seq` tokens of one request."""
    total = 0.0
    for g in layers:
        dims = head_dims(g, fresh, seq)
        seen = pairs(fresh, seq, attended(g)) / g["every"]
        total += g["count"] * 2 * g["num_qo_heads"] * dims * seen
    return total


def attended(g: Facts) -> float:
    """The most tokens that a query attends to, through entries of `every` tokens; 0 for all."""
    most = g["chosen"] * g["every"]
    if g["window"] > 0 and (most <= 0 or g["window"] < most):
        return g["window"]  # type: ignore[no-any-return]
    return most  # type: ignore[no-any-return]


def attended_bytes(layers: Layers, codec: Facts, fresh: float, seq: float) -> float:
    """Bytes of the keys and values that `fresh` tokens ending at `seq` attend to, read once."""
    total = 0.0
    for g in layers:
        tokens = min(seq, g["window"] + fresh - 1) if g["window"] > 0 else seq
        entries = tokens // g["every"]
        read = min(entries, g["chosen"] + fresh - 1) if g["chosen"] > 0 else entries
        index = (entries - read) * vector_bytes(g["index"], 1, codec)
        total += group_bytes(g, codec, read) + g["count"] * (index + g["state"])
    return total


def activation_bytes(layers: Layers, fresh: float, seq: float) -> float:
    """Bytes of queries and outputs of attention, 16 bits per number; in no floor."""
    total = 0.0
    for g in layers:
        total += g["count"] * fresh * g["num_qo_heads"] * head_dims(g, fresh, seq) * 2
    return total


def pass_work(
    facts: Facts,
    codec: Facts,
    weight_bits: float,
    batch: float,
    fresh: float,
    seq: float,
    shared: float,
) -> dict[str, float]:
    """Operations and bytes of one forward pass over `batch` requests of `seq` tokens each.

    The last `fresh` tokens of each are computed; of the others, the first `shared` are read once
    for all. Weights, stored keys and values are read once, new ones written.
    """
    layers, tokens = facts["layers"], batch * fresh
    kv_read = 0.0
    if fresh < seq or fresh <= 1:
        kv_read = batch * attended_bytes(layers, codec, fresh, seq)
        if batch > 1 and shared > 0:
            kv_read -= (batch - 1) * shared_saving(layers, codec, fresh, seq, shared)
    else:  # a prefill reads what it has just computed, in 16 bits (of MLA the latents)
        for g in layers:
            kv_read += batch * g["count"] * (seq // g["every"]) * g["values"] * 2
    kv_written = tokens * token_bytes(layers, codec) + batch * state_bytes(layers)
    return {
        "linear_flops": linear_flops(facts, tokens, batch),
        "weight_bytes": weights_read(facts, tokens) * weight_bits / 8,
        "attention_flops": batch * attention_flops(layers, fresh, seq),
        "kv_bytes": kv_read,
        "kv_written": kv_written,
        "activation_bytes": batch * activation_bytes(layers, fresh, seq),
    }


def shared_saving(layers: Layers, codec: Facts, fresh: float, seq: float, shared: float) -> float:
    """Bytes that one request need not read because another reads the `shared` prefix for it."""
    total = 0.0
    for g in layers:
        first = max(0, seq - fresh + 1 - g["window"]) if g["window"] > 0 else 0
        entries = max(0, min(shared, seq - codec["residual"]) - first) // g["every"]
        if g["chosen"] > 0:
            entries = min(entries, g["chosen"])
        total += g["count"] * entries * vector_bytes(g["values"], g["vectors"], codec)
    return total


def uncached_flops(facts: Facts, prompt: float, fresh: float) -> dict[str, float]:
    """Operations to generate `fresh` tokens after `prompt`, all recomputed, the output head too."""
    passes, attention = 0.0, 0.0
    for i in range(int(fresh)):
        passes += prompt + i
        attention += attention_flops(facts["layers"], prompt + i, prompt + i)
    linear = linear_flops(facts, passes, passes)
    return {"tokens": passes, "linear": linear, "attention": attention}


def cached_flops(facts: Facts, prompt: float, fresh: float) -> dict[str, float]:
    """The same with a cache: each token is computed once, and attends, with MLA, to latents."""
    passes = prompt + fresh - 1
    attention = attention_flops(facts["layers"], prompt, prompt)
    attention += attention_flops(facts["layers"], fresh - 1, passes)
    return {"tokens": passes, "linear": linear_flops(facts, passes, passes), "attention": attention}


def seconds(flops: float, nbytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The roofline: as slow as the slower of the two sides (doi:10.1145/1498765.1498785)."""
    return max(flops / flops_per_s, nbytes / bytes_per_s)


def tokens_to_amortise(low: float, high: float, once: float) -> float:
    """New tokens from which paying `once` saves: n high > n low + once (MLA's crossover)."""
    return once / (high - low)


def layers_on_one(layers: Layers, gpus: float) -> Layers:
    """The part of `layers` that each of `gpus` holds under tensor parallelism.

    Heads repeat on more devices than heads; MLA's latent vector is on all (arXiv:2412.19437).
    """
    part: Layers = []
    for g in layers:
        values, vectors = g["values"], g["vectors"]
        if vectors > 1:
            vectors = 2 * whole(g["vectors"] / 2 / gpus)
            values = (g["values"] - g["index"]) / g["vectors"] * vectors + g["index"]
        heads, state = whole(g["num_qo_heads"] / gpus), whole(g["state"] / gpus)
        one = {"values": values, "vectors": vectors, "num_qo_heads": heads, "state": state}
        same = ["count", "window", "qk_dim", "v_dim", "full_qk_dim", "full_v_dim"]
        for name in same + ["every", "index", "chosen"]:
            one[name] = g[name]
        part.append(one)
    return part


def batched_time(tokens: float, ridge: float) -> float:
    """The time of a step without attention, in times of reading the 16-bit weights once."""
    return max(1, tokens / ridge)
