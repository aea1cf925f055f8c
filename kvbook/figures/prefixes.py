"""The chapter on shared prefixes: block tables, lookups, what is read, and a pool through time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.blocks import Blocks, pool_rows, replay
from kvbook.explorers.scenes.panels import cells_panel
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Series, bytes_axis, cells, centered, figure, lines
from kvbook.figures.style import CARD, INK, color, text_color
from kvbook.figures.units import format_bytes, format_number
from kvlib.caches.allocation.pool import BlockEvent

LEGEND = {
    "key": "handed out in this moment",
    "shared": "held by several requests",
    "cached": "held by one request",
    "muted": "free, can still be found",
    "free": "free, nothing to find",
}


def stored(parts: Mapping[str, Amounts]) -> Any:
    """Bytes held, one bar each: {bar: {"shared": ..., "recomputed": ..., "cached": ...}}."""
    words = {
        "shared": "the system prompt",
        "recomputed": "more copies of it",
        "cached": "questions and answers",
    }
    fig, ax = figure(1.1 + 0.5 * len(parts))
    fills = {role: {"color": color(role), "edgecolor": CARD} for role in words}
    rows = {name: {role: held[role] for role in words} for name, held in parts.items()}
    draw.stacked(ax, rows, fills, lambda _, total: f" {format_bytes(total)}")
    draw.list_rows(ax, parts, across=True)
    ax.set_xlim(0, 1.17 * max(sum(held.values()) for held in parts.values()))
    bytes_axis(ax, "keys and values", axis="x")
    draw.legend_below(fig, words)
    return fig


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
    draw.legend_below(fig, {role: LEGEND[role] for role in ("shared", "cached")})
    return fig


def walks(agreed: Sequence[int], tokens: Series) -> Any:
    """Tokens that a lookup hashes or compares, against tokens that agree: one line per kind."""
    fig, ax = figure(3.0)
    roles = ["muted", "muted", "ink"][: len(tokens)]  # none of these is a role of the palette
    names = {"xlabel": "tokens that agree", "ylabel": "tokens looked at"}
    lines(ax, agreed, tokens, roles, **names, forms=("-", "--", "-"))
    ax.set_ylim(bottom=0)
    return fig


def stairs(agreed: Sequence[int], hits: Series) -> Any:
    """Tokens found against tokens that agree, a staircase for each block size."""
    fig, ax = figure(3.0)
    for (name, y), style in zip(hits.items(), (":", "-", "--"), strict=False):
        ax.plot(agreed, y, style, drawstyle="steps-post", color=color("shared"), label=name)
    ax.set(xlabel="tokens that agree", ylabel="tokens found")
    ax.legend(loc="upper left")
    return fig


def survivors(hits: Series) -> Any:
    """Blocks of a prefix that a lookup still finds after so many new blocks were handed out."""
    fig, ax = figure(2.6)
    roles = (("muted", "o-", 10), ("ink", "o--", 5))  # where they agree, both are seen
    for (name, y), (role, form, marker) in zip(hits.items(), roles, strict=False):
        ax.plot(range(len(y)), y, form, color=color(role), label=name, markersize=marker)
    ax.set(xlabel="blocks handed out since", ylabel="blocks found again")
    ax.set_ylim(bottom=-0.2)
    ax.legend(loc="lower left")
    return fig


def work(cold: Amounts, warm: Amounts, *, unit: str) -> Any:
    """What is computed for all requests without and with a hit, one pair of bars per kind."""
    fig, axes = figure(1.7, ncols=len(cold))
    for ax, name in zip(axes, cold, strict=True):
        values = {"nothing found": cold[name], "prefix found": warm[name]}
        tones = [color("recomputed"), color("ink")]
        drawn = ax.barh(list(values), list(values.values()), height=0.6, color=tones)
        labels = [format_number(v) for v in values.values()]
        ax.bar_label(drawn, labels=labels, padding=4, color=INK, fontsize=9)
        ax.set(title=name, xlabel=unit if name != "tokens" else "", xlim=(0, 1.35 * cold[name]))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="x", labelsize=8)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        if ax is not axes[0]:
            ax.set_yticklabels([])
    return fig


def reads(requests: Sequence[int], series: Series) -> Any:
    """Bytes of keys and values that one decode step reads, against the requests in it."""
    fig, ax = figure(3.0)
    roles = ["muted", "ink", "shared"][: len(series)]
    lines(ax, requests, series, roles, xlabel="requests in a step", ylabel="", marker="o")
    ax.set_ylim(bottom=0)
    ax.set_xticks(list(requests))
    bytes_axis(ax, "read by attention")
    return fig


def split(shared: int, private: Sequence[int]) -> Any:
    """Cascade: all queries over the shared tokens in one product, each over its own in another."""
    fig, ax = figure(0.9 + 0.34 * len(private))
    rows, longest = len(private), max(private)
    middle = (rows - 1) / 2
    ax.barh(middle, shared, height=rows - 0.12, color=color("shared"))
    words = f"{shared} shared tokens,\n{rows} queries in one product"
    centered(ax, shared / 2, middle, words, CARD, fontsize=10)
    for row, n in enumerate(private):
        ax.barh(row, n, left=shared + 3, height=0.88, color=color("cached"))
    words, ink = "private tokens,\none product per query", text_color("cached")
    draw.note(ax, words, (shared + 3 + longest, middle), (8, 0), color=ink, fontsize=10)
    ax.set_yticks(range(rows), labels=[str(i) for i in range(rows)])
    ax.set(xlabel="position", ylabel="query of request", xlim=(0, 1.34 * (shared + longest)))
    ax.invert_yaxis()
    ax.grid(False)
    return fig


class Moment(NamedTuple):
    """The pool after one event, and what had happened."""

    words: str
    events: int  # how many events of the pool's log had happened
    tables: Mapping[str, Sequence[int]]  # name of a request → its blocks
    copied: int  # bytes that were copied


def pool_explorer(
    events: Sequence[BlockEvent], num_blocks: int, moments: Sequence[Moment]
) -> Explorer:
    """A pool through time: one slider and one scene per moment, replayed from the pool's log."""
    names = list(dict.fromkeys(name for moment in moments for name in moment.tables))
    states, scenes, seen = replay(events, num_blocks), [], 0
    for moment in moments:
        taken = {b for e in events[seen : moment.events] if e.kind == "allocate" for b in e.blocks}
        scenes.append(_pool_scene(states[moment.events], taken, moment, names))
        seen = moment.events
    count = range(1, len(scenes) + 1)
    slider = Slider("moment", "Moment", count, texts=[f"{i} of {len(scenes)}" for i in count])
    return Explorer.from_frames("pool", "A pool of blocks through time", slider, scenes)


def _pool_scene(state: Blocks, taken: set[int], moment: Moment, names: Sequence[str]) -> Scene:
    rows = pool_rows(state, taken, names, moment.tables)
    roles = state.roles()
    entries = sum(len(blocks) for blocks in moment.tables.values())
    findable, blank, several = (roles.count(r) for r in ("muted", "free", "shared"))
    used = len(roles) - findable - blank
    copied = format_bytes(moment.copied) if moment.copied else "nothing"
    label = f"Blocks 0 to {len(roles) - 1} of the pool, one per column; below, the"
    return {
        "title": moment.words,
        "summary": (
            f"{moment.words}. Of {len(roles)} blocks {used} held, {several} by several requests;"
            f" {findable} free that can still be found, {blank} free with nothing to find."
            f" Copied: {copied}."
        ),
        "formula": [
            *(f"{n}: blocks {', '.join(map(str, held))}" for n, held in moment.tables.items()),
            f"entries of all block tables: {entries}; blocks that they name: {used}",
        ],
        "numbers": [
            {"label": "Blocks held", "text": str(used)},
            {"label": "Free, can be found", "text": str(findable)},
            {"label": "Free, nothing to find", "text": str(blank)},
            {"label": "Bytes copied", "text": copied},
        ],
        "panels": [cells_panel(f"{label} requests that hold them", rows, list(LEGEND.items()))],
    }
