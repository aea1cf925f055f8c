"""The chapter on prompts in chunks: drawings, schedules, and two explorers."""

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import axis_counts, bars_panel, cells_panel, curves_panel
from kvbook.explorers.scenes.words import number_words, percent_words
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, Series, figure, lines, ticks_at
from kvbook.figures.style import CARD, INK, MUTED, color, on_color, text_color
from kvlib.serve import Event, waits

Events = Sequence[Event]


def score_matrix(lengths: Sequence[int], peak: Sequence[int], one_copy: Sequence[int]) -> Any:
    """Peak memory of attention against the prompt, beside the bytes of its scores, once."""
    fig, ax = figure(2.9)
    series = {"peak, measured": peak, "the scores, once": one_copy}
    _memory(ax, lengths, series, ["ink", "muted"], "tokens")
    ax.set_title("Twice the prompt takes four times the memory")
    return fig


def peak_by_tile(tiles: Sequence[int], tiled: Sequence[int], full: int) -> Any:
    """Peak memory of tiled attention against the tile, and of the whole score matrix."""
    fig, ax = figure(2.9)
    ax.set_xscale("log")
    series = {"whole matrix": [full] * len(tiles), "in tiles": tiled}
    _memory(ax, tiles, series, ["muted", "ink"], "keys in a tile")
    _name_starts(ax, tiles, series, below=0)
    ax.set_title("Smaller tiles save memory, down to a floor")
    ticks_at(ax, tiles)
    return fig


def peak_by_chunk(chunks: Sequence[int], peak: Sequence[int], cache: int) -> Any:
    """Memory that reading a prompt needs besides cache and weights, against the chunk."""
    fig, ax = figure(2.7)
    ax.set_xscale("log")
    series = {"besides the cache": peak, "the cache": [cache] * len(chunks)}
    _memory(ax, chunks, series, ["ink", "cached"], "tokens in a chunk")
    ax.set_title("A small chunk needs less memory than the cache, a large one more")
    ticks_at(ax, chunks)
    return fig


def _memory(ax: Any, x: Any, series: Mapping[str, Any], roles: Sequence[str], xlabel: str) -> None:
    lines(ax, x, series, roles, xlabel=xlabel, ylabel="", marker="o")
    ax.set_ylim(bottom=0)
    draw.bytes_axis(ax, "memory")


def _name_starts(ax: Any, x: Any, series: Mapping[str, Any], below: int = -1) -> None:
    """Move the names of lines to their left ends, above them, or below for one of the lines."""
    for i, (words, y) in enumerate(zip(ax.texts, series.values(), strict=True)):
        words.xy, words.xyann = (x[0], y[0]), (0, -7 if i == below else 7)
        words.set(ha="left", va="top" if i == below else "bottom")


def two_tiles(scores: Numbers, states: Sequence[tuple[float, float, Any]]) -> Any:
    """Three scores in tiles of two and one, the state (top, total, o) after each, and the output.

    The three keys are those of "the cat sat".
    """
    fig, ax = figure(2.8)
    for x, word, score in zip((0, 1, 2.6), ("the", "cat", "sat"), scores, strict=True):
        draw.box(ax, x, 0, 0.88, 0.7, **draw.fill("key"))
        draw.centered(ax, x, 0, f"{word}: {_plain(score)}", on_color("key"), fontsize=10)
    total, o = states[-1][1:]
    words = [f"top {_plain(t)}\ntotal {_plain(n)}\no {_pair(v)}" for t, n, v in states]
    words.append(f"o / total\n{_pair(o / total)}")
    for x, name in ((0.5, "tile 1"), (2.6, "tile 2")):
        draw.centered(ax, x, -0.6, name, fontsize=10, weight="bold")
    ends = (0.5, 2.6, 4.3)
    for x, said in zip(ends, words, strict=True):
        draw.box(ax, x, 1.7, 1.35, 1.2, facecolor=CARD, edgecolor=INK)
        draw.centered(ax, x, 1.7, said, fontsize=10)
    arrow = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
    for x in ends[:2]:
        ax.annotate("", (x, 1.07), xytext=(x, 0.4), arrowprops=arrow)
    for x, x2 in zip(ends, ends[1:], strict=False):
        ax.annotate("", (x2 - 0.7, 1.7), xytext=(x + 0.7, 1.7), arrowprops=arrow)
    ax.set(xlim=(-0.6, 5.1), ylim=(2.4, -0.9))
    ax.set_title("Three running values are passed from tile to tile")
    ax.set_axis_off()
    return fig


def _pair(row: Any) -> str:
    return f"({_plain(row[0])}, {_plain(row[1])})"


def _plain(number: float) -> str:
    return f"{number:.2f}".replace("-", "\u2212")


def grid(prompt: int, chunk: int, pairs: Amounts) -> Any:
    """Which (query, key) pairs chunks compute, and how many pairs each way computes in all."""
    from matplotlib.patches import Polygon

    fig, (left, right) = figure(2.9, ncols=2, width_ratios=[1, 1.5])
    free = draw.fill("free", 1.0)
    for a in range(0, prompt, chunk):
        b = min(a + chunk, prompt)
        draw.box(left, b / 2, (a + b) / 2, b, b - a, **free)
        below, style = [(0, a), (a, a), (b, b), (0, b)], {"edgecolor": CARD, "linewidth": 0.6}
        left.add_patch(Polygon(below, closed=True, facecolor=color("muted"), **style))
    left.set(xlim=(0, prompt), ylim=(prompt, 0), xlabel="key", ylabel="query", aspect="equal")
    left.set(xticks=[0, prompt], yticks=[0, prompt], title=f"chunks of {chunk:,}")
    left.grid(False)
    needed = prompt * (prompt + 1) // 2
    rows = {
        name: {"needed": needed / 1e6, "hidden": (n - needed) / 1e6} for name, n in pairs.items()
    }
    fills = {"needed": {"color": color("muted")}, "hidden": free}
    draw.stacked(right, rows, fills, lambda _, total: f" × {1e6 * total / needed:.2f}")
    right.set_yticks(range(len(rows)), labels=list(rows))
    right.set_xlim(0, max(pairs.values()) / 1e6 * 1.2)
    right.set(xlabel="pairs per head (millions)", title="Chunks skip nearly half of the pairs")
    right.invert_yaxis()
    right.grid(axis="y", visible=False)
    draw.legend_below(fig, {"muted": "needed", "free": "computed, then hidden"})
    return fig


def reads(chunks: Sequence[int], counted: Series, formula: Series) -> Any:
    """Bytes read for one prompt against the chunk: dots counted, dashed lines by the formula."""
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log")
    roles = dict(zip(counted, ("weights", "cached"), strict=False))
    for name, role in roles.items():
        line = np.asarray(formula[name]) / 2**20
        ax.plot(chunks, line, "--", color=color(role), linewidth=1.6)
        ax.plot(chunks, np.asarray(counted[name]) / 2**20, "o", color=color(role), markersize=7)
        draw.note(ax, name, (chunks[1], line[1]), (6, 5), color=text_color(role))
    ax.set(xlabel="tokens in a chunk", ylabel="read (MiB)")
    ax.set_title("Small chunks read weights and keys many times")
    ticks_at(ax, chunks)
    ax.yaxis.set_major_formatter("{x:g}")
    dashed = draw.dot(MUTED, "by the formula", marker="", linestyle="--", linewidth=1.6)
    ax.legend(handles=[draw.dot(MUTED, "counted"), dashed], loc="upper right")
    return fig


def floors(chunks: Sequence[int], total: Numbers, longest: Numbers) -> Any:
    """Least time of a prompt and of its longest step (seconds) against the chunk."""
    fig, ax = figure(3.2)
    ax.set(xscale="log", yscale="log")
    series = {"its longest step": longest, "the prompt": total}
    names = {"xlabel": "tokens in a chunk", "ylabel": "seconds, at least"}
    lines(ax, chunks, series, ["muted", "ink"], **names, marker="o")
    _name_starts(ax, chunks, series)
    ax.set_ylim(top=2 * max(total))
    ax.set_title("From 512 tokens on, a larger chunk saves no time")
    ticks_at(ax, chunks[::2])
    ax.yaxis.set_major_formatter("{x:g}")
    return fig


# Schedules, drawn from the events of `kvlib.Scheduler` ------------------------


def passes_of(events: Events) -> list[Event]:
    """What the model was fed: chunks of prompts and single tokens."""
    return [e for e in events if e.kind in ("prefill", "decode")]


def fed_before(events: Events) -> list[int]:
    """Tokens fed in all steps before step i; one entry more than there are steps."""
    fed = [0]
    for _, group in groupby(passes_of(events), key=lambda e: e.step):
        fed.append(fed[-1] + sum(e.tokens for e in group))
    return fed


def first_token(events: Events, name: Hashable) -> int:
    """Tokens fed from the step in which a request is first read to its first token."""
    fed = fed_before(events)
    mine = [e for e in passes_of(events) if e.request == name]
    end = next(e.step for e in mine if e.token is not None)
    return fed[end + 1] - fed[mine[0].step]


def gantt(schedules: Mapping[str, Events]) -> Any:
    """One row per request, one column per step, as wide as the tokens it is fed.

    A box is a chunk of a prompt, with its tokens where they fit; a stroke is a new token, at
    the end of the step that gave it. The longest wait between two strokes is measured out.
    """
    fig, axes = figure(1.9 * len(schedules) + 0.8, nrows=len(schedules), sharex=True)
    longest = max(fed_before(events)[-1] for events in schedules.values())
    for ax, (title, events) in zip(np.atleast_1d(axes), schedules.items(), strict=True):
        names = list(dict.fromkeys(e.request for e in events))
        fed = fed_before(events)
        for e in passes_of(events):
            row, left, right = names.index(e.request), fed[e.step], fed[e.step + 1]
            if e.kind == "prefill":
                style = {"color": color("query"), "edgecolor": CARD, "linewidth": 0.8}
                ax.barh(row, right - left, left=left, height=0.66, **style)
                if right - left > 0.03 * longest:
                    draw.centered(ax, (left + right) / 2, row, str(e.tokens), on_color("query"))
            if e.token is not None:
                ax.plot([right, right], [row - 0.36, row + 0.36], color=color("cached"), lw=1.6)
        _longest_wait(ax, events, names, fed)
        draw.name_rows(ax, map(str, names), above=0.6, below=0.6)
        ax.set(title=title, xlim=(0, longest * 1.01))
        ax.grid(False)
    np.atleast_1d(axes)[-1].set_xlabel("tokens fed, all requests")
    tone, style = color("cached"), {"markersize": 12, "markeredgewidth": 1.6}
    stroke = draw.dot(tone, "a new token", tone, marker="|", **style)
    handles = [draw.patch("query", "a chunk of a prompt, with its tokens"), stroke]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return fig


def _longest_wait(ax: Any, events: Events, names: list[Hashable], fed: list[int]) -> None:
    """An arrow over the longest gap between two tokens of the first request."""
    drawn = [fed[e.step + 1] for e in events if e.request == names[0] and e.token is not None]
    gaps = np.diff(drawn)
    if not len(gaps):
        return
    i = int(gaps.argmax())
    ends = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (drawn[i], 0), xytext=(drawn[i + 1], 0), arrowprops=ends)
    words = f"{gaps[i]} tokens" if gaps[i] > 120 else str(gaps[i])
    draw.note(ax, words, ((drawn[i] + drawn[i + 1]) / 2, 0), (0, 4), ha="center", va="baseline")


def gap_trade(budgets: Sequence[int], longest: Sequence[int], first: Sequence[int]) -> Any:
    """Longest wait of a decode, and the prompt's wait for its first token, against the budget."""
    fig, ax = figure(2.9)
    ax.set_xscale("log")
    series = {"longest gap of a decode": longest, "the prompt's first token": first}
    names = {"xlabel": "budget (tokens per step)", "ylabel": "wait (tokens fed)"}
    lines(ax, budgets, series, ["cached", "query"], **names, marker="o")
    _name_starts(ax, budgets, series)
    ticks_at(ax, budgets)
    ax.set_title("A small budget helps the others more than it costs the prompt")
    ax.set_ylim(0, 1.2 * max(*longest, *first))
    return fig


# The explorer over budgets ----------------------


def budget_explorer(runs: Mapping[int, Events], prompt: Hashable) -> Explorer:
    """A slider over budgets: {budget: events of the same requests}, the last one without limit.

    prompt names the request whose prompt is read in chunks. As cells a request's row has a square
    for each step, a line shows the tokens of each step, and bars show the longest waits.
    ValueError for fewer than two budgets.
    """
    budgets = list(runs)
    fed = {b: fed_before(events) for b, events in runs.items()}
    most = {
        "steps": max(len(f) - 1 for f in fed.values()),
        "tokens": max(y - x for f in fed.values() for x, y in zip(f, f[1:], strict=False)),
        "wait": max(first_token(events, prompt) for events in runs.values()),
    }
    texts = [f"{b:,} tokens per step" for b in budgets[:-1]] + ["no budget"]
    slider = Slider("budget", "Budget", budgets, budgets[0], texts=texts)
    scenes = [
        _budget_scene(runs[b], prompt, text, most) for b, text in zip(budgets, texts, strict=True)
    ]
    return Explorer.from_frames("chunks", "A budget per step", slider, scenes)


def _budget_scene(events: Events, prompt: Hashable, text: str, most: Amounts) -> Scene:
    gaps = {n: w for n, w in waits(events).items() if n != prompt}
    longest, first = max(max(w) for w in gaps.values()), first_token(events, prompt)
    fed = fed_before(events)
    read = [e for e in events if e.kind == "prefill" and e.request == prompt]
    length, chunk, at = sum(e.tokens for e in read), read[0].tokens, read[0].step
    in_step = fed[at + 1] - fed[at]
    how = f"in {len(read)} chunks" if len(read) > 1 else "whole"
    rows: dict[Hashable, list[str]] = {}
    for e in passes_of(events):
        row = rows.setdefault(e.request, [""] * (len(fed) - 1))
        row[e.step] = "query" if e.kind == "prefill" else "cached"
    steps = [[i + end, fed[i + 1] - fed[i]] for i in range(len(fed) - 1) for end in (0, 1)]
    squares = [[str(name), row] for name, row in rows.items()]
    legend = [["query", "reads its prompt"], ["cached", "decodes a token"]]
    label = "Tokens in each step: every request waits for all of them"
    x, y = axis_counts("step", most["steps"]), axis_counts("tokens", most["tokens"])
    bars = [
        [f"{name}: longest gap", [["between two tokens", max(lengths), "cached"]]]
        for name, lengths in gaps.items()
    ]
    bars.append([f"{prompt}: first token", [["for the first token", first, "query"]]])
    longest_wait = most["wait"] * 1.05
    return {
        "title": f"{text[0].upper()}{text[1:]}: the prompt is read {how}",
        "summary": f"The prompt of {length:,} tokens is read {how}. Between two tokens of a"
        f" decoding request, at most {longest:,} tokens are fed. The first token after the prompt"
        f" comes when {first:,} have been fed.",
        "formula": [
            f"a step that reads: {in_step:,} tokens \u2212 {in_step - chunk} that decode"
            f" = {chunk:,} of the prompt"
        ],
        "numbers": [
            {"label": "Steps", "text": f"{len(fed) - 1:,}"},
            {"label": "Longest gap of a decode", "text": f"{longest:,} tokens"},
            {"label": "Fed until the prompt's first token", "text": f"{first:,} tokens"},
        ],
        "panels": [
            cells_panel("One row per request, one square per step", squares, legend),
            curves_panel(label, x, y, [["", "ink", steps, False]]),
            bars_panel("Waiting, in tokens fed to all requests", "tokens", longest_wait, bars),
        ],
    }


# The explorer over tiles ----------------------


def tiles_explorer(ends: Sequence[int], tops: Numbers, totals: Numbers, away: Numbers) -> Explorer:
    """A slider over the tiles of one query: what each does to its three running values.

    ends: keys read after each tile; tops, totals: the state then; away: |o − final| / |final|.
    ValueError where the lists are not equally long, or hold fewer than two tiles.
    """
    if not len(ends) == len(tops) == len(totals) == len(away):
        lengths = ", ".join(str(len(x)) for x in (ends, tops, totals, away))
        raise ValueError(f"ends, tops, totals and away must be equally long, got {lengths}")
    texts = [f"{n:,} keys read" for n in ends]
    slider = Slider("tile", "Tile", range(1, len(ends) + 1), 1, texts=texts)
    states = [(float(t), float(n)) for t, n in zip(tops, totals, strict=True)]
    scenes = [_tile_scene(i, texts[i], states, float(away[i])) for i in range(len(ends))]
    return Explorer.from_frames("tiles", "One query, tile by tile", slider, scenes)


def _tile_scene(i: int, text: str, states: list[tuple[float, float]], away: float) -> Scene:
    top, total = states[i]
    old_top, old = states[i - 1] if i else (-math.inf, 0.0)
    shrink = math.exp(old_top - top)
    added = max(0.0, total - old * shrink)
    if not i:
        done = f"The first tile sets top to {number_words(top)}."
    elif top > old_top:
        done = (
            f"Tile {i + 1} raises top from {number_words(old_top)} to {number_words(top)}:"
            f" {percent_words(shrink)} of the old sum remains."
        )
    else:
        done = f"Tile {i + 1} does not raise top: the old sum stays as it is."
    roles = []
    for j, (here, _) in enumerate(states):
        raised = not j or here > states[j - 1][0]
        roles.append("free" if j > i else "ink" if raised else "muted")
    legend = [["ink", "raised top"], ["muted", "read"], ["free", "not read yet"]]
    label = "total, in units of e^top (the unit grows when top rises)"
    after = [["summed before", old * shrink, "muted"], ["this tile", added, "ink"]]
    bars = [["before this tile", [["summed before", old, "muted"]]], ["after it", after]]
    return {
        "title": f"Tile {i + 1} of {len(states)}, {text}",
        "summary": f"{done} In units of the final output's norm, o / total is off by"
        f" {number_words(away)}.",
        "formula": [
            f"total: {number_words(old)} \u00d7 {number_words(shrink)} + {number_words(added)}"
            f" = {number_words(total)}"
        ],
        "numbers": [
            {"label": "top", "text": number_words(top)},
            {"label": "total", "text": number_words(total)},
            {"label": "lse = top + ln(total)", "text": number_words(top + math.log(total))},
            {"label": "Distance from the final output", "text": number_words(away)},
        ],
        "panels": [
            cells_panel("Tiles of keys", [["tiles", roles]], legend),
            bars_panel(label, "units", max(n for _, n in states) * 1.2, bars),
        ],
    }
