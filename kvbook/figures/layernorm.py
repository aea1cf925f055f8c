"""The chapter on norms: drawings, and the explorer of the two stages of a sum over rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel
from kvbook.explorers.scenes.words import bytes_words, count_words, percent_words
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, Series, centered, figure, label_ends
from kvbook.figures.style import CARD, GRID, INK, MUTED, color
from kvbook.figures.units import format_number

MULTIPROCESSORS = 132  # of an H100 SXM; each needs a block
GROUPS = (1, 4, 16, 64, 132, 256, 512, 1024, 2048, 4096, 8192)


def lengths(before: Sequence[Any], after: Sequence[Any]) -> Any:
    """Root mean square of every row before and after each norm of a forward pass.

    before, after: one array (T,) per norm, in the order of the forward pass.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    fig, ax = figure(2.9)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    for rows, role in ((before, "muted"), (after, "ink")):
        for i, values in enumerate(rows):
            spread = i + 0.5 * (np.arange(len(values)) / len(values) - 0.5)
            ax.plot(spread, values, ".", color=color(role), markersize=4)
    ax.set(xlabel="norm, in the order of the forward pass", ylabel="root mean square of a row")
    ax.set_xticks(range(len(before)))
    ax.set_xlim(-0.6, len(before) - 0.4)
    norms = {"before the norm": before, "after the norm": after}
    ends = {name: float(np.median(rows[-1])) for name, rows in norms.items()}
    label_ends(ax, ends, ["muted", "ink"], x_end=len(before) - 0.4)
    return fig


def kept(ways: Mapping[str, Amounts], unit: str) -> Any:
    """Stacked bars: what each way keeps for the backward pass, part by part, in `unit`."""
    fig, ax = figure(1.0 + 0.62 * len(ways))
    looks = ((INK, ""), (MUTED, ""), (GRID, ""), (CARD, "///"), (CARD, ""))  # no part has a role
    names = list(dict.fromkeys(part for parts in ways.values() for part in parts))
    fills = {}
    for i, name in enumerate(names):
        face, hatch = looks[i % len(looks)]
        fills[name] = {"facecolor": face, "edgecolor": MUTED, "hatch": hatch}
    draw.stacked(ax, ways, fills, lambda _, total: f"  {total:,.0f}", height=0.6)
    draw.name_rows(ax, ways, above=0.6, below=0.6)
    ax.set_xlim(0, 1.15 * max(sum(parts.values()) for parts in ways.values()))
    ax.set_xlabel(f"kept for the backward pass ({unit})")
    fig.legend(loc="outside lower center", ncols=min(4, len(names)))
    return fig


def intensities(counted: Amounts, ridges: Amounts) -> Any:
    """Operations per byte on a log scale, one row each, and the ridges of GPUs as vertical lines.

    Only counts are drawn, and no rates, because nothing here was measured.
    """
    fig, ax = figure(1.2 + 0.32 * len(counted))
    ax.set_xscale("log")
    for row, n in enumerate(counted.values()):
        ax.plot([n], [row], "o", color=INK, markerfacecolor=CARD, markersize=8)
        centered(ax, n * 1.2, row, format_number(n), ha="left")
    for name, n in ridges.items():
        ax.axvline(n, color=MUTED, linewidth=1.2, linestyle=":")
        ax.text(n, -0.75, f"ridge of {name}: {n:.0f} ", ha="right", fontsize=9, color=MUTED)
    draw.name_rows(ax, counted, above=1.1)
    ax.set_xlim(min(counted.values()) / 2, 3 * max(ridges.values()))
    ax.set_xlabel("operations per byte (FLOP/B), counted")
    draw.plain_numbers(ax.xaxis)
    return fig


def by_step(steps: Numbers, errors: Series) -> Any:
    """Error of a difference quotient against its step, both logarithmic."""
    return _errors(steps, errors, "step", "error / largest\ncomponent of dx")


def by_offset(offsets: Numbers, errors: Series) -> Any:
    """Relative error of a standard deviation against the mean of the row, both logarithmic."""
    xlabel = "mean of the row, in standard deviations"
    return _errors(offsets, errors, xlabel, "relative error of σ")


def _errors(x: Numbers, errors: Series, xlabel: str, ylabel: str) -> Any:
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    looks = (("muted", "s:"), ("muted", "^--"), ("ink", "o-"))[-len(errors) :]  # the last is ours
    shown = {name: np.maximum(np.asarray(y, dtype=float), 1e-17) for name, y in errors.items()}
    for y, (role, look) in zip(shown.values(), looks, strict=True):
        ax.plot(x, y, look, color=color(role), markersize=4, clip_on=False)
    ax.set_xlim(min(x), max(x))
    ax.grid(axis="x", visible=True)
    ends = {name: float(y[int(np.argmax(x))]) for name, y in shown.items()}
    label_ends(ax, ends, [role for role, _ in looks], x_end=float(max(x)))
    return fig


def partials_explorer(rows: int, width: int, size: int) -> Explorer:
    """Return a slider over the groups into which the first stage cuts rows of `width` numbers.

    size: bytes per number of dy, x̂ and dx; partial sums are float32. ValueError for a number
    below 1.
    """
    for name, value in (("rows", rows), ("width", width), ("size", size)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, needed a number of at least 1")
    offered = [n for n in GROUPS if n <= rows]
    texts = [count_words(n, "group", "groups") for n in offered]
    busiest = max(n for n in offered if n <= MULTIPROCESSORS)
    slider = Slider("groups", "Groups of rows", offered, busiest, texts=texts)
    most = sum(traffic(offered[-1], rows, width, size).values())
    scenes = [_scene(n, rows, width, size, most) for n in offered]
    return Explorer.from_frames("partials", "Two stages of a sum over rows", slider, scenes)


def traffic(groups: int, rows: int, width: int, size: int) -> dict[str, float]:
    """Bytes that the backward pass of LayerNorm moves, by what they hold."""
    return {
        "dy and x_hat read, dx written, and small arrays": (
            3.0 * rows * width * size + 4.0 * rows + 3.0 * width * size
        ),
        "partial sums, written and read": 2.0 * 2 * 4 * groups * width,
    }


def _scene(groups: int, rows: int, width: int, size: int, most: float) -> Scene:
    moved = traffic(groups, rows, width, size)
    total, partial = sum(moved.values()), moved["partial sums, written and read"]
    each = -(-rows // groups)  # rows of a group
    busy = f"{min(groups, MULTIPROCESSORS)} of {MULTIPROCESSORS}"
    share, roundings = percent_words(partial / total), f"{each + groups:,}"
    parts = [
        [name, n / 1e6, role]
        for (name, n), role in zip(moved.items(), ("muted", "ink"), strict=True)
    ]
    moves = "Bytes moved by the backward pass"
    rounds = "Most roundings in the sum of a column"
    first = ["first stage", [["rows of a group", each, "muted"]]]
    second = ["second", [["groups", groups, "ink"]]]
    return {
        "title": f"{count_words(groups, 'group', 'groups')} of {count_words(each, 'row', 'rows')},"
        f" {busy} multiprocessors busy",
        "summary": f"The first stage occupies {busy} multiprocessors. The "
        f"partial sums are {share} of the {bytes_words(total, 1000)} "
        f"moved. The sum of a column is rounded at most {roundings} times.",
        "formula": [
            f"partial sums: 2 \u00d7 2 \u00d7 {groups:,} \u00d7 {width:,} \u00d7 4 bytes"
            f" = {bytes_words(partial, 1000)}"
        ],
        "numbers": [
            {"label": "Multiprocessors with work", "text": busy},
            {"label": "Share of partial sums in all bytes", "text": share},
            {"label": "Most roundings in a column", "text": roundings},
        ],
        "panels": [
            bars_panel(moves, "MB", most / 1e6 * 1.04, [["all", parts]]),
            bars_panel(rounds, "additions", (rows + 1) * 1.04, [first, second]),
        ],
    }
