"""The drawings of the chapter on batches: data in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, Series, cells, figure, fill, lines, note
from kvbook.figures.style import CARD, INK, color, on_color, text_color

Slot = tuple[str, str] | None  # (words, role), or an idle slot


def rectangle_and_pack(lengths: Sequence[int]) -> Any:
    """B prompts as a padded rectangle (B, longest), and below it packed into T rows."""
    fig, (top, low) = figure(4.2, nrows=2, height_ratios=[4, 1])
    longest, total = max(lengths), sum(lengths)
    rows = range(len(lengths))
    top.barh(rows, [longest] * len(lengths), height=0.72, **fill("free", 1.0))
    top.barh(rows, lengths, height=0.72, color=color("key"))
    top.invert_yaxis()
    top.set(xlabel="slot in the rectangle", ylabel="request", title="padded to the longest")
    top.set_yticks(list(rows))
    start = 0
    for i, n in enumerate(lengths):
        low.barh(0, n, left=start, height=0.8, color=color("key"), edgecolor=CARD, linewidth=1.5)
        if n > 0.03 * total:
            draw.centered(low, start + n / 2, 0, str(i), on_color("key"))
        start += n
    low.set(yticks=[], xlabel="row of the packed matrix", title="packed", xlim=(0, total))
    for ax in (top, low):
        ax.grid(False)
    return fig


def padded_positions(sides: Mapping[str, tuple[Any, Any]]) -> Any:
    """One small rectangle a side: {"left": (positions (B, S), mask (B, S))}, positions written."""
    fig, axes = figure(1.9, ncols=len(sides))
    for ax, (side, (positions, mask)) in zip(np.atleast_1d(axes), sides.items(), strict=True):
        roles = [["key" if real else "free" for real in row] for row in mask]
        text = [[str(p) if real else "–" for p, real in zip(*row)] for row in zip(positions, mask)]
        cells(ax, roles, text=text, xlabel="column", ylabel="request")
        names = {"xticks": range(len(roles[0])), "yticks": range(len(roles))}
        ax.set(title=f"padded on the {side}", **names)
    return fig


def work(needed: Amounts, computed: Amounts, *, unit: str) -> Any:
    """Stacked bars: what the packed step does, and what padding adds to it."""
    fig, ax = figure(2.3)
    rows = {name: {"tokens": n, "padding": computed[name] - n} for name, n in needed.items()}
    fills = {"tokens": {"color": color("key")}, "padding": fill("free", 1.0)}
    draw.stacked(ax, rows, fills, lambda name, _: f" {computed[name] / needed[name]:.1f} times")
    draw.list_rows(ax, rows)
    ax.set_xlim(0, float(max(computed.values())) * 1.16)
    ax.set_xlabel(f"operations ({unit})")
    ax.legend(
        handles=[draw.patch("key", "tokens"), draw.patch("free", "padding")], loc="center right"
    )
    return fig


def differences(rows: Sequence[int], largest: Numbers) -> Any:
    """Largest difference of any logit from the request alone, for each number of rows."""
    fig, ax = figure(2.6)
    millionths = np.asarray(largest) * 1e6
    for n, y in zip(rows, millionths, strict=True):
        style = {"markeredgecolor": INK, "markersize": 7, "markeredgewidth": 1.8}
        ax.plot([n], [y], "o", color=CARD if y == 0 else INK, **style)
    ax.plot([], [], "o", color=CARD, markeredgecolor=INK, label="the same bits")
    ax.plot([], [], "o", color=INK, label="other last bits")
    ax.set(xlabel="rows in the batch", ylabel="difference (millionths)", xticks=list(rows)[::2])
    ax.set_ylim(bottom=-0.06 * max(float(millionths.max()), 1.0))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def schedules(logs: Mapping[str, Sequence[Sequence[Slot]]], *, height: float) -> Any:
    """Who sits in which row at which step: {title: steps of rows of (words, role) or None}."""
    fig, axes = figure(height, nrows=len(logs), sharex=True)
    steps = max(len(log) for log in logs.values())
    for ax, (title, log) in zip(np.atleast_1d(axes), logs.items(), strict=True):
        grid = [list(row) for row in zip(*log, strict=True)]
        roles = [[slot[1] if slot else "free" for slot in row] for row in grid]
        text = [[slot[0] if slot else "" for slot in row] for row in grid]
        cells(ax, roles, text=text, ylabel="cache row")
        ax.set(title=title, xlim=(-0.6, steps - 0.4), yticks=range(len(grid)))
    np.atleast_1d(axes)[-1].set_xlabel("step")
    return fig


def bytes_a_token(batch: Sequence[int], weights: Numbers, cache: Numbers) -> Any:
    """Bytes read for each new token against the batch, weights and cache apart, log-log."""
    fig, ax = figure(3.0)
    ax.set(xscale="log", yscale="log")
    parts = {"weights": weights, "keys and values": cache}
    series = {name: [n / 2**20 for n in nbytes] for name, nbytes in parts.items()}
    names = {"xlabel": "requests in a step", "ylabel": "MiB per new token"}
    lines(ax, batch, series, ["weights", "cached"], **names, marker="o")
    ax.minorticks_off()
    draw.ticks_at(ax, batch)
    ax.yaxis.set_major_formatter("{x:g}")
    return fig


def product_times(rows: Sequence[int], times: Series) -> Any:
    """Time of a product for each number of rows, in times of the one-row product."""
    fig, ax = figure(3.0)
    roles = ["muted", "muted", "ink"][: len(times)]  # none of these is a role of the palette
    names = {"xlabel": "rows", "ylabel": "time (one row = 1)"}
    ticks: dict[str, Any] = {"xticks": list(rows)[::2], "ylim": (0, None)}
    lines(ax, rows, times, roles, **names, forms=("s--", "^:", "o-"), **ticks)
    return fig


def throughput(batch: Sequence[int], curves: Series) -> Any:
    """Tokens a second against the time a request waits for its next token; points are batches.

    curves: {name: seconds per step, for each batch}; the first is drawn as measured.
    """
    fig, ax = figure(3.6)
    sizes = np.asarray(batch, dtype=np.float64)
    for (name, seconds), role in zip(curves.items(), ("ink", "muted"), strict=True):
        x, y = np.asarray(seconds) * 1e3, sizes / np.asarray(seconds)
        ax.plot(x, y, "o-" if role == "ink" else "o--", color=color(role))
        shift, side = ((-8, 2), "right") if role == "muted" else ((0, -14), "center")
        style = {"va": "baseline", "color": text_color(role)}
        for n, a, b in zip(batch, x, y, strict=True):
            note(ax, str(n), (a, b), shift, ha=side, fontsize=8, **style)
        note(ax, name, (x[-1], y[-1]), (9, 0), color=text_color(role))
    longest = max(max(s) for s in curves.values()) * 1e3
    ax.set(xlabel="time for a request's next token (ms)", ylabel="tokens per second, all requests")
    ax.set_xlim(0, longest * 1.22)
    ax.set_ylim(bottom=0)
    return fig


def slots(stages: Mapping[str, tuple[Any, Any]]) -> Any:
    """Rows of a cache before and after an append: {title: (before (B, S), after (B, S))}.

    Each number is the position of the token whose key the slot holds, -1 if none; a slot that
    held another key before shows both.
    """
    fig, axes = figure(1.9, ncols=len(stages))
    for ax, (title, (before, after)) in zip(np.atleast_1d(axes), stages.items(), strict=True):
        text, roles = [], []
        for row in zip(np.asarray(before).tolist(), np.asarray(after).tolist(), strict=True):
            pairs = list(zip(*row, strict=True))
            text.append([_change(a, b) for a, b in pairs])
            roles.append(["key" if a != b else "free" if b < 0 else "cached" for a, b in pairs])
        cells(ax, roles, text=text, xlabel="slot")
        ax.set(title=title, yticks=[], xticks=range(len(roles[0])))
    return fig


def _change(before: int, after: int) -> str:
    if after < 0:
        return ""
    return str(after) if before in (-1, after) else f"{before}→{after}"
