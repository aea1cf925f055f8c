"""A schedule as a picture, drawn from the events of :class:`kvlib.scheduling.Scheduler`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from kvlib.events import Event, waits
from kvlib.show.controls import Slider
from kvlib.show.draw import figure, finish, lines
from kvlib.show.explorer import Explorer
from kvlib.show.style import CARD, INK, color, on_color

Events = Sequence[Event]


def fed_before(events: Events) -> list[int]:
    """Tokens that all passes before step i have fed; one entry more than there are steps."""
    fed = [0]
    for _, group in groupby(_passes(events), key=lambda e: e.step):
        fed.append(fed[-1] + sum(e.tokens for e in group))
    return fed


def gantt(schedules: Mapping[str, Events]) -> Any:
    """One row a request, one column a step, as wide as the tokens it is fed.

    A box is a chunk of a prompt, with its tokens where there is room; a stroke is a new token, at
    the end of the step that gave it. The longest wait between two strokes is measured out.
    """
    fig, axes = figure(1.9 * len(schedules) + 0.5, nrows=len(schedules), sharex=True)
    longest = max(fed_before(events)[-1] for events in schedules.values())
    for ax, (title, events) in zip(np.atleast_1d(axes), schedules.items(), strict=True):
        names = list(dict.fromkeys(e.request for e in events))
        fed = fed_before(events)
        for e in _passes(events):
            row, left, right = names.index(e.request), fed[e.step], fed[e.step + 1]
            if e.kind == "prefill":
                style = {"color": color("query"), "edgecolor": CARD, "linewidth": 0.8}
                ax.barh(row, right - left, left=left, height=0.66, **style)
                if right - left > 0.03 * longest:
                    ink = {"color": on_color("query"), "size": 9, "ha": "center", "va": "center"}
                    ax.annotate(str(e.tokens), ((left + right) / 2, row), **ink)
            if e.token is not None:
                ax.plot([right, right], [row - 0.36, row + 0.36], color=color("cached"), lw=1.6)
        _longest_wait(ax, events, names, fed)
        ax.set(title=title, yticks=range(len(names)), xlim=(0, longest * 1.01))
        ax.set_yticklabels([str(n) for n in names])
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.grid(False)
    np.atleast_1d(axes)[-1].set_xlabel("tokens fed, all requests")
    return finish(fig)


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
    place = ((drawn[i] + drawn[i + 1]) / 2, 0)
    ax.annotate(words, place, xytext=(0, 4), textcoords="offset points", ha="center", size=9)


def gap_trade(budgets: Sequence[int], longest: Sequence[int], first: Sequence[int]) -> Any:
    """Longest wait of a decode, and the prompt's wait for its first token, against the budget."""
    fig, ax = figure(2.9)
    ax.set_xscale("log")
    series = {"the prompt's first token": first, "longest gap of a decode": longest}
    lines(
        ax, budgets, series, ["query", "cached"],
        xlabel="budget (tokens a step)", ylabel="wait (tokens fed)", marker="o",
    )  # fmt: skip
    from matplotlib.ticker import NullLocator

    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(list(budgets), labels=[f"{n:,}" for n in budgets])
    ax.set_ylim(bottom=0)
    return finish(fig)


def budget_explorer(runs: Mapping[int, Events], prompt: Hashable) -> Explorer:
    """A slider over budgets: {budget: events of the same requests}, the last one without limit.

    prompt names the request whose prompt is read in chunks. As cells a request's row has a square
    for each step; as bars stand the longest waits. ValueError for fewer than two budgets.
    """
    budgets = list(runs)
    first = {b: first_token(runs[b], prompt) for b in budgets}
    most = max(first.values())
    texts = [f"{b:,} tokens a step" for b in budgets[:-1]] + ["no budget"]
    slider = Slider("budget", "Budget", budgets, budgets[0], texts=texts)
    scenes = [
        _scene(runs[b], prompt, text, first[b], most)
        for b, text in zip(budgets, texts, strict=True)
    ]
    return Explorer.from_frames("chunks", "A budget for each step", slider, scenes)


def first_token(events: Events, name: Hashable) -> int:
    """Tokens fed from the step in which a request is first read to its first token."""
    fed = fed_before(events)
    mine = [e for e in _passes(events) if e.request == name]
    end = next(e.step for e in mine if e.token is not None)
    return fed[end + 1] - fed[mine[0].step]


def _scene(events: Events, prompt: Hashable, text: str, first: int, most: int) -> dict[str, Any]:
    gaps = {n: w for n, w in waits(events).items() if n != prompt}
    longest = max(max(w) for w in gaps.values())
    steps = len(fed_before(events)) - 1
    passes = sum(e.kind == "prefill" and e.request == prompt for e in events)
    length = sum(e.tokens for e in events if e.kind == "prefill" and e.request == prompt)
    read = f"in {passes} chunks" if passes > 1 else "whole"
    return {
        "title": f"{text[0].upper()}{text[1:]}: the prompt is read {read}",
        "summary": f"The prompt of {length:,} tokens is read {read}. A request that decodes"
        f" waits for {longest:,} tokens at most between two of its own; the prompt's first"
        f" token comes after {first:,}.",
        "formula": [],
        "numbers": [
            {"label": "Steps", "text": f"{steps:,}"},
            {"label": "Longest gap of a decode", "text": f"{longest:,} tokens"},
            {"label": "The prompt's first token after", "text": f"{first:,} tokens"},
        ],
        "panels": [_cells(events, steps), _bars(gaps, prompt, first, most)],
    }


def _cells(events: Events, steps: int) -> dict[str, Any]:
    """A row for each request, a square for each step in which it took part."""
    rows: dict[Hashable, list[str]] = {}
    for e in _passes(events):
        row = rows.setdefault(e.request, [""] * steps)
        row[e.step] = "query" if e.kind == "prefill" else "cached"
    return {
        "kind": "cells",
        "label": "One row a request, one square a step",
        "rows": [{"label": str(name), "cells": row} for name, row in rows.items()],
        "legend": [
            {"role": "query", "label": "reads its prompt"},
            {"role": "cached", "label": "decodes a token"},
        ],
    }


def _bars(
    gaps: Mapping[Hashable, Sequence[int]], prompt: Hashable, first: int, most: int
) -> dict[str, Any]:
    """The longest wait of each request that decodes, and of the prompt for its first token."""
    bars = [
        {
            "label": f"{name}: longest gap",
            "parts": [{"label": "waits", "value": max(w), "role": "cached"}],
        }
        for name, w in gaps.items()
    ]
    waited = {"label": "waits", "value": first, "role": "query"}
    bars.append({"label": f"{prompt}: first token", "parts": [waited]})
    return {
        "kind": "bars",
        "label": "Waiting, in tokens fed to all requests",
        "unit": "tokens",
        "max": most * 1.05,
        "bars": bars,
        "marks": [],
    }


def _passes(events: Events) -> list[Event]:
    return [e for e in events if e.kind in ("prefill", "decode")]
