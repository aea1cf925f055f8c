"""Drawings of the chapter on memory: how the bytes grow (what fits and what is wasted is in
`memory_fit`). Data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import figure, finish, label_ends
from kvbook.figures.memory_fit import fits, mistakes, patch, reservation, steps
from kvbook.figures.style import CARD, INK, MUTED, color, text_color
from kvbook.figures.units import format_bytes, format_number

__all__ = [
    "crossing",
    "doubled",
    "fits",
    "forms",
    "mistakes",
    "models",
    "reservation",
    "steps",
]


def doubled(cache: Mapping[str, float], weights: Mapping[str, float]) -> Any:
    """By how much two bills grow when one size is doubled: a pair of bars per size."""
    fig, ax = figure(0.8 + 0.42 * len(cache))
    rows = np.arange(len(cache))
    for side, (bill, role) in enumerate(((cache, "cached"), (weights, "weights"))):
        lengths = [bill[name] for name in cache]
        drawn = ax.barh(rows + 0.4 * side - 0.2, lengths, height=0.36, color=color(role))
        words = [f"× {x:.2f}".replace(".00", "") for x in lengths]
        ax.bar_label(drawn, labels=words, padding=4, color=text_color(role), fontsize=9)
    ax.set_yticks(rows, labels=list(cache))
    ax.invert_yaxis()
    ax.set(xlabel="bytes after doubling it / bytes before", xlim=(0, 2.25))
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.grid(axis="y", visible=False)
    ax.legend(handles=[patch("cached", "cache"), patch("weights", "weights")], loc="lower right")
    return finish(fig)


def forms(tokens: Sequence[int], held: Mapping[str, Any]) -> Any:
    """Bytes of one request against its tokens, log scales: a line per form, dashed if it bends."""
    fig, ax = figure(4.2)
    for nbytes in held.values():
        slopes = np.diff(np.log(nbytes)) / np.diff(np.log(tokens))
        style = "-" if slopes.min() > 0.99 else "--"
        ax.plot(tokens, nbytes, color=color("cached"), linestyle=style)
    _log_tokens(ax, tokens)
    _log_bytes(ax, "cache of one request")
    ends = {name: float(nbytes[-1]) for name, nbytes in held.items()}
    label_ends(ax, ends, ["cached"] * len(ends), x_end=float(tokens[-1]))
    return finish(fig)


def models(own: Mapping[str, float], every_head: Mapping[str, float]) -> Any:
    """Bytes per token of each model (dot), and with keys and values for every query head (ring)."""
    fig, ax = figure(1.1 + 0.23 * len(own))
    rows = range(len(own))
    ax.hlines(rows, list(own.values()), list(every_head.values()), color=MUTED, linewidth=1.2)
    ax.plot(list(every_head.values()), rows, "o", mfc=CARD, mec=MUTED, markersize=6)
    ax.plot(list(own.values()), rows, "o", color=color("cached"), markersize=6)
    ax.set_xlim(0.22 * min(own.values()), 1.6 * max(every_head.values()))
    _log_bytes(ax, "bytes that a token adds, 16 bits per number", axis="x")
    for i, nbytes in enumerate(own.values()):
        words = format_bytes(nbytes)
        ax.annotate(words, (nbytes / 1.18, i), va="center", ha="right", size=8, color=INK)
    ax.set_yticks(rows, labels=list(own))
    ax.tick_params(axis="y", labelsize=8, length=0)
    ax.set_ylim(len(own) - 0.5, -0.5)
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    handles = [
        _dot("cached", "stored"),
        _dot("muted", "if every query head had a key and a value"),
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return finish(fig)


def crossing(tokens: Sequence[int], weights: float, caches: Mapping[str, Any]) -> Any:
    """Bytes of weights, and of caches that grow with the length of each request; log scales."""
    fig, ax = figure(3.6)
    ax.axhline(weights, color=color("weights"), linewidth=2.6)
    styles = ("-", "--", ":")
    for nbytes, style in zip(caches.values(), styles, strict=False):
        ax.plot(tokens, nbytes, color=color("cached"), linestyle=style)
        meets = float(np.interp(weights, nbytes, tokens))
        if tokens[0] < meets < tokens[-1]:
            ax.plot([meets], [weights], "o", color=INK, markersize=8, zorder=3)
            ax.annotate(
                format_number(meets),
                (meets, weights),
                xytext=(-5, 7),
                textcoords="offset points",
                ha="right",
                color=INK,
            )
    _log_tokens(ax, tokens)
    _log_bytes(ax, "bytes held")
    ends = {name: float(nbytes[-1]) for name, nbytes in caches.items()} | {"weights": weights}
    roles = ["cached"] * len(caches) + ["weights"]
    label_ends(ax, ends, roles, x_end=float(tokens[-1]))
    return finish(fig)


def _log_tokens(ax: Any, tokens: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ticks = [t for t in tokens if int(np.log2(t)) % 2 == 0]
    ax.set_xticks(ticks, labels=[f"{t:,}" for t in ticks])
    ax.set(xlabel="tokens of each request", xlim=(tokens[0], tokens[-1]))
    ax.minorticks_off()


def _log_bytes(ax: Any, name: str, axis: str = "y") -> None:
    """A log scale of bytes with a tick at every power of 4, in words."""
    which = ax.yaxis if axis == "y" else ax.xaxis
    (ax.set_yscale if axis == "y" else ax.set_xscale)("log", base=2)
    low, high = ax.get_ylim() if axis == "y" else ax.get_xlim()
    powers = range(int(np.ceil(np.log2(low))), int(np.log2(high)) + 1)
    ticks = [2.0**p for p in powers if p % 2 == 0]
    which.set_ticks(ticks, labels=[format_bytes(t) for t in ticks])
    which.set_label_text(name)
    ax.minorticks_off()


def _dot(role: str, words: str) -> Any:
    from matplotlib.lines import Line2D

    face = CARD if role == "muted" else color(role)
    return Line2D([], [], marker="o", linestyle="", mfc=face, mec=color(role), label=words)
