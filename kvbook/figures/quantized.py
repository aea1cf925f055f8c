"""The chapter on few bits: where keys and values differ, what an axis costs, what a codec weighs.

Its explorer is made from a model's own keys: bits from 1 to 8, along either axis.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel, curves_panel, nice_step, ticked
from kvbook.explorers.scenes.words import count_words, fixed, number_words
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Numbers, Series, bytes_axis, cells, figure, note
from kvbook.figures.style import CARD, INK, MUTED, color, text_color
from kvlib.codecs.groups import quantise

AXIS_ROLES = {"per channel": "ink", "per token": "muted"}  # keys, decoded one way or the other
GROUP = 32
WORDS = ("the", "cat", "sat")
SCALE_BITS = 32  # a float16 scale and a float16 zero for each group


def three_keys(keys: Any, back: Any, scales: Any, exact: Numbers, rounded: Numbers) -> Any:
    """Three keys (3, 2) on their levels, with what comes back, and the weights of "sat" (3,)."""
    fig, (left, right) = figure(2.7, ncols=2, width_ratios=[1.7, 1])
    for y, (word, key, coded, scale) in enumerate(zip(WORDS, keys, back, scales, strict=True)):
        levels = np.arange(8) * float(scale.item())
        left.plot(levels, [y] * 8, "|", color=MUTED, markersize=14)
        left.plot(coded, [y, y], "o", color=color("key"), markersize=9)
        left.plot(key, [y, y], "o", mfc=CARD, mec=INK, markersize=4)
        note(left, word, (-0.1, y), (-4, 0), va="center", fontsize=10)
    left.set(ylim=(2.6, -0.6), xlim=(-0.5, 2.2), xlabel="number in the key")
    left.set(xticks=[0, 1, 2], yticks=[])
    left.spines["left"].set_visible(False)
    left.set_title("Only one number moves: 1 to 1.14")
    left.grid(False)
    handles = [draw.dot(CARD, "exact", INK), draw.dot(color("key"), "as read back")]
    handles.append(draw.dot(MUTED, "levels", marker="|", markersize=10))
    fig.legend(handles=handles, loc="outside lower left", ncols=3)
    draw.grouped(right, {"exact": exact, "rounded": rounded}, ["ink", "muted"])
    right.set_xticks(range(3), labels=WORDS)
    right.set_title('Weights of "sat"')
    right.legend(loc="upper left", ncols=2)
    right.set_ylim(0, 0.85)
    return fig


def groups() -> Any:
    """Which numbers of 8 tokens by 8 channels share a scale, along each axis, in groups of 4."""
    fig, axes = figure(2.9, ncols=2, sharey=True)
    for ax, axis in zip(axes, ("per token", "per channel"), strict=True):
        for i in range(8):
            for j in range(2):
                across = axis == "per token"
                x, y, w, h = (4 * j + 1.5, i, 3.8, 0.8) if across else (i, 4 * j + 1.5, 0.8, 3.8)
                draw.box(ax, x, y, w, h, **draw.fill("key" if (i + j) % 2 else "weights", 1.0))
        ax.set(xlim=(-0.6, 7.6), ylim=(7.6, -0.6), xlabel="channel", xticks=range(8))
        ax.set(title=f"{axis}: a group runs {'across' if axis == 'per token' else 'down'}")
        ax.grid(False)
    axes[0].set(ylabel="token", yticks=range(8))
    return fig


def ranges(panels: Mapping[str, Any], roles: Sequence[str]) -> Any:
    """Smallest, mean and largest number of each channel: one panel per array (tokens, channels)."""
    fig, axes = figure(1.45 * len(panels) + 0.5, nrows=len(panels), sharex=True, sharey=True)
    for ax, (name, x), role in zip(axes, panels.items(), roles, strict=True):
        channels = np.arange(x.shape[1])
        ax.vlines(channels, x.min(axis=0), x.max(axis=0), color=color(role), linewidth=2.5)
        ax.plot(channels, x.mean(axis=0), "o", color=INK, markersize=3)
        ax.axhline(0, color=MUTED, linewidth=0.8)
        ax.set_title(name, color=text_color(role))
        ax.set_ylabel("number")
    axes[-1].set_xlabel("channel (line: smallest to largest number, dot: mean)")
    fig.suptitle("Keys have offsets, and the rotation turns some into swings", weight="bold")
    return fig


def by_layer(panels: Mapping[str, Series]) -> Any:
    """Bars per layer and axis: one panel per kind of error, its name the axis label."""
    fig, axes = figure(3.0, ncols=len(panels), sharey=True)
    for ax, (name, table) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        draw.grouped(ax, table, [AXIS_ROLES[axis] for axis in table])
        ax.set(xlabel="layer", ylabel=name, xticks=range(len(next(iter(table.values())))))
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=2)
    fig.suptitle("In layer 0, the closer keys have the worse scores", weight="bold", fontsize=11)
    return fig


def bytes_of(orders: Mapping[str, Sequence[tuple[int, int]]]) -> Any:
    """Which channel is in which half of a byte: order → (low, high) channels of each byte."""
    fig, axes = figure(1.5 * len(orders) + 0.2, nrows=len(orders), sharex=True)
    for ax, (name, pairs) in zip(axes, orders.items(), strict=True):
        text = [[str(pair[half]) for pair in pairs] for half in (1, 0)]
        roles = [["muted" if int(c) < len(pairs) else "grid" for c in row] for row in text]
        cells(ax, roles, text=text)
        ax.set_yticks([0, 1], labels=["high 4 bits", "low 4 bits"])
        ax.set_xticks(range(len(pairs)), labels=[f"byte {j}" for j in range(len(pairs))])
        ax.tick_params(length=0, labelbottom=True)
        ax.spines[:].set_visible(False)
        ax.set_title(name)
    return fig


def weight(held: Mapping[str, tuple[float, float, float]], title: str = "") -> Any:
    """Bytes of live caches: codec → (codes or numbers, scales, newest tokens)."""
    fig, ax = figure(0.9 + 0.34 * len(held) + (0.3 if title else 0))
    ax.set_title(title)
    tones = {"numbers or codes": "cached", "scales and zeros": "muted", "newest tokens": "grid"}
    fills = {part: {"color": color(role)} for part, role in tones.items()}
    rows = {name: dict(zip(tones, row, strict=True)) for name, row in held.items()}
    first = sum(next(iter(held.values())))
    draw.stacked(
        ax,
        rows,
        fills,
        lambda name, total: (
            f" {100 * total / first:.1f} %" if name != next(iter(rows)) else " = 100 %"
        ),
    )
    draw.list_rows(ax, rows, across=True)
    ax.set_xlim(0, first * 1.12)
    bytes_axis(ax, "one layer's cache", axis="x")
    ax.legend(loc="lower right")
    return fig


def trade(nbytes: Amounts, kl: Mapping[str, tuple[float, float]], bad: Sequence[str] = ()) -> Any:
    """Bytes per token against divergence (log scales), a named dot per codec, hollow for `bad`.

    kl: name → (mean, standard error).
    """
    fig, ax = figure(3.8)
    for name, x in nbytes.items():
        face, (mean, error) = "none" if name in bad else INK, kl[name]
        size = 12 if name in bad else 7  # so that a dot inside it stays visible
        bar = "none" if name in bad else INK  # inside a ring, a bar looks like a mistake
        ax.errorbar([x], [mean], [error], fmt="o", mfc=face, mec=INK, ecolor=bar, markersize=size)
        offset = (-10, -3) if name in bad else (7, 5)  # to the left, where no other name begins
        note(ax, name, (x, mean), offset, va="baseline")
    ax.set(xscale="log", yscale="log", ylabel="divergence from float32 (bits per byte)")
    least, most = min(nbytes.values()), max(nbytes.values())
    draw.ticks_at(ax, [2**p for p in range(40) if 0.5 * least < 2**p < 1.5 * most])
    ax.set_xlim(0.5 * least, 1.5 * most)
    ax.margins(y=0.1)
    ax.minorticks_off()
    ax.set_xlabel("bytes per token, scales included")
    ax.set_title("Little is lost down to 4 bits, much at 2")
    return fig


def bits_explorer(keys: Any, queries: Any) -> Explorer:
    """What 1 to 8 bits do to the keys of one head and to the scores computed from them.

    keys (n, D) as stored, n and D multiples of 32; queries (n, G, D) of the same positions.
    ValueError for other shapes.
    """
    keys, queries = np.asarray(keys, np.float32), np.asarray(queries, np.float32)
    n, dim = keys.shape if keys.ndim == 2 else (1, 1)
    if n % GROUP or dim % GROUP:
        raise ValueError(f"keys must be (n, D), both multiples of {GROUP}, got {keys.shape}")
    if queries.ndim != 3 or (queries.shape[0], queries.shape[2]) != (n, dim):
        raise ValueError(f"queries must be ({n}, G, {dim}), got {queries.shape}")
    loud = int(np.argmax((queries**2).mean(axis=(0, 1))))
    every = range(1, 9)
    scenes = [_scene(keys, loud, bits, _errors(keys, queries, bits)) for bits in every]
    texts = [count_words(bits, "bit", "bits") for bits in every]
    slider = Slider("bits", "Bits per code", every, 2, texts=texts)
    title = "Bits against error, along two axes"
    return Explorer.from_frames("bits", title, slider, scenes, anchor="bits-explorer")


def decoded(keys: Any, bits: int, axis: str) -> np.ndarray:
    """keys (n, D) → the same after a round trip: groups of 32 tokens, or of 32 channels."""
    n, dim = keys.shape
    shape = (n // GROUP, GROUP, dim) if axis == "per channel" else (n, dim // GROUP, GROUP)
    where = 1 if axis == "per channel" else 2
    codes, scales, zeros = quantise(keys.reshape(shape), bits, axis=where)
    wide = np.expand_dims(scales.astype(np.float32), where)
    low = np.expand_dims(zeros.astype(np.float32), where)
    return np.asarray((codes * wide + low).reshape(n, dim), dtype=np.float32)


def _errors(keys: np.ndarray, queries: np.ndarray, bits: int) -> dict[str, tuple[float, float]]:
    """Axis → error of the keys, and of the scores that a query sees, as shares of their size."""
    visible = np.tri(len(keys), dtype=bool)
    by_head = np.moveaxis(queries, 1, 0)  # (G, n, D)
    right = (by_head @ keys.T)[:, visible]
    errors = {}
    for axis in AXIS_ROLES:
        off = decoded(keys, bits, axis) - keys
        moved = (by_head @ off.T)[:, visible]
        errors[axis] = _share(off, keys), _share(moved, right)
    return errors


def _share(off: np.ndarray, of: np.ndarray) -> float:
    return float(np.sqrt((off**2).mean() / (of**2).mean()))


def _percent(share: float) -> float:
    """In percent, to two digits: where one group's scale is rounded the other way, the error of
    8-bit scores moves by a few ten-thousandths of itself."""
    return float(f"{100 * share:.2g}")


def _scene(keys: np.ndarray, loud: int, bits: int, here: dict[str, tuple[float, float]]) -> Scene:
    stored = number_words(bits + SCALE_BITS / GROUP)
    better = [min(AXIS_ROLES, key=lambda axis: here[axis][i]) for i in (0, 1)]
    words = count_words(bits, "bit", "bits")
    shares = [
        (what, axis, _percent(here[axis][i]))
        for i, what in enumerate(("keys", "scores"))
        for axis in AXIS_ROLES
    ]
    bars = [[what, [[axis, x, AXIS_ROLES[axis]]]] for what, axis, x in shares]
    label = "Error, in percent of the size (the scale changes)"  # so that the longer one is seen
    longest = max(x for _, _, x in shares)
    other = f"but that of the scores is smaller {better[1]}"
    if better[0] == better[1]:
        other = "and so is that of the scores"
    return {
        "title": f"Keys of one head in {words}",
        "summary": f"With {words} per code, which is {fixed(2**bits, 0)} levels, the error of "
        f"the keys is smaller {better[0]}, {other}. Scales included, each number "
        f"takes {stored} bits.",
        "formula": [f"{bits} + {SCALE_BITS} / {GROUP} = {stored} bits per number"],
        "numbers": [
            {"label": f"Error of the {what}, {axis}", "text": f"{number_words(x)} %"}
            for what, axis, x in shares
        ],
        "panels": [_curves(keys, loud, bits), bars_panel(label, "%", longest * 1.04, bars)],
    }


def _curves(keys: np.ndarray, loud: int, bits: int) -> Scene:
    """The channel with most of the queries' weight, token by token: as it was, and decoded."""
    shown = min(len(keys), 2 * GROUP)
    series = {axis: decoded(keys, bits, axis) for axis in AXIS_ROLES}
    series["as it was"] = keys  # last, so that it is drawn on top
    lines = []
    for name, x in series.items():
        points = [[t, float(x[t, loud])] for t in range(shown)]
        role, dashed = AXIS_ROLES.get(name, "key"), name not in AXIS_ROLES
        lines.append([name, role, points, dashed])
    top = float(np.abs(keys[:shown, loud]).max()) * 1.1
    step = nice_step(top, 2)
    marks = [i * step for i in (-2, -1, 0, 1, 2) if abs(i * step) <= top]
    ticks = [{"at": at, "text": number_words(at)} for at in marks]
    y = {"label": "number", "scale": "linear", "min": -top, "max": top, "ticks": ticks}
    label = f"Channel {loud}, to which the queries give most weight"
    return curves_panel(label, ticked("token", shown, 1, 16), y, lines)
