"""Drawings of the chapter on what may be forgotten: data in, figure out."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from json import loads
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Series, annotate, figure
from kvbook.figures.style import MUTED, color

TABLE = "eviction_table.json"


def eviction_table() -> dict[str, Any]:
    """Return what `tools/make_eviction_table.py` measured.

    settings; rows: rule → budget → bits per byte of each text, bytes held, recall. Bits of each
    text also under windows: window → bits; under "one full layer": layer → bits, the others with
    a window of 64; and under sinks: tokens kept → rule → bits of the first half of each text.
    """
    table: dict[str, Any] = loads(files("kvbook.figures").joinpath(TABLE).read_text("utf-8"))
    return table


def looks(shares: Any, names: Sequence[str], heads: int) -> Any:
    """Share of attention by distance, in percent: one row per query head (L x H, bands)."""
    fig, ax = figure(4.4)
    rows = np.asarray(shares)
    words = [[f"{x:.0f}" if x >= 1 or x == 0 else "< 1" for x in row] for row in rows]
    heads_named = [f"{i % heads}" for i in range(len(rows))]
    draw.number_cells(
        ax, rows, words, dark=55, columns=names, rows=heads_named, limits=(0, 100), size=8
    )
    layers = len(rows) // heads
    for layer in range(layers):
        middle = 1 - (layer + 0.5) / layers
        ax.text(-0.085, middle, f"layer {layer}", transform=ax.transAxes, ha="right", va="center")
        ax.axhline(layer * heads - 0.5, color=MUTED, linewidth=1)
    ax.set_xlabel("distance from the query back to the key, in tokens (numbers: % of attention)")
    ax.set_ylabel("query head")
    ax.set_title("Most heads look at recent tokens, a few far back")
    return fig


def ring(words: Sequence[str], slots: int) -> Any:
    """A ring after each token: a row per token, its new word in blue, those cached before dark."""
    fig, ax = figure(0.34 * len(words) + 0.9)
    held: list[str] = [""] * slots
    roles, texts = [], []
    for p, word in enumerate(words):
        held[p % slots] = word
        cached = ["cached" if w else "free" for w in held]
        cached[p % slots] = "key"
        roles.append(cached)
        texts.append(list(held))
    draw.cells(ax, roles, text=texts)
    ax.set_xticks(range(slots), labels=[f"slot {i}" for i in range(slots)])
    ax.set_yticks(range(len(words)), labels=[f"{p}: {word}" for p, word in enumerate(words)])
    ax.set(ylabel="position: token", xlim=(-0.6, 1.5 * slots))
    ax.set_title(f"A ring of {slots} slots: a new token overwrites the oldest")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    handles = [draw.patch("key", "written in this step"), draw.patch("cached", "still cached")]
    ax.legend(handles=[*handles, draw.patch("free", "empty")], loc="center right")
    return fig


def by_window(windows: Sequence[int], added: Sequence[tuple[float, float]], recall: Series) -> Any:
    """Bits added and recall by window, in percent.

    added holds the mean and the standard error at each window; recall: distance → one number each.
    """
    fig, (left, right) = figure(2.9, ncols=2)
    names = [f"{w:,}" for w in windows]
    mean, error = zip(*added, strict=True)
    left.errorbar(range(len(windows)), mean, error, color=color("ink"), marker="o", capsize=4)
    left.axhline(0, color=MUTED, linewidth=1)
    left.set(ylabel="bits per byte added (%)", xlabel="window (tokens)")
    left.set_xticks(range(len(windows)), labels=names)
    rows = np.array(list(recall.values()))
    words = [[f"{share:.0f}" for share in row] for row in rows]
    draw.number_cells(
        right, rows, words, dark=55, columns=names, rows=list(recall), limits=(0, 100), size=9
    )
    right.set(ylabel="distance of the letters (bytes)", xlabel="window (tokens)")
    left.set_title("Narrow windows cost bits …", fontsize=10)
    right.set_title("… recall (%) ends at the edge", fontsize=10)
    return fig


def influence(moved: Mapping[str, Any], reach: int) -> Any:
    """How far a changed byte moves the last logits, against its distance.

    Moves below 0.0001 are left out, because rounding may make them.
    """
    fig, axes = figure(1.5 * len(moved) + 0.9, nrows=len(moved), sharex=True, sharey=True)
    words = "Far bytes have no influence with windows; a full layer lets some through"
    fig.suptitle(words, x=0.01, ha="left", fontsize=11, fontweight="bold")
    for ax, (name, y) in zip(axes, moved.items(), strict=True):
        y = np.asarray(y, dtype=float)
        (distance,) = np.nonzero(y > 1e-4)
        ax.vlines(distance, 1e-5, y[distance], color=color("ink"), linewidth=1.6)
        ax.set(yscale="log", ylabel="a logit moves by", ylim=(1e-4, 20))
        ax.set_title(name, fontsize=10)
        ax.axvline(reach + 0.5, color=MUTED, linestyle="--", linewidth=1)
    axes[-1].set_xlabel("distance of the changed byte from the last one (bytes)")
    annotate(axes[0], f"{reach} bytes", (reach + 0.5, 1.0), offset=(14, 0))
    return fig


def fools(rules: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> Any:
    """Bits added, with their standard error, beside recall: one line per rule and budget.

    found: rule → budget → (mean, standard error, recall), all in percent. A mean beyond the axis
    is written at its end.
    """
    most = 7.0
    rows = [row for budgets in rules.values() for row in budgets.values()]
    bits, errors, recalls = zip(*rows, strict=True)
    fig, (left, right) = figure(0.23 * len(rows) + 0.9, ncols=2, sharey=True, width_ratios=(5, 3))
    y = np.arange(len(rows))
    style = {"fmt": "o", "capsize": 3, "elinewidth": 1.5}
    left.errorbar(bits, y, xerr=errors, color=color("ink"), **style)
    left.axvline(0, color=MUTED, linewidth=1)
    right.barh(y, recalls, color=color("cached"), height=0.6)
    for at, (mean, error, recall) in enumerate(rows):
        if mean > most:
            draw.centered(left, most, at, f"{mean:.1f} ± {error:.1f} →", ha="right")
        draw.centered(right, recall + 2, at, f"{recall:.0f}", ha="left")
    left.set_title("Often few bits are added …", fontsize=10)
    right.set_title("… but recall is mostly lost", fontsize=10)
    left.set(xlabel="bits per byte added (%), ± standard error", xlim=(-0.6, most))
    right.set(xlabel="recall at 1,024 bytes (%)", xlim=(0, 118), xticks=(0, 50, 100))
    draw.name_rows(left, [f"{share} %" for budgets in rules.values() for share in budgets])
    edge = 0
    for name, budgets in rules.items():
        middle = 1 - (edge + len(budgets) / 2) / len(rows)
        left.text(-0.16, middle, name, transform=left.transAxes, ha="right", va="center")
        edge += len(budgets)
        for ax in (left, right):
            ax.axhline(edge - 0.5, color=MUTED, linewidth=0.8)
    for ax in (left, right):
        ax.tick_params(axis="y", length=0)
        draw.grid_across(ax)
    return fig


def edited(off: Series, layers: int) -> Any:
    """Distance of the edited keys from recomputed ones, per layer: name → percent per layer."""
    fig, ax = figure(2.7)
    draw.grouped(ax, off, ("ink", "muted", "grid"))
    ax.set_xticks(range(layers), labels=[f"layer {n}" for n in range(layers)])
    ax.set(ylabel="keys off by (%)", title="Only layer 0 is right after the cut")
    ax.legend(loc="upper left")
    return fig
