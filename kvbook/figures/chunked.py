"""The drawings of the chapter on prompts in chunks: data in, Figure out.

Schedules and their gaps are in :mod:`kvbook.figures.chunked_schedule`, the explorers in
:mod:`kvbook.figures.chunked_budget` and :mod:`kvbook.figures.chunked_tiles`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.chunked_budget import budget_explorer
from kvbook.figures.chunked_schedule import first_token, gantt, gap_trade
from kvbook.figures.chunked_tiles import tiles_explorer
from kvbook.figures.draw import bytes_axis, figure, finish, label_ends, lines
from kvbook.figures.style import CARD, INK, MUTED, color

__all__ = [
    "budget_explorer",
    "converge",
    "first_token",
    "floors",
    "gantt",
    "gap_trade",
    "grid",
    "peak_by_chunk",
    "peak_by_tile",
    "reads",
    "score_matrix",
    "tiles_explorer",
]


def score_matrix(lengths: Sequence[int], peak: Sequence[int], one_copy: Sequence[int]) -> Any:
    """Peak memory of attention against the prompt, beside the bytes of its scores, once."""
    fig, ax = figure(2.9)
    series = {"peak, measured": peak, "the scores, once": one_copy}
    lines(ax, lengths, series, ["ink", "muted"], xlabel="tokens", ylabel="", marker="o")
    ax.set_ylim(bottom=0)
    bytes_axis(ax, "memory")
    return finish(fig)


def converge(
    ends: Sequence[int],
    away: Mapping[str, Sequence[float]],
    lse: Mapping[str, Sequence[float]],
    rises: Mapping[str, Sequence[bool]],
) -> Any:
    """How far one query's output is from the final one, and its lse, after each tile of keys.

    away: |o − final| / |final| of each head; lse: of each head; rises: did the tile raise top?
    A tile that did is a filled point.
    """
    fig, (top, low) = figure(4.4, nrows=2, sharex=True)
    for ax, series, label in ((top, away, "distance from the\nfinal output"), (low, lse, "lse")):
        looks = (("ink", "-"), ("muted", "--"))  # two heads, neither of them a role
        for (name, y), (role, dashes) in zip(series.items(), looks, strict=False):
            values = np.asarray(y)
            ax.plot(ends, values, color=color(role), linestyle=dashes)
            raised = np.asarray(rises[name], dtype=bool)
            style = {"color": color(role), "linestyle": "", "marker": "o"}
            ax.plot(np.asarray(ends)[raised], values[raised], **style)
            ax.plot(np.asarray(ends)[~raised], values[~raised], markerfacecolor=CARD, **style)
        ax.set_ylabel(label)
        last = {name: float(y[-1]) for name, y in series.items()}
        if ax is low:
            roles = ["ink", "muted"][: len(last)]
            label_ends(ax, last, roles, x_end=float(ends[-1]))
    top.set_ylim(bottom=-0.05)
    low.set_xlabel("keys read")
    handles = [
        _dot(color("muted"), "this tile raised top"),
        _dot(CARD, "it did not"),
    ]
    top.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2)
    return finish(fig)


def peak_by_tile(tiles: Sequence[int], tiled: Sequence[int], whole: int) -> Any:
    """Peak memory of tiled attention against the tile, and of the whole score matrix."""
    fig, ax = figure(2.9)
    ax.set_xscale("log")
    series = {"whole matrix": [whole] * len(tiles), "in tiles": tiled}
    lines(ax, tiles, series, ["muted", "ink"], xlabel="keys in a tile", ylabel="", marker="o")
    _ticks(ax, tiles)
    ax.set_ylim(bottom=0)
    bytes_axis(ax, "memory")
    return finish(fig)


def grid(prompt: int, chunk: int, pairs: Mapping[str, int]) -> Any:
    """Which (query, key) pairs chunks compute, and how many pairs each way computes in all."""
    from matplotlib.patches import Polygon, Rectangle

    fig, (left, right) = figure(2.9, ncols=2, width_ratios=[1, 1.5])
    for a in range(0, prompt, chunk):
        b = min(a + chunk, prompt)
        left.add_patch(Rectangle((0, a), b, b - a, **_box("free")))
        below = [(0, a), (a, a), (b, b), (0, b)]
        left.add_patch(Polygon(below, closed=True, **_box("muted")))
    left.set(xlim=(0, prompt), ylim=(prompt, 0), xlabel="key", ylabel="query", aspect="equal")
    left.set(xticks=[0, prompt], yticks=[0, prompt], title=f"chunks of {chunk:,}")
    left.grid(False)
    names, needed = list(pairs), prompt * (prompt + 1) // 2
    right.barh(names, [needed / 1e6] * len(names), color=color("muted"), height=0.62)
    rest = [(pairs[n] - needed) / 1e6 for n in names]
    right.barh(names, rest, left=needed / 1e6, height=0.62, **_box("free"))
    for i, name in enumerate(names):
        words = f" × {pairs[name] / needed:.2f}"
        right.annotate(words, (pairs[name] / 1e6, i), va="center", size=9, color=INK)
    right.set_xlim(0, max(pairs.values()) / 1e6 * 1.2)
    right.set(xlabel="pairs per head (millions)")
    right.invert_yaxis()
    right.grid(axis="y", visible=False)
    handles = [_patch("muted", "needed"), _patch("free", "computed, then hidden")]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return finish(fig)


def reads(
    chunks: Sequence[int],
    counted: Mapping[str, Sequence[float]],
    formula: Mapping[str, Sequence[float]],
) -> Any:
    """Bytes read for one prompt against the chunk: dots counted, dashed lines by the formula."""
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log")
    roles = dict(zip(counted, ("weights", "cached"), strict=False))
    for name, role in roles.items():
        line = np.asarray(formula[name]) / 2**20
        ax.plot(chunks, line, "--", color=color(role), linewidth=1.6)
        ax.plot(chunks, np.asarray(counted[name]) / 2**20, "o", color=color(role), markersize=7)
    ends = {name: float(counted[name][-1]) / 2**20 for name in counted}
    label_ends(ax, ends, list(roles.values()), x_end=float(chunks[-1]))
    ax.set(xlabel="tokens in a chunk", ylabel="read (MiB)")
    _ticks(ax, chunks)
    ax.yaxis.set_major_formatter("{x:g}")
    handles = [_dot(color("muted"), "counted"), _line("by the formula")]
    ax.legend(handles=handles, loc="upper right")
    return finish(fig)


def peak_by_chunk(chunks: Sequence[int], peak: Sequence[int], cache: int) -> Any:
    """Memory that reading a prompt needs besides cache and weights, against the chunk."""
    fig, ax = figure(2.7)
    ax.set_xscale("log")
    series = {"besides the cache": peak, "the cache": [cache] * len(chunks)}
    lines(
        ax, chunks, series, ["ink", "cached"],
        xlabel="tokens in a chunk", ylabel="", marker="o",
    )  # fmt: skip
    _ticks(ax, chunks)
    ax.set_ylim(bottom=0)
    bytes_axis(ax, "memory")
    return finish(fig)


def floors(chunks: Sequence[int], whole: Sequence[float], longest: Sequence[float]) -> Any:
    """Least time of a prompt and of its longest step (seconds) against the chunk."""
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log")
    series = {"its longest step": longest, "the prompt": whole}  # the upper name comes last
    lines(
        ax, chunks, series, ["muted", "ink"],
        xlabel="tokens in a chunk", ylabel="seconds, at least", marker="o",
    )  # fmt: skip
    _ticks(ax, chunks[::2])
    ax.yaxis.set_major_formatter("{x:g}")
    return finish(fig)


def _ticks(ax: Any, ticks: Sequence[int]) -> None:
    """Label a logarithmic x axis with the numbers that were tried."""
    from matplotlib.ticker import NullLocator

    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(list(ticks), labels=[f"{n:,}" for n in ticks])


def _box(role: str) -> dict[str, Any]:
    if role == "free":
        return {"facecolor": CARD, "edgecolor": color(role), "linewidth": 1.0}
    return {"facecolor": color(role), "edgecolor": CARD, "linewidth": 0.6}


def _patch(role: str, words: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(label=words, **_box(role))


def _dot(fill: str, words: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=words, marker="o", linestyle="", color=MUTED, markerfacecolor=fill)


def _line(words: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=words, linestyle="--", color=MUTED, linewidth=1.6)
