"""Drawings of the chapter on few bits: where keys and values differ, what an axis costs, what a
codec weighs. Data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import bytes_axis, cells, figure, finish, heatmap
from kvbook.figures.style import CARD, INK, MUTED, color, on_color, text_color

AXIS_ROLES = {"per channel": "key", "per token": "muted"}  # keys, decoded one way or the other


def stripes(keys: Any, values: Any) -> Any:
    """Keys and values of one head as they are stored, (tokens, channels) each, one colour scale."""
    fig, axes = figure(4.0, ncols=2, sharey=True)
    top = float(max(np.abs(keys).max(), np.abs(values).max()))
    for ax, x, name in zip(axes, (keys, values), ("keys", "values"), strict=True):
        image = heatmap(ax, x, xlabel="channel", ylabel="", signed=True, vmax=top)
        ax.set_title(name)
    axes[0].set_ylabel("token")
    fig.colorbar(image, ax=list(axes), label="number stored", shrink=0.9)
    return finish(fig)


def ranges(panels: Mapping[str, Any], roles: Sequence[str]) -> Any:
    """Smallest, mean and largest number of each channel: one panel per array (tokens, channels)."""
    fig, axes = figure(1.45 * len(panels) + 0.5, nrows=len(panels), sharex=True, sharey=True)
    for ax, (name, x), role in zip(axes, panels.items(), roles, strict=True):
        channels = np.arange(x.shape[1])
        ax.vlines(channels, x.min(axis=0), x.max(axis=0), color=color(role), linewidth=2.5)
        ax.plot(channels, x.mean(axis=0), "o", color=INK, markersize=3)
        ax.axhline(0, color=MUTED, linewidth=0.8)
        ax.set_title(name, color=text_color(role))
        ax.set_ylabel("number")
    axes[-1].set_xlabel("channel (line: smallest to largest number, dot: mean)")
    return finish(fig)


def by_axis(errors: Mapping[str, Mapping[str, Sequence[float]]], bits: Sequence[int]) -> Any:
    """Error in percent: what is quantised → axis → one number for each of `bits`; log colours."""
    fig, axes = figure(1.9, ncols=len(errors), sharey=True)
    every = np.log10([[list(row) for row in table.values()] for table in errors.values()])
    low, high = float(every.min()) - 0.3, float(every.max())
    for ax, (what, table) in zip(axes, errors.items(), strict=True):
        numbers = np.array([list(row) for row in table.values()])
        ax.imshow(np.log10(numbers), vmin=low, vmax=high, aspect="auto")
        for (i, j), x in np.ndenumerate(numbers):
            dark = (np.log10(x) - low) / (high - low) > 0.55
            ink = on_color("cached") if dark else INK
            ax.text(j, i, f"{x:.2g} %", ha="center", va="center", color=ink, fontsize=10)
        ax.set_xticks(range(len(bits)), labels=[f"{b} bits" for b in bits])
        ax.set_yticks(range(len(table)), labels=list(table))
        ax.tick_params(length=0)
        ax.set_title(f"error of the {what}")
        ax.grid(False)
    return finish(fig)


def by_layer(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Any:
    """Bars per layer and axis: one panel per kind of error, its name the axis label."""
    fig, axes = figure(3.0, ncols=len(panels))
    for ax, (name, table) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        width = 0.8 / len(table)
        for i, (axis, heights) in enumerate(table.items()):
            x = np.arange(len(heights)) + (i - (len(table) - 1) / 2) * width
            ax.bar(x, heights, width=width * 0.9, color=color(AXIS_ROLES[axis]), label=axis)
        ax.set_xticks(range(len(heights)))
        ax.set(xlabel="layer", ylabel=name)
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=2)
    return finish(fig)


def bytes_of(orders: Mapping[str, Sequence[tuple[int, int]]]) -> Any:
    """Which channel lies in which half of a byte: order → (low, high) channels of each byte."""
    fig, axes = figure(1.5 * len(orders) + 0.2, nrows=len(orders), sharex=True)
    for ax, (name, pairs) in zip(axes, orders.items(), strict=True):
        text = [[str(pair[half]) for pair in pairs] for half in (1, 0)]
        half_of = len(pairs)
        roles = [["muted" if int(c) < half_of else "grid" for c in row] for row in text]
        cells(ax, roles, text=text)
        ax.set_yticks([0, 1], labels=["high 4 bits", "low 4 bits"])
        ax.set_xticks(range(len(pairs)), labels=[f"byte {j}" for j in range(len(pairs))])
        ax.tick_params(length=0, labelbottom=True)
        ax.spines[:].set_visible(False)
        ax.set_title(name)
    return finish(fig)


def residual(kept: Sequence[int], added: Mapping[str, Sequence[tuple[float, float]]]) -> Any:
    """Bits per byte added (percent) against the tokens kept unquantised; three lines at most.

    added: name → (mean, standard error) for each of `kept`.
    """
    fig, ax = figure(3.0)
    styles = (("ink", "-", "o"), ("ink", "--", "s"), ("muted", ":", "^"))
    x = range(len(kept))
    for (name, found), (tone, style, mark) in zip(added.items(), styles, strict=False):
        mean, error = zip(*found, strict=True)
        ax.errorbar(
            x, mean, error, color=color(tone), linestyle=style, marker=mark, capsize=4, label=name
        )
    ax.set_xticks(x, labels=[str(n) for n in kept])
    ax.set(xlabel="newest tokens kept in float32 (residual)", ylabel="bits per byte added (%)")
    every = [(mean - error, mean) for found in added.values() for mean, error in found]
    low, high = min(low for low, _ in every), max(mean for _, mean in every)
    ax.set_ylim(min(0, low) - 0.05 * high)  # the lowest bar does not end on the axis
    ax.legend(loc="upper right", handlelength=3.5)  # long enough for a dash
    return finish(fig)


def weight(held: Mapping[str, tuple[float, float, float]], title: str = "") -> Any:
    """Bytes of live caches: codec → (codes or numbers, scales, newest tokens)."""
    fig, ax = figure(0.9 + 0.34 * len(held) + (0.3 if title else 0))
    ax.set_title(title)
    left = np.zeros(len(held))
    names = list(held)
    parts = (("codes", "cached"), ("scales and zeros", "muted"), ("newest tokens", "grid"))
    for i, (label, role) in enumerate(parts):
        lengths = np.array([row[i] for row in held.values()], dtype=float)
        ax.barh(names, lengths, left=left, height=0.62, color=color(role), label=label)
        left += lengths
    whole = left[0]
    for i, x in enumerate(left):
        ax.annotate(
            f"{100 * x / whole:.1f} %" if i else "= 100 %",
            (x, i),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    ax.set_xlim(0, whole * 1.12)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    bytes_axis(ax, "one layer's cache", axis="x")
    ax.legend(loc="lower right")
    return finish(fig)


def speed(read: Mapping[str, float], times: Mapping[str, Sequence[float]], names: Any) -> Any:
    """Bytes and time of a decode step as multiples of the first: one bar per length."""
    fig, ax = figure(0.9 + 0.3 * len(times) * (1 + len(names)))
    rows = np.arange(len(times))
    bars = [("bytes read", "cached", list(read.values()))]
    for i, name in enumerate(names):
        role = ("muted", "grid")[i % 2]
        bars.append((f"time, {name}", role, [t[i] for t in times.values()]))
    height = 0.84 / len(bars)
    for i, (label, role, lengths) in enumerate(bars):
        y = rows + (i - (len(bars) - 1) / 2) * height
        drawn = ax.barh(y, lengths, height=height * 0.9, color=color(role), label=label)
        on_card = {"facecolor": CARD, "edgecolor": "none", "pad": 0.5}  # above the line at 1
        words = [f"× {x:.2g}" for x in lengths]
        ax.bar_label(drawn, labels=words, padding=4, size=9, bbox=on_card)
    ax.axvline(1, color=MUTED, linewidth=1, zorder=0.5)
    ax.set_yticks(rows, labels=list(times))
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * max(x for _, _, lengths in bars for x in lengths))
    ax.set_xlabel(f"as a multiple of {next(iter(times))}")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="best")
    return finish(fig)


def trade(
    nbytes: Mapping[str, float], kl: Mapping[str, tuple[float, float]], bad: Sequence[str] = ()
) -> Any:
    """Bytes per token against divergence (log scales), a named dot per codec, hollow for `bad`.

    kl: name → (mean, standard error).
    """
    fig, ax = figure(3.8)
    for name, x in nbytes.items():
        face = CARD if name in bad else INK
        mean, error = kl[name]
        ax.errorbar([x], [mean], [error], fmt="o", mfc=face, mec=INK, ecolor=INK, markersize=7)
        left = name in bad  # to the left, where no other name begins
        ax.annotate(
            name,
            (x, mean),
            xytext=(-7, -3) if left else (7, 5),
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=9,
            color=INK,
        )
    ax.set(xscale="log", yscale="log", ylabel="divergence from float32 (bits per byte)")
    least, most = min(nbytes.values()), max(nbytes.values())
    ticks = [2**p for p in range(40) if 0.5 * least < 2**p < 1.5 * most]
    ax.set_xticks(ticks, labels=[f"{t:,}" for t in ticks])
    ax.set_xlim(0.5 * least, 1.5 * most)
    ax.minorticks_off()
    ax.set_xlabel("bytes per token, scales included")
    return finish(fig)
