"""Drawings of the chapter on what may be forgotten: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from json import loads
from typing import Any

import numpy as np

from kvlib.show.draw import annotate, figure, finish
from kvlib.show.style import INK, MUTED, color, on_color, text_color

TABLE = "eviction_table.json"


def eviction_table() -> dict[str, Any]:
    """What `tools/make_eviction_table.py` measured: its settings, and rule → budget → numbers."""
    found: dict[str, Any] = loads(files("kvlib.show").joinpath(TABLE).read_text("utf-8"))
    return found


def looks(shares: Any, names: Sequence[str], heads: int) -> Any:
    """Share of attention by distance, in percent: one row per query head (L x H, bands)."""
    fig, ax = figure(4.4)
    rows = np.asarray(shares)
    ax.imshow(rows, vmin=0, vmax=100, aspect="auto")
    for (i, j), x in np.ndenumerate(rows):
        ink = on_color("cached") if x > 55 else INK
        words = f"{x:.0f}" if x >= 1 or x == 0 else "< 1"
        ax.text(j, i, words, ha="center", va="center", color=ink, fontsize=8)
    ax.set_xticks(range(len(names)), labels=list(names))
    layers = len(rows) // heads
    ax.set_yticks(range(len(rows)), labels=[f"{i % heads}" for i in range(len(rows))])
    for layer in range(layers):
        middle = 1 - (layer + 0.5) / layers
        ax.text(-0.085, middle, f"layer {layer}", transform=ax.transAxes, ha="right", va="center")
        ax.axhline(layer * heads - 0.5, color=MUTED, linewidth=1)
    ax.set_xlabel("distance from the query back to the key, in tokens (numbers: percent)")
    ax.set_ylabel("query head")
    ax.tick_params(length=0)
    ax.grid(False)
    return finish(fig)


def by_window(windows: Sequence[int], added: Sequence[float], recall: Mapping[str, Any]) -> Any:
    """Bits per byte added (percent), and recall (percent) at some distances, against the window."""
    fig, (left, right) = figure(3.2, ncols=2)
    x = range(len(windows))
    left.plot(x, added, color=color("ink"), marker="o")
    left.set(ylabel="bits per byte added (%)", ylim=(-1, None))
    looks = (("-", "o"), ("--", "s"), (":", "^"))
    for (name, y), (dashes, mark) in zip(recall.items(), looks, strict=False):
        style = {"color": color("ink"), "linestyle": dashes, "marker": mark}
        right.plot(x, y, label=name, **style)
    right.set(ylabel="recall (%)", ylim=(-4, 104))
    handles, names = right.get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper right", ncols=3, title="recall")
    for ax in (left, right):
        ax.set_xticks(x, labels=[str(w) for w in windows])
        ax.set_xlabel("window (tokens)")
    return finish(fig)


def lent(shares: Sequence[float], bits: Sequence[float]) -> Any:
    """Bits per byte after the sink has gone, against the share of attention that it had."""
    fig, ax = figure(2.9)
    ax.plot([100 * s for s in shares], bits, color=color("recomputed"), marker="o")
    ax.axhline(8, color=color("muted"), linestyle="--")
    ax.text(0, 7.85, "guessing bytes at random", va="top", color=text_color("muted"), fontsize=9)
    ax.axhline(bits[0], color=color("cached"))
    words = {"va": "bottom", "ha": "right", "fontsize": 9}
    ax.text(100 * shares[-1], bits[0] + 0.1, "sink kept", color=text_color("cached"), **words)
    ax.set(xlabel="share of attention that the sink had (%)", ylabel="bits per byte, sink gone")
    ax.set_ylim(0, 8.4)
    return finish(fig)


def influence(moved: Mapping[str, Any], reach: int) -> Any:
    """How far a changed byte moves the last logits, against its distance.

    Moves below 0.0001 are left out, because rounding may make them.
    """
    fig, axes = figure(1.5 * len(moved) + 0.6, nrows=len(moved), sharex=True, sharey=True)
    for ax, (name, y) in zip(axes, moved.items(), strict=True):
        y = np.asarray(y, dtype=float)
        distance = np.arange(len(y))
        some = y > 1e-4
        ax.vlines(distance[some], 1e-5, y[some], color=color("recomputed"), linewidth=1.6)
        ax.set_yscale("log")
        ax.set(ylabel="a logit moves by", ylim=(1e-4, 20))
        ax.set_title(name)
        ax.axvline(reach + 0.5, color=MUTED, linestyle="--", linewidth=1)
    axes[-1].set_xlabel("distance of the changed byte from the last one (bytes)")
    annotate(axes[0], f"{reach} bytes", (reach + 0.5, 1.0), offset=(14, 0))
    return finish(fig)


def fools(points: Mapping[str, Sequence[tuple[float, float]]], marked: tuple[str, int]) -> Any:
    """Bits added (percent) against recall (percent): rule → one (bits, recall) for each budget.

    A larger budget is a larger mark. marked: the rule and the number of the budget that an arrow
    names. Marks far to the right are left out, and the label of the axis counts them.
    """
    fig, ax = figure(3.4)
    marks, most = "osD^vP*X", 1.3
    out = sum(bits > most for pairs in points.values() for bits, _ in pairs)
    for i, (name, pairs) in enumerate(points.items()):
        x, y = zip(*pairs, strict=True)
        sizes = [22 + 30 * n for n in range(len(pairs))]
        tone = color("ink" if i < 2 else "recomputed")
        style: dict[str, Any] = {"color": tone, "marker": marks[i % len(marks)], "zorder": 3}
        ax.scatter(x, y, s=sizes, label=name, alpha=0.75, clip_on=False, **style)
    rule, at = marked
    annotate(ax, f"{rule}: fewer bits, no recall", points[rule][at], offset=(14, 40))
    ax.axvline(0, color=MUTED, linewidth=1)
    ax.set(ylabel="recall at 1,024 bytes (%)", ylim=(-4, 104), xlim=(-0.3, most))
    ax.set_xlabel(f"bits per byte added (%); {out} marks lie beyond {most} %")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), scatterpoints=1)
    return finish(fig)


def edited(off: Mapping[str, Sequence[float]], layers: int) -> Any:
    """Distance of the edited keys from recomputed ones, per layer: name → percent per layer."""
    fig, ax = figure(2.7)
    width = 0.8 / len(off)
    for i, ((name, heights), tone) in enumerate(
        zip(off.items(), ("recomputed", "muted", "grid"), strict=False)
    ):
        x = np.arange(layers) + (i - (len(off) - 1) / 2) * width
        ax.bar(x, heights, width=width * 0.9, color=color(tone), label=name)
    ax.set_xticks(range(layers), labels=[f"layer {n}" for n in range(layers)])
    ax.set(ylabel="keys off by (%)")
    ax.legend(loc="upper left")
    return finish(fig)
