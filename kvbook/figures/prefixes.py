"""The chapter on shared prefixes: a chat, block tables, names, a tree, and a pool through time."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.blocks import Blocks, pool_rows, replay
from kvbook.explorers.scenes.panels import cells_panel
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Series, bytes_axis, cells, centered, figure, lines
from kvbook.figures.style import CARD, INK, color, on_color, text_color
from kvbook.figures.units import format_bytes
from kvlib.caches.allocation.pool import BlockEvent

LEGEND = {
    "key": "allocated in this moment",
    "shared": "shared by several requests",
    "cached": "used by one request",
    "muted": "free and known",
    "free": "free and blank",
}
TEXTS = {"shared": "a block of several texts", "cached": "a block of one text"}


def turns(messages: Sequence[tuple[int, int]]) -> Any:
    """Tokens of each message's prompt, (found, computed)."""
    words = {"cached": "found in the cache", "key": "computed"}
    fig, ax = figure(1.1 + 0.34 * len(messages))
    rows = {f"message {i}": dict(zip(words, n, strict=True)) for i, n in enumerate(messages, 1)}
    draw.stacked(ax, rows, {role: draw.fill(role) for role in words}, lambda _, n: f" {n:,.0f}")
    draw.list_rows(ax, rows, across=True)
    ax.set_xlim(0, 1.1 * max(map(sum, messages)))
    ax.set(xlabel="tokens of the prompt", title="After the first message, most of a chat is found")
    draw.legend_below(fig, words)
    return fig


def stored(parts: Mapping[str, Amounts]) -> Any:
    """Bytes stored, one bar each: {bar: {"shared": ..., "recomputed": ..., "cached": ...}}."""
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
    ax.set_title("Without sharing, most of the memory holds copies of one prompt")
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
    ax.set_title("All tables name the same blocks, until the questions begin")
    draw.legend_below(fig, {role: LEGEND[role] for role in ("shared", "cached")})
    return fig


def chain(texts: Sequence[Sequence[str]], names: Sequence[Sequence[str]]) -> Any:
    """Texts as rows of blocks, each with its words and its name, computed from left to right."""
    fig, ax = figure(0.8 + 0.75 * len(texts))
    flat = [name for row in names for name in row]
    for y, (row, named) in enumerate(zip(texts, names, strict=True)):
        ax.text(-0.55, y, f"text {y + 1}", ha="right", va="center", fontsize=10)
        for x, (words, name) in enumerate(zip(row, named, strict=True)):
            _block(ax, (x, y), words, name, flat.count(name))
            if x:
                _arrow(ax, (x - 0.66, y), (x - 0.34, y))
    ax.set(xlim=(-1.1, max(map(len, texts)) - 0.5), ylim=(len(texts) - 0.5, -0.5))
    ax.set_title("The same words after another beginning have another name")
    ax.set_axis_off()
    draw.legend_below(fig, TEXTS)
    return fig


def _block(ax: Any, spot: tuple[float, float], words: str, name: str, uses: int) -> None:
    (x, y), role = spot, "shared" if uses > 1 else "cached"
    draw.box(ax, x, y, 0.66, 0.66, **draw.fill(role))
    centered(ax, x, y - 0.13, words, on_color(role), fontsize=10)
    centered(ax, x, y + 0.15, name, on_color(role))


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)


def tree(tables: Sequence[Sequence[int]], words: Sequence[Sequence[str]]) -> Any:
    """Block tables of several texts as one tree; a block that several texts use is drawn once."""
    fig, ax = figure(0.8 + 0.62 * len(tables))
    spots: dict[int, tuple[float, float]] = {}
    for blocks in tables:  # a new branch is a new line
        line = 1 + max((y for _, y in spots.values()), default=-1.0)
        for column, block in enumerate(blocks, 1):
            spots.setdefault(block, (column, line))
    uses = [block for blocks in tables for block in blocks]
    root = (0.0, float(max(y for _, y in spots.values()) / 2))
    centered(ax, *root, "root", fontsize=10)
    for blocks, row in zip(tables, words, strict=True):
        for before, block, said in zip([None, *blocks], blocks, row, strict=False):
            (x, y), (left, level) = spots[block], root if before is None else spots[before]
            _arrow(ax, (left + (0.2 if before is None else 0.34), level), (x - 0.34, y))
            _block(ax, (x, y), said, f"block {block}", uses.count(block))
    last = max(y for _, y in spots.values())
    ax.set(xlim=(-0.4, max(map(len, tables)) + 0.5), ylim=(last + 0.5, -0.5))
    ax.set_title("A radix tree stores each common beginning once")
    ax.set_axis_off()
    draw.legend_below(fig, TEXTS)
    return fig


def stairs(agreed: Sequence[int], hits: Series) -> Any:
    """Tokens found against tokens that agree, a staircase for each block size."""
    fig, ax = figure(3.0)
    looks = ((":", "ink"), ("-", "muted"), ("--", "ink"))
    for (name, y), (style, role) in zip(hits.items(), looks, strict=False):
        ax.plot(agreed, y, style, drawstyle="steps-post", color=color(role), label=name)
    ax.set(xlabel="tokens that agree", ylabel="tokens found")
    ax.set_title("Smaller blocks find more of a common beginning")
    ax.legend(loc="upper left")
    return fig


def reads(requests: Sequence[int], series: Series) -> Any:
    """Bytes of keys and values that one decode step reads, against the requests in it."""
    fig, ax = figure(3.0)
    roles = ["muted", "ink", "shared"][: len(series)]
    lines(ax, requests, series, roles, xlabel="requests in a step", ylabel="", marker="o")
    ax.set_ylim(bottom=0)
    ax.set_xticks(list(requests))
    bytes_axis(ax, "read by attention")
    ax.set_title("The cascade reads the shared part once, for any number of requests")
    return fig


def split(shared: int, private: Sequence[int]) -> Any:
    """Cascade: all queries over the shared tokens in one product, each over its private ones."""
    fig, ax = figure(0.9 + 0.34 * len(private))
    rows, longest = len(private), max(private)
    middle = (rows - 1) / 2
    ax.barh(middle, shared, height=rows - 0.12, color=color("shared"))
    words = f"{shared} shared tokens,\n{rows} queries in one product"
    centered(ax, shared / 2, middle, words, CARD, fontsize=10)
    for row, n in enumerate(private):
        ax.barh(row, n, left=shared + 3, height=0.88, color=color("cached"))
    span = f"{longest}" if min(private) == longest else f"{min(private)} to {longest}"
    words = f"{span} private tokens\nfor each query, one\nproduct per query"
    ink = text_color("cached")
    draw.note(ax, words, (shared + 3 + longest, middle), (8, 0), color=ink, fontsize=10)
    ax.set_yticks(range(rows), labels=[str(i) for i in range(rows)])
    ax.set_xticks(range(0, shared + longest, 100))
    ax.set(xlabel="position", ylabel="query of request", xlim=(0, 1.3 * (shared + longest)))
    ax.invert_yaxis()
    ax.grid(False)
    ax.set_title("One product for the shared part, and one per query for its private part")
    return fig


class Moment(NamedTuple):
    """The pool after one event, and what had happened."""

    words: str
    events: int  # how many events of the pool's log had happened
    tables: Mapping[str, Sequence[int]]  # name of a request → its blocks


def pool_explorer(
    events: Sequence[BlockEvent], num_blocks: int, moments: Sequence[Moment]
) -> Explorer:
    """A pool through time: one slider and one scene per moment, replayed from the pool's log."""
    names = list(dict.fromkeys(name for moment in moments for name in moment.tables))
    states, scenes, seen = replay(events, num_blocks), [], 0
    for moment in moments:
        new = {b for e in events[seen : moment.events] if e.kind == "allocate" for b in e.blocks}
        scenes.append(_pool_scene(states[moment.events], new, moment, names))
        seen = moment.events
    count = range(1, len(scenes) + 1)
    slider = Slider("moment", "Moment", count, texts=[f"{i} of {len(scenes)}" for i in count])
    return Explorer.from_frames("pool", "A pool of blocks through time", slider, scenes)


def _pool_scene(state: Blocks, new: set[int], moment: Moment, names: Sequence[str]) -> Scene:
    rows = pool_rows(state, new, names, moment.tables)
    roles = state.roles()
    entries = sum(len(blocks) for blocks in moment.tables.values())
    findable, blank, several = (roles.count(r) for r in ("muted", "free", "shared"))
    used = len(roles) - findable - blank
    label = f"Blocks 0 to {len(roles) - 1} of the pool, one per column; below, the"
    return {
        "title": moment.words,
        "summary": (
            f"{moment.words}. Of {len(roles)} blocks: {used} used ({several} of them shared),"
            f" {findable} free and known, {blank} free and blank."
        ),
        "formula": [
            *(f"{n}: blocks {', '.join(map(str, held))}" for n, held in moment.tables.items()),
            f"entries in all block tables: {entries}; blocks that they name: {used}",
        ],
        "numbers": [
            {"label": "Used", "text": str(used)},
            {"label": "Shared", "text": str(several)},
            {"label": "Free and known", "text": str(findable)},
            {"label": "Free and blank", "text": str(blank)},
        ],
        "panels": [cells_panel(f"{label} requests that use them", rows, list(LEGEND.items()))],
    }
