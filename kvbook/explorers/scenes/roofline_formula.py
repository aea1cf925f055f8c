"""The formulas of the roofline explorer, line by line, with the numbers of the setting in them."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.words import (
    bytes_words,
    count_words,
    fixed,
    large_words,
    number_words,
    scaled_words,
    seconds_words,
    tokens_words,
)
from kvlib.costs.formulas import experts_read, pairs


def intensity_words(x: float) -> str:
    """'3.98 FLOP/byte'."""
    return f"{number_words(x)} FLOP/byte"


def linear_lines(
    facts: dict[str, Any], settings: dict[str, Any], work: dict[str, float]
) -> list[str]:
    """Operations and bytes of the products with weights."""
    batch = settings["batch"]
    tokens = batch * work["fresh"]
    active = facts["product_weights"] + facts["experts_per_token"] * facts["expert_weights"]
    each = f"{tokens_words(tokens)} \u00d7 {large_words(active)} weights"
    rows = count_words(batch, "row", "rows")
    head = f"{rows} \u00d7 {large_words(facts['head_weights'])} of the output"
    read, nbytes = large_words(work["weight_bytes"] / 2), bytes_words(work["weight_bytes"], 1000)
    lines = [
        f"linear layers: 2 \u00d7 ({each} + {head}) = {scaled_words(work['linear_flops'], 'FLOP')}"
    ]
    line = f"weights read: {read} \u00d7 2 bytes = {nbytes}"
    if facts["experts"] > 0:
        used = experts_read(facts["experts"], facts["experts_per_token"], tokens)
        line = (
            f"{line} (on average {number_words(used)} of {fixed(facts['experts'], 0)} experts used)"
        )
    lines.append(line)
    return lines


def attention_line(g: dict[str, Any], settings: dict[str, Any], work: dict[str, float]) -> str:
    """Operations of attention in one group of layers."""
    fresh, seq = work["fresh"], settings["context"]
    dims = [g["qk_dim"], g["v_dim"]]
    if fresh >= seq:
        dims = [g["full_qk_dim"], g["full_v_dim"]]
    seen = pairs(fresh, seq, g["window"])
    each = f"{tokens_words(seen)} seen"
    if fresh > 1:
        each = f"{large_words(seen)} pairs of query and key"
    total = settings["batch"] * g["count"] * 2 * g["num_qo_heads"] * (dims[0] + dims[1]) * seen
    name = "attention" if g["window"] == 0 else f"attention, window {fixed(g['window'], 0)}"
    layers = f"{fixed(settings['batch'], 0)} \u00d7 {fixed(g['count'], 0)} layers"
    heads = (
        f"{fixed(g['num_qo_heads'], 0)} heads \u00d7 ({fixed(dims[0], 0)} + {fixed(dims[1], 0)})"
    )
    flops = scaled_words(total, "FLOP")
    return f"{name}: 2 \u00d7 {layers} \u00d7 {heads} \u00d7 {each} = {flops}"


def roofline_formula(
    facts: dict[str, Any],
    gpu: dict[str, Any],
    codec: dict[str, Any],
    settings: dict[str, Any],
    work: dict[str, float],
) -> list[str]:
    """All lines; `work` has the numbers of the scene."""
    lines = linear_lines(facts, settings, work)
    for g in facts["layers"]:
        lines.append(attention_line(g, settings, work))
        if g["vectors"] == 1 and work["fresh"] > 1 and work["fresh"] < settings["context"]:
            lines.append("(a prefix in the cache is attended to as latents, not expanded)")
    batch, kv = settings["batch"], bytes_words(work["kv_bytes"], 1000)
    if work["fresh"] >= settings["context"]:
        lines.append(f"keys and values, just computed, read in 16 bits: {kv}")
    elif work["kv_once"] > 0:
        own = (work["kv_bytes"] - work["kv_once"]) / batch
        lines.append(
            f"keys and values read in {codec['name']}: shared prefix of"
            f" {tokens_words(work['prefix'])} once, {bytes_words(work['kv_once'], 1000)},"
            f" + {fixed(batch, 0)} \u00d7 {bytes_words(own, 1000)} = {kv}"
        )
    else:
        each = bytes_words(work["kv_bytes"] / batch, 1000)
        lines.append(
            f"keys and values read in {codec['name']}: {fixed(batch, 0)} \u00d7 {each} = {kv}"
        )
    lines.append(f"new keys and values written: {bytes_words(work['kv_written'], 1000)}")
    rate, speed = scaled_words(gpu["bf16"], "FLOP/s"), bytes_words(gpu["bandwidth"], 1000)
    total, moved = scaled_words(work["flops"], "FLOP"), bytes_words(work["bytes"], 1000)
    lines.append(f"whole: {total} / {moved} = {intensity_words(work['whole'])}")
    lines.append(f"ridge: {rate} / {speed}/s = {intensity_words(work['ridge'])}")
    lines.append(
        f"time: the longer of {total} / {rate} = {seconds_words(work['compute'])}"
        f" and {moved} / {speed}/s = {seconds_words(work['memory'])}"
    )
    return lines
