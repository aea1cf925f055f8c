"""Drawings of the chapter on memory: how bytes grow, what fits, what is wasted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Amounts, centered, figure, label_ends, lines, name_rows, note
from kvbook.figures.style import CARD, INK, MUTED, color, text_color
from kvbook.figures.units import format_bytes, format_number

_PLATE = {"facecolor": CARD, "edgecolor": "none", "pad": 0.5}  # words above the grid


def doubled(cache: Amounts, weights: Amounts) -> Any:
    """By how much two bills grow when one size is doubled: a pair of bars per size."""
    fig, ax = figure(0.8 + 0.42 * len(cache))
    series = {bill: [sizes[name] for name in cache] for bill, sizes in
              (("cache", cache), ("weights", weights))}  # fmt: skip
    roles = ("cached", "weights")
    for drawn, lengths, role in zip(
        draw.grouped(ax, series, roles, flat=True), series.values(), roles, strict=True
    ):
        words = [f"× {x:.2f}".replace(".00", "") for x in lengths]
        ax.bar_label(drawn, labels=words, padding=4, color=text_color(role), fontsize=9)
    draw.list_rows(ax, cache)
    ax.set(xlabel="bytes after doubling it / bytes before", xlim=(0, 2.25))
    ax.axvline(1, color=MUTED, linewidth=1)
    ax.legend(loc="lower right")
    return fig


def token(layers: int, heads: int, numbers: int) -> Any:
    """What one token stores: a row of vectors per layer, keys in blue and values in green."""
    fig, ax = figure(0.7 + 0.3 * layers)
    for layer in range(layers):
        for i, role in enumerate(["key"] * heads + ["value"] * heads):
            draw.box(ax, i, layer, 0.94, 0.8, color=color(role), linewidth=0)
            centered(ax, i, layer, f"{role}, head {i % heads}", CARD)
    ax.set(xlim=(-0.5, 2 * heads - 0.5), ylim=(layers - 0.5, -0.5), xticks=[])
    ax.set_yticks(range(layers), labels=[f"layer {layer}" for layer in range(layers)])
    ax.set_title(f"One token: {layers} layers × {heads} heads × 2 vectors of {numbers} numbers")
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return fig


def windows(tokens: Any, held: Mapping[str, Any]) -> Any:
    """Bytes of one request against its tokens, a line for each use of windows."""
    fig, ax = figure(3.0)
    forms = ("-", "--", ":")
    roles = ["cached"] * len(held)
    names = {"xlabel": "tokens of the request", "ylabel": ""}
    lines(ax, tokens, held, roles, **names, forms=forms[: len(held)])
    draw.bytes_axis(ax, "cache of one request")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set(xlim=(0, tokens[-1]), title="Only a window makes a layer's cache stop growing")
    ax.set_ylim(bottom=0)
    return fig


def models(stored_bytes: Amounts, every_head: Amounts) -> Any:
    """Bytes per token of each model (dot), and with keys and values for every query head (ring)."""
    fig, ax = figure(1.1 + 0.23 * len(stored_bytes))
    rows, stored, full = (
        range(len(stored_bytes)),
        list(stored_bytes.values()),
        list(every_head.values()),
    )
    ax.hlines(rows, stored, full, color=MUTED, linewidth=1.2)
    ax.plot(full, rows, "o", mfc=CARD, mec=MUTED, markersize=6)
    ax.plot(stored, rows, "o", color=color("cached"), markersize=6)
    ax.set_xlim(0.22 * min(stored), 1.6 * max(full))
    _log_bytes(ax, "bytes that a token adds, 16 bits per number", axis="x")
    for i, nbytes in enumerate(stored):
        centered(ax, nbytes / 1.18, i, format_bytes(nbytes), ha="right", fontsize=8, bbox=_PLATE)
    ax.tick_params(axis="y", labelsize=8, length=0)
    name_rows(ax, stored_bytes)
    ax.set_title("Most models share keys and values between query heads")
    cached, words = color("cached"), "if every query head had a key and a value"
    handles = [draw.dot(cached, "stored", cached), draw.dot(CARD, words)]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return fig


def crossing(tokens: Sequence[int], weights: float, caches: Mapping[str, Any]) -> Any:
    """Bytes of weights, and of caches that grow with the length of each request; log scales."""
    fig, ax = figure(3.6)
    ax.axhline(weights, color=color("weights"), linewidth=2.6)
    at, tone = (tokens[0], weights), text_color("weights")
    note(ax, "weights", at, (5, 7), va="baseline", color=tone)
    for nbytes, style in zip(caches.values(), ("-", "--", ":"), strict=False):
        ax.plot(tokens, nbytes, style, color=color("cached"))
        meets = float(np.interp(weights, nbytes, tokens))
        if tokens[0] < meets < tokens[-1]:
            ax.plot([meets], [weights], "o", color=INK, markersize=8, zorder=3)
            note(ax, format_number(meets), (meets, weights), (-5, 7), fontsize=10, va="baseline")
    _log_tokens(ax, tokens)
    _log_bytes(ax, "bytes")
    ends = {name: float(nbytes[-1]) for name, nbytes in caches.items()}
    label_ends(ax, ends, ["cached"] * len(caches), x_end=float(tokens[-1]))
    return fig


def _log_tokens(ax: Any, tokens: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    draw.ticks_at(ax, [t for t in tokens if int(np.log2(t)) % 2 == 0])
    ax.set(xlabel="tokens of each request", xlim=(tokens[0], tokens[-1]))


def _log_bytes(ax: Any, name: str, axis: str = "y") -> None:
    """A log scale of bytes with a tick at every power of 4, in words."""
    which = ax.yaxis if axis == "y" else ax.xaxis
    (ax.set_yscale if axis == "y" else ax.set_xscale)("log", base=2)
    low, high = ax.get_ylim() if axis == "y" else ax.get_xlim()
    powers = range(int(np.ceil(np.log2(low))), int(np.log2(high)) + 1)
    ticks = [2.0**p for p in powers if p % 2 == 0]
    which.set_ticks(ticks, labels=[format_bytes(t) for t in ticks])
    which.set_label_text(name)
    ax.minorticks_off()


def fits(table: Mapping[str, Sequence[float | None]], limits: Sequence[int], gpus: Any) -> Any:
    """Models down, GPUs across: tokens that fit, dark where the model's own limit comes first.

    table: model → tokens for each GPU, None where the weights do not fit, inf where memory sets no
    limit. limits: the longest context of each model.
    """
    fig, ax = figure(1.2 + 0.3 * len(table))
    for i, (row, limit) in enumerate(zip(table.values(), limits, strict=True)):
        for j, n in enumerate(row):
            enough = n is not None and n >= limit
            if enough:
                draw.box(ax, j, i, 0.96, 0.92, color=MUTED, linewidth=0)
            centered(ax, j, i, _fit_words(n), CARD if enough else INK, fontsize=10)
    ax.set(xlim=(-0.5, len(gpus) - 0.5), ylim=(len(table) - 0.5, -0.5))
    ax.set_xticks(range(len(gpus)), labels=list(gpus))
    ax.set_yticks(range(len(table)), labels=list(table))
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.set_xlabel("tokens of one request that fit (k: thousands, M: millions)")
    ax.grid(False)
    draw.legend_below(fig, {"muted": "memory for more tokens than the model can read"})
    return fig


def _fit_words(tokens: float | None) -> str:
    if tokens is None:
        return "–"
    if tokens == np.inf:
        return "∞"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.{int(tokens < 10 * size)}f}{letter}"
    return f"{tokens:.0f}"


def steps(contexts: Amounts, low: float, high: float) -> Any:
    """Contexts in tokens, one bar per correction, over the band of defensible answers."""
    fig, ax = figure(0.9 + 0.42 * len(contexts))
    tones = [MUTED] * (len(contexts) - 1) + [INK]
    ax.axvspan(low, high, color=color("grid"), alpha=0.7, linewidth=0)
    ax.barh(list(contexts), list(contexts.values()), height=0.6, color=tones)
    for i, x in enumerate(contexts.values()):
        centered(ax, x, i, f"{x:,.0f} ", CARD, ha="right")
    ax.set_xlim(0, max(*contexts.values(), high) * 1.16)
    ax.xaxis.set_major_formatter(lambda x, _pos: f"{x:,.0f}")
    ax.set(xlabel="tokens (band: from 90 % utilisation to weights only)")
    ax.set_title("One correction alone makes the answer worse")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    return fig


def mistakes(factors: Amounts) -> Any:
    """What a calculator says divided by what is true, on a log scale around 1."""
    fig, ax = figure(0.8 + 0.36 * len(factors))
    logs = [float(np.log2(f)) for f in factors.values()]
    ax.barh(list(factors), logs, height=0.6, color=MUTED, zorder=4)  # above the plates
    for i, (f, x) in enumerate(zip(factors.values(), logs, strict=True)):
        words = f" × {f:.2f} " if f < 9.95 else f" × {f:.0f} "
        centered(ax, x, i, words, ha="left" if x > 0 else "right", bbox=_PLATE)
    ticks = list(range(int(np.floor(min(logs))) - 1, int(np.ceil(max(logs))) + 2))
    ax.set_xticks(ticks, labels=[f"× {2.0**t:g}" for t in ticks])
    ax.set(xlabel="what the calculator says / what is true", xlim=(ticks[0] - 0.3, ticks[-1]))
    ax.set_title("The size of an error depends on the model")
    ax.axvline(0, color=INK, linewidth=1)
    ax.invert_yaxis()
    draw.grid_across(ax)
    return fig
