"""The drawings of the opening page."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.show.draw import bars, figure, finish, heatmap


def key_at_every_step(keys: Array, first_step: int) -> Any:
    """One key as each step computed it, one row a step.

    keys: (steps, D) float. first_step: the step of row 0. Rows that agree show as stripes.
    """
    values = np.asarray(keys)
    fig, ax = figure(3.4)
    image = heatmap(
        ax,
        values,
        xlabel="number within the key",
        ylabel="step that computed it",
        unit="value",
        signed=True,
    )
    steps, size = values.shape
    image.set_extent((-0.5, size - 0.5, first_step + steps - 0.5, first_step - 0.5))
    ax.set_xticks([*range(0, size, 8), size - 1])
    return finish(fig)


def work(counts: dict[str, int]) -> Any:
    """Operations of two ways to make the same tokens: {"recomputed": ..., "cached": ...}."""
    fig, ax = figure(1.7)
    words = {"recomputed": "start again\nat each step", "cached": "keep keys\nand values"}
    millions = {words[role]: count / 1e6 for role, count in counts.items()}
    bars(ax, millions, list(counts), xlabel="operations for all steps (million)")
    return finish(fig)
