"""The drawings of the chapter on paging: data in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import cells, figure, finish, lines
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
    fig.legend(
        handles=[
            _patch("cached", "holds tokens"),
            _patch("grid", "reserved, holds nothing"),
            _patch("free", "free"),
        ],
        loc="outside lower center",
        ncols=3,
    )
    return finish(fig)


def tables(
    table: Mapping[str, Sequence[int]], lengths: Mapping[str, int], num_blocks: int, size: int
) -> Any:
    """Requests as they read (above) and their blocks where they lie (below), joined by lines.

    table: request → its blocks in order; lengths: its tokens. A slot shows its token's position.
    """
    fig, ax = figure(1.4)
    gap = size + 1
    styles = dict(zip(table, ("-", "--", ":"), strict=False))
    owner = {b: (name, n) for name, blocks in table.items() for n, b in enumerate(blocks)}
    start = 0.0
    for name, blocks in table.items():
        ax.annotate(f"request {name}", (start - 0.4, -0.75), size=10)
        for n, block in enumerate(blocks):
            left = start + n * gap
            _slots(ax, left, 0, size, lengths[name] - n * size, n * size)
            ends = ([left + (size - 1) / 2, block * gap + (size - 1) / 2], [0.62, 3.38])
            ax.plot(*ends, color=color("muted"), linestyle=styles[name], linewidth=1.4)
        start += len(blocks) * gap + 1.5
    for block in range(num_blocks):
        name, n = owner.get(block, ("", 0))
        _slots(ax, block * gap, 4, size, lengths[name] - n * size if name else 0, n * size)
        words = f"block {block}" + (f" ({name})" if name else "")
        middle = (block * gap + (size - 1) / 2, 5.15)
        ax.annotate(words, middle, ha="center", color=MUTED, size=9)
    ax.set(xlim=(-1, max(num_blocks * gap, start) - 0.5), ylim=(5.4, -1.2), xticks=[], yticks=[])
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return finish(fig)


def _slots(ax: Any, left: float, y: float, size: int, held: int, first: int) -> None:
    """One block: `held` slots with the positions of their tokens, the rest as outlines."""
    from matplotlib.patches import Rectangle

    for i in range(size):
        used = i < held
        fill, edge = (color("cached"), color("cached")) if used else (CARD, color("free"))
        box = Rectangle((left + i - 0.46, y - 0.46), 0.92, 0.92, facecolor=fill, edgecolor=edge)
        ax.add_patch(box)
        if used:
            ax.annotate(
                str(first + i), (left + i, y), ha="center", va="center", size=7,
                color=on_color("cached"),
            )  # fmt: skip


def running(steps: Mapping[str, Sequence[int]]) -> Any:
    """Requests in the cache at each step: {way: counts}; a line ends when all are done."""
    fig, ax = figure(3.0)
    looks = (("muted", "-"), ("muted", "--"), ("ink", "-"))  # none of these is a palette role
    for (way, counts), (role, style) in zip(steps.items(), looks, strict=False):
        words = f"{way}, done after {len(counts):,} steps"
        ax.plot(counts, color=color(role), linestyle=style, label=words)
    ax.set(xlabel="step", ylabel="requests running")
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.legend(loc="upper left", bbox_to_anchor=(0.2, 1.0))  # in sight where a page is narrow
    return finish(fig)


def block_sizes(
    sizes: Sequence[int], wasted: Sequence[float], formula: Any, entries: Sequence[float]
) -> Any:
    """Slots wasted per request, measured (dots) and predicted (line); entries of its table."""
    fig, (left, right) = figure(3.0, ncols=2)
    left.plot(sizes, formula, color=color("muted"), linestyle="--", label="(block size − 1) / 2")
    left.plot(sizes, wasted, "o", color=color("ink"), label="measured")
    left.set(ylabel="slots wasted per request")
    left.legend(loc="upper left")
    right.plot(sizes, entries, "o-", color=color("ink"))
    right.set(ylabel="entries per table")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="block size (tokens)")
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(0, 2.2 * max(*wasted, *entries))
        _ticks(ax, sizes)
        ax.yaxis.set_major_formatter("{x:g}")
    return finish(fig)


def moved(caches: Mapping[str, float], times: Mapping[str, float]) -> Any:
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
    return finish(fig)


def pieces(tokens: Sequence[int], times: Mapping[str, Sequence[float]], roles: Any) -> Any:
    """Time of a step against the tokens gathered at once, one line per way."""
    fig, ax = figure(3.0)
    ax.set(xscale="log")
    names = {"xlabel": "tokens in a piece", "ylabel": "time (best of all = 1)"}
    lines(ax, tokens, times, roles, **names, marker="o")
    _ticks(ax, tokens)
    ax.set_ylim(bottom=0)
    return finish(fig)


def padded_table(table: Any, used: Any) -> Any:
    """A block table (B, max_blocks): entries in use as numbers, the padding as outlines."""
    fig, ax = figure(1.1 + 0.34 * len(table))
    roles = [["muted" if u else "free" for u in row] for row in used]
    text = [[str(b) if u else "" for b, u in zip(*row)] for row in zip(table, used)]
    cells(ax, roles, text=text, xlabel="entry of the table", ylabel="request")
    ax.set(yticks=range(len(table)), xticks=range(len(table[0])))
    handles = [_patch("muted", "number of a block"), _patch("free", "padding")]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return finish(fig)


def _ticks(ax: Any, values: Sequence[int]) -> None:
    """Label a logarithmic axis with some of the values themselves."""
    from matplotlib.ticker import NullLocator

    ax.xaxis.set_minor_locator(NullLocator())
    shown = list(values)[:: max(1, -(-len(values) // 6))]
    ax.set_xticks(shown, labels=[f"{n:,}" for n in shown])


def _patch(role: str, words: str) -> Any:
    from matplotlib.patches import Patch

    if role == "free":
        return Patch(facecolor=CARD, edgecolor=color(role), label=words)
    return Patch(facecolor=color(role), label=words)
