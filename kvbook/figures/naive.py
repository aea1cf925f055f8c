"""The figures of the chapter on recomputation: data in, figure out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvbook.example import Trace
from kvbook.figures.draw import box, cells, centered, figure, heatmap, legend_below, patch
from kvbook.figures.style import CARD, INK, MUTED, color, on_color, text_color


def three_tokens(words: Sequence[str], trace: Trace) -> Any:
    """The query, key and value of each token under its word, as boxes of numbers."""
    fig, ax = figure(2.5)
    for i, word in enumerate(words):
        centered(ax, 2 * i, -0.95, word, fontsize=13, weight="bold")
        rows = {"query": trace.q, "key": trace.k, "value": trace.v}
        for j, (role, vectors) in enumerate(rows.items()):
            _vector(ax, 2 * i, j, vectors[i], role)
    for j, role in enumerate(("query", "key", "value")):
        centered(ax, -0.95, j, role, text_color(role), ha="right", fontsize=11, weight="bold")
    ax.set(xlim=(-2, 2 * len(words) - 0.6), ylim=(2.6, -1.4))
    ax.set_title("Every token gets a query, a key and a value")
    ax.axis("off")
    return fig


def _vector(ax: Any, x: float, y: float, numbers: Any, role: str) -> None:
    """A few numbers in one box, in the colour of their role."""
    box(ax, x, y, 1.5, 0.74, facecolor=color(role), edgecolor="none")
    words = ", ".join(_number(n) for n in numbers)
    centered(ax, x, y, f"({words})", on_color(role), fontsize=11)


def _number(value: float) -> str:
    """At most two decimals, with a real minus sign."""
    return f"{round(float(value), 2) + 0.0:.3g}".replace("-", "\u2212")


def one_query(words: Sequence[str], trace: Trace, at: int) -> Any:
    """What the query of token `at` does with every key and value, a row per key."""
    fig, ax = figure(3.0)
    shares, scores = trace.weights[at], trace.scores[at]
    columns = (0.0, 1.5, 2.6, 3.7, 4.9, 7.4)
    names = ("key", "q \u00b7 k", "\u00f7 \u221aD", "e to that", "weight", "value")
    for x, name in zip(columns, names, strict=True):
        centered(ax, x, -0.75, name, MUTED)
    for j in range(at + 1):
        centered(ax, -1.0, j, words[j], ha="right", fontsize=11, weight="bold")
        _vector(ax, columns[0], j, trace.k[j], "key")
        product = float(trace.q[at] @ trace.k[j])
        numbers = (product, scores[j], float(np.exp(scores[j])))
        for x, value in zip(columns[1:4], numbers, strict=True):
            text = _number(value) if x == columns[1] else f"{value:.2f}".replace("-", "\u2212")
            centered(ax, x, j, text, fontsize=11)
        ax.barh(j, 1.5 * shares[j], left=columns[4] - 0.35, height=0.6, color=color("muted"))
        end = columns[4] - 0.3 + 1.5 * shares[j]
        ax.text(end, j, f"{shares[j]:.2f}", va="center", fontsize=11)
        _vector(ax, columns[5], j, trace.v[j], "value")
    total = ", ".join(_number(n) for n in trace.o[at])
    end = f"each weight times its value, added up: ({total})"
    ax.text(columns[5] + 0.75, at + 0.85, end, ha="right", va="center", fontsize=11)
    best = words[int(shares.argmax())]
    query = ", ".join(_number(n) for n in trace.q[at])
    ax.set_title(
        f"The query ({query}) of \u201c{words[at]}\u201d takes most from \u201c{best}\u201d"
    )
    ax.set(xlim=(-1.7, 8.3), ylim=(at + 1.2, -1.1))
    ax.axis("off")
    return fig


def three_steps(scores: Any, hidden: Any, weights: Any, words: Sequence[str]) -> Any:
    """Scores, those with the hidden ones at -∞, and the weights, as numbers in a grid.

    scores, hidden, weights: (T, T), the second True where a query may not see a key. What is hidden
    is hatched, so that it does not look like a score of 0.
    """
    fig, axes = figure(3.1, ncols=3, sharey=True)
    blank = np.where(hidden, np.nan, 1.0)
    size, grey = float(np.max(np.abs(scores))), "#eceff2"
    heatmap(axes[0], scores, xlabel="key", ylabel="query", signed=True, vmax=size)
    heatmap(axes[1], scores * blank, xlabel="key", ylabel="", signed=True, vmax=size)
    heatmap(axes[2], weights * blank, xlabel="key", ylabel="", vmax=1.0)
    titles = ("1. All scores", "2. Hide later keys", "3. Softmax each row")
    for ax, title, values in zip(axes, titles, (scores, scores, weights), strict=True):
        ax.set_title(title, fontsize=10)
        ax.set_aspect("equal")
        _name_ticks(ax.xaxis, words)
        _name_ticks(ax.yaxis, words)
        dark = 0.55 * (1.0 if ax is axes[2] else size)
        for (i, j), value in np.ndenumerate(values):
            seen = ax is axes[0] or not hidden[i, j]
            ink = CARD if seen and abs(value) > dark else INK
            number = "-\u221e" if ax is axes[1] and not seen else f"{value:.2f}"
            plain = {} if seen else {"bbox": {"facecolor": grey, "edgecolor": "none", "pad": 1.5}}
            centered(ax, j, i, number.replace("-", "\u2212"), ink, fontsize=10, **plain)
    pale = {"facecolor": grey, "edgecolor": color("free"), "hatch": "//", "linewidth": 0}
    for ax in axes[1:]:  # grey with stripes: a colour that no score and no weight has
        for i, j in np.argwhere(hidden):
            box(ax, j, i, 1, 1, **pale)
    _headline(fig, "Hidden scores become weights of exactly 0")
    return fig


def _headline(fig: Any, words: str) -> None:
    """One title for several panels, in the style of a panel's title."""
    fig.suptitle(words, x=0.01, ha="left", fontsize=11, weight="bold", color=INK)


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
    for x, words in ((32.5, "attention\nreads rows so far"), (54.0, "MLP\neach row alone")):
        part(x, 25, 17.5, 9, words)
        part(x, 17, 8, 4.6, "norm")
        arrow((x + 4, stream), (x + 4, 17))
        arrow((x + 4, 21.6), (x + 4, 25))
        arrow((x + 14, 25), (x + 14, stream + 1.7))
        ring = {"boxstyle": "circle,pad=0.15", "facecolor": CARD, "edgecolor": INK}
        centered(ax, x + 14, stream, "+", fontsize=11, zorder=4, bbox=ring)
    box(ax, 52, 20.5, 43, 33, fill=False, edgecolor=MUTED, linestyle="--")
    ax.text(31.5, 37.8, f"one layer; the model has {layers}", fontsize=9, color=MUTED)
    words = f"T rows of {hidden} numbers"
    ax.text(52, 5.6, words, ha="center", fontsize=9, color=MUTED)
    ax.set_title("Attention and the MLP add to the rows; neither replaces them")
    return fig


def heads(query_heads: int, kv_heads: int, dim: int, hidden: int) -> Any:
    """What one row becomes in one layer: a frame for each key and value and those who share it."""
    fig, ax = figure(2.8)
    group = query_heads // kv_heads
    span = 2 * max(group, 2) + 1.0  # of a frame, and the gap after it
    middle = (kv_heads * span - 1) / 2
    box(ax, middle, 0, kv_heads * span - 1, 0.7, facecolor=CARD, edgecolor=INK)
    centered(ax, middle, 0, f"one token: a row of {hidden} numbers", fontsize=10)
    for j in range(kv_heads):
        left = j * span
        center = left + (span - 1) / 2
        style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (center, 0.95), (center, 0.35), arrowprops=style)
        box(ax, center, 2.05, span - 1, 2.2, fill=False, edgecolor=MUTED, linestyle="--")
        queries = [("query", j * group + i) for i in range(group)]
        for y, row in ((1.55, queries), (2.55, [("key", j), ("value", j)])):
            for i, (role, number) in enumerate(row):
                x = center + 2 * (i - (len(row) - 1) / 2)
                box(ax, x, y, 1.8, 0.85, facecolor=color(role), edgecolor="none")
                words = f"{role} {number}\n{dim} numbers"
                centered(ax, x, y, words, on_color(role), fontsize=10)
    ax.set(xlim=(-0.3, kv_heads * span - 0.7), ylim=(3.3, -0.5))
    ax.set_title(f"{query_heads} queries share {kv_heads} keys and {kv_heads} values")
    ax.axis("off")
    return fig


def gated_mlp(hidden: int, inner: int) -> Any:
    """The way of one row through an MLP, left to right, with the numbers at each stage."""
    fig, ax = figure(1.75)
    parts = {
        (0, 0): f"row\n{hidden} numbers",
        (2.2, -0.6): f"gate\n{inner} numbers",
        (4.4, -0.6): "SiLU",
        (2.2, 0.6): f"up\n{inner} numbers",
        (5.9, 0): "\u00d7",
        (7.6, 0): f"added to row\n{hidden} numbers",
    }
    widths = {"SiLU": 1.1, "\u00d7": 0.6}
    for (x, y), words in parts.items():
        box(ax, x, y, widths.get(words, 1.6), 0.85, facecolor=CARD, edgecolor=INK)
        centered(ax, x, y, words, fontsize=10)
    ways = [((0.8, 0), (1.4, -0.6)), ((0.8, 0), (1.4, 0.6)), ((3.0, -0.6), (3.85, -0.6))]
    ways += [((4.95, -0.6), (5.6, -0.1)), ((3.0, 0.6), (5.6, 0.1)), ((6.2, 0), (6.8, 0))]
    for start, end in ways:
        style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", end, start, arrowprops=style)
    ax.set(xlim=(-0.9, 8.5), ylim=(1.15, -1.15))
    ax.set_title("The MLP changes every row separately")
    ax.axis("off")
    return fig


def keys_per_step(words: Sequence[str]) -> Any:
    """A row per step that reads one token more than the last, a cell per key that it computes."""
    fig, ax = figure(2.7)
    steps = range(len(words))
    roles = [["key" if j == i else "recomputed" if j < i else None for j in steps] for i in steps]
    cells(ax, roles, text=[list(words)] * len(words))
    ax.set_yticks(steps, labels=[f"step {i + 1}" for i in steps])
    ax.set_xticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    again = len(words) * (len(words) - 1) // 2
    ax.set_title(f"Of {again + len(words)} keys, {again} had been computed before")
    legend_below(fig, {"key": "computed for the first time", "recomputed": "computed again"})
    return fig


def times_computed(times: Sequence[int], prompt: int, text: str) -> Any:
    """How many times each token's key was computed: a bar a token, the first time set apart.

    times: (S,) counts in the order of the text, a byte each; the first ``prompt`` are the prompt.
    """
    counts = np.asarray(times)
    fig, ax = figure(3.0)
    place, first = np.arange(len(counts)), np.minimum(counts, 1)
    ax.bar(place, first, width=0.85, color=color("key"))
    ax.bar(place, counts - first, bottom=first, width=0.85, color=color("recomputed"))
    ax.axvline(prompt - 0.5, color=INK, linewidth=1, linestyle=":")
    top = float(counts.max())
    ax.set(xlabel="token (one byte each)", ylabel="times computed")
    ax.set(xlim=(-1, len(counts)), ylim=(0, top * 1.35), yticks=range(0, int(top) + 1, 5))
    _name_ticks(ax.xaxis, letters(text))
    ax.text(prompt - 1, top * 1.04, "prompt", ha="right", va="bottom", fontsize=9)
    ax.text(prompt, top * 1.04, "new tokens", ha="left", va="bottom", fontsize=9)
    patches = [patch("key", "for the first time"), patch("recomputed", "again")]
    ax.legend(handles=patches, loc="upper right", ncols=2)
    again, total = int((counts - first).sum()), int(counts.sum())
    ax.set_title(f"{again} of {total} rows had been computed before")
    return fig


def rows_that_choose(weights: Any, text: str, answer: int, title: str) -> Any:
    """One head's weights in the rows that chose the last ``answer`` bytes of a text.

    weights: (T, T). A row is named by the byte that it chose.
    """
    t = len(weights)
    fig, ax = figure(2.3)
    rows = np.asarray(weights)[t - 1 - answer : t - 1, : t - 1]
    heatmap(ax, rows, xlabel="the byte that is looked at", ylabel="letter chosen", vmax=1.0)
    _name_ticks(ax.xaxis, letters(text)[: t - 1])
    _name_ticks(ax.yaxis, letters(text)[t - answer :])
    ax.set_title(title)
    return fig


def pairs_turned(cases: Sequence[tuple[int, Any, int, Any]]) -> Any:
    """One pair of a query and of a key, turned by their positions: a circle for each case.

    cases: (position of the query, its pair, position of the key, its pair); a pair is (2,).
    """
    fig, axes = figure(2.7, ncols=len(cases), sharey=True)
    _headline(fig, "The same distance gives the same product")
    around = np.linspace(0, 2 * np.pi, 200)
    for ax, (query_at, query, key_at, key) in zip(axes, cases, strict=True):
        ax.plot(np.cos(around), np.sin(around), color=color("grid"), linewidth=1)
        for role, pair in (("query", query), ("key", key)):
            style = {"arrowstyle": "-|>", "color": color(role), "linewidth": 2}
            ax.annotate("", pair, (0, 0), arrowprops=style | {"shrinkA": 0, "shrinkB": 0})
        _between(ax, np.asarray(query), np.asarray(key))
        product = f"{round(float(np.dot(query, key)), 2) + 0.0:.2f}".replace("-", "\u2212")
        ax.set_title(f"{query_at - key_at} apart: product {product}", fontsize=10)
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


def letters(text: str) -> list[str]:
    """A mark for every byte of a text, so that white space can be seen on an axis."""
    marks = {" ": "·", "\n": "↵", "\t": "→"}
    return [marks.get(chr(b), chr(b) if 32 < b < 127 else "�") for b in text.encode("utf-8")]


def _name_ticks(axis: Any, names: Sequence[str]) -> None:
    axis.set_ticks(range(len(names)), labels=list(names), fontsize=9, family="DejaVu Sans Mono")
    axis.set_tick_params(length=0, pad=2)
