"""Behind the memory explorer: what one GPU holds, and how the cache grows with the context.

All bytes are counted in 1024s (KiB, MiB, GiB), as the tools that watch a GPU do.
"""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.memory_formula import memory_formula
from kvbook.explorers.scenes.memory_held import held_rule, layers_held
from kvbook.explorers.scenes.memory_panels import memory_bar, memory_curve
from kvbook.explorers.scenes.memory_words import RESERVE, memory_numbers, memory_summary
from kvbook.explorers.scenes.words import count_words, fixed, tokens_words
from kvlib.costs.formulas import (
    layers_keeping_all,
    layers_on_one,
    longest,
    payload_only,
    requests_that_fit,
    reserved_bytes,
    stored_bytes,
    weight_bytes_on_one,
)
from kvlib.costs.reserves import layers_reserved

WEIGHT_BITS = {"bfloat16": 16, "int8": 8, "int4-g128": 4.25}


def memory_scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
    """settings: model, gpu, gpus, batch, context, weights, kv, block (0 or 1: single tokens),
    held (what layers with a window hold: a rule of kvlib.costs.reserves), budget (tokens that
    eviction leaves in a layer without a window, 0 for all)."""
    facts = tables["models"][settings["model"]]
    gpu = tables["gpus"][settings["gpu"]]
    codec = tables["codecs"][settings["kv"]]
    kv = memory_bytes(facts, gpu, codec, settings)
    where = f"one {gpu['title']}"
    if settings["gpus"] > 1:
        where = f"{fixed(settings['gpus'], 0)} \u00d7 {gpu['title']}"
    requests = count_words(settings["batch"], "request", "requests")
    title = f"{facts['title']} on {where}: {requests} of {tokens_words(settings['context'])}"
    return {
        "title": title,
        "summary": memory_summary(facts, gpu, settings, kv),
        "formula": memory_formula(facts, codec, settings, kv),
        "numbers": memory_numbers(facts, codec, settings, kv),
        "panels": [memory_bar(gpu, settings, kv), memory_curve(facts, codec, settings, kv)],
    }


def memory_bytes(
    facts: dict[str, Any], gpu: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    """Every number of the scene, in bytes of one GPU if not said otherwise."""
    batch, context, block = settings["batch"], settings["context"], settings["block"]
    layers = layers_on_one(facts["layers"], settings["gpus"])
    bits = WEIGHT_BITS[settings["weights"]]
    weights = weight_bytes_on_one(facts, bits, settings["gpus"])
    stored = layers_held(layers, settings, "needed", 0)
    mine = stored_bytes(stored, codec, context)
    payload = stored_bytes(stored, payload_only(codec), context)
    reserved = layers_held(layers, settings, held_rule(layers, settings), block)
    held = batch * reserved_bytes(reserved, codec, context, block)
    needed = layers_held(layers, settings, "needed", block)
    unevicted = layers_reserved(layers, "needed", block)
    usable = gpu["usable"]
    cautious = usable * (1 - RESERVE)
    left = usable - weights - held
    whole_model = layers_held(facts["layers"], settings, "needed", 0)
    everything = reserved_bytes(layers_keeping_all(layers), codec, context, block)
    return {
        "bits": bits,
        "weights": weights,
        "stored": stored_bytes(whole_model, codec, context),  # one request, all GPUs
        "mine": mine,  # one request
        "payload": batch * payload,
        "scales": batch * (mine - payload),
        "waste": held - batch * mine,
        "held": held,
        "needed": batch * reserved_bytes(needed, codec, context, block),
        "unevicted": batch * reserved_bytes(unevicted, codec, context, block),
        "kept_all": batch * everything,
        "usable": usable,
        "left": left,  # below zero: does not fit
        "reserve": max(0, min(usable * RESERVE, left)),
        "free": max(0, left - usable * RESERVE),
        "longest_low": longest(reserved, codec, block, batch, cautious - weights),
        "longest_high": longest(reserved, codec, block, batch, usable - weights),
        "requests_low": requests_that_fit(reserved, codec, context, block, cautious - weights),
        "requests_high": requests_that_fit(reserved, codec, context, block, usable - weights),
    }
