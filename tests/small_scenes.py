"""A small explorer with all kinds of panel, what every scene must satisfy, and ways into scenes."""

import json
import math
import random
from typing import Any

from kvbook.explorers import Choice, Explorer, Slider
from kvbook.explorers.catalogue import ALL
from kvbook.explorers.scenes.panels import bars_panel, cells_panel, curves_panel
from kvbook.figures import COLORS

TABLES = {"cards": {"small": 24.0, "large": 80.0}}


def axis(label: str, scale: str, ticks: list[float]) -> dict[str, Any]:
    """An axis from its first tick to its last."""
    words = [{"at": at, "text": f"{at:g}"} for at in ticks]
    return {"label": label, "scale": scale, "min": ticks[0], "max": ticks[-1], "ticks": words}


def shelf_scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
    """Boxes on a shelf: bars, curves and cells that all follow the settings."""
    card, boxes, kind = settings["card"], settings["boxes"], settings["kind"]
    room = tables["cards"][card]
    held = boxes * (2.0 if kind == "plain" else 1.0)
    free = max(0.0, room - held - 8)
    line = [[x, x * 2.0] for x in (1, 10, 100)]
    return {
        "title": f"{boxes} boxes on a {card} card",
        "summary": f"{boxes} boxes take {held:g} of {room:g} GiB & <{free:g}> stay 'free'.",
        "formula": [f"{boxes} x {held / boxes:g} = {held:g}", "a < b"],
        "numbers": [{"label": "held", "text": f"{held:g} GiB"}, {"label": "free", "text": "<1"}],
        "panels": [
            bars_panel(
                "Memory",
                "GiB",
                200.0,
                [
                    [
                        "this card",
                        [["fixed", 8.0, "cached"], ["boxes", held, "key"], ["free", free, "free"]],
                    ],
                    ["without boxes", [["fixed", 8.0, "cached"]]],
                ],
                [["room", room], ["most of it", 20.0]],
            ),
            curves_panel(
                "Growth",
                axis("boxes", "log", [1, 10, 100]),
                axis("GiB", "linear", [0, 100, 200]),
                [
                    ["plain", "recomputed", line, False],
                    ["packed", "cached", [[x, y / 2] for x, y in line], True],
                    ["ends early", "query", [[1, 150], [20, 150]], False],
                ],
                [["here", "key", boxes, held]],
            ),
            cells_panel(
                "Shelf",
                [["top", ["key"] * boxes + ["free", ""]], ["bottom", ["free"] * 2]],
                [["key", "a box"], ["free", "room"]],
            ),
        ],
    }


def shelf_explorer(**kwargs: Any) -> Explorer:
    """Three controls: 2 x 2 x 5 settings."""
    controls = [
        Choice("card", "Card", {"small": "Small card", "large": "Large card"}),
        Choice("kind", "Kind", {"plain": "Plain", "packed": "Packed"}),
        Slider.powers("boxes", "Boxes", 1, 16, value=4, unit="crates"),
    ]
    settings = {"scene_function": shelf_scene, "tables": TABLES} | kwargs
    return Explorer("shelf", "Boxes on a shelf", controls, **settings)


def check_scene(scene: dict[str, Any]) -> None:
    """What a drawing relies on: the keys, finite numbers, known roles, ticks on their axis."""
    assert json.loads(json.dumps(scene, allow_nan=False)) == scene, "not plain data"
    assert set(scene) == {"title", "summary", "formula", "numbers", "panels"}
    assert scene["title"].strip() and scene["summary"].strip() and scene["panels"]
    assert all(set(row) == {"label", "text"} and row["text"].strip() for row in scene["numbers"])
    assert all(isinstance(line, str) and line.strip() for line in scene["formula"])
    for panel in scene["panels"]:
        assert panel["label"].strip()
        _CHECKS[panel["kind"]](panel)


def _check_bars(panel: dict[str, Any]) -> None:
    assert set(panel) == {"kind", "label", "unit", "max", "bars", "marks"}
    assert panel["unit"].strip() and panel["bars"] and panel["max"] > 0
    for bar in panel["bars"]:
        assert all(part["role"] in COLORS and part["label"] for part in bar["parts"])
        assert all(part["value"] >= 0 and math.isfinite(part["value"]) for part in bar["parts"])
        total = sum(part["value"] for part in bar["parts"])
        assert total <= panel["max"] * (1 + 1e-9), f"{bar['label']} is cut off: {total}"
    assert all(0 <= mark["value"] <= panel["max"] for mark in panel["marks"])


def _check_curves(panel: dict[str, Any]) -> None:
    assert set(panel) == {"kind", "label", "x", "y", "lines", "points"}
    for side in (panel["x"], panel["y"]):
        assert side["label"].strip() and side["scale"] in ("linear", "log")
        assert side["min"] < side["max"] and (side["scale"] == "linear" or side["min"] > 0)
        assert len(side["ticks"]) >= 2
        assert all(side["min"] <= tick["at"] <= side["max"] for tick in side["ticks"])
    assert all(line["role"] in COLORS and len(line["points"]) >= 2 for line in panel["lines"])
    for point in panel["points"]:
        assert point["role"] in COLORS
        for which in ("x", "y"):
            side = panel[which]
            assert side["min"] <= point[which] <= side["max"], f"{point['label']} is not in sight"


def _check_cells(panel: dict[str, Any]) -> None:
    assert set(panel) == {"kind", "label", "rows", "legend"}
    named = {entry["role"] for entry in panel["legend"]}
    for row in panel["rows"]:
        assert row["label"].strip() and set(row["cells"]) - {""} <= named & set(COLORS)


def _check_table(panel: dict[str, Any]) -> None:
    assert set(panel) == {"kind", "label", "columns", "rows", "legend"}
    named = {entry["role"] for entry in panel["legend"]}
    for row in panel["rows"]:
        assert len(row["columns"]) == len(panel["columns"])
        for cell in (cell for column in row["columns"] for cell in column):
            assert cell["role"] in named and cell["text"] and 0 <= cell.get("share", 0) <= 1
    assert named <= set(COLORS)


def _check_map(panel: dict[str, Any]) -> None:
    keys = {"kind", "label", "lines", "letters", "levels", "lost", "shares", "ring", "rings"}
    assert set(panel) == keys | {"legend"}
    n = len(panel["lost"])
    assert [len(panel[name]) for name in ("letters", "levels", "shares")] == [n, n, n]
    assert [len(row) for row in panel["levels"]] == list(range(1, n + 1)), "a query sees its past"
    assert all(row.isdigit() for row in panel["levels"])
    assert all(t < first <= n for t, first in enumerate(panel["lost"])), "lost before it came"
    assert all(0 <= share <= 20 for share in panel["shares"])
    assert all(0 <= key <= t < n for t, key in panel["rings"])
    assert [line["at"] for line in panel["lines"]] == sorted({x["at"] for x in panel["lines"]})
    assert {entry["role"] for entry in panel["legend"]} <= set(COLORS)


_CHECKS = {"bars": _check_bars, "curves": _check_curves, "cells": _check_cells, "map": _check_map}
_CHECKS["table"] = _check_table


GIB = 2**30


def settings_of(name: str, count: int, seed: int = 0, **fixed: Any) -> list[dict[str, Any]]:
    """`count` random settings of an explorer, the first its own."""
    explorer, chance = ALL[name](), random.Random(seed)
    settings = [explorer.settings | fixed]
    while len(settings) < count:
        settings.append({c.name: chance.choice(c.values) for c in explorer.controls} | fixed)
    return settings


# where a control matters: a model that has windows
MATTERS: dict[str, dict[str, Any]] = {"held": {"model": "gemma-3-27b"}}


def numbers(scene: dict[str, Any]) -> dict[str, str]:
    return {row["label"]: row["text"] for row in scene["numbers"]}


def part(panel: dict[str, Any], label: str, bar: int = 0) -> float:
    return sum(p["value"] for p in panel["bars"][bar]["parts"] if p["label"] == label)


def line(panel: dict[str, Any], label: str) -> dict[float, float]:
    (curve,) = [ln for ln in panel["lines"] if ln["label"] == label]
    return dict(curve["points"])
