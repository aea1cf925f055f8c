"""The drawings that all chapters share; `kvbook/figures/<chapter>.py` has those of one chapter.

A figure function ends with `return finish(fig)`. Its call is the last line of a cell, so the
notebook shows the figure once, and a test can look at what was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.style import (
    CARD,
    INK,
    MUTED,
    WIDTH,
    color,
    import_pyplot,
    on_color,
    text_color,
)
from kvbook.figures.units import byte_unit, format_number


def figure(height: float = 3.2, ncols: int = 1, nrows: int = 1, **kwargs: Any) -> tuple[Any, Any]:
    """A figure of the book's width and `height` inches, and its axes (one, or an array of them).

    >>> fig, axes = figure(2.5, ncols=2)
    >>> fig.get_size_inches().tolist(), len(axes)
    ([7.2, 2.5], 2)
    """
    return import_pyplot().subplots(nrows, ncols, figsize=(WIDTH, height), **kwargs)


def finish(fig: Any) -> Any:
    """Return the figure, closed in pyplot, which would otherwise show it a second time.

    >>> from matplotlib import pyplot
    >>> fig, ax = figure()
    >>> pyplot.fignum_exists(fig.number), pyplot.fignum_exists(finish(fig).number)
    (True, False)
    """
    import_pyplot().close(fig)
    return fig


def heatmap(
    ax: Any,
    matrix: Any,
    *,
    xlabel: str,
    ylabel: str,
    unit: str | None = None,
    xticks: Sequence[str] | None = None,
    yticks: Sequence[str] | None = None,
    signed: bool = False,
    vmax: float | None = None,
) -> Any:
    """Draw a matrix (rows down, columns right), colour bar named `unit`. Returns the image.

    NaN stays blank. signed=True takes a map with white at zero. xticks and yticks name every
    column and row. Call `use_style` first, because it registers the colour maps. ValueError for a
    matrix of other than two axes, and for too few names.

    >>> from kvbook.figures import use_style
    >>> use_style()
    >>> fig, ax = figure()
    >>> weights = [[0.7, float("nan")], [0.2, 0.8]]
    >>> image = heatmap(ax, weights, xlabel="key", ylabel="query")
    >>> image.get_clim(), int(image.get_array().mask.sum())  # colours from, to; blanks
    ((0.0, 0.8), 1)
    """
    values = np.asarray(matrix)
    if values.ndim != 2:
        raise ValueError(f"matrix: got shape {values.shape}, needed (rows, columns)")
    top = float(np.nanmax(np.abs(values))) if vmax is None else vmax
    cmap = "kvlib_signed" if signed else "kvlib"
    image = ax.imshow(values, cmap=cmap, vmin=-top if signed else 0.0, vmax=top, aspect="auto")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(False)
    rows, columns = values.shape
    for axis, names, n in ((ax.xaxis, xticks, columns), (ax.yaxis, yticks, rows)):
        if names is not None:
            if len(names) != n:
                raise ValueError(f"tick names: got {len(names)}, needed {n}")
            axis.set_ticks(range(n), labels=list(names))
    if unit is not None:
        ax.figure.colorbar(image, ax=ax, label=unit)
    return image


def cells(
    ax: Any,
    roles: Sequence[Sequence[str | None]],
    *,
    text: Sequence[Sequence[str]] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    legend: Mapping[str, str] | None = None,
) -> None:
    """Draw a grid of slots, each coloured by what it holds; `None` draws nothing.

    legend maps a role to its words. A free slot is drawn as an outline. ValueError for a role the
    palette does not have.

    >>> fig, ax = figure(1.5)
    >>> slots = [["shared", "cached", "free", None]]
    >>> cells(ax, slots, text=[["a", "b", "", ""]])
    >>> len(ax.patches), [words.get_text() for words in ax.texts]
    (3, ['a', 'b'])
    """
    import_pyplot()
    from matplotlib.patches import Patch, Rectangle

    for i, row in enumerate(roles):
        for j, role in enumerate(row):
            if role is None:
                continue
            ax.add_patch(Rectangle((j - 0.44, i - 0.44), 0.88, 0.88, **_fill(role)))
            if text is not None and text[i][j]:
                ink = MUTED if role == "free" else on_color(role)
                ax.text(j, i, text[i][j], ha="center", va="center", color=ink, fontsize=9)
    ax.set(xlim=(-0.6, max(map(len, roles)) - 0.4), ylim=(len(roles) - 0.4, -0.6))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(False)
    if legend:
        handles = [Patch(label=words, **_fill(role)) for role, words in legend.items()]
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _fill(role: str) -> dict[str, Any]:
    if role == "free":
        return {"facecolor": CARD, "edgecolor": color(role), "linewidth": 1.5}
    return {"facecolor": color(role), "edgecolor": color(role), "linewidth": 1.5}


def bars(
    ax: Any, values: Mapping[str, float], roles: Sequence[str], *, xlabel: str, digits: bool = True
) -> None:
    """Horizontal bars, first on top, each value written at its end. xlabel carries the unit.

    digits=False writes no values. ValueError where there is not one role for each bar.

    >>> fig, ax = figure(1.5)
    >>> read = {"weights": 15316, "cache": 0.5}
    >>> bars(ax, read, ["weights", "cached"], xlabel="read (MB)")
    >>> [words.get_text() for words in ax.texts]
    ['15,316', '0.5']
    """
    names, lengths = list(values), [float(v) for v in values.values()]
    if len(roles) != len(names):
        raise ValueError(f"roles: got {len(roles)}, needed one for each of {len(names)} bars")
    drawn = ax.barh(names, lengths, color=[color(role) for role in roles], height=0.62)
    if digits:
        ax.bar_label(drawn, labels=[format_number(v) for v in lengths], padding=4, color=INK)
        ax.set_xlim(0, max(lengths) * 1.15)
    ax.invert_yaxis()
    ax.set_xlabel(xlabel)
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)


def lines(
    ax: Any,
    x: Sequence[float] | Any,
    series: Mapping[str, Any],
    roles: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    marker: str = "",
) -> None:
    """One line per series, each named at its right end in its colour. Labels carry units.

    ValueError where there is not one role for each line.

    >>> fig, ax = figure()
    >>> series = {"cached": [1, 2, 3], "naive": [1, 4, 9]}
    >>> roles = ["cached", "recomputed"]
    >>> lines(ax, [1, 2, 3], series, roles, xlabel="tokens", ylabel="FLOP")
    >>> [words.get_text() for words in ax.texts]  # names, and no legend
    ['cached', 'naive']
    """
    if len(roles) != len(series):
        raise ValueError(f"roles: got {len(roles)}, needed one for each of {len(series)} lines")
    for (_name, y), role in zip(series.items(), roles, strict=True):
        ax.plot(x, y, color=color(role), marker=marker)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    label_ends(ax, {name: float(y[-1]) for name, y in series.items()}, roles, x_end=float(x[-1]))


def label_ends(ax: Any, ends: Mapping[str, float], roles: Sequence[str], *, x_end: float) -> None:
    """Write each name at the right end of its line, (x_end, y), pushed apart where they overlap.

    >>> fig, ax = figure()
    >>> ends = {"paged": 0.5, "dense": 0.5}
    >>> label_ends(ax, ends, ["key", "value"], x_end=1.0)
    >>> [round(words.xyann[1]) for words in ax.texts]  # points moved up
    [0, 11]
    """
    ax.figure.canvas.draw()  # fixes the data-to-pixel map that the spacing needs
    pixels = {name: float(ax.transData.transform((x_end, y))[1]) for name, y in ends.items()}
    gap = 11 * ax.figure.dpi / 72  # one line of 9-point text
    placed: dict[str, float] = {}
    for name in sorted(pixels, key=pixels.__getitem__):
        floor = max(placed.values(), default=-np.inf) + gap
        placed[name] = max(pixels[name], floor)
    for (name, y), role in zip(ends.items(), roles, strict=True):
        shift = (placed[name] - pixels[name]) * 72 / ax.figure.dpi
        ax.annotate(
            name,
            (x_end, y),
            xytext=(6, shift),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=text_color(role),
            annotation_clip=False,
        )


def bytes_axis(ax: Any, name: str, *, axis: str = "y", base: int = 1024) -> str:
    """Label an axis of bytes 'name (MiB)', with ticks at round numbers. Returns the unit.

    base=1024 gives KiB, MiB, GiB; base=1000 gives kB, MB, GB. Call it after drawing. ValueError
    for another base or axis.

    >>> fig, ax = figure()
    >>> drawn = ax.plot([0, 24], [0, 24 * 2**17])  # tokens, and 128 KiB for each
    >>> bytes_axis(ax, "cache"), ax.get_ylabel()
    ('MiB', 'cache (MiB)')
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    if axis not in ("x", "y"):
        raise ValueError(f"axis: got {axis!r}, needed 'x' or 'y'")
    low, high = ax.get_ylim() if axis == "y" else ax.get_xlim()
    size, unit = byte_unit(max(abs(low), abs(high)), base)
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low / size, high / size)
    which = ax.yaxis if axis == "y" else ax.xaxis
    which.set_major_locator(MultipleLocator(float(ticks[1] - ticks[0]) * size))
    which.set_major_formatter(FuncFormatter(lambda value, _pos: format_number(value / size)))
    which.set_label_text(f"{name} ({unit})")
    return unit


def annotate(
    ax: Any, text: str, xy: tuple[float, float], offset: tuple[float, float] = (24, 18)
) -> None:
    """Point at `xy` (data coordinates) with words `offset` points away.

    >>> fig, ax = figure()
    >>> annotate(ax, "the ridge", xy=(0.5, 0.5))
    >>> [(words.get_text(), words.xy) for words in ax.texts]
    [('the ridge', (0.5, 0.5))]
    """
    ax.annotate(
        text,
        xy,
        xytext=offset,
        textcoords="offset points",
        fontsize=9,
        color=INK,
        arrowprops={"arrowstyle": "-", "color": MUTED, "shrinkB": 2},
        bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1.5},
    )
