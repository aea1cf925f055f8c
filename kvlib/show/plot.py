"""Draws a scene with matplotlib: the same panels, roles, labels and ticks as `kvlib.show.svg`.

One figure, 7.2 inches wide, its panels from top to bottom. Margins are computed from the words that
stand in them: matplotlib's own layout engine would take longer than the drawing.
"""

from __future__ import annotations

import io
from typing import Any

from kvlib.show.place import Room
from kvlib.show.scenes.axes import nice_step
from kvlib.show.scenes.words import number_words
from kvlib.show.style import _RC, CARD, INK, MUTED, WIDTH, color, import_pyplot, on_color
from kvlib.show.svg_bars import bars_top, part_words

HEAD = 0.3  # inches above a panel for its label
FOOT = 0.46  # inches below axes for ticks and the axis label
LEGEND = 0.24  # inches for a row of the legend
BAR = 0.42  # inches for a bar
CURVES = 3.0  # inches for a plane of curves
CELL = 0.24  # inches for a cell, at most
GAP = 0.14  # inches between panels
SIZE = 9.0  # points
PIXELS = 100  # of the SVG to an inch: it is 720 wide


def draw(scene: dict[str, Any]) -> Any:
    """The figure of a scene. Its panels' axes carry the panels' numbers, in order.

    ValueError names a kind of panel or a role that there is not; ImportError, what to install.
    """
    import_pyplot()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rc: dict[Any, Any] = {k: v for k, v in _RC.items() if not k.startswith("image.")}
    rc["figure.constrained_layout.use"] = False
    with matplotlib.rc_context(rc):
        fig = Figure()
        FigureCanvasAgg(fig)
        words = _Words(fig)
        planned = [_plan(panel, words) for panel in scene["panels"]]
        heights = [height for _, height in planned]
        total = sum(heights) + GAP * len(heights)
        fig.set_size_inches(WIDTH, total)
        top = total - GAP / 2
        for (paint, height), panel in zip(planned, scene["panels"], strict=True):
            paint(fig, panel, top, words)
            top -= height + GAP
    return fig


def png(scene: dict[str, Any], dpi: float = 100.0) -> bytes:
    """The figure of a scene as PNG, compressed lightly: for a picture that a slider moves."""
    import_pyplot()
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"text.hinting": "none"}):  # hinting takes a sixth of the time
        draw(scene).savefig(file, format="png", dpi=dpi, pil_kwargs={"compress_level": 1})
    return file.getvalue()


class _Words:
    """Widths of words in inches, before anything is drawn."""

    def __init__(self, fig: Any) -> None:
        from matplotlib.font_manager import FontProperties

        self._renderer, self._dpi = fig.canvas.get_renderer(), fig.dpi
        self._font = FontProperties(family="DejaVu Sans", size=SIZE)

    def width(self, text: str) -> float:
        size = self._renderer.get_text_width_height_descent(text, self._font, False)
        return float(size[0]) / self._dpi

    def widest(self, texts: Any) -> float:
        return max((self.width(text) for text in texts), default=0.0)


def _plan(panel: dict[str, Any], words: _Words) -> tuple[Any, float]:
    """How to paint a panel, and the inches that it needs."""
    if panel["kind"] == "bars":
        rows = _legend_rows(_parts(panel), words)
        marks = LEGEND * len(panel["marks"])
        return _bars, HEAD + LEGEND * rows + marks + BAR * len(panel["bars"]) + FOOT - 0.18
    if panel["kind"] == "curves":
        return _curves, HEAD + CURVES + FOOT
    if panel["kind"] == "cells":
        _, cell = _cell_size(panel, words)
        rows = _legend_rows(panel["legend"], words)
        return _cells, HEAD + LEGEND * rows + max(cell, 0.16) * len(panel["rows"]) + 0.08
    raise ValueError(f"panel: got the kind {panel['kind']!r}, needed bars, curves or cells")


def _axes(fig: Any, left: float, top: float, width: float, height: float) -> Any:
    """Axes by inches from the left and from the bottom of the figure to their top."""
    full = fig.get_size_inches()[1]
    ax = fig.add_axes((left / WIDTH, (top - height) / full, width / WIDTH, height / full))
    ax.tick_params(labelsize=SIZE)
    return ax


def _title(fig: Any, panel: dict[str, Any], top: float) -> None:
    full = fig.get_size_inches()[1]
    fig.text(0.06 / WIDTH, (top - 0.18) / full, panel["label"], fontsize=10, fontweight="bold")


# ---------------------------------------------------------------------------- bars


def _parts(panel: dict[str, Any]) -> list[dict[str, str]]:
    """What the colours of a panel's bars mean, each once, in the order of appearance."""
    found = {(part["role"], part["label"]): part for bar in panel["bars"] for part in bar["parts"]}
    return list(found.values())


def _bars(fig: Any, panel: dict[str, Any], top: float, words: _Words) -> None:
    _title(fig, panel, top)
    top = _legend(fig, _parts(panel), top - HEAD, words)
    top -= LEGEND * len(panel["marks"])
    names, unit, end = [bar["label"] for bar in panel["bars"]], panel["unit"], bars_top(panel)
    left = max(0.3, words.widest(names) + 0.16)
    width, height = WIDTH - left - 0.45, BAR * len(names)
    ax = _axes(fig, left, top, width, height)
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
    step = nice_step(end, 5)
    ticks = [i * step for i in range(6) if i * step <= end * (1 + 1e-9)]
    texts = [number_words(tick) for tick in ticks]
    ax.set_xticks(ticks, labels=[*texts[:-1], f"{texts[-1]} {unit}"])
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    for i, mark in enumerate(panel["marks"]):
        _mark(ax, mark, i, words, height)


def _mark(ax: Any, mark: dict[str, Any], i: int, words: _Words, height: float) -> None:
    """A line across all bars, named above them: each mark in a row of its own."""
    level = 1 + (LEGEND * i + 0.12) / height
    ax.plot(
        [mark["value"]] * 2, [0, level], color=INK, linewidth=1.4, linestyle=(0, (4, 2)),
        transform=ax.get_xaxis_transform(), clip_on=False,
    )  # fmt: skip
    share = mark["value"] / ax.get_xlim()[1]
    room = ax.get_position().width * WIDTH * (1 - share) + 0.3
    side = "left" if words.width(mark["label"]) + 0.06 < room else "right"
    offset = 4 if side == "left" else -4
    ax.annotate(
        mark["label"], (mark["value"], level), xycoords=ax.get_xaxis_transform(),
        xytext=(offset, 0), textcoords="offset points", ha=side, va="center", fontsize=SIZE,
        annotation_clip=False, bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip


# ---------------------------------------------------------------------------- curves


def _curves(fig: Any, panel: dict[str, Any], top: float, words: _Words) -> None:
    _title(fig, panel, top)
    ends = [(n["label"], *n["points"][-1], n["role"]) for n in panel["lines"]]
    edge = panel["x"]["max"] * 0.97
    inner, ends = [e for e in ends if e[1] < edge], [e for e in ends if e[1] >= edge]
    left = words.widest(tick["text"] for tick in panel["y"]["ticks"]) + 0.42
    right = max(0.25, words.widest(end[0] for end in ends) + 0.14)
    width = WIDTH - left - right
    ax = _axes(fig, left, top - HEAD, width, CURVES)
    _scale(ax, "x", panel["x"])
    _scale(ax, "y", panel["y"])
    ax.grid(visible=True)
    room = Room(ax, words.width, (width, CURVES))
    for line in panel["lines"]:
        x, y = [p[0] for p in line["points"]], [p[1] for p in line["points"]]
        style: Any = (0, (4, 2)) if line["dashed"] else "solid"
        ax.plot(x, y, color=color(line["role"]), linestyle=style, label=line["label"])
        room.keep_off(x, y)
    for point in panel["points"]:
        ax.plot(
            [point["x"]], [point["y"]], "o", markersize=9, color=color(point["role"]),
            markeredgecolor=CARD, markeredgewidth=1.2, zorder=5, clip_on=False,
            label=point["label"],
        )  # fmt: skip
        room.keep_off_mark(point["x"], point["y"])
    room.name_ends(ends)
    for point in panel["points"]:
        room.name_mark(point["label"], point["x"], point["y"], point["role"], bold=True)
    for end in inner:
        room.name_mark(*end)


def _scale(ax: Any, which: str, axis: dict[str, Any]) -> None:
    ax.set(**{f"{which}scale": axis["scale"], f"{which}lim": (axis["min"], axis["max"])})
    ax.set(**{f"{which}label": axis["label"]})
    side = ax.xaxis if which == "x" else ax.yaxis
    side.set_ticks([t["at"] for t in axis["ticks"]], labels=[t["text"] for t in axis["ticks"]])
    side.set_ticks([], minor=True)


# ---------------------------------------------------------------------------- cells


def _cell_size(panel: dict[str, Any], words: _Words) -> tuple[float, float]:
    """Inches left of the cells, and the inches of one (square) cell."""
    left = words.widest(row["label"] for row in panel["rows"]) + 0.16
    longest = max(len(row["cells"]) for row in panel["rows"])
    return left, min(CELL, (WIDTH - left - 0.1) / max(1, longest))


def _cells(fig: Any, panel: dict[str, Any], top: float, words: _Words) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    _title(fig, panel, top)
    top = _legend(fig, panel["legend"], top - HEAD, words)
    left, cell = _cell_size(panel, words)
    rows = panel["rows"]
    longest = max(len(row["cells"]) for row in rows)
    height = max(cell, 0.16) * len(rows)
    ax = _axes(fig, left, top, cell * longest, height)
    for role in dict.fromkeys(role for row in rows for role in row["cells"] if role):
        boxes = [
            Rectangle((x - 0.44, y - 0.44), 0.88, 0.88)
            for y, row in enumerate(rows)
            for x, held in enumerate(row["cells"])
            if held == role
        ]
        ax.add_collection(PatchCollection(boxes, label=role, **fill(role)))
    ax.set(xlim=(-0.5, longest - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), labels=[row["label"] for row in rows])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.set_xticks([])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


# ---------------------------------------------------------------------------- legends


def fill(role: str) -> dict[str, Any]:
    """How an area of a role looks: in its colour; what is free, as an outline."""
    if role == "free":
        return {"facecolor": CARD, "edgecolor": color(role), "linewidth": 1.2}
    return {"facecolor": color(role), "edgecolor": "none", "linewidth": 0.0}


def _legend_places(entries: list[dict[str, str]], words: _Words) -> list[tuple[int, float]]:
    """(row, inches from the left) of every entry; a new row where the figure's width ends."""
    places, row, x = [], 0, 0.08
    for entry in entries:
        wide = 0.28 + words.width(entry["label"])
        if x > 0.08 and x + wide > WIDTH - 0.08:
            row, x = row + 1, 0.08
        places.append((row, x))
        x += wide + 0.2
    return places


def _legend_rows(entries: list[dict[str, str]], words: _Words) -> int:
    return max((row + 1 for row, _ in _legend_places(entries, words)), default=0)


def _legend(fig: Any, entries: list[dict[str, str]], top: float, words: _Words) -> float:
    """Name the roles under `top` (inches); returns where they end."""
    from matplotlib.patches import Rectangle

    full = fig.get_size_inches()[1]
    for entry, (row, x) in zip(entries, _legend_places(entries, words), strict=True):
        y = top - LEGEND * (row + 0.5)
        swatch = Rectangle(
            (x / WIDTH, (y - 0.055) / full), 0.16 / WIDTH, 0.11 / full, **fill(entry["role"])
        )
        fig.add_artist(swatch)
        fig.text((x + 0.22) / WIDTH, y / full, entry["label"], fontsize=SIZE, va="center")
    return top - LEGEND * _legend_rows(entries, words)
