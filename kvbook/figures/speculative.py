"""Drawings of the chapter on guesses that one step checks: data in, figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Numbers, centered, figure
from kvbook.figures.style import CARD, GRID, INK, MUTED, color, on_color, text_color

MONO = "DejaVu Sans Mono"
CLEAR: dict[str, Any] = {"frameon": True, "facecolor": CARD, "edgecolor": "none"}  # of grid lines


def steps(rounds: Sequence[tuple[Sequence[int], int, int]], columns: int = 2) -> Any:
    """What each step guessed, kept and wrote: one line per step, in columns.

    rounds: (guesses, how many were right, the token that the model wrote after them), tokens being
    bytes.
    """
    wide = max(len(guesses) for guesses, _, _ in rounds)
    high = -(-len(rounds) // columns)
    fig, axes = figure(0.25 * high + 1.1, ncols=columns)
    _title(fig, "A step writes its right guesses and one byte of the model")
    for n, ax in enumerate(np.atleast_1d(axes)):
        part = range(n * high, min((n + 1) * high, len(rounds)))
        for row, (guesses, right, written) in enumerate(rounds[part.start : part.stop]):
            for i, token in enumerate(guesses):
                role = "cached" if i < right else "recomputed"
                draw.box(ax, i, row, 0.88, 0.84, **draw.fill(role, 1.0))
                centered(ax, i, row, _shown(token), on_color(role))
            draw.box(ax, wide + 0.5, row, 0.88, 0.84, facecolor=CARD, edgecolor=INK)
            centered(ax, wide + 0.5, row, _shown(written))
            new = "".join(map(_shown, [*guesses[:right], written]))
            centered(ax, wide + 1.5, row, new, ha="left", family=MONO)
        ax.set(xlim=(-0.6, 2 * wide + 2), ylim=(high - 0.4, -0.6))
        ax.set_yticks(range(len(part)), labels=[f"step {i + 1}" for i in part])
        middles = [(wide - 1) / 2, wide + 0.5, wide + 3]
        ax.set_xticks(middles, labels=["guesses", "model", "new text"])
        ax.xaxis.tick_top()
        ax.spines[:].set_visible(False)
        ax.grid(False)
        ax.tick_params(length=0)
    names = {"cached": "right guess", "recomputed": "refused or dropped"}
    marks = [*(draw.patch(role, words) for role, words in names.items())]
    marks.append(_written("the model's own token"))
    fig.legend(handles=marks, loc="outside lower left", ncols=3)
    return fig


def _title(fig: Any, words: str) -> None:
    fig.suptitle(words, x=0.01, ha="left", fontsize=11, fontweight="bold")


def _shown(token: int) -> str:
    """A byte as one character that can be seen."""
    return {10: "↵", 32: "␣"}.get(token, chr(token) if 32 < token < 127 else "?")


def _written(words: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=CARD, edgecolor=INK, label=words)


def coin(p: Any, q: Any, names: Sequence[str]) -> Any:
    """Two distributions over the same tokens: what an accepted guess gives, and what is missing."""
    fig, ax = figure(2.9)
    p, q, x = np.asarray(p), np.asarray(q), np.arange(len(names))
    accepted = np.minimum(p, q)
    ax.bar(x, accepted, width=0.7, color=color("cached"), label="min(p, q): accepted")
    edge: dict[str, Any] = {"bottom": accepted, "edgecolor": MUTED, "linewidth": 0.8}
    ax.bar(x, p - accepted, 0.7, color=GRID, label="max(0, p − q): missing", **edge)
    over = {"facecolor": "none", "hatch": "///", "label": "max(0, q − p): refused"}
    ax.bar(x, q - accepted, 0.7, **edge, **over)
    ax.set_xticks(x, labels=list(names))
    ax.set(ylabel="probability", title="Each refusal moves probability from hatched to grey")
    ax.legend(loc="upper right", **CLEAR)
    return fig


def draws(errors: Mapping[str, Any], names: Sequence[str], noise: Any) -> Any:
    """How far the drawn shares are from p, in percentage points, and what chance explains."""
    fig, axes = figure(3.0, ncols=len(errors), sharey=True)
    _title(fig, "Only draws from max(0, p − q) are as close to p as chance allows")
    x, noise = np.arange(len(names)), np.asarray(noise)
    for ax, (title, error) in zip(axes, errors.items(), strict=True):
        ax.bar(x, 2 * 196 * noise, 0.9, bottom=-196 * noise, color=GRID, label="chance, 95 %")
        ax.plot(x, 100 * np.asarray(error), "o", color=color("ink"), label="drawn − p")
        ax.axhline(0, color=MUTED, linewidth=1)
        ax.set_title(title, fontsize=10)
        ax.set_xticks(x, labels=list(names))
    axes[0].set_ylabel("error (percentage points)")
    axes[-1].legend(loc="best", **CLEAR)
    return fig


def gains(
    numbers: Sequence[int], curves: Mapping[float, Numbers], points: Mapping[float, Numbers]
) -> Any:
    """Tokens per step against the number of guesses: for each acceptance, a curve and points."""
    fig, ax = figure(3.2)
    for i, (share, y) in enumerate(curves.items()):
        labels = ("formula", "counted") if i == 0 else (None, None)
        ax.plot(numbers, y, color=color("muted"), linewidth=1.4, label=labels[0])
        centered(ax, numbers[-1] + 0.2, y[-1], f"a = {share}", text_color("muted"), ha="left")
        ax.plot(numbers, points[share], "o", color=color("ink"), label=labels[1])
    ax.set(xlabel="guesses per step, γ", ylabel="tokens per step", ylim=(0, None))
    ax.set_title("The lower a, the sooner more guesses stop helping")
    ax.set_xticks(numbers)
    ax.legend(loc="upper left")
    return fig


def marked(text: str, guessed: Sequence[bool], wide: int = 74) -> Any:
    """A text whose characters have a dark ground where they were guessed."""
    lines: list[list[tuple[str, bool]]] = [[]]
    for letter, was in zip(text, guessed, strict=True):
        if len(lines[-1]) == wide:
            lines.append([])
        lines[-1].append(("↵" if letter == "\n" else letter, was))
        if letter == "\n":
            lines.append([])
    fig, ax = figure(0.155 * len(lines) + 0.8)
    ax.set_title("Only the characters on white took a step of the model")
    for y, line in enumerate(lines):
        for x, (letter, was) in enumerate(line):
            if was:
                draw.box(ax, x, y, 1.0, 1.0, facecolor=color("cached"))
            if letter != " ":
                centered(ax, x, y, letter, on_color("cached") if was else INK, family=MONO)
    ax.set(xlim=(-0.6, wide + 0.6), ylim=(len(lines) - 0.4, -0.6))
    ax.axis("off")
    marks = [draw.patch("cached", "a right guess"), _written("written by the model")]
    fig.legend(handles=marks, loc="outside lower left", ncols=4)
    return fig


def tree(tokens: Sequence[int], parents: Sequence[int], mask: Any) -> Any:
    """A tree of bytes, and the mask of the step that checks them (row sees column)."""
    fig, (left, right) = figure(3.6, ncols=2, width_ratios=(1.15, 1))
    places = _places(parents)
    for j, parent in enumerate(parents):
        (x, y), root = places[j], parent < 0
        if not root:
            above = places[parent]
            left.plot([above[0], x], [above[1], y], color=MUTED, linewidth=1, zorder=1)
        node = {"markerfacecolor": CARD if root else color("cached"), "markeredgewidth": 1}
        left.plot(x, y, "o", markersize=17, markeredgecolor=INK, zorder=3, **node)
        centered(left, x, y, _shown(tokens[j]), INK if root else on_color("cached"), zorder=4)
        beside = (x + 0.34, y - 0.1) if root else (x + 0.3, y + 0.26)  # clear of the edges
        centered(left, *beside, str(j), MUTED, zorder=4)
    deep = max(y for _, y in places)
    left.set(ylim=(deep + 0.5, -0.5), ylabel="position after the text's last token")
    left.set(yticks=range(int(deep) + 1), xticks=[])
    left.grid(False)
    left.margins(x=0.1)
    left.set_title("A tree of guesses")
    right.set_title("A token sees only its path")
    right.imshow(np.asarray(mask, dtype=float), vmin=0, vmax=1, aspect="equal")
    right.set_anchor("N")  # so that the titles are at one height
    ticks, shown = range(len(parents)), [_shown(t) for t in tokens]
    right.set_xticks(ticks, labels=shown)
    right.set_yticks(ticks, labels=[f"{j} {c}" for j, c in enumerate(shown)])
    right.set(xlabel="token seen", ylabel="token that looks")
    right.grid(False)
    right.tick_params(length=0)
    return fig


def _places(parents: Sequence[int]) -> list[tuple[float, float]]:
    """(x, depth) of each token: leaves side by side, a parent over the middle of its children."""
    children: dict[int, list[int]] = {}
    depth: list[float] = []
    for j, parent in enumerate(parents):
        children.setdefault(parent, []).append(j)
        depth.append(depth[parent] + 1 if parent >= 0 else 0.0)
    x: dict[int, float] = {}
    free = iter(range(len(parents)))

    def place(j: int) -> float:
        below = [place(child) for child in children.get(j, [])]
        x[j] = (below[0] + below[-1]) / 2 if below else float(next(free))
        return x[j]

    for root in children[-1]:
        place(root)
    return [(x[j], depth[j]) for j in range(len(parents))]
