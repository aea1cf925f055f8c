"""The parts of a scene's panels, as the plain data that `kvbook.explorers.svg` draws.

A role names a colour of the palette: "cached", "weights", "ink".
"""

from __future__ import annotations

from typing import Any


def bar_part(label: str, value: float, role: str) -> dict:
    """A part of a bar, `value` units long."""
    return {"label": label, "value": value, "role": role}


def bar_row(label: str, parts: list[dict]) -> dict:
    """A horizontal bar, its parts end to end."""
    return {"label": label, "parts": parts}


def bars_panel(label: str, unit: str, most: float, bars: list[dict], marks: list[dict]) -> dict:
    """Bars on a scale from 0 to `most` units; a mark is a line at {"label", "value"}."""
    return {
        "kind": "bars", "label": label, "unit": unit, "max": most, "bars": bars, "marks": marks
    }  # fmt: skip


def curve_line(label: str, role: str, points: list[list[Any]], dashed: bool) -> dict:
    """A line through points [x, y]."""
    return {"label": label, "role": role, "points": points, "dashed": dashed}


def curve_point(label: str, role: str, x: float, y: float) -> dict:
    """A point with a name."""
    return {"label": label, "role": role, "x": x, "y": y}


def curves_panel(label: str, x: dict, y: dict, lines: list[dict], points: list[dict]) -> dict:
    """Curves and points on two axes of `kvbook.explorers.scenes.axes`."""
    return {"kind": "curves", "label": label, "x": x, "y": y, "lines": lines, "points": points}


def cells_panel(label: str, rows: list[dict], legend: list[dict]) -> dict:
    """Rows {"label", "cells"} of slots, a role or "" each; legend: {"role", "label"}."""
    return {"kind": "cells", "label": label, "rows": rows, "legend": legend}
