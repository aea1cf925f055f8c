"""The figures of the chapter on recomputation: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import annotate, box, centered, figure, heatmap, lines, patch
from kvbook.figures.style import CARD, INK, MUTED, color, text_color


def times_computed(times: Sequence[int], prompt: int) -> Any:
    """How many times each token's key was computed: a bar a token, the first time set apart.

    times: (S,) counts in the order of the text, whose first ``prompt`` tokens were the prompt.
    """
    counts = np.asarray(times)
    fig, ax = figure(3.0)
    place, first = np.arange(len(counts)), np.minimum(counts, 1)
    ax.bar(place, first, width=0.85, color=color("key"))
    ax.bar(place, counts - first, bottom=first, width=0.85, color=color("recomputed"))
    ax.axvline(prompt - 0.5, color=INK, linewidth=1, linestyle=":")
    top = float(counts.max())
    ax.set(xlabel="token (position in the text)", ylabel="times it was computed")
    ax.set(xlim=(-1, len(counts)), ylim=(0, top * 1.3))
    ax.text(prompt - 1, top * 1.04, "prompt", ha="right", va="bottom", fontsize=9)
    ax.text(prompt, top * 1.04, "new tokens", ha="left", va="bottom", fontsize=9)
    patches = [patch("key", "the first time"), patch("recomputed", "again, the same numbers")]
    ax.legend(handles=patches, loc="upper right", ncols=2)
    return fig


def three_steps(scores: Any, hidden: Any, weights: Any, text: str) -> Any:
    """Scores, what is hidden of them, and the weights that are left, over the same characters.

    scores, hidden, weights: (T, T), the second True where a query may not see a key. What is hidden
    is hatched, so that it does not look like a score of 0.
    """
    fig, axes = figure(3.5, ncols=3, sharey=True)
    blank = np.where(hidden, np.nan, 1.0)
    size = float(np.max(np.abs(scores)))
    heatmap(axes[0], scores, xlabel="key", ylabel="query", signed=True, vmax=size)
    heatmap(axes[1], scores * blank, xlabel="key", ylabel="", signed=True, vmax=size)
    heatmap(axes[2], weights * blank, xlabel="key", ylabel="", vmax=1.0)
    titles = ("1. scores", "2. the future is hidden", "3. softmax of each row")
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=10)
        ax.set_aspect("equal")
        _name_ticks(ax, letters(text), size=7)
    pale = {"facecolor": "#eceff2", "edgecolor": color("free"), "hatch": "//", "linewidth": 0}
    for ax in axes[1:]:  # grey with stripes: a colour that no score and no weight has
        for i, j in np.argwhere(hidden):
            box(ax, j, i, 1, 1, **pale)
    fig.colorbar(axes[1].images[0], ax=axes[:2], label="score", location="bottom", shrink=0.5)
    fig.colorbar(axes[2].images[0], ax=axes[2], label="weight", location="bottom", shrink=0.9)
    return fig


def pipeline(layers: int, hidden: int) -> Any:
    """The parts of a decoder in the order in which a row of numbers meets them, with shapes."""
    fig, ax = figure(2.9)
    ax.set(xlim=(-0.5, 100.5), ylim=(2, 40))
    ax.axis("off")
    stream = 10.0

    def part(x: float, y: float, width: float, height: float, words: str) -> None:
        x, y = x + width / 2, y + height / 2
        box(ax, x, y, width, height, facecolor=CARD, edgecolor=INK, zorder=3)
        centered(ax, x, y, words, fontsize=8.5, zorder=4)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, start, arrowprops=style)

    ends = (
        (0, 10, "token\nids\n(T,)"),
        (15, 13, "embedding\n(V, hidden)"),
        (75, 9, "norm"),
        (88, 12, "logits\n(T, V)"),
    )
    for left, width, words in ends:
        part(left, stream - 4.5, width, 9, words)
    for start, end in ((10, 15), (28, 75), (84, 88)):
        arrow((start, stream), (end, stream))
    for x, words in ((32.5, "attention\nreads earlier rows"), (54.0, "MLP\neach row alone")):
        part(x, 25, 17.5, 9, words)
        part(x, 17, 8, 4.6, "norm")
        arrow((x + 4, stream), (x + 4, 17))
        arrow((x + 4, 21.6), (x + 4, 25))
        arrow((x + 14, 25), (x + 14, stream + 1.7))
        ring = {"boxstyle": "circle,pad=0.15", "facecolor": CARD, "edgecolor": INK}
        centered(ax, x + 14, stream, "+", fontsize=11, zorder=4, bbox=ring)
    box(ax, 52, 20.5, 43, 33, fill=False, edgecolor=MUTED, linestyle="--")
    ax.text(31.5, 37.8, f"one layer; the model has L = {layers}", fontsize=9, color=MUTED)
    words = f"residual stream (T, hidden = {hidden})"
    ax.text(52, 5.6, words, ha="center", fontsize=9, color=MUTED)
    return fig


def pairs_turned(cases: Sequence[tuple[int, Any, int, Any]]) -> Any:
    """One pair of a query and of a key, turned by their positions: a circle for each case.

    cases: (position of the query, its pair, position of the key, its pair); a pair is (2,).
    """
    fig, axes = figure(2.5, ncols=len(cases), sharey=True)
    around = np.linspace(0, 2 * np.pi, 200)
    for ax, (query_at, query, key_at, key) in zip(axes, cases, strict=True):
        ax.plot(np.cos(around), np.sin(around), color=color("grid"), linewidth=1)
        for role, pair in (("query", query), ("key", key)):
            style = {"arrowstyle": "-|>", "color": color(role), "linewidth": 2}
            ax.annotate("", pair, (0, 0), arrowprops=style | {"shrinkA": 0, "shrinkB": 0})
        _between(ax, np.asarray(query), np.asarray(key))
        product = f"{float(np.dot(query, key)):.2f}".replace("-", "\u2212")
        ax.set_title(f"product {product}", fontsize=10)
        ax.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        ax.axis("off")
        for role, at, pair in (("query", query_at, query), ("key", key_at, key)):
            side = "left" if pair[0] > 0.2 else "right" if pair[0] < -0.2 else "center"
            x, y = 1.12 * np.asarray(pair)
            centered(ax, x, y, f"{role} at {at}", text_color(role), ha=side)
    return fig


def _between(ax: Any, query: Any, key: Any) -> None:
    """An arc from the key's direction to the query's, the short way."""
    start = float(np.arctan2(key[1], key[0]))
    turn = float(np.arctan2(query[1], query[0])) - start
    turn = (turn + np.pi) % (2 * np.pi) - np.pi
    angles = start + np.linspace(0, turn, 50)
    ax.plot(0.35 * np.cos(angles), 0.35 * np.sin(angles), color=MUTED, linewidth=1)


def head_scores(scores: Mapping[str, Any]) -> Any:
    """One number for each head of each layer, a panel for each question: name → (L, Hq)."""
    fig, axes = figure(2.8, ncols=len(scores), sharey=True)
    for ax, (name, values) in zip(axes, scores.items(), strict=True):
        heatmap(ax, values, xlabel="query head", ylabel="", vmax=1.0)
        ax.set(xticks=range(values.shape[1]), yticks=range(values.shape[0]), title=name)
        for (layer, head), value in np.ndenumerate(values):
            centered(ax, head, layer, f"{value:.2f}", CARD if value > 0.45 else INK)
    axes[0].set_ylabel("layer")
    fig.colorbar(axes[-1].images[0], ax=axes, label="share of attention")
    return fig


def attention_map(weights: Any, text: str, title: str = "", answer: int = 0) -> Any:
    """One head's weights over a text, a byte per row and a column; the future stays blank.

    weights: (T, T). answer: frame the rows that chose the last ``answer`` bytes.
    """
    values = np.asarray(weights)
    t = len(values)
    fig, ax = figure(6.3)
    seen = np.where(np.tri(t, dtype=bool), values, np.nan)
    heatmap(ax, seen, xlabel="key: the byte that is looked at", ylabel="query: the byte that looks")
    ax.set_aspect("equal")
    ax.set_title(title)
    _name_ticks(ax, letters(text), size=7 if t < 56 else 6)
    if answer:  # a frame round the rows as far as they see
        first, end = t - 1 - answer, t - 1.0
        style = {"facecolor": "none", "edgecolor": color("query"), "linewidth": 1.5}
        box(ax, (end - 1) / 2, (first + end - 1) / 2, end, answer, **style)
        annotate(ax, "the rows that\nchoose the answer", (end - 4, first - 0.5), offset=(-20, 60))
    fig.colorbar(ax.images[0], ax=ax, label="weight", shrink=0.6)
    return fig


def work(lengths: Any, counted: Any, formula: Mapping[str, Any]) -> Any:
    """Operations of one new token against the length of its text: lines computed, dots counted.

    formula: name → (lengths,) operations. counted: (lengths,), drawn on the last of the lines.
    """
    fig, ax = figure(3.1)
    series = {name: np.asarray(y) / 1e6 for name, y in formula.items()}
    roles = [*["muted"] * (len(formula) - 1), "recomputed"]
    ylabel = "operations for the next one (million)"
    lines(ax, lengths, series, roles, xlabel="tokens in the text", ylabel=ylabel)
    ax.plot(lengths, np.asarray(counted) / 1e6, "o", color=color("recomputed"))
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    return fig


def clock(lengths: Any, operations: Any, seconds: Any) -> Any:
    """Operations and time of a step, both as multiples of the step over one token."""
    x = np.asarray(lengths)
    series = {
        "operations": np.asarray(operations) / operations[0],
        "time, this machine": np.asarray(seconds) / seconds[0],
    }
    fig, ax = figure(3.1)
    ax.set_xscale("log", base=2)
    ax.set(yscale="log")
    names = {"xlabel": "tokens in the text", "ylabel": "multiple of the cost of one token"}
    lines(ax, x, series, ["recomputed", "ink"], **names, forms=("o-", "s-"))
    ax.set_xticks(x, labels=[str(n) for n in x])
    return fig


def letters(text: str) -> list[str]:
    """A mark for every byte of a text, so that white space can be seen on an axis."""
    marks = {" ": "·", "\n": "↵", "\t": "→"}
    return [marks.get(chr(b), chr(b) if 32 < b < 127 else "�") for b in text.encode("utf-8")]


def _name_ticks(ax: Any, names: Sequence[str], size: int) -> None:
    for axis in (ax.xaxis, ax.yaxis):
        style = {"fontsize": size, "family": "DejaVu Sans Mono"}
        axis.set_ticks(range(len(names)), labels=list(names), **style)
        axis.set_tick_params(length=0, pad=1)
