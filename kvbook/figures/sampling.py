"""Drawings of the chapter on sampling: a row of logits, the floor that rises along a long one,
bytes, comparisons, draws beside what they should be. Data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import Amounts, Numbers, Series, bars, figure, lines, ticks_at
from kvbook.figures.style import CARD, INK, MUTED, color

# Series that are none of the book's roles: told apart by their lines and marks.
METHODS = {"threshold": ("ink", "o-"), "heap": ("muted", "s--"), "radix": ("muted", "^:")}


def row(logits: Any, names: Sequence[str], shown: int = 16) -> Any:
    """The likeliest tokens of a row (V,): logits on the left, probabilities on the right."""
    order = np.argsort(-logits, kind="stable")[:shown]
    p = np.exp(logits - logits.max())
    p = 100 * p / p.sum()
    fig, axes = figure(3.0, ncols=2)
    panels = ((logits, "logit", "muted"), (p, "probability (%)", "ink"))
    for ax, (heights, label, role) in zip(axes, panels, strict=True):
        ax.bar(range(shown), heights[order], color=color(role), width=0.72)
        ax.set_xticks(range(shown), labels=[names[i] for i in order], fontsize=8)
        ax.tick_params(axis="x", rotation=90)
        ax.set_ylabel(label)
        ax.grid(axis="x", visible=False)
    return fig


def floor(tiles: Numbers, passed: Sequence[int], logits: Any, tile: int) -> Any:
    """Each tile's logits as a range, and the floor it met; above it, how many passed."""
    fig, ax = figure(3.4)
    chunks = [logits[i : i + tile] for i in range(0, len(logits), tile)]
    x, lows, highs = np.arange(len(chunks)), [c.min() for c in chunks], [c.max() for c in chunks]
    label = "logits of a tile, least to largest"
    ax.vlines(x, lows, highs, color=color("muted"), linewidth=2, label=label)
    ax.step(x, tiles, where="mid", color=color("ink"), label="floor it is compared with")
    least, top = float(min(lows)), float(max(highs))
    for i, n in enumerate(passed):
        ax.text(i, top + 1, str(n), ha="center", va="bottom", fontsize=8, color=INK, rotation=90)
    room = 0.15 * (top - least)
    ax.set_ylim(least - room, top + 1.2 * room)
    ax.set_title("above each tile: how many of its logits passed", fontsize=9, color=MUTED)
    ax.set(xlabel=f"tile of {tile:,} logits", ylabel="logit")
    ax.legend(loc="lower left", ncols=2)
    return fig


def moved(sizes: Amounts, unit: str) -> Any:
    """Bytes that each way moves, in `unit`; the last bar is the one that reads once."""
    fig, ax = figure(0.5 * len(sizes) + 0.9)
    bars(ax, sizes, ["muted"] * (len(sizes) - 1) + ["ink"], xlabel=f"moved ({unit})")
    return fig


def operations(ks: Sequence[int], counts: Series, columns: int) -> Any:
    """Operations per logit against k, one line a method, k logarithmic."""
    fig, ax = figure(3.4)
    series = {name: np.asarray(n, float) / columns for name, n in counts.items()}
    roles, forms = zip(*(METHODS[name] for name in series), strict=True)
    ax.set(xscale="log", ylim=(0, 1.1 * max(max(n) for n in series.values())))
    lines(ax, ks, series, roles, xlabel="k", ylabel="operations per logit", forms=forms)
    ticks_at(ax, ks)
    return fig


def draws(counts: Any, needed: Any, names: Sequence[str]) -> Any:
    """How often each token was drawn (dots) beside how often it should be, two deviations wide."""
    fig, ax = figure(3.0)
    x, spread = np.arange(len(counts)), 2 * np.sqrt(np.asarray(needed, float))
    style = {"color": CARD, "edgecolor": color("muted"), "linewidth": 1.5}
    ax.bar(x, needed, width=0.7, label="expected", **style)
    ax.errorbar(x, counts, fmt="o", color=color("ink"), markersize=4, label="drawn")
    ax.vlines(x, needed - spread, needed + spread, color=INK, linewidth=1, label="two deviations")
    ax.set_xticks(x, labels=list(names), fontsize=8)
    ax.set(xlabel="token", ylabel="draws")
    ax.grid(axis="x", visible=False)
    ax.legend()
    return fig


def times(panels: Mapping[str, Amounts], unit: str) -> Any:
    """Medians in `unit`, a panel for each number of rows."""
    fig, axes = figure(1.1 * len(panels) + 0.5, nrows=len(panels), squeeze=False)
    for ax, (title, values) in zip(axes[:, 0], panels.items(), strict=True):
        bars(ax, values, ["muted"] * (len(values) - 1) + ["ink"], xlabel=f"time ({unit})")
        ax.set_title(title)
    return fig
