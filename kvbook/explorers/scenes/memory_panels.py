"""The panels of the memory explorer: one GPU as a bar, and the cache against the context."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.axes import axis_bytes, axis_tokens
from kvbook.explorers.scenes.memory_held import evicts, held_rule, layers_held
from kvbook.explorers.scenes.words import bytes_words
from kvlib.costs.formulas import layers_keeping_all, layers_on_one, reserved_bytes
from kvlib.costs.reserves import layers_reserved

GIB = 1073741824
FIRST, LAST = 512, 1048576  # tokens, the ends of the slider and of the curve


def memory_bar(
    gpu: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> dict[str, Any]:
    """One GPU from the first byte of weights to its last free one."""
    parts = [
        {"label": "weights", "value": kv["weights"] / GIB, "role": "weights"},
        {"label": "keys and values", "value": kv["payload"] / GIB, "role": "cached"},
    ]
    if kv["scales"] > 0:
        parts.append({"label": "their scales", "value": kv["scales"] / GIB, "role": "value"})
    if kv["waste"] > 0:
        parts.append({"label": "held, not needed", "value": kv["waste"] / GIB, "role": "muted"})
    if kv["reserve"] > 0:
        parts.append({"label": "reserve", "value": kv["reserve"] / GIB, "role": "grid"})
    if kv["free"] > 0:
        parts.append({"label": "free", "value": kv["free"] / GIB, "role": "free"})
    usable = kv["usable"] / GIB
    total = max(usable, usable - kv["left"] / GIB)
    name = gpu["title"] if settings["gpus"] == 1 else f"each {gpu['title']}"
    return {
        "kind": "bars",
        "label": "What one GPU holds",
        "unit": "GiB",
        "max": total * 1.04,
        "bars": [{"label": name, "parts": parts}],
        "marks": [{"label": f"usable: {bytes_words(kv['usable'], 1024)}", "value": usable}],
    }


def curve_contexts(here: float) -> list[float]:
    """Where the curve is computed: at multiples of every block size, and at the slider."""
    grid = [FIRST, FIRST * 1.5]
    for octave in range(10):
        for quarter in range(4):
            grid.append(FIRST * 2**octave * (4 + quarter) / 2)
    grid.append(LAST)
    found: list[float] = []
    for at in grid:
        if len(found) > 0 and found[len(found) - 1] < here and here < at:
            found.append(here)
        found.append(at)
    return found


def memory_curve(
    facts: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> dict[str, Any]:
    """Bytes of the cache against the context; windows bend the curve, the GPU ends it."""
    batch, block = settings["batch"], settings["block"]
    layers = layers_on_one(facts["layers"], settings["gpus"])
    contexts = curve_contexts(settings["context"])
    rule = held_rule(layers, settings)
    reserved = layers_held(layers, settings, rule, block)
    curve = [[c, batch * reserved_bytes(reserved, codec, c, block)] for c in contexts]
    lines = [{"label": "KV cache", "role": "cached", "points": curve, "dashed": False}]
    high = max(curve[len(curve) - 1][1], kv["usable"])
    other, name = layers_keeping_all(layers), "no windows"
    if evicts(layers, settings):
        other, name = layers_reserved(layers, "needed", block), "no eviction"
    elif rule == "all":
        other, name = layers_reserved(layers, "needed", block), "what is needed"
    compared = [[c, batch * reserved_bytes(other, codec, c, block)] for c in contexts]
    if compared[len(compared) - 1][1] != curve[len(curve) - 1][1]:
        lines.append({"label": name, "role": "recomputed", "points": compared, "dashed": True})
        high = max(high, compared[len(compared) - 1][1])
    bottom, top = 16777216.0, 4398046511104.0  # 16 MiB to 4 TiB, so that the axis seldom moves
    while bottom > curve[0][1]:
        bottom = bottom / 4
    while top < high:
        top = top * 4
    room = kv["usable"] - kv["weights"]
    if room > bottom:
        ends = [[FIRST, room], [LAST, room]]
        lines.append({"label": "GPU full", "role": "ink", "points": ends, "dashed": True})
    limit = facts["max_context"]
    if limit > FIRST and limit < LAST:
        edge = [[limit, bottom], [limit, top]]
        lines.append({"label": "model's limit", "role": "muted", "points": edge, "dashed": True})
    label = "The cache against the context"
    if settings["gpus"] > 1:
        label = "The cache on each GPU against the context"
    here = bytes_words(kv["held"], 1024)
    return {
        "kind": "curves",
        "label": label,
        "x": axis_tokens("context in tokens (1K = 1,024)", FIRST, LAST),
        "y": axis_bytes("keys and values", bottom, top),
        "lines": lines,
        "points": [
            {"label": here, "role": "cached", "x": settings["context"], "y": kv["held"]},
        ],
    }
