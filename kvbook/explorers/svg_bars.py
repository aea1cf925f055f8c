"""Stacked bars and grids of cells as SVG (page language: see `kvbook.explorers.svg_parts`).

A panel function returns {"body": SVG text, "height": pixels}; the panel begins at y = 0 and is as
wide as it is told.
"""

from __future__ import annotations

from kvbook.explorers.scenes.words import number_words
from kvbook.explorers.svg_parts import (
    SMALL,
    box,
    clipped,
    data_of,
    haloed,
    legend_at,
    paint,
    paint_on,
    segment,
    text_width,
    words_at,
)

BAR = 26  # height of a bar
SHORT = 50  # pixels of a unit that stands beside numbers; a longer one stands under the axis
SHARE = 0.26  # of the width that labels may take beside their rows; longer ones stand above


def label_room(labels: list[str], width: float) -> float:
    """Room for row labels at the left, or 0 where one is too long and all go above their rows."""
    widest = 0.0
    for label in labels:
        widest = max(widest, text_width(label, SMALL) + 10)
    return widest if widest <= SHARE * width else 0


def bars_top(panel: dict) -> float:
    """Where the scale ends: at the panel's max, or further if something is longer."""
    top = panel["max"]
    for bar in panel["bars"]:
        total = 0.0
        for part in bar["parts"]:
            total += max(0, part["value"])
        top = max(top, total)
    for mark in panel["marks"]:
        top = max(top, mark["value"])
    return top if top > 0 else 1


def bar_ticks(top: float) -> list[float]:
    """From zero in at most five steps of 1, 2 or 5 times a power of ten, the finest such."""
    step = 1.0
    while step * 5 >= top:
        step = step / 10
    while step * 50 < top:
        step = step * 10
    for factor in [10, 5, 2]:
        if step * factor * 5 >= top:
            wide = step * factor
    ticks: list[float] = []
    while len(ticks) * wide <= top * 1.000000001:
        ticks.append(len(ticks) * wide)
    return ticks


def part_words(part: dict, unit: str, room: float) -> str:
    """What is written into a part: name and size, its size alone, or nothing."""
    size = number_words(part["value"])
    if unit != "":
        size = f"{size} {unit}"
    for words in [f"{part['label']} {size}", size]:
        if text_width(words, SMALL) + 10 <= room:
            return words
    return ""


def draw_parts(bar: dict, unit: str, x: float, y: float, scale: float) -> str:
    """The parts of one bar, end to end; `scale` pixels for one unit."""
    body: list[str] = []
    for part in bar["parts"]:
        length = max(0, part["value"]) * scale
        more = data_of(part["label"], part["value"])
        if part["role"] != "free":  # a hair of card between parts of one bar
            more = f'{more} stroke="{paint("card")}" stroke-width="1"'
        if length > 0:
            body.append(box(x, y, length, BAR, part["role"], more))
        words = part_words(part, unit, length)
        if len(words) > 0:
            colour = paint("muted") if part["role"] == "free" else paint_on(part["role"])
            body.append(words_at(x + length / 2, y + 17, words, colour, "middle", ""))
        x = x + length
    return "".join(body)


def draw_bars(panel: dict, width: float) -> dict:
    """Horizontal bars from a common zero, ticks below, marks as lines with their names on top."""
    body: list[str] = []
    top, unit = bars_top(panel), panel["unit"]
    side = label_room([bar["label"] for bar in panel["bars"]], width)
    row = BAR + 10 if side > 0 else BAR + 26
    short = text_width(unit, SMALL) <= SHORT
    ticks = bar_ticks(top)
    last = number_words(ticks[-1])
    if short:
        last = f"{last} {unit}"
    end = width - max(2, text_width(last, SMALL) / 2 - (1 - ticks[-1] / top) * (width - side))
    scale = (end - side) / top
    start = 24 + 17 * len(panel["marks"])
    bottom = start + row * len(panel["bars"]) - 2
    # texts that would touch the last one, which carries the unit, or one another are left out
    edge = side + ticks[-1] * scale - text_width(last, SMALL) / 2 - 4
    free = -1.0
    for tick in ticks:
        x = side + tick * scale
        if x > 0:
            body.append(segment(x, start, x, bottom, "grid", ""))
        words = last if tick == ticks[-1] else number_words(tick)
        half = text_width(words, SMALL) / 2
        if tick == ticks[-1] or (x - half >= free and x + half <= edge) or x == 0:
            anchor = "start" if x == 0 else "middle"
            body.append(words_at(x, bottom + 16, words, paint("muted"), anchor, ""))
            free = x + half + 4
    legend: list[dict] = []
    for i in range(len(panel["bars"])):
        bar = panel["bars"][i]
        y = start + row * i + row - BAR - 6
        if side > 0:
            body.append(words_at(side - 10, y + 17, bar["label"], paint("ink"), "end", ""))
        else:
            words = clipped(bar["label"], SMALL, width)
            body.append(haloed(0, y - 5, words, "start", ""))
        body.append(draw_parts(bar, unit if short else "", side, y, scale))
        for part in bar["parts"]:
            add_once(legend, part["role"], part["label"])
    if side > 0:
        body.append(segment(side, start, side, bottom, "muted", ""))
    for i in range(len(panel["marks"])):
        mark = panel["marks"][i]
        x, y = side + mark["value"] * scale, 36 + 17 * i
        more = f' stroke-width="1.5" stroke-dasharray="4 3"{data_of(mark["label"], mark["value"])}'
        body.append(segment(x, y - 11, x, bottom, "ink", more))
        left = x - 5 > width - x - 5
        room = x - 5 if left else width - x - 5
        words = clipped(mark["label"], SMALL, room)
        at, anchor = (x - 5, "end") if left else (x + 5, "start")
        body.append(words_at(at, y, words, paint("ink"), anchor, ""))
    foot = bottom + 26
    if not short:
        words = clipped(unit, SMALL, width)
        body.append(words_at((side + end) / 2, bottom + 33, words, paint("muted"), "middle", ""))
        foot = bottom + 43
    below = legend_at(foot, width, legend)
    body.append(below["body"])
    return {"body": "".join(body), "height": foot + below["height"]}


def add_once(legend: list[dict], role: str, label: str) -> None:
    """Add an entry unless the legend has it."""
    for entry in legend:
        if entry["role"] == role and entry["label"] == label:
            return
    legend.append({"role": role, "label": label})


def draw_cells(panel: dict, width: float) -> dict:
    """Rows of slots, each coloured by what it holds; an empty role draws nothing."""
    body: list[str] = []
    most = 1
    for row in panel["rows"]:
        most = max(most, len(row["cells"]))
    side = label_room([row["label"] for row in panel["rows"]], width)
    pitch = min(24, (width - side) / most)
    size = pitch * 0.88
    line = max(pitch, 16) if side > 0 else pitch + 18
    y = 24.0
    for row in panel["rows"]:
        top = y + (line - pitch) / 2 if side > 0 else y + 18
        if side > 0:
            words = words_at(side - 10, y + line / 2 + 4, row["label"], paint("ink"), "end", "")
        else:
            label = clipped(row["label"], SMALL, width)
            words = words_at(0, y + 13, label, paint("ink"), "start", "")
        body.append(words)
        for i in range(len(row["cells"])):
            role = row["cells"][i]
            if role != "":
                more = data_of(row["label"], i)
                x = side + pitch * i + pitch * 0.06
                body.append(box(x, top + pitch * 0.06, size, size, role, more))
        y = y + line
    below = legend_at(y + 8, width, panel["legend"])
    body.append(below["body"])
    return {"body": "".join(body), "height": y + 8 + below["height"]}
