"""Drawings of the chapter on what may be forgotten: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from json import loads
from typing import Any

import numpy as np

from kvbook.figures.draw import annotate, figure, finish
from kvbook.figures.style import INK, MUTED, color, on_color

TABLE = "eviction_table.json"


def eviction_table() -> dict[str, Any]:
    """Return what `tools/make_eviction_table.py` measured.

    settings; rows: rule → budget → bits per byte of each text, bytes held, recall. Bits of each
    text also under windows: window → bits; under "one full layer": layer → bits, the others with
    a window of 64; and under sinks: tokens kept → rule → bits of the first half of each text.
    """
    found: dict[str, Any] = loads(files("kvbook.figures").joinpath(TABLE).read_text("utf-8"))
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


def by_window(
    windows: Sequence[int],
    added: Sequence[tuple[float, float]],
    recall: Mapping[str, Sequence[float]],
) -> Any:
    """Bits added and recall by window, in percent.

    added holds the mean and the standard error at each window; recall: distance → one number each.
    """
    fig, (left, right) = figure(2.9, ncols=2)
    x = range(len(windows))
    mean, error = zip(*added, strict=True)
    left.errorbar(x, mean, error, color=color("ink"), marker="o", capsize=4)
    left.axhline(0, color=MUTED, linewidth=1)
    left.set(ylabel="bits per byte added (%)")
    rows = np.array(list(recall.values()))
    right.imshow(rows, vmin=0, vmax=100, aspect="auto")
    for (i, j), found in np.ndenumerate(rows):
        ink = on_color("cached") if found > 55 else INK
        right.text(j, i, f"{found:.0f}", ha="center", va="center", color=ink, fontsize=9)
    right.set_yticks(range(len(rows)), labels=list(recall))
    right.set(ylabel="letters so many bytes back", title="recall (%)")
    right.tick_params(length=0)
    right.grid(False)
    for ax in (left, right):
        ax.set_xticks(x, labels=[str(w) for w in windows])
        ax.set_xlabel("window (tokens)")
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


def fools(found: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> Any:
    """Bits added, with their standard error, beside recall: one line per rule and budget.

    found: rule → budget → (mean, standard error, recall), all in percent. A mean beyond the axis
    is written at its end.
    """
    most = 7.0
    rows = [row for budgets in found.values() for row in budgets.values()]
    bits, errors, recalls = zip(*rows, strict=True)
    fig, (left, right) = figure(0.23 * len(rows) + 0.6, ncols=2, sharey=True, width_ratios=(5, 3))
    y = np.arange(len(rows))
    style = {"color": color("ink"), "marker": "o", "linestyle": "none"}
    left.errorbar(bits, y, xerr=errors, capsize=3, elinewidth=1.5, **style)
    left.axvline(0, color=MUTED, linewidth=1)
    for at, mean, error in zip(y, bits, errors, strict=True):
        if mean > most:
            words = f"{mean:.1f} ± {error:.1f} →"
            left.text(most, at, words, ha="right", va="center", fontsize=9)
    left.set(xlabel="bits per byte added (%), ± standard error", xlim=(-0.6, most))
    right.barh(y, recalls, color=color("cached"), height=0.6)
    for at, recall in zip(y, recalls, strict=True):
        right.text(recall + 2, at, f"{recall:.0f}", va="center", fontsize=9)
    right.set(xlabel="recall at 1,024 bytes (%)", xlim=(0, 118), xticks=(0, 50, 100))
    left.set_yticks(y, labels=[f"{share} %" for budgets in found.values() for share in budgets])
    left.set_ylim(len(rows) - 0.5, -0.5)
    edge = 0
    for name, budgets in found.items():
        middle = 1 - (edge + len(budgets) / 2) / len(rows)
        left.text(-0.16, middle, name, transform=left.transAxes, ha="right", va="center")
        edge += len(budgets)
        for ax in (left, right):
            ax.axhline(edge - 0.5, color=MUTED, linewidth=0.8)
    for ax in (left, right):
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
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
