"""Drawings of the chapter on norms: data in, figure out. Its slider is in `layernorm_partials`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import figure, finish, heatmap, label_ends
from kvbook.figures.layernorm_partials import partials_explorer
from kvbook.figures.style import CARD, GRID, INK, MUTED, color
from kvbook.figures.units import format_number

__all__ = [
    "by_offset",
    "by_step",
    "intensities",
    "jacobians",
    "kept",
    "lengths",
    "partials_explorer",
]


def lengths(before: Sequence[Any], after: Sequence[Any]) -> Any:
    """Root mean square of every row before and after each norm of a forward pass.

    before, after: one array (T,) per norm, in the order of the forward pass.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    fig, ax = figure(2.9)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _pos: f"{v:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    for rows, role in ((before, "muted"), (after, "ink")):
        for i, values in enumerate(rows):
            spread = i + 0.5 * (np.arange(len(values)) / len(values) - 0.5)
            ax.plot(spread, values, ".", color=color(role), markersize=4)
    ax.set(xlabel="norm, in the order of the forward pass", ylabel="root mean square of a row")
    ax.set_xticks(range(len(before)))
    ax.set_xlim(-0.6, len(before) - 0.4)
    ends = {
        "before the norm": float(np.median(before[-1])),
        "after the norm": float(np.median(after[-1])),
    }
    label_ends(ax, ends, ["muted", "ink"], x_end=len(before) - 0.4)
    return finish(fig)


def jacobians(matrices: Mapping[str, Any]) -> Any:
    """Square matrices (D, D) side by side, one scale, white at zero."""
    fig, axes = figure(3.2, ncols=len(matrices))
    top = max(float(np.abs(m).max()) for m in matrices.values())
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        image = heatmap(ax, matrix, xlabel="input j", ylabel="output i", signed=True, vmax=top)
        ax.set_title(name)
        ax.set_aspect("equal")
    fig.colorbar(image, ax=list(axes), label="∂x̂ᵢ / ∂xⱼ")
    return finish(fig)


def kept(ways: Mapping[str, Mapping[str, float]], unit: str) -> Any:
    """Stacked bars: what each way keeps for the backward pass, part by part, in `unit`."""
    fig, ax = figure(1.0 + 0.62 * len(ways))
    fills = ((INK, ""), (MUTED, ""), (GRID, ""), (CARD, "///"), (CARD, ""))  # no part has a role
    names = list(dict.fromkeys(part for parts in ways.values() for part in parts))
    for row, parts in enumerate(ways.values()):
        left = 0.0
        for name, size in parts.items():
            label = name if name not in ax.get_legend_handles_labels()[1] else None
            fill, hatch = fills[names.index(name) % len(fills)]
            style = {"facecolor": fill, "edgecolor": MUTED, "hatch": hatch}
            ax.barh(row, size, left=left, height=0.6, label=label, **style)
            left += size
        ax.text(left, row, f"  {left:,.0f}", va="center", fontsize=9, color=INK)
    ax.set_yticks(range(len(ways)), labels=list(ways))
    ax.set_ylim(len(ways) - 0.4, -0.6)
    ax.set_xlim(0, 1.15 * max(sum(parts.values()) for parts in ways.values()))
    ax.set_xlabel(f"kept for the backward pass ({unit})")
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    fig.legend(loc="outside lower center", ncols=min(4, len(names)))
    return finish(fig)


def intensities(counted: Mapping[str, float], ridges: Mapping[str, float]) -> Any:
    """Operations per byte on a log scale, one row each, and the ridges of GPUs as vertical lines.

    Only counts are drawn, and no rates, because nothing here was measured.
    """
    from matplotlib.ticker import FuncFormatter

    fig, ax = figure(1.2 + 0.32 * len(counted))
    ax.set_xscale("log")
    for row, n in enumerate(counted.values()):
        ax.plot([n], [row], "o", color=INK, markerfacecolor=CARD, markersize=8)
        ax.text(n * 1.2, row, format_number(n), va="center", fontsize=9, color=INK)
    for name, n in ridges.items():
        ax.axvline(n, color=MUTED, linewidth=1.2, linestyle=":")
        ax.text(n, -0.75, f"ridge of {name}: {n:.0f} ", ha="right", fontsize=9, color=MUTED)
    ax.set_yticks(range(len(counted)), labels=list(counted))
    ax.set_ylim(len(counted) - 0.5, -1.1)
    ax.set_xlim(min(counted.values()) / 2, 3 * max(ridges.values()))
    ax.set_xlabel("operations per byte (FLOP/B), counted")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _pos: f"{v:,.6g}"))
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    return finish(fig)


def by_step(steps: Sequence[float], errors: Mapping[str, Sequence[float]]) -> Any:
    """Error of a difference quotient against its step, both logarithmic."""
    return _errors(steps, errors, "step", "error / largest\ncomponent of dx", 1e-17)


def by_offset(offsets: Sequence[float], errors: Mapping[str, Sequence[float]]) -> Any:
    """Relative error of a standard deviation against the mean of the row, both logarithmic."""
    return _errors(
        offsets, errors, "mean of the row, in standard deviations", "relative error of σ", 1e-17
    )


def _errors(
    x: Sequence[float],
    errors: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    least: float,
) -> Any:
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    looks = (("muted", "s:"), ("muted", "^--"), ("ink", "o-"))[-len(errors) :]  # the last is ours
    roles = [role for role, _ in looks]
    shown = {name: np.maximum(np.asarray(y, dtype=float), least) for name, y in errors.items()}
    for y, (role, look) in zip(shown.values(), looks, strict=True):
        ax.plot(x, y, look, color=color(role), markersize=4)
    ax.set_xlim(min(x), max(x))
    ax.grid(axis="x", visible=True)
    ends = {name: float(y[int(np.argmax(x))]) for name, y in shown.items()}
    label_ends(ax, ends, roles, x_end=float(max(x)))
    return finish(fig)
