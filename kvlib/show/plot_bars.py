"""Stacked bars and grids of cells, drawn with matplotlib (see `kvlib.show.plot`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.show.plot_page import FOOT, HEAD, LEGEND, SIZE, Page, fill
from kvlib.show.scenes.axes import nice_step
from kvlib.show.scenes.words import number_words
from kvlib.show.style import CARD, INK, MUTED, WIDTH, on_color
from kvlib.show.svg_bars import bars_top, part_words

BAR = 0.42  # inches for a bar
CELL = 0.24  # inches for a cell, at most
LINE = 0.16  # inches for a row of cells, at least
SQUARE = np.array([[-0.44, -0.44], [0.44, -0.44], [0.44, 0.44], [-0.44, 0.44]])  # round a slot
PIXELS = 100  # of the SVG to an inch: it is 720 wide


def bars_height(panel: dict[str, Any], page: Page) -> float:
    """Inches that a panel of bars needs."""
    above = HEAD + page.legend_height(_parts(panel)) + LEGEND * len(panel["marks"])
    return above + BAR * len(panel["bars"]) + FOOT - 0.18


def _parts(panel: dict[str, Any]) -> list[dict[str, str]]:
    """What the colours of a panel's bars mean, each once, in the order of appearance."""
    found = {(part["role"], part["label"]): part for bar in panel["bars"] for part in bar["parts"]}
    return list(found.values())


def draw_bars(panel: dict[str, Any], page: Page, top: float) -> None:
    """Draw the panel under `top` (inches)."""
    top = page.legend(_parts(panel), page.title(panel, top))
    top -= LEGEND * len(panel["marks"])
    names, unit, end = [bar["label"] for bar in panel["bars"]], panel["unit"], bars_top(panel)
    left = max(0.3, page.widest(names) + 0.16)
    step = nice_step(end, 5)
    ticks = [i * step for i in range(6) if i * step <= end * (1 + 1e-9)]
    texts = [number_words(tick) for tick in ticks]
    texts[-1] = f"{texts[-1]} {unit}"
    beyond = (1 - ticks[-1] / end) * (WIDTH - left)
    right = max(0.45, page.width(texts[-1]) / 2 - beyond + 0.05)
    width, height = WIDTH - left - right, BAR * len(names)
    ax = page.axes(left, top, width, height)
    for row, bar in enumerate(panel["bars"]):
        start = 0.0
        for part in bar["parts"]:
            value, role = part["value"], part["role"]
            ax.barh(row, value, left=start, height=0.62, label=part["label"], **fill(role))
            inside = part_words(part, unit, value / end * width * PIXELS)
            if inside:
                ink = MUTED if role == "free" else on_color(role)
                middle = start + value / 2
                ax.text(middle, row, inside, ha="center", va="center", color=ink, fontsize=SIZE)
            start += value
    ax.set(xlim=(0, end), ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), labels=names)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.set_xticks(ticks, labels=texts)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    for i, mark in enumerate(panel["marks"]):
        _mark(ax, mark, i, page, height)


def _mark(ax: Any, mark: dict[str, Any], i: int, page: Page, height: float) -> None:
    """A line across all bars, named above them: each mark in a row of its own."""
    from matplotlib.patheffects import withStroke

    level = 1 + (LEGEND * i + 0.12) / height
    halo = [withStroke(linewidth=4, foreground=CARD)]  # it may cross a bar as dark as itself
    ax.plot(
        [mark["value"]] * 2, [0, level], color=INK, linewidth=1.4, linestyle=(0, (4, 2)),
        transform=ax.get_xaxis_transform(), clip_on=False, path_effects=halo,
    )  # fmt: skip
    share = mark["value"] / ax.get_xlim()[1]
    room = ax.get_position().width * WIDTH * (1 - share) + 0.3
    side = "left" if page.width(mark["label"]) + 0.06 < room else "right"
    offset = 4 if side == "left" else -4
    ax.annotate(
        mark["label"], (mark["value"], level), xycoords=ax.get_xaxis_transform(),
        xytext=(offset, 0), textcoords="offset points", ha=side, va="center", fontsize=SIZE,
        annotation_clip=False, bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip


def cells_height(panel: dict[str, Any], page: Page) -> float:
    """Inches that a panel of cells needs."""
    rows = max(_cell_size(panel, page)[1], LINE) * len(panel["rows"])
    return HEAD + page.legend_height(panel["legend"]) + rows + 0.08


def _cell_size(panel: dict[str, Any], page: Page) -> tuple[float, float]:
    """Inches left of the cells, and the inches of one (square) cell."""
    left = page.widest(row["label"] for row in panel["rows"]) + 0.16
    longest = max(len(row["cells"]) for row in panel["rows"])
    return left, min(CELL, (WIDTH - left - 0.1) / max(1, longest))


def draw_cells(panel: dict[str, Any], page: Page, top: float) -> None:
    """Draw the panel under `top` (inches)."""
    from matplotlib.collections import PolyCollection

    top = page.legend(panel["legend"], page.title(panel, top))
    left, cell = _cell_size(panel, page)
    rows = panel["rows"]
    longest = max(len(row["cells"]) for row in rows)
    height = max(cell, LINE) * len(rows)
    ax = page.axes(left, top, cell * longest, height)
    for role in dict.fromkeys(role for row in rows for role in row["cells"] if role):
        slots = [
            (x, y)
            for y, row in enumerate(rows)
            for x, held in enumerate(row["cells"])
            if held == role
        ]
        # one collection of corners: a Rectangle each would take longer than all the rest
        corners = np.asarray(slots, dtype=float)[:, None] + SQUARE
        ax.add_collection(PolyCollection(corners, label=role, **fill(role)), autolim=False)
    ax.set(xlim=(-0.5, longest - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), labels=[row["label"] for row in rows])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.set_xticks([])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
