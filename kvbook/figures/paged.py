"""The drawings of the chapter on paging: data in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, Series, box, centered, figure, lines
from kvbook.figures.style import CARD, INK, MUTED, color, on_color


def maps(grids: Mapping[str, Any]) -> Any:
    """The same memory used in different ways: {title: (rows, columns) share of a cell in use}.

    A cell holds some slots; NaN is one that no request has claimed.
    """
    from matplotlib.colors import to_rgb

    fig, axes = figure(1.8 * len(grids) + 0.4, nrows=len(grids))
    fig.get_layout_engine().set(hspace=0.08)
    empty, full = np.array(to_rgb(color("grid"))), np.array(to_rgb(color("cached")))
    for ax, (title, grid) in zip(np.atleast_1d(axes), grids.items(), strict=True):
        share = np.asarray(grid, dtype=np.float64)
        picture = empty + np.nan_to_num(share)[..., None] * (full - empty)
        picture[np.isnan(share)] = to_rgb(CARD)
        ax.imshow(picture, aspect="auto", interpolation="nearest")
        ax.set(title=title, xticks=[], yticks=[])
        ax.grid(False)
    words = {"cached": "holds tokens", "grid": "reserved, holds nothing", "free": "free"}
    draw.legend_below(fig, words)
    return fig


def tables(
    table: Mapping[str, Sequence[int]], lengths: Mapping[str, int], num_blocks: int, size: int
) -> Any:
    """Requests as they read (above) and their blocks where they are (below), joined by lines.

    table: request → its blocks in order; lengths: its tokens. A slot shows its token's position.
    """
    fig, ax = figure(1.4)
    gap = size + 1
    styles = dict(zip(table, ("-", "--", ":"), strict=False))
    owner = {b: (name, n) for name, blocks in table.items() for n, b in enumerate(blocks)}

    def slots(left: float, y: float, used: int, first: int) -> None:
        """One block: `used` slots with the positions of their tokens, the rest as outlines."""
        for i in range(size):
            box(ax, left + i, y, 0.92, 0.92, **draw.fill("cached" if i < used else "free", 1.0))
            if i < used:
                centered(ax, left + i, y, str(first + i), on_color("cached"), fontsize=7)

    start = 0.0
    for name, blocks in table.items():
        ax.text(start - 0.4, -0.75, f"request {name}", size=10)
        for n, block in enumerate(blocks):
            left = start + n * gap
            slots(left, 0, lengths[name] - n * size, n * size)
            ends = ([left + (size - 1) / 2, block * gap + (size - 1) / 2], [0.62, 3.38])
            ax.plot(*ends, color=color("muted"), linestyle=styles[name], linewidth=1.4)
        start += len(blocks) * gap + 1.5
    for block in range(num_blocks):
        name, n = owner.get(block, ("", 0))
        slots(block * gap, 4, lengths[name] - n * size if name else 0, n * size)
        words = f"block {block}" + (f" ({name})" if name else "")
        centered(ax, block * gap + (size - 1) / 2, 5.15, words, MUTED, va="baseline")
    ax.set(xlim=(-1, max(num_blocks * gap, start) - 0.5), ylim=(5.4, -1.2), xticks=[], yticks=[])
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return fig


def running(steps: Series) -> Any:
    """Requests in the cache at each step: {way: counts}; a line ends when all are done."""
    fig, ax = figure(3.0)
    looks = (("muted", "-"), ("muted", "--"), ("ink", "-"))  # none of these is a palette role
    for (way, counts), (role, style) in zip(steps.items(), looks, strict=False):
        words = f"{way}, done after {len(counts):,} steps"
        ax.plot(counts, style, color=color(role), label=words)
    ax.set(xlabel="step", ylabel="requests running")
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.legend(loc="upper left", bbox_to_anchor=(0.2, 1.0))  # in sight where a page is narrow
    return fig


def block_sizes(sizes: Sequence[int], wasted: Numbers, formula: Any, entries: Numbers) -> Any:
    """Slots wasted per request, measured (dots) and predicted (line); entries of its table."""
    fig, (left, right) = figure(3.0, ncols=2)
    left.plot(sizes, formula, "--", color=color("muted"), label="(block size − 1) / 2")
    left.plot(sizes, wasted, "o", color=color("ink"), label="measured")
    left.set(ylabel="slots wasted per request")
    left.legend(loc="upper left")
    right.plot(sizes, entries, "o-", color=color("ink"))
    right.set(ylabel="entries per table")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="block size (tokens)")
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(0, 2.2 * max(*wasted, *entries))
        draw.ticks_at(ax, _some(sizes))
        ax.yaxis.set_major_formatter("{x:g}")
    return fig


def moved(caches: Amounts, times: Amounts) -> Any:
    """Side by side: bytes moved in sizes of the cache, and time, 1 for the first way."""
    fig, (left, right) = figure(0.9 + 0.42 * len(caches), ncols=2, sharey=True)
    names = list(caches)
    for ax, values, role in ((left, caches, "ink"), (right, times, "muted")):
        drawn = ax.barh(names, [values[n] for n in names], color=color(role), height=0.62)
        ax.bar_label(drawn, fmt="%.1f", padding=4, color=INK)
        ax.set_xlim(0, 1.18 * max(values.values()))
        ax.grid(axis="y", visible=False)
    left.invert_yaxis()
    left.set_xlabel("bytes moved (the cache = 1)")
    right.set_xlabel(f"time ({names[0]} = 1)")
    return fig


def pieces(tokens: Sequence[int], times: Series, roles: Any) -> Any:
    """Time of a step against the tokens gathered at once, one line per way."""
    fig, ax = figure(3.0)
    ax.set(xscale="log")
    names = {"xlabel": "tokens in a piece", "ylabel": "time (best of all = 1)"}
    lines(ax, tokens, times, roles, **names, marker="o")
    draw.ticks_at(ax, _some(tokens))
    ax.set_ylim(bottom=0)
    return fig


def padded_table(table: Any, used: Any) -> Any:
    """A block table (B, max_blocks): entries in use as numbers, the padding as outlines."""
    fig, ax = figure(1.1 + 0.34 * len(table))
    roles = [["muted" if u else "free" for u in row] for row in used]
    text = [[str(b) if u else "" for b, u in zip(*row)] for row in zip(table, used)]
    draw.cells(ax, roles, text=text, xlabel="entry of the table", ylabel="request")
    ax.set(yticks=range(len(table)), xticks=range(len(table[0])))
    draw.legend_below(fig, {"muted": "number of a block", "free": "padding"})
    return fig


def _some(values: Sequence[int]) -> list[int]:
    """At most six of the values, for an axis."""
    return list(values)[:: max(1, -(-len(values) // 6))]
