"""Where words go in a plane of curves so that they cover neither a curve nor each other.

Everything is in points (1/72 inch) from the lower left corner of the axes, computed before anything
is drawn: asking matplotlib to draw in order to measure would double the time of a slider's step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvlib.show.style import CARD, text_color

LINE = 12.0  # points from one line of 9-point text to the next
# where a label may stand beside its point: (right, up) in units of its own width and a line
PLACES = ((0, 1), (0, -1), (-1, 1), (-1, -1), (0, 2.4), (-1, 2.4), (0, -2.4), (-1, -2.4), (-0.5, 4))


class Room:
    """The free room of one axes; `width(text)` measures words in inches."""

    def __init__(self, ax: Any, width: Callable[[str], float], inches: tuple[float, float]) -> None:
        self.ax, self.width = ax, width
        self.size = inches[0] * 72, inches[1] * 72
        self.taken: list[tuple[float, float, float, float]] = []
        self.curve = np.zeros((0, 2))

    def points(self, x: Sequence[float], y: Sequence[float]) -> np.ndarray:
        """Data coordinates (n,), (n,) as points of the page (n, 2)."""
        share = self.ax.transLimits.transform(self.ax.transScale.transform(np.column_stack([x, y])))
        return np.asarray(share * self.size)

    def keep_off(self, x: Sequence[float], y: Sequence[float]) -> None:
        """Remember a curve, every three points of its length."""
        corners = self.points(x, y)
        steps = [
            np.linspace(a, b, 2 + int(min(np.abs(b - a).max(), 5000) // 3))
            for a, b in zip(corners, corners[1:])
        ]
        self.curve = np.concatenate([self.curve, *steps])

    def keep_off_mark(self, x: float, y: float) -> None:
        """Remember a marker."""
        ((a, b),) = self.points([x], [y])
        self.taken.append((a - 5, b - 5, a + 5, b + 5))

    def name_mark(self, text: str, x: float, y: float, role: str, bold: bool = False) -> None:
        """Write `text` beside (x, y), where it covers least."""
        ((a, b),) = self.points([x], [y])
        wide = self.width(text) * 72 * (1.1 if bold else 1.0)

        def box(place: tuple[float, float]) -> tuple[float, float, float, float]:
            right, up = place
            left = a + right * wide + (8 if right == 0 else -8 if right == -1 else 0)
            return left, b + up * LINE - LINE / 2, left + wide, b + up * LINE + LINE / 2

        best = min((box(place) for place in PLACES), key=self._covered)
        self.taken.append(best)
        self.ax.annotate(
            text, (0, 0), xycoords="axes fraction", xytext=(best[0], (best[1] + best[3]) / 2),
            textcoords="offset points", va="center", ha="left", color=text_color(role),
            fontweight="bold" if bold else "normal", fontsize=9, zorder=6, annotation_clip=False,
            bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1.0, "alpha": 0.8},
        )  # fmt: skip

    def name_ends(self, ends: Sequence[tuple[str, float, float, str]]) -> None:
        """Write each (text, x, y, role) right of its place, pushed apart where they overlap."""
        heights = [float(self.points([x], [y])[0, 1]) for _, x, y, _ in ends]
        for i, height in zip(range(len(ends)), spread(heights, LINE, self.size[1]), strict=True):
            text, _, _, role = ends[i]
            self.ax.annotate(
                text, (1, 0), xycoords="axes fraction", xytext=(6, height),
                textcoords="offset points", va="center", color=text_color(role), fontsize=9,
                annotation_clip=False,
            )  # fmt: skip

    def _covered(self, box: tuple[float, float, float, float]) -> float:
        left, low, right, high = box
        x, y = self.curve[:, 0], self.curve[:, 1]
        covered = float(((x > left) & (x < right) & (y > low) & (y < high)).sum())
        for a, b, c, d in self.taken:
            covered += max(0, min(right, c) - max(left, a)) * max(0, min(high, d) - max(low, b))
        outside = max(0, -left) + max(0, -low)
        outside += max(0, right - self.size[0]) + max(0, high - self.size[1])
        return covered + 1000 * outside


def spread(heights: Sequence[float], gap: float, top: float) -> list[float]:
    """The heights, in the same order but at least `gap` apart: pushed up, then back below `top`."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed, floor, ceiling = list(heights), -np.inf, top
    for i in order:
        placed[i] = max(placed[i], floor)
        floor = placed[i] + gap
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed
