"""Drawings of the museum: what a bug does to weights and text, and what catches it."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import axis_counts, axis_linear, bars_panel, curves_panel
from kvbook.explorers.scenes.words import fixed
from kvbook.figures.draw import Numbers, Series, annotate, figure, grouped, heatmap
from kvbook.figures.style import GRID, INK, MUTED


def weights(patterns: Mapping[str, Any], title: str) -> Any:
    """Attention weights, healthy and with bugs: name → (T, S), one row per query. 0 is grey.

    A line separates the last row, a decode step, from the chunk above it.
    """
    fig, axes = figure(3.0, ncols=len(patterns), sharey=True)
    for ax, (name, matrix) in zip(np.atleast_1d(axes), patterns.items(), strict=True):
        seen = np.where(np.asarray(matrix) > 0, matrix, np.nan)
        heatmap(ax, seen, xlabel="key", ylabel="", vmax=1.0)
        ax.axhline(len(seen) - 1.5, color=INK, linewidth=1.2)
        ax.set_facecolor(GRID)  # a small weight is nearly white, no weight is grey
        ax.set_title("\n".join(textwrap.wrap(_words(name), 16)), fontsize=9)
        ax.set(xticks=range(0, seen.shape[1], 2), yticks=range(seen.shape[0]))
    np.atleast_1d(axes)[0].set_ylabel("query")
    fig.suptitle(title, weight="bold")
    return fig


def shares(of: Mapping[str, Mapping[str, float]], title: str) -> Any:
    """Shares of each letter in percent: name → letter → share; the first name is healthy."""
    fig, ax = figure(2.8)
    letters = list(next(iter(of.values())))
    series = {_words(name): [share[x] for x in letters] for name, share in of.items()}
    grouped(ax, series, ["ink", "muted", "grid"][: len(series)])
    ax.set(ylabel="share (%)", xlabel="letter that is written", title=title)
    ax.set_xticks(range(len(letters)), letters)
    ax.set_ylim(top=1.15 * max(max(shares) for shares in series.values()))  # for the legend
    ax.legend(loc="upper left", ncols=len(series))
    return fig


def caught(killed: Mapping[str, Sequence[bool]], mutants: Sequence[str], title: str) -> Any:
    """Which test (a column) kills which bug (a row)."""
    cells = np.asarray(list(killed.values()), dtype=float).T
    if cells.shape != (len(mutants), len(killed)):
        raise ValueError(f"killed: got {cells.T.shape}, needed {(len(killed), len(mutants))}")
    fig, ax = figure(1.2 + 0.24 * len(mutants))
    heatmap(ax, np.where(cells > 0, 0.72, np.nan), xlabel="", ylabel="", vmax=1.0)
    names = ["\n".join(textwrap.wrap(_words(test), 12)) for test in killed]
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(mutants)), [_words(bug) for bug in mutants])
    ax.tick_params(labelsize=9, length=0)
    ax.set_xticks(np.arange(len(names)) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(mutants)) + 0.5, minor=True)
    ax.grid(True, which="minor", color=MUTED, linewidth=0.3)
    ax.tick_params(which="minor", length=0)
    ax.set_title(title)
    return fig


def growth(sizes: Sequence[int], kills: Sequence[int], total: int, title: str) -> Any:
    """Bugs killed against the number of tests, each test chosen for the bugs that it adds."""
    fig, ax = figure(2.6)
    ax.step(sizes, kills, where="post", color=INK)
    ax.plot(sizes, kills, "o", color=INK, markersize=4)
    ax.axhline(total, color=MUTED, linewidth=1)
    ax.set(xlabel="number of tests, the most useful one first", ylabel="bugs killed", title=title)
    ax.set_ylim(0, total * 1.1)
    annotate(ax, f"{kills[0]} with the first test", (sizes[0], kills[0]), offset=(6, -18))
    ax.text(sizes[0], total, f"all {total}", va="bottom", color=INK, fontsize=9)
    return fig


def hall_explorer(healthy: Numbers, broken: Series) -> Explorer:
    """A slider over bugs: bits of each byte of a given text, healthy and with the bug.

    healthy (n,); broken: name of an exhibit → (n,). ValueError for another length.
    """
    for name, bits in broken.items():
        if len(bits) != len(healthy):
            raise ValueError(f"{name}: got {len(bits)} bytes, needed {len(healthy)}")
    top = max(max(healthy), *(max(bits) for bits in broken.values())) * 1.05
    worst = max(float(np.mean(bits)) for bits in broken.values())
    scenes = [_scene(_words(name), healthy, bits, top, worst) for name, bits in broken.items()]
    texts = [_words(name) for name in broken]
    slider = Slider("bug", "Bug", list(range(1, len(texts) + 1)), 1, texts=texts)
    title = "Bits of each byte, one bug at a time"
    return Explorer.from_frames("hall", title, slider, scenes, anchor="hall-explorer")


def _scene(words: str, healthy: Numbers, broken: Numbers, top: float, worst: float) -> Scene:
    means = [float(np.mean(x)) for x in (healthy, broken)]
    moved = [i for i, (a, b) in enumerate(zip(healthy, broken, strict=True)) if b > a + 1]
    first = f"byte {moved[0] + 1}" if moved else "none"
    without, with_it = (fixed(mean, 2) for mean in means)
    lines = []
    for label, role, bits in (("with the bug", "ink", broken), ("healthy", "muted", healthy)):
        # A fiftieth of a bit is a quarter of a pixel; one value is on the edge between hundredths.
        points = [[i + 1, round(50 * b) / 50] for i, b in enumerate(bits)]
        lines.append([label, role, points, label == "healthy"])
    averages = [
        [label, [[label, mean, role]]]
        for label, mean, role in zip(("healthy", "with the bug"), means, ("muted", "ink"))
    ]
    x, y = axis_counts("byte", len(healthy)), axis_linear("bits", top, 1)
    return {
        "title": words[0].upper() + words[1:],
        "summary": f"With the bug {words!r} a byte of the text costs {with_it} bits on average,"
        f" without it {without}. First byte that costs over one bit more: {first}.",
        "formula": ["bits = −log2 of the probability of the next byte"],
        "numbers": [
            {"label": "Bits per byte, healthy", "text": without},
            {"label": "Bits per byte, with the bug", "text": with_it},
            {"label": "First byte over one bit more", "text": first},
        ],
        "panels": [
            curves_panel("Bits of each byte", x, y, lines),
            bars_panel("On average", "bits per byte", worst * 1.05, averages),
        ],
    }


def _words(name: str) -> str:
    return name.replace("_", " ")
