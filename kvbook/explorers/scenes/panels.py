"""The parts of a scene's panels, as the plain data that `kvbook.explorers.svg` draws.

A role names a colour of the palette: "cached", "weights", "ink".
"""

from typing import Any

from kvbook.explorers.scenes.words import bytes_words, number_words, tokens_short


def nice_step(top: float, count: int) -> float:
    """The least of ..., 0.5, 1, 2, 5, 10, ... of which `count` steps reach `top` (above 0)."""
    step = 1.0
    while step * count >= top:
        step = step / 10
    while step * 10 * count < top:
        step = step * 10
    for factor in [2, 5]:
        if step * factor * count >= top:
            return step * factor
    return step * 10


def axis_linear(label: str, top: float, unit: float) -> dict:
    """From 0 to `top` (above 0); ticks are written in multiples of `unit`."""
    step = nice_step(top / unit, 5)
    return ticked(label, top, unit, step)


def axis_counts(label: str, top: float) -> dict:
    """From 0 to `top`, with ticks at whole numbers only."""
    return ticked(label, top, 1, max(1, nice_step(top, 5)))


def ticked(label: str, top: float, unit: float, step: float) -> dict:
    """A linear axis with a tick at every `step` units."""
    ticks: list[dict] = []
    while len(ticks) * step * unit <= top:
        at = len(ticks) * step
        ticks.append({"at": at * unit, "text": number_words(at)})
    return {"label": label, "scale": "linear", "min": 0, "max": top, "ticks": ticks}


def axis_decades(label: str, low: float, high: float, unit: float) -> dict:
    """A logarithmic axis up to `high`, from the power of ten (of `unit`) not above `low` (above 0).

    Ticks are at powers of ten, at most seven.
    """
    first = 1.0
    while first * unit > low:
        first = first / 10
    while first * 10 * unit <= low:
        first = first * 10
    powers = [first]
    while powers[len(powers) - 1] * 10 * unit <= high:
        powers.append(powers[len(powers) - 1] * 10)
    stride = 1 + (len(powers) - 1) // 7
    ticks = [
        {"at": powers[i] * unit, "text": number_words(powers[i])}
        for i in range(len(powers))
        if i % stride == 0
    ]
    return {"label": label, "scale": "log", "min": first * unit, "max": high, "ticks": ticks}


def powers_between(low: float, high: float, count: int) -> list[float]:
    """Powers of two from `low` to `high`, so evenly spaced that there are at most `count`."""
    first, doublings = 1, 0
    while first < low:
        first = first * 2
    last = first
    while last * 2 <= high:
        last = last * 2
        doublings += 1
    stride = 2 ** (1 + doublings // count)
    powers: list[float] = []
    while first <= last:
        powers.append(first)
        first = first * stride
    return powers


def axis_bytes(label: str, low: float, high: float) -> dict:
    """A logarithmic axis of bytes, counted in 1024s."""
    ticks = [{"at": at, "text": bytes_words(at, 1024)} for at in powers_between(low, high, 6)]
    return {"label": label, "scale": "log", "min": low, "max": high, "ticks": ticks}


def axis_tokens(label: str, low: float, high: float) -> dict:
    """A logarithmic axis of tokens, 1K = 1,024."""
    ticks = [{"at": at, "text": tokens_short(at)} for at in powers_between(low, high, 6)]
    return {"label": label, "scale": "log", "min": low, "max": high, "ticks": ticks}


def bars_panel(label: str, unit: str, most: float, bars: list, marks: Any = ()) -> dict:
    """Horizontal bars on a scale from 0 to `most` units.

    bars: [label, parts] each, its parts end to end: [label, value, role]. marks: lines across,
    [label, value] each.
    """
    rows: list[dict] = []
    for bar in bars:
        parts = [{"label": part[0], "value": part[1], "role": part[2]} for part in bar[1]]
        rows.append({"label": bar[0], "parts": parts})
    lines = [{"label": mark[0], "value": mark[1]} for mark in marks]
    panel: dict = {"kind": "bars", "label": label, "unit": unit, "max": most}
    panel["bars"], panel["marks"] = rows, lines
    return panel


def curves_panel(label: str, x: dict, y: dict, lines: list, points: Any = ()) -> dict:
    """Curves and points on two axes.

    lines: [label, role, points as [x, y], whether it is dashed]; points: [label, role, x, y].
    """
    curves: list[dict] = []
    for line in lines:
        made = {"label": line[0], "role": line[1], "points": line[2], "dashed": line[3]}
        curves.append(made)
    named = [{"label": p[0], "role": p[1], "x": p[2], "y": p[3]} for p in points]
    return {"kind": "curves", "label": label, "x": x, "y": y, "lines": curves, "points": named}


def cells_panel(label: str, rows: list, legend: list) -> dict:
    """Rows of slots, [label, roles] each, "" for none; legend: [role, label] each.

    A row may have a third part: a string with the letter that is written into each slot.
    """
    slots: list[dict] = []
    for row in rows:
        slot = {"label": row[0], "cells": row[1]}
        if len(row) > 2:
            slot["letters"] = row[2]
        slots.append(slot)
    named = [{"role": entry[0], "label": entry[1]} for entry in legend]
    return {"kind": "cells", "label": label, "rows": slots, "legend": named}
