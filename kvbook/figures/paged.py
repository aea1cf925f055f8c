"""The drawings of the chapter on paging: data in, Figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, box, centered, figure
from kvbook.figures.style import INK, MUTED, color, on_color


def maps(grids: Mapping[str, Any]) -> Any:
    """The same memory used in different ways: {title: (rows, columns) share of a cell in use}."""
    from matplotlib.colors import to_rgb

    fig, axes = figure(1.8 * len(grids) + 0.4, nrows=len(grids))
    fig.get_layout_engine().set(hspace=0.08)
    empty, full = np.array(to_rgb(color("grid"))), np.array(to_rgb(color("cached")))
    for ax, (title, grid) in zip(np.atleast_1d(axes), grids.items(), strict=True):
        share = np.asarray(grid, dtype=np.float64)[..., None]
        ax.imshow(empty + share * (full - empty), aspect="auto", interpolation="nearest")
        ax.set(title=title, xticks=[], yticks=[])
        ax.grid(False)
    draw.legend_below(fig, {"cached": "holds tokens", "grid": "empty"})
    return fig


def tables(
    table: Mapping[str, Sequence[int]], words: Mapping[str, Sequence[str]], blocks: int, size: int
) -> Any:
    """Requests as they read (above) and their blocks where they are (below), joined by lines.

    table: request → its blocks in order; words: what each of its slots shows.
    """
    fig, ax = figure(2.9)
    gap = size + 1
    styles = dict(zip(table, ("-", "--", ":"), strict=False))
    owner = {b: (name, n) for name, listed in table.items() for n, b in enumerate(listed)}

    def slots(left: float, y: float, shown: Sequence[str]) -> None:
        """One block: a slot for each of the words, the others as outlines."""
        for i in range(size):
            used = i < len(shown)
            box(ax, left + i, y, 0.94, 0.94, **draw.fill("cached" if used else "free", 1.0))
            if used:
                centered(ax, left + i, y, shown[i], on_color("cached"))

    start = 0.0
    for name, listed in table.items():
        ax.text(start - 0.5, -0.7, f"request {name}: table {list(listed)}", size=10)
        for n, block in enumerate(listed):
            left = start + n * gap
            slots(left, 0, words[name][n * size : (n + 1) * size])
            ends = ([left + (size - 1) / 2, block * gap + (size - 1) / 2], [0.6, 2.9])
            ax.plot(*ends, color=color("muted"), linestyle=styles[name], linewidth=1.4)
        start += len(listed) * gap + 1
    for block in range(blocks):
        name, n = owner.get(block, ("", 0))
        slots(block * gap, 3.5, words[name][n * size : (n + 1) * size] if name else [])
        middle, first = block * gap + (size - 1) / 2, block * size
        centered(ax, middle, 4.3, f"block {block}: {name or 'free'}")
        addresses = ", ".join(str(slot) for slot in range(first, first + size))
        centered(ax, middle, 4.8, f"slots {addresses}", MUTED)
    right = max(blocks * gap, start) - 0.5
    ax.set(xlim=(-0.7, right), ylim=(5.1, -1.3), xticks=[], yticks=[])
    ax.set_title("Each table lists where the blocks of a text are stored")
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return fig


def block_sizes(sizes: Sequence[int], wasted: Numbers, formula: Any, entries: Numbers) -> Any:
    """Empty slots per request, counted (dots) and predicted (line); entries of its table."""
    fig, (left, right) = figure(3.0, ncols=2)
    left.plot(sizes, formula, "--", color=color("muted"), label="(block size − 1) / 2")
    left.plot(sizes, wasted, "o", color=color("ink"), label="counted")
    left.set(title="Large blocks, more empty slots", ylabel="empty slots per request")
    left.legend(loc="upper left")
    right.plot(sizes, entries, "o-", color=color("ink"))
    right.set(title="Small blocks, longer tables", ylabel="entries per table")
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="block size (tokens)")
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
    left.set(title="Counted", xlabel="bytes moved (the cache = 1)")
    right.set(title="Timed", xlabel=f"time ({names[0]} = 1)")
    return fig


def padded_table(table: Any) -> Any:
    """A block table (B, max_blocks): blocks in filled cells, the padding (−1) in outlines."""
    fig, ax = figure(1.1 + 0.34 * len(table))
    roles = [["cached" if b >= 0 else "free" for b in row] for row in table]
    text = [[f"{b}".replace("-", "−") for b in row] for row in table]
    draw.cells(ax, roles, text=text, xlabel="entry of the table", ylabel="request")
    ax.set(yticks=range(len(table)), xticks=range(len(table[0])))
    ax.set_title("The longest table sets the width of the rectangle")
    draw.legend_below(fig, {"cached": "number of a block", "free": "padding"})
    return fig


def _some(values: Sequence[int]) -> list[int]:
    """At most six of the values, for an axis."""
    return list(values)[:: max(1, -(-len(values) // 6))]
