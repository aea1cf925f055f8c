"""A scene as SVG: the picture of the rendered page, and of the sliders in Jupyter.

`draw(scene)` gives text. The page runs the same lines, translated (tools/build_explorers.py), and
writes the same text; so this file and its `svg_` neighbours keep to numbers, strings, lists, dicts
and loops. `width` is the number of pixels the figure is laid out for: words keep their size, so a
phone gets another layout and not smaller words.

Marks carry `data-label` and `data-value`, so that a test can read what is drawn.
"""

from __future__ import annotations

from kvbook.explorers.svg_bars import draw_bars, draw_cells
from kvbook.explorers.svg_curves import draw_curves
from kvbook.explorers.svg_map import draw_map
from kvbook.explorers.svg_parts import BOLD, SMALL, TITLE, paint, px, words_at, wrapped

GAP = 20  # between panels
LEADING = 17  # from one line of a title to the next


def draw(scene: dict, width: float = 720) -> str:
    """The panels of a scene, one under the other, `width` pixels wide (320 or more)."""
    body: list[str] = []
    y = 4.0
    for panel in scene["panels"]:
        if panel["kind"] == "bars":
            drawn = draw_bars(panel, width)
        elif panel["kind"] == "curves":
            drawn = draw_curves(panel, width)
        elif panel["kind"] == "map":
            drawn = draw_map(panel, width)
        else:
            drawn = draw_cells(panel, width)
        lines = wrapped(panel["label"], TITLE * BOLD, width)
        bold = f' font-size="{TITLE}" font-weight="bold"'
        for line in lines:
            body.append(words_at(0, y + 13, line, paint("ink"), "start", bold))
            y = y + LEADING
        y = y - LEADING  # panels leave room for one line of title
        body.append(f'<g transform="translate(0 {px(y)})">{drawn["body"]}</g>')
        y = y + drawn["height"] + GAP
    height = px(y - GAP + 4)
    size = f'viewBox="0 0 {px(width)} {height}" width="{px(width)}" height="{height}"'
    font = f'font-family="system-ui, sans-serif" font-size="{SMALL}"'
    card = f'<rect width="{px(width)}" height="{height}" fill="{paint("card")}"/>'
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return f"{root}{card}{''.join(body)}</svg>"
