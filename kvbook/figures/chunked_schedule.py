"""A schedule as a picture, drawn from the events of :class:`kvlib.Scheduler`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from kvbook.figures.draw import figure, finish, lines
from kvbook.figures.style import CARD, INK, color, on_color
from kvlib.serve import Event

Events = Sequence[Event]


def fed_before(events: Events) -> list[int]:
    """Tokens fed in all steps before step i; one entry more than there are steps."""
    fed = [0]
    for _, group in groupby(passes_of(events), key=lambda e: e.step):
        fed.append(fed[-1] + sum(e.tokens for e in group))
    return fed


def gantt(schedules: Mapping[str, Events]) -> Any:
    """One row per request, one column per step, as wide as the tokens it is fed.

    A box is a chunk of a prompt, with its tokens where there is room; a stroke is a new token, at
    the end of the step that gave it. The longest wait between two strokes is measured out.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

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
    stroke = Line2D([], [], label="a new token", color=color("cached"), linestyle="", marker="|")
    stroke.set(markersize=12, markeredgewidth=1.6)
    box = Patch(label="a chunk of a prompt, with its tokens", facecolor=color("query"))
    fig.legend(handles=[box, stroke], loc="outside lower center", ncols=2)
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
    series = {"longest gap of a decode": longest, "the prompt's first token": first}
    lines(  # they end in one point: the upper name comes last
        ax, budgets, series, ["cached", "query"],
        xlabel="budget (tokens per step)", ylabel="wait (tokens fed)", marker="o",
    )  # fmt: skip
    from matplotlib.ticker import NullLocator

    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(list(budgets), labels=[f"{n:,}" for n in budgets])
    ax.set_ylim(bottom=0)
    return finish(fig)


def first_token(events: Events, name: Hashable) -> int:
    """Tokens fed from the step in which a request is first read to its first token."""
    fed = fed_before(events)
    mine = [e for e in passes_of(events) if e.request == name]
    end = next(e.step for e in mine if e.token is not None)
    return fed[end + 1] - fed[mine[0].step]


def passes_of(events: Events) -> list[Event]:
    """What the model was fed: chunks of prompts and single tokens."""
    return [e for e in events if e.kind in ("prefill", "decode")]
