"""The panels of the roofline explorer: the roof with its points, and the time of both sides."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.axes import axis_decades
from kvbook.explorers.scenes.words import fixed, seconds_words
from kvlib.costs.formulas import attainable

TERA = 1000000000000


def roofline_plane(gpu: dict[str, Any], work: dict[str, float]) -> dict[str, Any]:
    """The roof, its ridge, and where the parts and the whole stand on it."""
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
    points = [
        {"label": names[i], "role": roles[i], "x": parts[i], "y": attainable(parts[i], peak, speed)}
        for i in range(3)
    ]
    return {
        "kind": "curves",
        "label": "On the roofline",
        "x": x,
        "y": y,
        "lines": [
            {"label": "roof", "role": "muted", "points": roof, "dashed": False},
            {
                "label": f"ridge {fixed(work['ridge'], 0)}",
                "role": "muted",
                "points": ridge,
                "dashed": True,
            },
        ],
        "points": points,
    }


def time_unit(longest_time: float) -> dict[str, Any]:
    """The unit in which `longest_time` seconds read well: {"name", "size" in seconds}."""
    if longest_time < 0.001:
        return {"name": "\u00b5s", "size": 0.000001}
    if longest_time < 1:
        return {"name": "ms", "size": 0.001}
    return {"name": "s", "size": 1}


def roofline_times(gpu: dict[str, Any], work: dict[str, float]) -> dict[str, Any]:
    """Two bars, drawn from the same zero because both go on at once; the longer one is the time."""
    unit = time_unit(work["floor"])
    a_byte = 1 / gpu["bandwidth"] / unit["size"]
    a_flop = 1 / gpu["bf16"] / unit["size"]
    own = work["kv_bytes"] - work["kv_once"]
    memory = [
        {"label": "weights", "value": work["weight_bytes"] * a_byte, "role": "weights"},
        {"label": "keys and values", "value": own * a_byte, "role": "cached"},
    ]
    if work["kv_once"] > 0:
        once = work["kv_once"] * a_byte
        memory.append({"label": "shared prefix, read once", "value": once, "role": "shared"})
    written = work["kv_written"] * a_byte
    memory.append({"label": "new keys and values, written", "value": written, "role": "key"})
    compute = [
        {"label": "weights", "value": work["linear_flops"] * a_flop, "role": "weights"},
        {"label": "keys and values", "value": work["attention_flops"] * a_flop, "role": "cached"},
    ]
    floor = work["floor"] / unit["size"]
    return {
        "kind": "bars",
        "label": "Time to move, time to compute",
        "unit": unit["name"],
        "max": floor * 1.04,
        "bars": [
            {"label": "memory", "parts": memory},
            {"label": "arithmetic", "parts": compute},
        ],
        "marks": [{"label": f"least time: {seconds_words(work['floor'])}", "value": floor}],
    }
