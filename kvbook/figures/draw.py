"""The drawings that all chapters share; `kvbook/figures/<chapter>.py` has those of one chapter.

A figure function returns its figure. Its call is the last line of a cell, so the notebook shows
the figure once, and a test can look at what was drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.style import (
    CARD,
    INK,
    MUTED,
    WIDTH,
    color,
    import_matplotlib,
    on_color,
    text_color,
)
from kvbook.figures.units import byte_unit, format_number

Numbers = Sequence[float]
Series = Mapping[str, Numbers]
Amounts = Mapping[str, float]


def figure(height: float = 3.2, ncols: int = 1, nrows: int = 1, **kwargs: Any) -> tuple[Any, Any]:
    """Return a figure of the book's width and `height` inches, and its axes (one, or an array).

    pyplot does not know the figure, so a notebook shows it only where a cell returns it.

    >>> fig, axes = figure(2.5, ncols=2)
    >>> fig.get_size_inches().tolist(), len(axes)
    ([7.2, 2.5], 2)
    """
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(fig)
    return fig, fig.subplots(nrows, ncols, **kwargs)


def heatmap(
    ax: Any,
    matrix: Any,
    *,
    xlabel: str,
    ylabel: str,
    unit: str | None = None,
    signed: bool = False,
    vmax: float | None = None,
) -> Any:
    """Draw a matrix (rows down, columns right), colour bar named `unit`, and return the image.

    NaN stays blank. signed=True takes a map with white at zero. Call `use_style` first, because it
    registers the colour maps. Raises ValueError unless the matrix has two axes.

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
) -> None:
    """Draw a grid of slots, each coloured by what it holds; `None` draws nothing.

    A free slot is an outline. ValueError for a role the palette does not have.

    >>> fig, ax = figure(1.5)
    >>> slots = [["shared", "cached", "free", None]]
    >>> cells(ax, slots, text=[["a", "b", "", ""]])
    >>> len(ax.patches), [words.get_text() for words in ax.texts]
    (3, ['a', 'b'])
    """
    for i, row in enumerate(roles):
        for j, role in enumerate(row):
            if role is None:
                continue
            box(ax, j, i, 0.88, 0.88, **fill(role))
            if text is not None and text[i][j]:
                centered(ax, j, i, text[i][j], MUTED if role == "free" else on_color(role))
    ax.set(xlim=(-0.6, max(map(len, roles)) - 0.4), ylim=(len(roles) - 0.4, -0.6))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(False)


def fill(role: str, linewidth: float = 1.5) -> dict[str, Any]:
    """How a mark of this role is filled: with its colour, or as an outline where it is free."""
    face = CARD if role == "free" else color(role)
    return {"facecolor": face, "edgecolor": color(role), "linewidth": linewidth}


def patch(role: str, words: str) -> Any:
    """A swatch of this role for a legend."""
    from matplotlib.patches import Patch

    return Patch(label=words, **fill(role, 1.0))


def dot(face: str, words: str, edge: str = MUTED, **style: Any) -> Any:
    """A mark for a legend, round and filled with `face`."""
    from matplotlib.lines import Line2D

    defaults: dict[str, Any] = {"marker": "o", "linestyle": "", "markerfacecolor": face}
    return Line2D([], [], label=words, color=edge, **defaults | style)


def legend_below(fig: Any, words: Mapping[str, str], **style: Any) -> None:
    """A legend under the figure in one line: role → what it means."""
    handles = [patch(role, text) for role, text in words.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), **style)


def box(ax: Any, x: float, y: float, width: float, height: float, **style: Any) -> None:
    """A rectangle around (x, y)."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, **style))


def centered(ax: Any, x: float, y: float, words: str, ink: str = INK, **style: Any) -> None:
    """Words in the middle of (x, y)."""
    ax.text(x, y, words, **{"ha": "center", "va": "center", "color": ink, "fontsize": 9} | style)


def grid_across(ax: Any) -> None:
    """Grid lines for the x axis only, as horizontal bars need them."""
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)


def name_rows(ax: Any, names: Iterable[str], above: float = 0.5, below: float = 0.5) -> None:
    """Name the rows at 0, 1, ... of the y axis, the first on top, with grid lines across."""
    listed = list(names)
    ax.set_yticks(range(len(listed)), labels=listed)
    ax.set_ylim(len(listed) - 1 + below, -above)
    grid_across(ax)


def list_rows(ax: Any, names: Iterable[str], across: bool = False) -> None:
    """Name the bars at 0, 1, ... of the y axis, the first on top; across: with lines for x."""
    listed = list(names)
    ax.set_yticks(range(len(listed)), labels=listed)
    ax.invert_yaxis()
    ax.grid(axis="x", visible=across)
    ax.grid(axis="y", visible=False)


def ticks_at(ax: Any, values: Iterable[float], axis: str = "x") -> None:
    """Label an axis with these values alone, a logarithmic one too."""
    from matplotlib.ticker import NullLocator

    which, shown = ax.xaxis if axis == "x" else ax.yaxis, list(values)
    which.set_minor_locator(NullLocator())
    which.set_ticks(shown, labels=[f"{value:,}" for value in shown])


def plain_numbers(axis: Any, unit: float = 1.0) -> None:
    """1, 10, 1,000 units on a logarithmic axis, not powers of ten."""
    axis.set_major_formatter(lambda value, _pos: f"{value / unit:,.6g}")


def number_cells(
    ax: Any,
    values: Any,
    words: Any,
    *,
    dark: float,
    columns: Any,
    rows: Any,
    limits: Any,
    size: Any,
) -> None:
    """A matrix as coloured cells with words in them, white where the value is above `dark`."""
    ax.imshow(values, vmin=limits[0], vmax=limits[1], aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        centered(ax, j, i, words[i][j], CARD if value > dark else INK, fontsize=size)
    ax.set_xticks(range(len(columns)), labels=list(columns))
    ax.set_yticks(range(len(rows)), labels=list(rows))
    ax.tick_params(length=0)
    ax.grid(False)


def grouped(
    ax: Any, series: Mapping[str, Any], roles: Sequence[str], share: float = 0.8, flat: bool = False
) -> list[Any]:
    """Bars of all series side by side at 0, 1, ..., named for a legend; flat: horizontal."""
    step, drawn = share / len(series), []
    for i, ((name, sizes), role) in enumerate(zip(series.items(), roles, strict=False)):
        at = np.arange(len(sizes)) + (i - (len(series) - 1) / 2) * step
        bar = ax.barh if flat else ax.bar
        drawn.append(bar(at, sizes, step * 0.9, color=color(role), label=name))
    return drawn


def stacked(
    ax: Any,
    rows: Mapping[str, Mapping[str, float]],
    fills: Mapping[str, Mapping[str, Any]],
    words: Callable[[str, float], str],
    height: float = 0.62,
) -> None:
    """A bar per row, its parts end to end in the styles `fills`, then `words(row, total)`."""
    for row, (name, parts) in enumerate(rows.items()):
        left = 0.0
        for part, size in parts.items():
            named = part in ax.get_legend_handles_labels()[1]
            style: dict[str, Any] = {"label": None if named else part, **fills[part]}
            ax.barh(row, size, left=left, height=height, **style)
            left += size
        ax.text(left, row, words(name, left), va="center", fontsize=9, color=INK)


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
    grid_across(ax)


def lines(
    ax: Any,
    x: Sequence[float] | Any,
    series: Mapping[str, Any],
    roles: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    marker: str = "",
    forms: Sequence[str] = (),
    **axes: Any,
) -> None:
    """One line per series, each named at its right end in its colour. Labels carry units.

    forms: matplotlib's short form of each line ("o--") instead of one marker; axes: settings of
    the axes, such as ylim. ValueError where there is not one role for each line.

    >>> fig, ax = figure()
    >>> series = {"cached": [1, 2, 3], "naive": [1, 4, 9]}
    >>> roles = ["cached", "recomputed"]
    >>> lines(ax, [1, 2, 3], series, roles, xlabel="tokens", ylabel="FLOP")
    >>> [words.get_text() for words in ax.texts]  # names, and no legend
    ['cached', 'naive']
    """
    if len(roles) != len(series):
        raise ValueError(f"roles: got {len(roles)}, needed one for each of {len(series)} lines")
    shapes = forms or [f"{marker}-"] * len(series)
    for y, role, form in zip(series.values(), roles, shapes, strict=False):
        ax.plot(x, y, form, color=color(role))
    ax.set(xlabel=xlabel, ylabel=ylabel, **axes)
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
        note(ax, name, (x_end, y), (6, shift), va="center", color=text_color(role))


def bytes_axis(ax: Any, name: str, *, axis: str = "y") -> str:
    """Label an axis of bytes 'name (MiB)', with ticks at round numbers, and return the unit.

    Call it after drawing. ValueError for another axis than "x" and "y".

    >>> fig, ax = figure()
    >>> drawn = ax.plot([0, 24], [0, 24 * 2**17])  # tokens, and 128 KiB for each
    >>> bytes_axis(ax, "cache"), ax.get_ylabel()
    ('MiB', 'cache (MiB)')
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    if axis not in ("x", "y"):
        raise ValueError(f"axis: got {axis!r}, needed 'x' or 'y'")
    low, high = ax.get_ylim() if axis == "y" else ax.get_xlim()
    size, unit = byte_unit(max(abs(low), abs(high)))
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low / size, high / size)
    which = ax.yaxis if axis == "y" else ax.xaxis
    which.set_major_locator(MultipleLocator(float(ticks[1] - ticks[0]) * size))
    which.set_major_formatter(FuncFormatter(lambda value, _pos: format_number(value / size)))
    which.set_label_text(f"{name} ({unit})")
    return unit


def note(ax: Any, text: str, xy: tuple[float, float], offset: Any = (0, 0), **style: Any) -> None:
    """Words `offset` points from `xy` (data coordinates), on the side to which they are moved."""
    right, up = offset
    defaults: dict[str, Any] = {"ha": "right" if right < 0 else "left", "fontsize": 9, "color": INK}
    defaults["va"] = "bottom" if up > 0 else "top" if up < 0 else "center"
    defaults |= {"xytext": offset, "textcoords": "offset points", "annotation_clip": False}
    ax.annotate(text, xy, **defaults | style)


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
