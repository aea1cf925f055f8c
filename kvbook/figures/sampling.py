"""Drawings of the chapter on sampling: a row of logits, the floor that rises along a long one,
bytes, and draws beside their expected number. Data in, figure out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import Amounts, Numbers, bars, figure, grid_across, list_rows
from kvbook.figures.style import CARD, INK, color


def row(logits: Any, names: Sequence[str], shown: int = 12) -> Any:
    """The likeliest tokens of a row (V,): logits on the left, probabilities on the right."""
    order = np.argsort(-logits, kind="stable")[:shown]
    p = np.exp(logits - logits.max())
    p = 100 * p / p.sum()
    fig, axes = figure(3.0, ncols=2, sharey=True)
    panels = ((logits, "logit", "muted"), (p, "probability (%)", "ink"))
    for ax, (lengths, label, role) in zip(axes, panels, strict=True):
        ax.barh(range(shown), lengths[order], color=color(role), height=0.72)
        ax.set_xlabel(label)
        grid_across(ax)
    list_rows(axes[0], [names[i] for i in order], across=True)
    axes[0].set_title("The logits differ little")
    axes[1].set_title("The probabilities differ a lot")
    return fig


def floor(tiles: Numbers, passed: Sequence[int], logits: Any, tile: int) -> Any:
    """Above: each tile's logits as a range, and its floor. Below: how many of them passed it."""
    fig, (ax, below) = figure(4.0, nrows=2, sharex=True, height_ratios=(2, 1))
    chunks = [logits[i : i + tile] for i in range(0, len(logits), tile)]
    x, lows, highs = np.arange(len(chunks)), [c.min() for c in chunks], [c.max() for c in chunks]
    label = "logits of a tile, smallest to largest"
    ax.vlines(x, lows, highs, color=color("muted"), linewidth=2, label=label)
    ax.step(x, tiles, where="mid", color=color("ink"), label="floor")
    least, top = float(min(lows)), float(max(highs))
    ax.set_ylim(least - 0.18 * (top - least), top + 1)
    ax.set_ylabel("logit")
    ax.legend(loc="lower left", ncols=2)
    below.bar(x, passed, color=color("ink"), width=0.72)
    below.set(xlabel=f"tile of {tile:,} logits", ylabel="logits passed")
    ax.set_title("A higher floor lets fewer logits pass")
    return fig


def moved(sizes: Amounts, unit: str) -> Any:
    """Bytes that each way moves, in `unit`; the last bar is the one that reads once."""
    fig, ax = figure(0.5 * len(sizes) + 0.9)
    bars(ax, sizes, ["muted"] * (len(sizes) - 1) + ["ink"], xlabel=f"moved ({unit})")
    ax.set_title("Reading once moves the fewest bytes")
    return fig


def draws(counts: Any, needed: Any, names: Sequence[str]) -> Any:
    """How many times each token was drawn (dots), beside its expected number (bars)."""
    fig, ax = figure(3.0)
    x, spread = np.arange(len(counts)), 2 * np.sqrt(np.asarray(needed, float))
    style = {"color": CARD, "edgecolor": color("muted"), "linewidth": 1.5}
    ax.bar(x, needed, width=0.7, label="expected", **style)
    ax.errorbar(x, counts, fmt="o", color=color("ink"), markersize=4, label="drawn")
    label = "expected ± two standard deviations"
    ax.vlines(x, needed - spread, needed + spread, color=INK, linewidth=1, label=label)
    ax.set_xticks(x, labels=list(names))
    ax.set(xlabel="token", ylabel="draws")
    ax.grid(axis="x", visible=False)
    ax.set_title("The draws scatter around the expected numbers")
    ax.legend()
    return fig
