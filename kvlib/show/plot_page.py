"""The page that `kvlib.show.plot` draws on: places in inches, widths of words, legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvlib.show.style import CARD, WIDTH, color

HEAD = 0.3  # inches above a panel for its label
FOOT = 0.46  # inches below axes for ticks and the axis label
LEGEND = 0.24  # inches for a row of the legend
SIZE = 9.0  # points


class Page:
    """A figure of the book's width, its panels placed from the top, in inches from the bottom."""

    def __init__(self, fig: Any) -> None:
        from matplotlib.font_manager import FontProperties

        self.fig, self.height = fig, 0.0
        self._renderer = fig.canvas.get_renderer()
        self._font = FontProperties(family="DejaVu Sans", size=SIZE)

    def set_height(self, inches: float) -> None:
        self.height = inches
        self.fig.set_size_inches(WIDTH, inches)

    def width(self, text: str) -> float:
        """Inches that words take, before anything is drawn."""
        size = self._renderer.get_text_width_height_descent(text, self._font, False)
        return float(size[0]) / float(self._renderer.dpi)

    def widest(self, texts: Iterable[str]) -> float:
        return max((self.width(text) for text in texts), default=0.0)

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes of some inches, by their left edge and their top."""
        where = left / WIDTH, (top - height) / self.height, width / WIDTH, height / self.height
        ax = self.fig.add_axes(where)
        ax.tick_params(labelsize=SIZE)
        return ax

    def text(self, x: float, y: float, words: str, **kwargs: Any) -> None:
        self.fig.text(x / WIDTH, y / self.height, words, **kwargs)

    def title(self, panel: dict[str, Any], top: float) -> float:
        """Write the panel's label under `top`; returns where it ends."""
        self.text(0.06, top - 0.18, panel["label"], fontsize=10, fontweight="bold")
        return top - HEAD

    def legend_height(self, entries: Sequence[dict[str, str]]) -> float:
        return LEGEND * max((row + 1 for row, _ in self._places(entries)), default=0)

    def legend(self, entries: Sequence[dict[str, str]], top: float) -> float:
        """Name what roles mean under `top`; returns where that ends. entries: role and label."""
        from matplotlib.patches import Rectangle

        for entry, (row, x) in zip(entries, self._places(entries), strict=True):
            y = top - LEGEND * (row + 0.5)
            corner = x / WIDTH, (y - 0.055) / self.height
            size = 0.16 / WIDTH, 0.11 / self.height
            self.fig.add_artist(Rectangle(corner, *size, **fill(entry["role"])))
            self.text(x + 0.22, y, entry["label"], fontsize=SIZE, va="center")
        return top - self.legend_height(entries)

    def _places(self, entries: Sequence[dict[str, str]]) -> list[tuple[int, float]]:
        """(row, inches from the left) of every entry; a new row where the width ends."""
        places, row, x = [], 0, 0.08
        for entry in entries:
            wide = 0.28 + self.width(entry["label"])
            if x > 0.08 and x + wide > WIDTH - 0.08:
                row, x = row + 1, 0.08
            places.append((row, x))
            x += wide + 0.2
        return places


def fill(role: str) -> dict[str, Any]:
    """How an area of a role looks: in its colour; what is free, as an outline."""
    if role == "free":
        return {"facecolor": CARD, "edgecolor": color(role), "linewidth": 1.2}
    return {"facecolor": color(role), "edgecolor": "none", "linewidth": 0.0}
