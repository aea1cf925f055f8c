"""Drawings of the chapter on memory, what fits and what is wasted: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import figure, finish
from kvbook.figures.style import CARD, INK, MUTED, color


def fits(table: Mapping[str, Sequence[float | None]], limits: Sequence[int], gpus: Any) -> Any:
    """Models down, GPUs across: tokens that fit, dark where the model's own limit comes first.

    table: model → tokens for each GPU, None where the weights do not fit, inf where memory sets no
    limit. limits: the longest context of each model.
    """
    enough = np.array(
        [
            [np.nan if n is None else float(n >= limit) for n in row]
            for row, limit in zip(table.values(), limits, strict=True)
        ]
    )
    fig, ax = figure(1.5 + 0.26 * len(table))
    paint = {0.0: color("grid"), 1.0: color("cached")}
    for (i, j), value in np.ndenumerate(enough):
        n = list(table.values())[i][j]
        if n is not None:
            ax.add_patch(_square(i, j, paint[value]))
        ink = CARD if value == 1 else INK
        ax.text(j, i, _fit_words(n), ha="center", va="center", size=8, color=ink)
    ax.set(xlim=(-0.5, len(gpus) - 0.5), ylim=(len(table) - 0.5, -0.5))
    ax.set_xticks(range(len(gpus)), labels=list(gpus), rotation=35, ha="left")
    ax.set_yticks(range(len(table)), labels=list(table))
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, labelsize=8)
    ax.set_xlabel("tokens of one request that fit (k: thousands, M: millions)")
    ax.grid(False)
    handles = [
        patch("grid", "the memory is full first"),
        patch("cached", "the model's own limit comes first"),
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return finish(fig)


def _fit_words(tokens: float | None) -> str:
    if tokens is None:
        return "–"
    if tokens == np.inf:
        return "∞"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return (
                f"{tokens / size:.1f}{letter}"
                if tokens < 10 * size
                else f"{tokens / size:.0f}{letter}"
            )
    return f"{tokens:.0f}"


def _square(row: int, column: int, paint: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, color=paint, linewidth=0)


def steps(found: Mapping[str, float], low: float, high: float) -> Any:
    """Contexts in tokens, one bar per correction, over the band of defensible answers."""
    fig, ax = figure(0.9 + 0.42 * len(found))
    names = list(found)
    roles = ["muted"] * (len(names) - 1) + ["ink"]
    ax.axvspan(low, high, color=color("grid"), alpha=0.7, linewidth=0)
    drawn = ax.barh(names, list(found.values()), height=0.6, color=[color(r) for r in roles])
    labels = [f"{x:,.0f}" for x in found.values()]
    ax.bar_label(drawn, labels=labels, padding=4, color=INK)
    ax.set_xlim(0, max(*found.values(), high) * 1.16)
    ax.xaxis.set_major_formatter(lambda x, _pos: f"{x:,.0f}")
    ax.set_xlabel("tokens (band: from 90 % utilisation to weights only)")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    return finish(fig)


def reservation(held: Sequence[int], final: Sequence[int], room: int) -> Any:
    """One bar per request: tokens held now, tokens still to come, and slots no token will take."""
    fig, ax = figure(0.9 + 0.145 * len(held))
    rows, now, end = range(len(held)), np.asarray(held), np.asarray(final)
    ax.barh(rows, [room] * len(now), height=0.76, **outline("free"))
    ax.barh(rows, end, height=0.76, color=color("grid"))
    ax.barh(rows, now, height=0.76, color=color("cached"))
    ax.invert_yaxis()
    ax.set(xlabel="slots in the row of a request (tokens)", ylabel="request", xlim=(0, room * 1.01))
    ax.grid(False)
    handles = [
        patch("cached", "held now"),
        patch("grid", "answer still to come"),
        patch("free", "never used"),
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3)
    return finish(fig)


def mistakes(factors: Mapping[str, float]) -> Any:
    """What a calculator says divided by what is true, on a log scale around 1."""
    fig, ax = figure(0.8 + 0.36 * len(factors))
    names = list(factors)
    logs = [float(np.log2(f)) for f in factors.values()]
    ax.barh(names, logs, height=0.6, color=MUTED)
    for i, (f, x) in enumerate(zip(factors.values(), logs, strict=True)):
        words = f" × {f:.2f} " if f < 9.95 else f" × {f:.0f} "
        ax.annotate(words, (x, i), va="center", ha="left" if x > 0 else "right", size=9, color=INK)
    ticks = list(range(int(np.floor(min(logs))) - 1, int(np.ceil(max(logs))) + 2))
    ax.set_xticks(ticks, labels=[f"× {2.0**t:g}" for t in ticks])
    ax.set(xlabel="what the calculator says / what is true", xlim=(ticks[0] - 0.3, ticks[-1]))
    ax.axvline(0, color=INK, linewidth=1)
    ax.invert_yaxis()
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    return finish(fig)


def outline(role: str) -> dict[str, Any]:
    """A bar that holds nothing."""
    return {"facecolor": CARD, "edgecolor": color(role), "linewidth": 1.2}


def patch(role: str, words: str) -> Any:
    """A bar of this role in a legend."""
    from matplotlib.patches import Patch

    return Patch(label=words, **(outline(role) if role == "free" else {"color": color(role)}))
