"""Behind the roofline explorer: what one pass moves and computes, and which of them takes longer.

Bytes are counted in 1000s (GB), as bandwidths are. Weights are read and multiplied in 16 bits.
"""

from typing import Any

from kvbook.explorers.scenes.memory import unconfirmed
from kvbook.explorers.scenes.panels import axis_decades, bars_panel, curves_panel
from kvbook.explorers.scenes.words import (
    bytes_words,
    count_words,
    fixed,
    large_words,
    number_words,
    percent_words,
    scaled_words,
    seconds_words,
    tokens_words,
)
from kvlib.costs.formulas import (
    experts_read,
    pairs,
    pass_work,
    seconds,
    shared_saving,
    stored_bytes,
)


def roofline_scene(settings: dict, tables: Any) -> dict:
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


def roofline_work(facts: dict, gpu: dict, codec: dict, settings: dict) -> dict:
    """Every number of the scene: operations, bytes, operations per byte, seconds."""
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


def roofline_summary(facts: dict, gpu: dict, settings: dict, work: dict) -> str:
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
        bound = f"so the step waits for memory, and the multipliers are idle {idle} of the time."
    else:
        idle = percent_words(1 - work["memory"] / work["compute"])
        bound = f"so the step waits for arithmetic, and the memory is idle {idle} of the time."
    sentences = [moved, f"{computed}, {bound}"]
    speed = rate_words(work["made"] / work["floor"])
    if settings["phase"] == "prefill":
        sentences.append(f"That allows {speed} of prompt at most.")
    elif settings["batch"] == 1:
        sentences.append(f"That allows {speed} at most.")
    else:
        each = rate_words(1 / work["floor"])
        sentences.append(f"That allows {speed} at most, {each} per request.")
    if work["needed"] > gpu["usable"]:
        sentences.append(
            f"But it needs {bytes_words(work['needed'], 1000)} of memory and the GPU has"
            f" {bytes_words(gpu['usable'], 1000)}: it does not fit."
        )
    if settings["context"] > facts["max_context"]:
        sentences.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    if unconfirmed(gpu, "bf16"):
        sentences.append("The matrix rate of this GPU is an unconfirmed figure.")
    return " ".join(sentences)


def rate_words(tokens_a_second: float) -> str:
    """'68 tokens/s'."""
    return f"{number_words(tokens_a_second)} tokens/s"


def bandwidth_words(gpu: dict) -> str:
    """'3.35 TB/s'."""
    return f"{bytes_words(gpu['bandwidth'], 1000)}/s"


def roofline_numbers(settings: dict, work: dict) -> list[dict]:
    """The key results."""
    decode = settings["phase"] == "decode"
    speed = rate_words(work["made"] / work["floor"])
    numbers = [
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
        numbers.append({"label": "At most, each request", "text": rate_words(1 / work["floor"])})
    bound = "memory" if work["memory"] >= work["compute"] else "arithmetic"
    numbers.append({"label": "Bound by", "text": bound})
    return numbers


TERA = 1000000000000


def roofline_plane(gpu: dict, work: dict) -> dict:
    """The roof, its ridge, and where the parts and the whole are on it."""
    peak, speed = gpu["bf16"], gpu["bandwidth"]
    parts = [work["attention"], work["linear"], work["whole"]]
    label = "operations per byte moved (FLOP/byte)"
    x = axis_decades(label, min(0.5, min(parts)), max(5000, 3 * max(parts)), 1)
    low = attainable(x["min"], peak, speed)
    y = axis_decades("TFLOP/s", low, peak * 4, TERA)
    roof = [[x["min"], low], [work["ridge"], peak], [x["max"], peak]]
    ridge = [[work["ridge"], y["min"]], [work["ridge"], peak]]
    names = ["attention", "linear layers", "whole"]
    roles = ["cached", "weights", "ink"]
    points = [[names[i], roles[i], parts[i], attainable(parts[i], peak, speed)] for i in range(3)]
    lines = [["roof", "muted", roof, False]]
    lines.append([f"ridge {fixed(work['ridge'], 0)}", "muted", ridge, True])
    return curves_panel("On the roofline", x, y, lines, points)


def time_unit(longest_time: float) -> dict:
    """The unit in which `longest_time` seconds read well: {"name", "size" in seconds}."""
    if longest_time < 0.001:
        return {"name": "\u00b5s", "size": 0.000001}
    if longest_time < 1:
        return {"name": "ms", "size": 0.001}
    return {"name": "s", "size": 1}


def roofline_times(gpu: dict, work: dict) -> dict:
    """Two bars, drawn from the same zero because both go on at once; the longer one is the time."""
    unit = time_unit(work["floor"])
    a_byte = 1 / gpu["bandwidth"] / unit["size"]
    a_flop = 1 / gpu["bf16"] / unit["size"]
    unshared = work["kv_bytes"] - work["kv_once"]
    memory: list = [["weights", work["weight_bytes"] * a_byte, "weights"]]
    memory.append(["keys and values", unshared * a_byte, "cached"])
    if work["kv_once"] > 0:
        memory.append(["shared prefix, read once", work["kv_once"] * a_byte, "shared"])
    memory.append(["new keys and values, written", work["kv_written"] * a_byte, "key"])
    compute = [
        ["weights", work["linear_flops"] * a_flop, "weights"],
        ["keys and values", work["attention_flops"] * a_flop, "cached"],
    ]
    floor = work["floor"] / unit["size"]
    bars = [["memory", memory], ["arithmetic", compute]]
    mark = [f"least time: {seconds_words(work['floor'])}", floor]
    return bars_panel("Time to move, time to compute", unit["name"], floor * 1.04, bars, [mark])


def intensity_words(x: float) -> str:
    """'3.98 FLOP/byte'."""
    return f"{number_words(x)} FLOP/byte"


def linear_lines(facts: dict, settings: dict, work: dict) -> list[str]:
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


def attention_line(g: dict, settings: dict, work: dict) -> str:
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


def roofline_formula(facts: dict, gpu: dict, codec: dict, settings: dict, work: dict) -> list[str]:
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
        unshared = (work["kv_bytes"] - work["kv_once"]) / batch
        lines.append(
            f"keys and values read in {codec['name']}: shared prefix of"
            f" {tokens_words(work['prefix'])} once, {bytes_words(work['kv_once'], 1000)},"
            f" + {fixed(batch, 0)} \u00d7 {bytes_words(unshared, 1000)} = {kv}"
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


def attainable(intensity: float, flops_per_s: float, bytes_per_s: float) -> float:
    """Return the operations per second that the roof allows at `intensity` operations per byte."""
    return min(flops_per_s, intensity * bytes_per_s)
