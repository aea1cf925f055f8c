"""Behind the memory explorer: what one GPU holds, and how the cache grows with the context.

All bytes are counted in 1024s (KiB, MiB, GiB), as the tools that watch a GPU do.
"""

from __future__ import annotations

from typing import Any

from kvlib.costs.formulas import (
    in_blocks,
    layers_keeping_all,
    layers_on_one,
    longest,
    payload_only,
    requests_that_fit,
    reserved_bytes,
    stored_bytes,
    token_bytes,
    weight_bytes_on_one,
)
from kvlib.show.scenes.memory_formula import memory_formula
from kvlib.show.scenes.memory_panels import memory_bar, memory_curve
from kvlib.show.scenes.words import (
    bytes_exact,
    bytes_words,
    count_words,
    fixed,
    percent_words,
    times_words,
    tokens_words,
)

RESERVE = 0.1  # the cautious end of every interval: engines use 90 % of what a GPU offers
ENDLESS = 1099511627776  # the longest context that `longest` looks for
WEIGHT_BITS = {"bfloat16": 16, "int8": 8, "int4-g128": 4.25}


def memory_scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
    """settings: model, gpu, gpus, batch, context, weights, kv, block (0 or 1: single tokens)."""
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
    mine = stored_bytes(layers, codec, context)
    payload = stored_bytes(layers, payload_only(codec), context)
    held = batch * reserved_bytes(layers, codec, context, block)
    usable = gpu["usable"]
    cautious = usable * (1 - RESERVE)
    left = usable - weights - held
    everything = reserved_bytes(layers_keeping_all(layers), codec, context, block)
    return {
        "bits": bits,
        "weights": weights,
        "stored": stored_bytes(facts["layers"], codec, context),  # one request, all GPUs
        "mine": mine,  # one request
        "payload": batch * payload,
        "scales": batch * (mine - payload),
        "waste": held - batch * mine,
        "held": held,
        "kept_all": batch * everything,
        "usable": usable,
        "left": left,  # below zero: does not fit
        "reserve": max(0, min(usable * RESERVE, left)),
        "free": max(0, left - usable * RESERVE),
        "longest_low": longest(layers, codec, block, batch, cautious - weights),
        "longest_high": longest(layers, codec, block, batch, usable - weights),
        "requests_low": requests_that_fit(layers, codec, context, block, cautious - weights),
        "requests_high": requests_that_fit(layers, codec, context, block, usable - weights),
    }


def memory_summary(
    facts: dict[str, Any], gpu: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> str:
    """Two to four sentences: weights against cache, whether it fits, what else to know."""
    usable = bytes_words(kv["usable"], 1024)
    place = f"the {usable} of one {gpu['title']}"
    if settings["gpus"] > 1:
        place = f"the {usable} of each {gpu['title']}"
    weights = bytes_words(kv["weights"], 1024)
    held = bytes_words(kv["held"], 1024)
    ratio = kv["held"] / kv["weights"]
    compared = times_words(ratio) if ratio >= 1 else f"{percent_words(ratio)} of"
    said = [f"The weights take {weights}, the keys and values {held}: {compared} the weights."]
    if kv["weights"] > kv["usable"]:
        said = [
            f"The weights alone take {weights}, more than {place}:"
            f" they need more GPUs or fewer bits. The keys and values would add {held}."
        ]
    elif kv["left"] < 0:
        over = bytes_words(-kv["left"], 1024)
        said.append(f"That is {over} more than {place}: it does not fit.")
    elif kv["free"] == 0:
        said.append(
            f"It fits on paper only: {bytes_words(kv['left'], 1024)} of {place} are left, less than"
            f" the {percent_words(RESERVE)} that an engine keeps for everything else."
        )
    else:
        reserve = bytes_words(kv["reserve"], 1024)
        said.append(
            f"Of {place}, {bytes_words(kv['free'], 1024)} stay free, beside a reserve of {reserve}."
        )
    if kv["kept_all"] > kv["held"]:
        without = bytes_words(kv["kept_all"], 1024)
        said.append(f"Without the windows of its layers the cache would take {without}.")
    if settings["context"] > facts["max_context"]:
        said.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    if uneven(facts["layers"], settings["gpus"]):
        said.append("The heads do not divide evenly: the numbers are of the GPU that holds most.")
    if unconfirmed(gpu, "usable"):
        said.append("The usable memory of this GPU is an unconfirmed figure.")
    return " ".join(said)


def uneven(layers: list[dict[str, Any]], gpus: float) -> bool:
    """Whether some of `gpus` devices hold more heads than others."""
    for g in layers:
        if g["num_qo_heads"] % gpus != 0:
            return True
        heads = g["vectors"] / 2
        if g["vectors"] > 1 and heads % gpus != 0 and gpus % heads != 0:
            return True
    return False


def unconfirmed(gpu: dict[str, Any], name: str) -> bool:
    """Whether no public text of the vendor confirms this number of a GPU."""
    return name in gpu["unconfirmed"]


def interval_words(low: float, high: float, one: str, many: str) -> str:
    """From the cautious to the hopeful answer: '121,101 to 137,412 tokens'."""
    if high <= 0:
        return "none"
    if low >= ENDLESS:
        return "no limit: windows bound it"
    if high >= ENDLESS:
        return f"{count_words(low, one, many)} or no limit"
    if low >= high:
        return count_words(high, one, many)
    return f"{fixed(low, 0)} to {count_words(high, one, many)}"


def memory_numbers(
    facts: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> list[dict[str, str]]:
    """The key results. Intervals run from 90 % of the memory to all of it."""
    on_one = " on each GPU" if settings["gpus"] > 1 else ""
    label = "Free" if kv["left"] >= 0 else "Missing"
    left = bytes_words(abs(kv["left"]), 1024)
    context = tokens_words(settings["context"])
    return [
        {"label": "A token", "text": bytes_exact(token_bytes(facts["layers"], codec))},
        {"label": "A request", "text": bytes_words(kv["stored"], 1024)},
        {"label": f"All requests{on_one}", "text": bytes_words(kv["held"], 1024)},
        {"label": f"{label}{on_one}, reserve included", "text": left},
        {"label": "Empty in a last block", "text": empty_words(settings)},
        {
            "label": f"Longest context of {count_words(settings['batch'], 'request', 'requests')}",
            "text": interval_words(kv["longest_low"], kv["longest_high"], "token", "tokens"),
        },
        {
            "label": f"Requests of {context} that fit",
            "text": interval_words(kv["requests_low"], kv["requests_high"], "request", "requests"),
        },
    ]


def empty_words(settings: dict[str, Any]) -> str:
    """Slots that the last block of a request holds in vain: here, and at most."""
    block, context = settings["block"], settings["context"]
    if block <= 1:
        return "nothing, blocks of 1 token"
    here = tokens_words(in_blocks(context, block) - context)
    return f"{here} of at most {fixed(block - 1, 0)}"
