"""The drawings of the chapter on batches: data in, Figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, cells, figure, fill, lines
from kvbook.figures.style import CARD, INK, MUTED, color, on_color


def shared_step(reads: Mapping[str, Amounts]) -> Any:
    """What each step reads: {step: {"weights": bytes, "keys and values": bytes}}."""
    fig, ax = figure(1.9)
    fills = {
        name: {"color": color(role), "edgecolor": CARD}
        for name, role in (("weights", "weights"), ("keys and values", "cached"))
    }
    mib = {step: {part: n / 2**20 for part, n in read.items()} for step, read in reads.items()}
    draw.stacked(ax, mib, fills, lambda _, total: f" {total:.1f}")
    draw.list_rows(ax, mib)
    ax.set_xlim(0, 1.1 * max(sum(parts.values()) for parts in mib.values()))
    ax.set(xlabel="MiB read", title="Sharing a step saves a second reading of the weights")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def packed_words(requests: Sequence[Sequence[str]]) -> Any:
    """The words of B requests in one row; below each its packed row and its position."""
    fig, ax = figure(1.9)
    words = [word for request in requests for word in request]
    cells(ax, [["muted"] * len(words)], text=[words])
    start = 0
    for i, request in enumerate(requests):
        end = start + len(request)
        ax.plot([start - 0.42, end - 0.58], [-0.62] * 2, color=INK, linewidth=1.5)
        draw.centered(ax, (start + end - 1) / 2, -0.9, f"request {i}")
        for position in range(len(request)):
            bold = {"fontweight": "bold" if position == 0 else "normal"}
            draw.centered(ax, start + position, 0.72, str(start + position), **bold)
            draw.centered(ax, start + position, 1.12, str(position))
        start = end
    for y, label in ((0.72, "row (bold: in qo_indptr)"), (1.12, "position in its text")):
        draw.centered(ax, -0.65, y, label, MUTED, ha="right")
    ax.set(xlim=(-2.7, len(words) - 0.4), ylim=(1.4, -1.1), xticks=[], yticks=[])
    ax.set_title("Three requests, packed into six rows")
    ax.spines[:].set_visible(False)
    return fig


def schedules(logs: Mapping[str, Sequence[Sequence[int | None]]], *, height: float) -> Any:
    """The request in each part of the cache at each step; its number is where it starts.

    logs: {title: steps of parts, None where a part is empty}.
    """
    fig, axes = figure(height, nrows=len(logs), sharex=True)
    steps = max(len(log) for log in logs.values())
    for ax, (title, log) in zip(np.atleast_1d(axes), logs.items(), strict=True):
        seen: set[int | None] = {None}
        roles, text = np.full((2, len(log[0]), len(log)), "", dtype=object)
        for step, now in enumerate(log):
            for row, request in enumerate(now):
                new = request not in seen
                roles[row, step] = "free" if request is None else "ink" if new else "muted"
                text[row, step] = str(request) if new else ""
            seen.update(now)
        cells(ax, roles.tolist(), text=text.tolist(), ylabel="part of the cache")
        ax.set(title=title, xlim=(-0.6, steps - 0.4), yticks=range(len(log[0])))
    np.atleast_1d(axes)[-1].set_xlabel("step")
    words = {"ink": "starts: its whole prompt", "muted": "one further token", "free": "empty"}
    draw.legend_below(fig, words)
    return fig


def rectangle_and_pack(lengths: Sequence[int]) -> Any:
    """B prompts as a padded rectangle (B, longest), and below it packed into T rows."""
    fig, (top, low) = figure(4.2, nrows=2, height_ratios=[4, 1])
    longest, total = max(lengths), sum(lengths)
    rows = range(len(lengths))
    top.barh(rows, [longest] * len(lengths), height=0.72, **fill("free", 1.0))
    top.barh(rows, lengths, height=0.72, color=MUTED)
    top.invert_yaxis()
    top.set(xlabel="column", ylabel="request", title="Padded: every row is as long as the longest")
    top.set_yticks(list(rows))
    start = 0
    for i, n in enumerate(lengths):
        low.barh(0, n, left=start, height=0.8, color=MUTED, edgecolor=CARD, linewidth=1.5)
        if n > 0.03 * total:
            draw.centered(low, start + n / 2, 0, str(i), on_color("muted"))
        start += n
    low.set(
        yticks=[], xlabel="row of the packed matrix", title="Packed: only tokens", xlim=(0, total)
    )
    for ax in (top, low):
        ax.grid(False)
    draw.legend_below(fig, {"muted": "tokens", "free": "padding"})
    return fig


def padded_positions(sides: Mapping[str, tuple[Any, Any]]) -> Any:
    """One small rectangle a side: {"left": (positions (B, S), mask (B, S))}, positions written."""
    fig, axes = figure(2.1, ncols=len(sides))
    points = {"right": "position = column", "left": "all end in one column"}
    for ax, (side, (positions, mask)) in zip(np.atleast_1d(axes), sides.items(), strict=True):
        roles = [["muted" if real else "free" for real in row] for row in mask]
        text = [[str(p) if real else "–" for p, real in zip(*row)] for row in zip(positions, mask)]
        cells(ax, roles, text=text, xlabel="column", ylabel="request")
        names = {"xticks": range(len(roles[0])), "yticks": range(len(roles))}
        ax.set(title=f"{side.capitalize()}: {points[side]}", **names)
    draw.legend_below(fig, {"muted": "a token", "free": "a placeholder"})
    return fig


def bytes_a_token(batch: Sequence[int], weights: Numbers, cache: Numbers) -> Any:
    """Bytes read for each new token against the batch, weights and cache apart, log-log."""
    fig, ax = figure(3.0)
    ax.set(xscale="log", yscale="log")
    parts = {"weights": weights, "keys and values": cache}
    series = {name: [n / 2**20 for n in nbytes] for name, nbytes in parts.items()}
    names = {"xlabel": "requests in a step", "ylabel": "MiB per new token"}
    ax.set_title("A larger batch shares the weights, not keys and values")
    lines(ax, batch, series, ["weights", "cached"], **names, marker="o")
    ax.minorticks_off()
    draw.ticks_at(ax, batch)
    ax.yaxis.set_major_formatter("{x:g}")
    return fig


def slots(stages: Mapping[str, tuple[Any, Any]]) -> Any:
    """Rows of a cache before and after an append: {title: (before (B, S), after (B, S))}.

    Each number is the position of the token whose key the slot holds, -1 if none; a slot that
    had another key before shows both.
    """
    fig, axes = figure(2.1, ncols=len(stages))
    for ax, (title, (before, after)) in zip(np.atleast_1d(axes), stages.items(), strict=True):
        text, roles = [], []
        for row in zip(np.asarray(before).tolist(), np.asarray(after).tolist(), strict=True):
            pairs = list(zip(*row, strict=True))
            text.append([_change(a, b) for a, b in pairs])
            roles.append(["key" if a != b else "free" if b < 0 else "cached" for a, b in pairs])
        cells(ax, roles, text=text, xlabel="column")
        ax.set(title=title, yticks=[], xticks=range(len(roles[0])))
    words = {"key": "written in this step (a→b: over a)", "cached": "cached", "free": "free"}
    draw.legend_below(fig, words)
    return fig


def _change(before: int, after: int) -> str:
    if after < 0:
        return ""
    return str(after) if before in (-1, after) else f"{before}→{after}"
