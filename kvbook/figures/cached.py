"""Drawings of the chapter on caching: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Series, cells, figure, heatmap, lines
from kvbook.figures.style import INK, color
from kvlib.arrays import Array

_WORDS = {
    "key": "computed for the first time",
    "recomputed": "computed again",
    "cached": "read from the cache",
}


def work(recomputed: Sequence[range], kept: Sequence[range]) -> Any:
    """What each step computes and what it finds: one row per step, one column a position.

    Both list, for the steps over one growing text, the positions that the step computed.
    """
    fig, axes = figure(3.5, ncols=2, sharey=True)
    panels = (("without a cache", recomputed), ("with a cache", kept))
    for ax, (title, steps) in zip(axes, panels, strict=True):
        seen: set[int] = set()
        rows: list[list[str | None]] = []
        for computed in steps:
            row: list[str | None] = ["cached"] * computed.stop
            for p in computed:
                row[p] = "recomputed" if p in seen else "key"
            seen.update(computed)
            rows.append(row)
        cells(ax, rows, xlabel="position in the text")
        ax.set(title=title, aspect="equal", xticks=range(0, len(rows[-1]), 2))
        ax.set_yticks(range(len(rows)), labels=[str(i + 1) for i in range(len(rows))])
    axes[0].set_ylabel("step")
    draw.legend_below(fig, _WORDS)
    return fig


def key_at_every_step(keys: Array, first_step: int) -> Any:
    """One key as each step computed it, one row per step.

    keys: (steps, D) float. first_step: the step of row 0. Rows that agree show as stripes.
    """
    values = np.asarray(keys)
    fig, ax = figure(2.8)
    xlabel, ylabel = "number within the key", "step that computed it"
    image = heatmap(ax, values, xlabel=xlabel, ylabel=ylabel, unit="value", signed=True)
    steps, size = values.shape
    image.set_extent((-0.5, size - 0.5, first_step + steps - 0.5, first_step - 0.5))
    ax.set_xticks([*range(0, size, 8), size - 1])
    return fig


def moved(change: Any, rows: Sequence[str], at: int) -> Any:
    """Size of a change, a row a stage of the model, a column a token; exact zeros stay white.

    change: (rows, T) of at least 0. at: the token that was changed.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    sizes = np.asarray(change)
    fig, ax = figure(2.8)
    # From a visible blue on, so that the smallest change does not look like none.
    shades = colormaps["kvlib"](np.linspace(0.25, 1, 64))
    cmap = LinearSegmentedColormap.from_list("kvlib_from_blue", list(shades))
    some = sizes[sizes > 0]
    norm = LogNorm(float(some.min()), float(some.max()))
    image = ax.imshow(np.where(sizes > 0, sizes, np.nan), cmap=cmap, norm=norm, aspect="auto")
    ax.set_yticks(range(len(rows)), labels=list(rows))
    ax.set_xlabel("token (position in the text)")
    ax.axvline(at - 0.5, color=INK, linewidth=1, linestyle=":")
    ax.grid(False)
    fig.colorbar(image, ax=ax, label="largest change (log scale)")
    return fig


def errors(distances: Mapping[str, tuple[float, float]], roles: Sequence[str]) -> Any:
    """rms (dot) and largest (bar's end) distance of logits from the oracle, on a log scale.

    found: name → (rms, max), with a role each.
    """
    fig, ax = figure(0.9 + 0.38 * len(distances))
    for i, ((rms, top), role) in enumerate(zip(distances.values(), roles, strict=True)):
        ax.plot([rms, top], [i, i], color=color(role), linewidth=2)
        ax.plot([rms], [i], "o", color=color(role), markersize=7)
        ax.plot([top], [i], "|", color=color(role), markersize=12, markeredgewidth=2)
    ax.set(
        xscale="log", xlabel="distance of the logits from a float64 run (dot: rms, end: largest)"
    )
    draw.name_rows(ax, distances)
    return fig


def speedup(
    predicted: Mapping[int, float], counted: Mapping[int, float], timed: Mapping[int, float]
) -> Any:
    """Recomputed over cached against tokens generated: a curve predicted, points measured."""
    fig, ax = figure(3.2)
    x = list(predicted)
    ax.plot(x, list(predicted.values()), color=color("ink"))
    ax.plot(list(counted), list(counted.values()), "o", color=color("ink"), markersize=7)
    ax.plot(list(timed), list(timed.values()), "s:", color=color("muted"), linewidth=1.2)
    ends = {
        "operations: predicted (line)\nand counted (dots)": list(predicted.values())[-1],
        "clock, this machine": list(timed.values())[-1],
    }
    ax.set(xlabel="tokens generated", ylabel="without a cache / with one")
    ax.set_xlim(0, x[-1] * 1.02)
    ax.set_ylim(bottom=0)
    draw.label_ends(ax, ends, ["ink", "muted"], x_end=float(x[-1]))
    return fig


def layouts(arrays: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    """Memory as a strip, one cell a (token, head): what one head reads is filled.

    arrays: name → (the array, the view of it that one head reads). Places come from addresses.
    """
    fig, axes = figure(0.55 + 0.75 * len(arrays), nrows=len(arrays), sharex=True)
    for ax, (name, (array, view)) in zip(axes, arrays.items(), strict=True):
        unit = view.shape[-1] * view.itemsize
        places = (_rows(view) - array.__array_interface__["data"][0]) // unit
        row = ["key" if i in set(places.tolist()) else "grid" for i in range(array.nbytes // unit)]
        cells(ax, [row])
        ax.set_title(name, fontsize=9, fontweight="normal")
        ax.set_yticks([])
        ax.tick_params(labelbottom=ax is axes[-1])
        ax.spines["left"].set_visible(False)
    axes[-1].set_xlabel("address (vectors of D numbers)")
    draw.legend_below(fig, {"key": "keys of one head of one request", "grid": "everything else"})
    return fig


def _rows(view: np.ndarray) -> np.ndarray:
    """Address of every vector (last axis) of a view."""
    place = np.asarray(view.__array_interface__["data"][0])
    for n, stride in zip(view.shape[:-1], view.strides[:-1], strict=True):
        place = place[..., None] + stride * np.arange(n)
    return place.ravel()


def gap(series: Series, roles: Sequence[str]) -> Any:
    """Largest distance of the logits from recomputation at each step, on a log scale."""
    fig, ax = figure(2.9)
    ax.set_yscale("log")
    steps = np.arange(len(next(iter(series.values()))))
    lines(ax, steps, series, roles, xlabel="step", ylabel="largest distance of logits")
    return fig


def growth(tokens: Sequence[int], payload: Sequence[int], reserved: Sequence[int]) -> Any:
    """Bytes that live tokens take, and bytes set aside for them, against tokens held."""
    fig, ax = figure(2.9)
    ax.fill_between(tokens, payload, reserved, color=color("grid"), alpha=0.5, linewidth=0)
    series = {"reserved": reserved, "payload": payload}
    lines(ax, tokens, series, ["free", "cached"], xlabel="tokens held", ylabel="")
    ax.set_ylim(bottom=0)
    ax.set_xlim(tokens[0], tokens[-1])
    draw.bytes_axis(ax, "KV cache")
    where = (tokens[0] + 0.3 * (tokens[-1] - tokens[0]), 0.7 * reserved[-1])
    ax.text(*where, "wasted", color=INK)
    return fig
