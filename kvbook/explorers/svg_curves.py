"""Curves with names at their ends, and points on them, as SVG (the language of the page).

Axes are drawn from the scene's ticks, linear or logarithmic. What leaves the axes is cut off, by an
inner `<svg>`, which needs no id and so may stand on a page many times.
"""

from __future__ import annotations

from typing import Any

from kvbook.explorers.svg_names import at_x, at_y, draw_names
from kvbook.explorers.svg_parts import (
    SMALL,
    data_of,
    legend_at,
    paint,
    place,
    px,
    segment,
    text_width,
    words_at,
)


def draw_curves(panel: dict[str, Any], width: float) -> dict[str, Any]:
    """{"body", "height"} of a panel of curves; names stand at the ends where there is room."""
    area = plot_area(panel, width)
    body = [words_at(0, 31, panel["y"]["label"], paint("muted"), "start", "")]
    body.append(draw_axes(panel, area))
    inner: list[str] = []
    for line in panel["lines"]:
        inner.append(draw_line(panel, line, area))
    left, top = area["left"] - 3, area["top"] - 3
    right, bottom = area["right"] + 3, area["bottom"] + 3
    where = f'x="{px(left)}" y="{px(top)}" width="{px(right - left)}" height="{px(bottom - top)}"'
    view = f"{px(left)} {px(top)} {px(right - left)} {px(bottom - top)}"
    body.append(f'<svg {where} viewBox="{view}" overflow="hidden">{"".join(inner)}</svg>')
    body.append(draw_names(panel, area, width))
    height = area["bottom"] + 40
    if not area["named"]:
        entries = [
            {"role": line["role"], "label": line["label"], "line": True, "dashed": line["dashed"]}
            for line in panel["lines"]
        ]
        below = legend_at(height + 4, width, entries)
        body.append(below["body"])
        height = height + 4 + below["height"]
    return {"body": "".join(body), "height": height}


def plot_area(panel: dict[str, Any], width: float) -> dict[str, Any]:
    """Edges of the plot in pixels, and whether the curves are named at their ends."""
    left = 8.0
    for tick in panel["y"]["ticks"]:
        left = max(left, text_width(tick["text"], SMALL) + 8)
    widest = 0.0
    for line in panel["lines"]:
        widest = max(widest, text_width(line["label"], SMALL) + 12)
    named = widest <= width * 0.3
    margin = max(14, widest) if named else 14
    for tick in panel["x"]["ticks"]:
        over = (1 - place(panel["x"], tick["at"])) * (width - left - margin)
        margin = max(margin, text_width(tick["text"], SMALL) / 2 - over)
    return {
        "left": left,
        "right": width - margin,
        "top": 44,
        "bottom": 44 + (240 if width >= 480 else 210),
        "named": named,
    }


def draw_axes(panel: dict[str, Any], area: dict[str, Any]) -> str:
    """Grid lines across, ticks with their texts, both axes and the name of the lower one."""
    body: list[str] = []
    left, right, bottom = area["left"], area["right"], area["bottom"]
    for tick in panel["y"]["ticks"]:
        y = at_y(panel, area, tick["at"])
        body.append(segment(left, y, right, y, "grid", ""))
        body.append(words_at(left - 6, y + 4, tick["text"], paint("muted"), "end", ""))
    ticks = panel["x"]["ticks"]
    stride = tick_stride(panel, area)
    for i in range(len(ticks)):
        x = at_x(panel, area, ticks[i]["at"])
        body.append(segment(x, bottom, x, bottom + 4, "muted", ""))
        if i % stride == 0:
            body.append(words_at(x, bottom + 18, ticks[i]["text"], paint("muted"), "middle", ""))
    body.append(segment(left, bottom, right, bottom, "muted", ""))
    body.append(segment(left, area["top"], left, bottom, "muted", ""))
    middle = (left + right) / 2
    body.append(words_at(middle, bottom + 35, panel["x"]["label"], paint("muted"), "middle", ""))
    return "".join(body)


def tick_stride(panel: dict[str, Any], area: dict[str, Any]) -> int:
    """1 if all texts of the x axis have room, 2 if every second one has, and so on."""
    ticks = panel["x"]["ticks"]
    stride = 1
    while stride < len(ticks):
        fits = True
        for i in range(stride, len(ticks), stride):
            gap = at_x(panel, area, ticks[i]["at"]) - at_x(panel, area, ticks[i - stride]["at"])
            words = ticks[i]["text"] + ticks[i - stride]["text"]
            fits = fits and text_width(words, SMALL) / 2 + 5 <= gap
        if fits:
            return stride
        stride += 1
    return stride


def draw_line(panel: dict[str, Any], line: dict[str, Any], area: dict[str, Any]) -> str:
    """One curve as a path."""
    steps: list[str] = []
    for point in line["points"]:
        x, y = at_x(panel, area, point[0]), at_y(panel, area, point[1])
        # far outside is far enough: the inner svg cuts it off
        y = min(max(y, -5000), 5000)
        letter = "M" if len(steps) == 0 else "L"
        steps.append(f"{letter}{px(x)} {px(y)}")
    dash = ' stroke-dasharray="6 4"' if line["dashed"] else ""
    ink = f'fill="none" stroke="{paint(line["role"])}" stroke-width="2.2" stroke-linejoin="round"'
    last = line["points"][-1][1] if len(line["points"]) > 0 else 0
    return f'<path d="{"".join(steps)}" {ink}{dash}{data_of(line["label"], last)}/>'
