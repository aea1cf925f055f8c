"""The explorer over tiles: what each tile of keys does to the three running values of a query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.words import number_words, percent_words


def tiles_explorer(
    ends: Sequence[int], tops: Sequence[float], totals: Sequence[float], away: Sequence[float]
) -> Explorer:
    """A slider over the tiles of one query.

    ends: keys read after each tile; tops, totals: the state then; away: |o − final| / |final|.
    ValueError where the lists are not equally long, or hold fewer than two tiles.
    """
    if not len(ends) == len(tops) == len(totals) == len(away):
        lengths = ", ".join(str(len(x)) for x in (ends, tops, totals, away))
        raise ValueError(f"ends, tops, totals and away must be equally long, got {lengths}")
    texts = [f"{n:,} keys read" for n in ends]
    slider = Slider("tile", "Tile", range(1, len(ends) + 1), 1, texts=texts)
    states = [(float(t), float(n)) for t, n in zip(tops, totals, strict=True)]
    scenes = [_scene(i, texts[i], states, float(away[i])) for i in range(len(ends))]
    return Explorer.from_frames("tiles", "One query, tile by tile", slider, scenes)


def _scene(i: int, text: str, states: list[tuple[float, float]], away: float) -> dict[str, Any]:
    top, total = states[i]
    old_top, old = states[i - 1] if i else (-math.inf, 0.0)
    shrink = math.exp(old_top - top)
    added = max(0.0, total - old * shrink)
    if not i:
        done = f"The first tile sets top to {number_words(top)}."
    elif top > old_top:
        done = (
            f"Tile {i + 1} raises top from {number_words(old_top)} to {number_words(top)}:"
            f" {percent_words(shrink)} of the old sum is left."
        )
    else:
        done = f"Tile {i + 1} does not raise top: the old sum stays as it is."
    return {
        "title": f"Tile {i + 1} of {len(states)}, {text}",
        "summary": f"{done} In units of the final output's norm, o / total is off by"
        f" {number_words(away)}.",
        "formula": [
            f"total: {number_words(old)} \u00d7 {number_words(shrink)} + {number_words(added)}"
            f" = {number_words(total)}"
        ],
        "numbers": [
            {"label": "top", "text": number_words(top)},
            {"label": "total", "text": number_words(total)},
            {"label": "lse = top + ln(total)", "text": number_words(top + math.log(total))},
            {"label": "Distance from the final output", "text": number_words(away)},
        ],
        "panels": [_cells(i, states), _bars(old, old * shrink, added, states)],
    }


def _cells(i: int, states: list[tuple[float, float]]) -> dict[str, Any]:
    """One square per tile: it raised top, it was read, or it was not read yet."""
    roles = []
    for j, (top, _) in enumerate(states):
        raised = not j or top > states[j - 1][0]
        roles.append("free" if j > i else "ink" if raised else "muted")
    return {
        "kind": "cells",
        "label": "Tiles of keys",
        "rows": [{"label": "tiles", "cells": roles}],
        "legend": [
            {"role": "ink", "label": "raised top"},
            {"role": "muted", "label": "read"},
            {"role": "free", "label": "not read yet"},
        ],
    }


def _bars(
    old: float, kept: float, added: float, states: list[tuple[float, float]]
) -> dict[str, Any]:
    """The running sum before this tile and after it: the rest of the old sum, and the new part."""
    before = [{"label": "summed before", "value": old, "role": "muted"}]
    after = [
        {"label": "summed before", "value": kept, "role": "muted"},
        {"label": "this tile", "value": added, "role": "ink"},
    ]
    return {
        "kind": "bars",
        "label": "total, in units of e^top (the unit grows when top rises)",
        "unit": "units",
        "max": max(n for _, n in states) * 1.2,
        "bars": [
            {"label": "before this tile", "parts": before},
            {"label": "after it", "parts": after},
        ],
        "marks": [],
    }
