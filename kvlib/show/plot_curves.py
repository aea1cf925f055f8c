"""Planes of curves and points, drawn with matplotlib (see `kvlib.show.plot`)."""

from __future__ import annotations

from typing import Any

from kvlib.show.labels import Room
from kvlib.show.plot_page import FOOT, HEAD, Page
from kvlib.show.style import CARD, WIDTH, color
from kvlib.show.svg_parts import place

HEIGHT = 3.0  # inches of the plane


def curves_height(_panel: dict[str, Any], _page: Page) -> float:
    """Inches that a panel of curves needs."""
    return HEAD + HEIGHT + FOOT


def draw_curves(panel: dict[str, Any], page: Page, top: float) -> None:
    """Draw the panel under `top` (inches)."""
    top = page.title(panel, top)
    ends = [(n["label"], *n["points"][-1], n["role"]) for n in panel["lines"]]
    inner = [end for end in ends if place(panel["x"], end[1]) < 0.97]
    ends = [end for end in ends if end not in inner]
    left = page.widest(tick["text"] for tick in panel["y"]["ticks"]) + 0.42
    right = max(0.25, page.widest(end[0] for end in ends) + 0.14)
    last = panel["x"]["ticks"][-1]
    beyond = (1 - place(panel["x"], last["at"])) * (WIDTH - left - right)
    right = max(right, page.width(last["text"]) / 2 - beyond + 0.05)
    width = WIDTH - left - right
    ax = page.axes(left, top, width, HEIGHT)
    _scale(ax, "x", panel["x"], _apart(panel["x"], width, page))
    _scale(ax, "y", panel["y"], [tick["text"] for tick in panel["y"]["ticks"]])
    ax.grid(visible=True)
    room = Room(ax, page.width, (width, HEIGHT))
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


def _scale(ax: Any, which: str, axis: dict[str, Any], texts: list[str]) -> None:
    ax.set(**{f"{which}scale": axis["scale"], f"{which}lim": (axis["min"], axis["max"])})
    ax.set(**{f"{which}label": axis["label"]})
    side = ax.xaxis if which == "x" else ax.yaxis
    side.set_ticks([t["at"] for t in axis["ticks"]], labels=texts)
    side.set_ticks([], minor=True)


def _apart(axis: dict[str, Any], inches: float, page: Page) -> list[str]:
    """The texts of a horizontal axis, without those that would touch the one before them."""
    texts, end = [], -1.0
    for tick in axis["ticks"]:
        middle, half = place(axis, tick["at"]) * inches, page.width(tick["text"]) / 2
        fits = middle - half > end
        texts.append(tick["text"] if fits else "")
        end = middle + half + 0.05 if fits else end
    return texts
