"""The figures of the chapter on the roofline: data in, figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, figure, name_rows, note
from kvbook.figures.style import CARD, INK, MUTED, color, text_color
from kvbook.figures.units import format_bytes, format_number

_INTENSITY = "operations per byte moved (FLOP/B)"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def two_clocks(reading: Amounts, arithmetic: Amounts) -> Any:
    """Seconds that a step reads and that it computes, as two bars of stacked parts.

    Both map a part to its seconds, the first part the weights', the second the cache's.
    """
    fig, ax = figure(1.7)
    clocks = {"reading": reading, "arithmetic": arithmetic}
    rows = {name: {part: 1e3 * s for part, s in parts.items()} for name, parts in clocks.items()}
    fills = {}
    for parts in clocks.values():
        for part, role in zip(parts, ("weights", "cached"), strict=True):
            fills[part] = {"color": color(role)}
    draw.stacked(ax, rows, fills, lambda _, total: f"  {total:.3g} ms", height=0.6)
    name_rows(ax, rows, above=0.6, below=0.6)
    ax.set_xlim(0, 1.18e3 * sum(reading.values()))
    ax.set_xlabel("time at the data sheet's rates (ms)")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[:2], labels[:2], loc="lower right")
    return fig


def roofline(
    roofs: Mapping[str, tuple[float, float]],
    points: Mapping[str, tuple[float, float | None, str]],
    *,
    tracks: Mapping[str, tuple[Sequence[tuple[float, float | None, str]], str]] | None = None,
    offsets: Mapping[str, tuple[float, float]] | None = None,
    limits: tuple[float, float] = (0.3, 3000.0),
    title: str = "",
) -> Any:
    """Operations per second against operations per byte, both logarithmic, under one or more roofs.

    roofs    name -> (bytes per second, operations per second); the first is drawn solid
    points   name -> (operations per byte, operations per second or None: on the first roof, role)
    tracks   name -> (points with a short word each, role): one computation as something grows
    offsets  name -> where its label is, in points of print from its mark
    """
    fig, ax = figure(3.7)
    ax.set(xscale="log", yscale="log", xlabel=_INTENSITY, ylabel="")
    ax.set_title(title, pad=18)
    offsets = offsets or {}

    def label(text: str, xy: Any, offset: Any, role: str, **style: Any) -> None:
        note(ax, text, xy, offset, fontsize=8.5, color=text_color(role), **style)

    for i, (name, rates) in enumerate(roofs.items()):
        bandwidth, flops = map(float, rates)
        ridge = flops / bandwidth
        x, y = [limits[0], ridge, limits[1]], [bandwidth * limits[0], flops, flops]
        ax.plot(x, y, "--" if i else "-", color=MUTED, linewidth=1.6, zorder=1)
        ax.plot([ridge, ridge], y[:2], ":", color=MUTED, linewidth=1, zorder=1)
        label(f"{name}, ridge {format_number(ridge)}", (ridge, flops), (-4, 4), "ink")
    bandwidth, flops = (float(value) for value in next(iter(roofs.values())))

    def at(intensity: float, rate: float | None) -> tuple[float, float]:
        return intensity, min(flops, intensity * bandwidth) if rate is None else rate

    for name, (line, role) in (tracks or {}).items():
        xy = [at(x, y) for x, y, _ in line]
        # Join measured points only: a line between points on the roof would cut its corner.
        ideal = any(y is None for _, y, _ in line)
        ax.plot(
            *zip(*xy, strict=True),
            "o" if ideal else "o-",
            color=color(role),
            linewidth=1.2,
            markersize=6.5,
        )
        for where, (_, _, word) in zip(xy, line, strict=True):
            beside = (-6, 6, "right") if where[0] < flops / bandwidth else (6, -6, "left")
            *shift, side = (0, 7, "center") if ideal else beside
            label(word, where, shift, role, ha=side)
        label(name, xy[-1], offsets.get(name, (8, -12)), role)
    for name, (intensity, rate, role) in points.items():
        place = at(intensity, rate)
        ax.plot(*place, "o", color=color(role), markersize=8, markeredgecolor=CARD)
        label(name, place, offsets.get(name, (8, -12)), role)
    ax.set_xlim(*limits)
    ax.grid(axis="x", visible=True)
    draw.plain_numbers(ax.xaxis)
    size, prefix = next((s, p) for s, p in _PREFIXES if ax.get_ylim()[1] >= s)
    low, high = ax.get_ylim()
    if high < 100 * low:
        marks = [10.0**n * d for n in range(20) for d in (1, 2, 5)]
        draw.ticks_at(ax, [rate for rate in marks if low <= rate <= high], "y")
    draw.plain_numbers(ax.yaxis, size)
    ax.yaxis.set_minor_formatter("")
    ax.set_ylabel(f"operations per second ({prefix}FLOP/s)")
    return fig


def ladder(intensities: Mapping[str, tuple[float, str]], ridges: Amounts) -> Any:
    """Intensities on a log scale, one row each, with the ridges of two GPUs as vertical lines.

    intensities: name -> (operations per byte, role).
    """
    fig, ax = figure(1.1 + 0.27 * len(intensities))
    ax.set_xscale("log")
    card = {"facecolor": CARD, "edgecolor": "none", "pad": 0.5}  # above the lines of ridges
    for row, (x, role) in enumerate(intensities.values()):
        ax.plot([x], [row], "o", color=color(role), markersize=8)
        near = any(x < ridge < 1.5 * x for ridge in ridges.values())  # its label goes above the dot
        across, down = (x, row - 0.6) if near else (1.2 * x, row)
        style: dict[str, Any] = {"ha": "center" if near else "left", "fontsize": 8.5, "bbox": card}
        draw.centered(ax, across, down, format_number(x), text_color(role), **style)
    for i, (name, x) in enumerate(sorted(ridges.items(), key=lambda pair: pair[1])):
        ax.axvline(x, color=MUTED, linewidth=1.2, linestyle=":")
        ha = "left" if i == len(ridges) - 1 else "right"  # the labels stay clear of each other
        ax.text(x, -0.75, f" {name}: {x:.0f} ", ha=ha, fontsize=8.5, color=MUTED)
    ax.set_title("Only latent attention reaches a ridge", pad=18)
    name_rows(ax, intensities, above=0.6)
    ax.set_xlim(0.5, 2000)
    ax.set_xlabel(_INTENSITY)
    draw.plain_numbers(ax.xaxis)
    return fig


def throughput(batches: Sequence[int], rates: Numbers, most: float, half: float) -> Any:
    """Tokens per second of a batch, with the limit `most`, and of each of its requests."""
    fig, (left, right) = figure(3.0, ncols=2)
    x, total = np.asarray(batches, dtype=float), np.asarray(rates, dtype=float)
    left.plot(x, total, color=INK)
    left.axhline(most, color=MUTED, linewidth=1.2, linestyle="--")
    note(left, "bandwidth / K", (x[-1], most), (-2, 3), fontsize=9)
    left.set(title="The batch gains less and less", ylim=(0, 1.15 * most))
    right.plot(x, total / x, color=INK)
    right.set(title="Each request gets slower", ylim=(0, 1.15 * total[0] / x[0]))
    for ax in (left, right):
        ax.axvline(half, color=MUTED, linewidth=1, linestyle=":")
        note(ax, f"{half:.0f}: W = B K", (half, 0), (4, 4), fontsize=9)
        ax.set(xlabel="requests in the batch", ylabel="tokens per second", xlim=(0, x[-1]))
        draw.plain_numbers(ax.yaxis)
    return fig


def hill(speeds: Mapping[int, float], marks: Amounts) -> Any:
    """Bytes per second against how many bytes are read again and again, and where models are."""
    from matplotlib.ticker import LogLocator

    fig, ax = figure(3.0)
    rates = np.array([float(rate) for rate in speeds.values()]) / 1e9
    ax.set_xscale("log", base=2)
    ax.plot(list(speeds), rates, "o-", color=INK, linewidth=1.5)
    ax.set_ylim(0, 1.25 * rates.max())
    for name, nbytes in marks.items():
        ax.axvline(nbytes, color=MUTED, linewidth=1, linestyle=":")
        ax.text(nbytes, 1.23 * rates.max(), f"{name} ", ha="right", va="top", fontsize=9, color=INK)
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.xaxis.set_major_formatter(lambda value, _pos: format_bytes(value))
    ax.set(xlabel="bytes read, again and again", ylabel="bandwidth (GB/s)")
    ax.set_title("What fits into the processor's caches is read faster")
    return fig
