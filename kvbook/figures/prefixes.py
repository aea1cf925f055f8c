"""Drawings of the chapter on shared prefixes: block tables, lookups, what is read (the pool through
time is in `prefixes_pool`). Data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvbook.figures.draw import bytes_axis, cells, figure, finish, lines
from kvbook.figures.prefixes_pool import LEGEND, Moment, pool_explorer
from kvbook.figures.style import CARD, INK, color, text_color
from kvbook.figures.units import format_bytes, format_number

__all__ = [
    "Moment",
    "pool_explorer",
    "reads",
    "split",
    "stairs",
    "stored",
    "survivors",
    "tables",
    "walks",
    "work",
]


def stored(parts: Mapping[str, Mapping[str, float]]) -> Any:
    """Bytes held, one bar each: {bar: {"shared": ..., "recomputed": ..., "cached": ...}}."""
    words = {
        "shared": "the system prompt",
        "recomputed": "more copies of it",
        "cached": "questions and answers",
    }
    fig, ax = figure(1.1 + 0.5 * len(parts))
    for row, held in enumerate(parts.values()):
        at = 0.0
        for role in words:
            ax.barh(row, held[role], left=at, height=0.62, color=color(role), edgecolor=CARD)
            at += held[role]
        ax.annotate(f" {format_bytes(at)}", (at, row), va="center", size=9, color=INK)
    ax.set_yticks(range(len(parts)), labels=list(parts))
    ax.set_xlim(0, 1.17 * max(sum(held.values()) for held in parts.values()))
    ax.invert_yaxis()
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    bytes_axis(ax, "keys and values", axis="x")
    fig.legend(
        handles=[_patch(role, text) for role, text in words.items()],
        loc="outside lower center",
        ncols=3,
    )
    return finish(fig)


def tables(rows: Mapping[str, Sequence[int]], references: Mapping[int, int], first: int) -> Any:
    """Block tables from entry `first` on, the number of each block in its square."""
    fig, ax = figure(0.9 + 0.32 * len(rows))
    shown = [list(blocks[first:]) for blocks in rows.values()]
    roles = [["shared" if references[b] > 1 else "cached" for b in blocks] for blocks in shown]
    text = [[str(b) for b in blocks] for blocks in shown]
    cells(ax, roles, text=text, xlabel="entry of the block table", ylabel="request")
    most = max(len(blocks) for blocks in shown)
    ax.set_xticks(range(most), labels=[str(first + i) for i in range(most)])
    ax.set_yticks(range(len(rows)), labels=list(rows))
    handles = [_patch(role, LEGEND[role]) for role in ("shared", "cached")]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return finish(fig)


def walks(agreed: Sequence[int], tokens: Mapping[str, Sequence[int]]) -> Any:
    """Tokens that a lookup hashes or compares, against tokens that agree: one line per kind."""
    fig, ax = figure(3.0)
    roles = ["muted", "muted", "ink"][: len(tokens)]  # none of these is a role of the palette
    lines(ax, agreed, tokens, roles, xlabel="tokens that agree", ylabel="tokens looked at")
    for line, style in zip(ax.lines, ("-", "--", "-"), strict=False):
        line.set_linestyle(style)
    ax.set_ylim(bottom=0)
    return finish(fig)


def stairs(agreed: Sequence[int], found: Mapping[str, Sequence[int]]) -> Any:
    """Tokens found against tokens that agree, a staircase for each block size."""
    fig, ax = figure(3.0)
    for (name, y), style in zip(found.items(), (":", "-", "--"), strict=False):
        ax.plot(agreed, y, drawstyle="steps-post", color=color("shared"), ls=style, label=name)
    ax.set(xlabel="tokens that agree", ylabel="tokens found")
    ax.legend(loc="upper left")
    return finish(fig)


def survivors(found: Mapping[str, Sequence[int]]) -> Any:
    """Blocks of a prefix that a lookup still finds after so many new blocks were handed out."""
    fig, ax = figure(2.6)
    roles = (("muted", "o-", 10), ("ink", "o--", 5))  # where they agree, both are seen
    for (name, y), (role, form, marker) in zip(found.items(), roles, strict=False):
        ax.plot(range(len(y)), y, form, color=color(role), label=name, markersize=marker)
    ax.set(xlabel="blocks handed out since", ylabel="blocks found again")
    ax.set_ylim(bottom=-0.2)
    ax.legend(loc="lower left")
    return finish(fig)


def work(cold: Mapping[str, float], warm: Mapping[str, float], *, unit: str) -> Any:
    """What is computed for all requests without and with a hit, one pair of bars per kind."""
    fig, axes = figure(1.7, ncols=len(cold))
    for ax, name in zip(axes, cold, strict=True):
        values = {"nothing found": cold[name], "prefix found": warm[name]}
        drawn = ax.barh(list(values), list(values.values()), height=0.6)
        for bar, role in zip(drawn, ("recomputed", "ink"), strict=True):
            bar.set_color(color(role))
        labels = [format_number(v) for v in values.values()]
        ax.bar_label(drawn, labels=labels, padding=4, color=INK, fontsize=9)
        ax.set(title=name, xlabel=unit if name != "tokens" else "", xlim=(0, 1.35 * cold[name]))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="x", labelsize=8)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        if ax is not axes[0]:
            ax.set_yticklabels([])
    return finish(fig)


def reads(requests: Sequence[int], series: Mapping[str, Sequence[float]]) -> Any:
    """Bytes of keys and values that one decode step reads, against the requests in it."""
    fig, ax = figure(3.0)
    roles = ["muted", "ink", "shared"][: len(series)]
    lines(ax, requests, series, roles, xlabel="requests in a step", ylabel="", marker="o")
    ax.set_ylim(bottom=0)
    ax.set_xticks(list(requests))
    bytes_axis(ax, "read by attention")
    return finish(fig)


def split(shared: int, private: Sequence[int]) -> Any:
    """Cascade: all queries over the shared tokens in one product, each over its own in another."""
    fig, ax = figure(0.9 + 0.34 * len(private))
    rows, longest = len(private), max(private)
    height = rows - 0.12
    ax.barh((rows - 1) / 2, shared, height=height, color=color("shared"))
    ax.annotate(
        f"{shared} shared tokens,\n{rows} queries in one product",
        (shared / 2, (rows - 1) / 2),
        ha="center",
        va="center",
        color=CARD,
    )
    for row, n in enumerate(private):
        ax.barh(row, n, left=shared + 3, height=0.88, color=color("cached"))
    ax.annotate(
        "private tokens,\none product per query",
        (shared + 3 + longest, (rows - 1) / 2),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=text_color("cached"),
    )
    ax.set_yticks(range(rows), labels=[str(i) for i in range(rows)])
    ax.set(xlabel="position", ylabel="query of request", xlim=(0, 1.34 * (shared + longest)))
    ax.invert_yaxis()
    ax.grid(False)
    return finish(fig)


def _patch(role: str, words: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(label=words, facecolor=color(role))
