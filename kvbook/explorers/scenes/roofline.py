"""Behind the roofline explorer: what one pass moves and computes, and which of them takes longer.

Bytes are counted in 1000s (GB), as bandwidths are. Weights are read and multiplied in 16 bits.
"""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.memory_words import unconfirmed
from kvbook.explorers.scenes.roofline_formula import intensity_words, roofline_formula
from kvbook.explorers.scenes.roofline_panels import roofline_plane, roofline_times
from kvbook.explorers.scenes.words import (
    bytes_words,
    count_words,
    number_words,
    percent_words,
    scaled_words,
    seconds_words,
    tokens_words,
)
from kvlib.costs.formulas import pass_work, seconds, shared_saving, stored_bytes


def roofline_scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
    """settings: model, gpu, phase (decode, prefill), batch, context, kv, shared (percent)."""
    facts = tables["models"][settings["model"]]
    gpu = tables["gpus"][settings["gpu"]]
    codec = tables["codecs"][settings["kv"]]
    work = roofline_work(facts, gpu, codec, settings)
    requests = count_words(settings["batch"], "request", "requests")
    phase = "Decode" if settings["phase"] == "decode" else "Prefill"
    return {
        "title": f"{phase} of {facts['title']} on one {gpu['title']}: {requests} of "
        f"{tokens_words(settings['context'])}",
        "summary": roofline_summary(facts, gpu, settings, work),
        "formula": roofline_formula(facts, gpu, codec, settings, work),
        "numbers": roofline_numbers(settings, work),
        "panels": [roofline_plane(gpu, work), roofline_times(gpu, work)],
    }


def roofline_work(
    facts: dict[str, Any], gpu: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    """Every number of the scene: operations, bytes, operations a byte, seconds."""
    batch, seq = settings["batch"], settings["context"]
    prefix = seq * settings["shared"] // 100  # tokens at the start that all requests have
    # a prefill finds the shared prefix in the cache and computes what comes after it
    fresh = 1 if settings["phase"] == "decode" else seq - prefix
    w = pass_work(facts, codec, 16, batch, fresh, seq, prefix)
    flops = w["linear_flops"] + w["attention_flops"]
    moved = w["weight_bytes"] + w["kv_bytes"] + w["kv_written"]
    once = 0.0
    if fresh < seq:
        once = shared_saving(facts["layers"], codec, fresh, seq, prefix)
    kept = stored_bytes(facts["layers"], codec, seq)
    held = batch * kept - (batch - 1) * shared_saving(facts["layers"], codec, 1, seq, prefix)
    compute, memory = flops / gpu["bf16"], moved / gpu["bandwidth"]
    return {
        "fresh": fresh,
        "prefix": prefix,
        "linear_flops": w["linear_flops"],
        "attention_flops": w["attention_flops"],
        "flops": flops,
        "weight_bytes": w["weight_bytes"],
        "kv_bytes": w["kv_bytes"],
        "kv_once": once,  # of these, the shared prefix
        "kv_written": w["kv_written"],
        "bytes": moved,
        "linear": w["linear_flops"] / w["weight_bytes"],
        "attention": w["attention_flops"] / (w["kv_bytes"] + w["kv_written"]),
        "whole": flops / moved,
        "ridge": gpu["bf16"] / gpu["bandwidth"],
        "compute": compute,
        "memory": memory,
        "floor": seconds(flops, moved, gpu["bf16"], gpu["bandwidth"]),
        "made": batch if settings["phase"] == "decode" else batch * fresh,
        "needed": facts["parameters"] * 2 + held,  # bytes that must be on the GPU
    }


def roofline_summary(
    facts: dict[str, Any], gpu: dict[str, Any], settings: dict[str, Any], work: dict[str, float]
) -> str:
    """What is moved, what is computed, which of them bounds the pass; how fast it can be."""
    what = "One decode step" if settings["phase"] == "decode" else "The prefill"
    rate = scaled_words(gpu["bf16"], "FLOP/s")
    kinds = f"{bytes_words(work['weight_bytes'], 1000)} of weights and"
    kept = bytes_words(work["kv_bytes"] + work["kv_written"], 1000)
    kinds = f"{kinds} {kept} of keys and values"
    moved = (
        f"{what} moves {bytes_words(work['bytes'], 1000)}, of them {kinds}:"
        f" {seconds_words(work['memory'])} at {bandwidth_words(gpu)}."
    )
    computed = (
        f"Its {scaled_words(work['flops'], 'FLOP')} take {seconds_words(work['compute'])} at {rate}"
    )
    if work["memory"] >= work["compute"]:
        idle = percent_words(1 - work["compute"] / work["memory"])
        bound = f"so memory bounds it and the arithmetic stands idle {idle} of the time."
    else:
        idle = percent_words(1 - work["memory"] / work["compute"])
        bound = f"so arithmetic bounds it and the memory stands idle {idle} of the time."
    said = [moved, f"{computed}, {bound}"]
    speed = rate_words(work["made"] / work["floor"])
    if settings["phase"] == "prefill":
        said.append(f"That allows {speed} of prompt at most.")
    elif settings["batch"] == 1:
        said.append(f"That allows {speed} at most.")
    else:
        each = rate_words(1 / work["floor"])
        said.append(f"That allows {speed} at most, {each} per request.")
    if work["needed"] > gpu["usable"]:
        said.append(
            f"But it needs {bytes_words(work['needed'], 1000)} of memory and the GPU has"
            f" {bytes_words(gpu['usable'], 1000)}: it does not fit."
        )
    if settings["context"] > facts["max_context"]:
        said.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    if unconfirmed(gpu, "bf16"):
        said.append("The matrix rate of this GPU is an unconfirmed figure.")
    return " ".join(said)


def rate_words(tokens_a_second: float) -> str:
    """'68 tokens/s'."""
    return f"{number_words(tokens_a_second)} tokens/s"


def bandwidth_words(gpu: dict[str, Any]) -> str:
    """'3.35 TB/s'."""
    return f"{bytes_words(gpu['bandwidth'], 1000)}/s"


def roofline_numbers(settings: dict[str, Any], work: dict[str, float]) -> list[dict[str, str]]:
    """The key results."""
    decode = settings["phase"] == "decode"
    speed = rate_words(work["made"] / work["floor"])
    found = [
        {"label": "Attention", "text": intensity_words(work["attention"])},
        {"label": "Linear layers", "text": intensity_words(work["linear"])},
        {
            "label": "Whole step" if decode else "Whole prefill",
            "text": intensity_words(work["whole"]),
        },
        {"label": "Ridge of the GPU", "text": intensity_words(work["ridge"])},
        {"label": "Least time", "text": seconds_words(work["floor"])},
        {"label": "At most, all requests" if decode else "At most", "text": speed},
    ]
    if decode:
        found.append({"label": "At most, each request", "text": rate_words(1 / work["floor"])})
    bound = "memory" if work["memory"] >= work["compute"] else "arithmetic"
    found.append({"label": "Bound by", "text": bound})
    return found
