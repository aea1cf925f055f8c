"""The formula of the memory explorer, line by line, with the numbers of the setting filled in."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.memory_held import held_rule, layers_held, tokens_kept
from kvbook.explorers.scenes.words import bytes_exact, bytes_words, fixed, tokens_words, trimmed
from kvlib.costs.formulas import (
    heads_on_one,
    in_blocks,
    payload_only,
    token_bytes,
    vector_bytes,
    visible,
)
from kvlib.costs.reserves import group_size


def bits_words(bits: float) -> str:
    """The size of one number: '2 bytes', '1 byte', '1/2 byte'."""
    if bits < 8:
        return f"1/{fixed(8 / bits, 0)} byte"
    return "1 byte" if bits == 8 else f"{trimmed(bits / 8, 3)} bytes"


def group_name(g: dict[str, Any]) -> str:
    """What sets the layers of a group apart: '10 layers', '52 layers (window 1,024)'."""
    name = "1 layer" if g["count"] == 1 else f"{fixed(g['count'], 0)} layers"
    return f"{name} (window {fixed(g['window'], 0)})" if g["window"] > 0 else name


def token_line(g: dict[str, Any], codec: dict[str, Any]) -> str:
    """Bytes of one token in all layers of a group, factor by factor."""
    plain = payload_only(codec)
    total = g["count"] * vector_bytes(g["values"], g["vectors"], plain)
    size = bits_words(codec["bits"])
    if g["vectors"] == 1:
        rope = fixed(g["qk_dim"] - g["v_dim"], 0)
        dims = f"({fixed(g['v_dim'], 0)} latent + {rope} rope)"
        return f"{group_name(g)} \u00d7 {dims} \u00d7 {size} = {bytes_exact(total)} per token"
    heads = fixed(g["vectors"] / 2, 0)
    dims = f"{heads} kv heads \u00d7 {fixed(g['values'] / g['vectors'], 0)}"
    return f"2 \u00d7 {group_name(g)} \u00d7 {dims} \u00d7 {size} = {bytes_exact(total)} per token"


def scale_line(layers: list[dict[str, Any]], codec: dict[str, Any]) -> str:
    """Bytes of the scales of one token, in all layers."""
    total = token_bytes(layers, codec) - token_bytes(layers, payload_only(codec))
    count = 0.0
    for g in layers:
        groups = g["values"] / codec["group"] if codec["group"] > 0 else g["vectors"]
        count += g["count"] * groups
    each = "vectors"
    if codec["group"] > 0:
        each = f"groups of {fixed(codec['group'], 0)}"
    size = bits_words(codec["scale_bits"])
    return f"+ {trimmed(count, 1)} {each} \u00d7 {size} of scale = {bytes_exact(total)} per token"


def request_line(
    layers: list[dict[str, Any]], codec: dict[str, Any], context: float, stored: float
) -> str:
    """Bytes of one request: tokens times bytes, for each group of layers, and the residual."""
    terms: list[str] = []
    simple = 0.0
    for g in layers:
        tokens = visible(context, g["window"])
        each = g["count"] * vector_bytes(g["values"], g["vectors"], codec)
        terms.append(f"{tokens_words(tokens)} \u00d7 {bytes_exact(each)}")
        simple += tokens * each
    text = " + ".join(terms)
    if stored > simple:
        last = tokens_words(min(context, codec["residual"]))
        text = f"{text} + {bytes_exact(stored - simple)} more for the last {last}, kept in 16 bits"
    return f"{text} = {bytes_exact(stored)} per request"


def memory_formula(
    facts: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> list[str]:
    """All lines; `kv` has the bytes of the scene: stored, mine (one GPU), held, weights, bits."""
    gpus, batch, context = (
        settings["gpus"],
        settings["batch"],
        settings["context"],
    )
    layers = facts["layers"]
    lines = [token_line(g, codec) for g in layers]
    if codec["scale_bits"] > 0:
        lines.append(scale_line(layers, codec))
    if len(lines) > 1:
        lines.append(f"together {bytes_exact(token_bytes(layers, codec))} per token")
    kept = tokens_kept(layers, settings)
    if kept < context:
        lines.append(eviction_line(layers, settings, kept))
    stored = layers_held(layers, settings, "needed", 0)
    lines.append(request_line(stored, codec, context, kv["stored"]))
    if gpus > 1:
        lines.append(share_line(layers, gpus, kv["mine"]))
    each = kv["mine"]
    where = "on each GPU" if gpus > 1 else "in all"
    if kv["held"] > batch * each:
        each = kv["held"] / batch
        lines.append(f"{held_words(layers, settings)}: {bytes_exact(each)} per request")
    lines.append(
        f"{fixed(batch, 0)} \u00d7 {bytes_exact(each)} = {bytes_words(kv['held'], 1024)} {where}"
    )
    weights = f"{fixed(facts['parameters'], 0)} parameters \u00d7 {trimmed(kv['bits'], 2)} bits / 8"
    if gpus > 1:
        weights = f"{weights} / {fixed(gpus, 0)} GPUs"
    lines.append(f"{weights} = {bytes_words(kv['weights'], 1024)} of weights {where}")
    return lines


def eviction_line(layers: list[dict[str, Any]], settings: dict[str, Any], kept: float) -> str:
    """How many tokens of a request a layer without a window holds under a budget."""
    full = 0
    for g in layers:
        if g["window"] <= 0:
            full += g["count"]
    named = f"in each of {fixed(full, 0)} layers" if full > 1 else "in 1 layer"
    left = tokens_words(settings["budget"])
    return f"eviction leaves {left} {named}, and the step adds 1: {tokens_words(kept)}"


def held_words(layers: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """Why a request takes more than its tokens need."""
    block, rule = settings["block"], held_rule(layers, settings)
    context, tokens = settings["context"], tokens_kept(layers, settings)
    passed = False
    for g in layers:
        if g["window"] > 0 and g["window"] < context:
            passed = True
    if rule == "all" and passed:
        return f"if every layer holds {tokens_words(in_blocks(context, block))}"
    if rule == "vllm" and len(layers) > 1:
        size = fixed(group_size(layers), 0)
        return f"in vLLM's groups of {size} layers, in whole blocks of {tokens_words(block)}"
    if passed:
        return f"in blocks of {tokens_words(block)}, within which a window may begin"
    if tokens < context and max([g["window"] for g in layers]) > 0:
        return f"in whole blocks of {tokens_words(block)}"
    full = in_blocks(tokens, block)
    count = fixed(full / block, 0)
    return f"in whole blocks, {count} \u00d7 {fixed(block, 0)} = {tokens_words(full)}"


def share_line(layers: list[dict[str, Any]], gpus: float, mine: float) -> str:
    """What one of several GPUs holds of a request."""
    if layers[0]["vectors"] == 1:
        return f"the latent serves every head, so each GPU holds all of it: {bytes_exact(mine)}"
    heads = layers[0]["vectors"] / 2
    on_one = f"{fixed(heads_on_one(heads, gpus), 0)} on each"
    if gpus > heads:
        on_one = f"{on_one}, so that several GPUs hold the same"
    dealt = f"{fixed(heads, 0)} kv heads / {fixed(gpus, 0)} GPUs: {on_one}"
    return f"{dealt}, {bytes_exact(mine)} per request"
