"""Drawings of the chapter on caching: data in, figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.example import TEXT, VOCABULARY, run
from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.figures import draw
from kvbook.figures.draw import Series, cells, figure, lines
from kvbook.figures.style import INK, color
from kvlib.arrays import Array

_WORDS = {
    "key": "computed for the first time",
    "recomputed": "computed again",
    "cached": "read from the cache",
}


_IN_CACHE = {
    "query": "query of the newest token",
    "key": "key computed in this step",
    "value": "value computed in this step",
    "cached": "read from the cache",
    "muted": "weights and their result",
}


def cache_explorer() -> Explorer:
    """A slider over the steps in which the model of 32 numbers writes "the cat sat on the mat".

    Each scene shows the two arrays of the cache, the query that reads all of their rows, the
    weights beside the rows, and the next word.
    """
    steps = range(1, len(TEXT))
    texts = [f"{t} of {len(TEXT) - 1}: {VOCABULARY[TEXT[t - 1]]}" for t in steps]
    slider = Slider("step", "Step", steps, value=len(TEXT) - 1, texts=texts, play=True)
    title, scenes = "One query reads every row of the cache", [_step_scene(t) for t in steps]
    return Explorer.from_frames("cache", title, slider, scenes, anchor="cache-explorer")


def _step_scene(t: int) -> Scene:
    """Step t: the newest row, the rows from the cache, and what the query makes of them."""
    trace, words = run(TEXT[:t]), [VOCABULARY[token] for token in TEXT[:t]]
    following = VOCABULARY[int(trace.logits[-1].argmax())]
    shares = [f"{weight:.2f}" for weight in trace.weights[-1]]
    rows = [_table_row("query", _pair(trace.q[-1], "query"), [], [])]
    for i, (word, share) in enumerate(zip(words, shares, strict=True)):
        new = i == t - 1
        key, value = (_pair(trace.k[i], "key"), _pair(trace.v[i], "value"))
        for cell in [] if new else key + value:
            cell["role"] = "cached"
        bar = [{"role": "muted", "text": share, "share": float(share)}]
        rows.append(_table_row(f"{word} (new)" if new else word, key, bar, value))
    rows.append(_table_row("result", [], [], _pair(trace.o[-1], "muted")))
    rows += [_table_row("", [], [], [])] * (len(TEXT) - 1 - t)  # the height stays the same
    parts = [f"{share} · {_row(v)}" for share, v in zip(shares, trace.v, strict=True)]
    table = {"kind": "table", "columns": ["query, keys", "weights", "values, result"], "rows": rows}
    table["label"] = f"Rows read from the cache: {t - 1} of {t}. The last row is new"
    table["legend"] = [{"role": role, "label": label} for role, label in _IN_CACHE.items()]
    return {
        "title": f'Step {t} reads "{words[-1]}" and writes "{following}"',
        "summary": f'Step {t} computes a query, a key and a value from "{words[-1]}". The key and'
        f" the value become row {t} of the cache. The weights say how well the query matches each"
        f' key, and the weighted sum of the values leads to "{following}".',
        "formula": [
            "scores = query · keys / √2 = " + ", ".join(map(_number, trace.scores[-1])),
            "weights = softmax(scores) = " + ", ".join(shares),
            f"result = {' + '.join(parts)} = {_row(trace.o[-1])}",
        ],
        "numbers": [
            {"label": "Rows read from the cache", "text": str(t - 1)},
            {"label": "Next word", "text": following},
        ],
        "panels": [table],
    }


def _table_row(label: str, *columns: list[Any]) -> dict[str, Any]:
    return {"label": label, "columns": list(columns)}


def _pair(numbers: Array, role: str) -> list[dict[str, Any]]:
    return [{"role": role, "text": _number(x)} for x in numbers]


def _row(numbers: Array) -> str:
    return f"({', '.join(map(_number, numbers))})"


def _number(x: float) -> str:
    """A number of the example: without decimals where it is whole, otherwise with two."""
    return f"{x:.0f}".replace("-", "−") if x == round(float(x)) else f"{x:.2f}".replace("-", "−")


def work(recomputed: Sequence[range], kept: Sequence[range]) -> Any:
    """What each step computes and what it finds: one row per step, one column per position.

    Both list, for the steps over one growing text, the positions that the step computed.
    """
    fig, axes = figure(3.0, ncols=2, sharey=True)
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
        for cell in ax.patches:
            cell.set_linewidth(0.5)  # so that the gaps between these small cells can be seen
        ax.set(title=title, aspect="equal", xticks=range(0, len(rows[-1]), 2))
        ax.set_yticks(range(len(rows)), labels=[str(i + 1) for i in range(len(rows))])
    axes[0].set_ylabel("step")
    draw.legend_below(fig, _WORDS)
    fig.suptitle(
        "With a cache, each token is computed once",
        x=0.01,
        ha="left",
        fontsize=11,
        weight="bold",
        color=INK,
    )
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
    ax.set_title(f"Nothing changes before token {at}")
    fig.colorbar(image, ax=ax, label="largest change (log scale)")
    return fig


def errors(distances: Mapping[str, tuple[float, float]], roles: Sequence[str]) -> Any:
    """rms (dot) and largest (bar's end) distance of logits from the oracle, on a log scale.

    distances: name → (rms, max), with a role each.
    """
    fig, ax = figure(1.1 + 0.38 * len(distances))
    for i, ((rms, top), role) in enumerate(zip(distances.values(), roles, strict=True)):
        ax.plot([rms, top], [i, i], color=color(role), linewidth=2)
        ax.plot([rms], [i], "o", color=color(role), markersize=7)
        ax.plot([top], [i], "|", color=color(role), markersize=12, markeredgewidth=2)
    ax.set(
        xscale="log", xlabel="distance of the logits from a float64 run (dot: rms, end: largest)"
    )
    ax.set_title("Every float32 run is off a little, cached or not")
    draw.name_rows(ax, distances)
    draw.legend_below(fig, {"recomputed": "computed in one step", "cached": "with a cache"})
    return fig


def gap(series: Series, roles: Sequence[str]) -> Any:
    """Largest distance of the logits from recomputation at each step, on a log scale."""
    fig, ax = figure(2.9)
    ax.set_yscale("log")
    steps = 1 + np.arange(len(next(iter(series.values()))))
    lines(ax, steps, series, roles, xlabel="step", ylabel="largest error of the logits")
    ax.set_title("The suspect loop is right in one step only")
    return fig
