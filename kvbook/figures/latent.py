"""Drawings of the chapter on latent vectors and states: data in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Numbers, Series, annotate, bytes_axis, figure, label_ends
from kvbook.figures.style import INK, MUTED, color


def kept(shares: Sequence[Any], marks: Sequence[int], recall: int) -> Any:
    """Share of each layer's matrix that its first r numbers carry, in percent, against r.

    Layer 0 and layer `recall` stand out; the others are grey.
    """
    fig, ax = figure(3.0)
    rank = np.arange(1, len(shares[0]) + 1)
    looks = {0: ("ink", "--", 2.2), recall: ("ink", "-", 2.6)}
    for layer, share in enumerate(shares):
        tone, style, width = looks.get(layer, ("free", "-", 1.4))
        more = {"linewidth": width, "zorder": 3 if layer in looks else 2}
        ax.plot(rank, 100 * np.asarray(share), style, color=color(tone), **more)
    for r in marks:
        ax.axvline(r, color=MUTED, linewidth=1, linestyle=":")
    others = [layer for layer in range(len(shares)) if layer not in looks]
    names = ", ".join(map(str, others[:-1])) + f" and {others[-1]}"
    words = {
        0: ("layer 0", 20, (-30, 20)),
        recall: (f"layer {recall}, which\nfinds strings", 72, (34, -34)),
        others[-1]: (f"layers {names}", 52, (30, -44)),
    }
    for layer, (text, r, offset) in words.items():
        at = min(r, len(rank)) - 1
        annotate(ax, text, (rank[at], 100 * float(shares[layer][at])), offset=offset)
    ax.set(xlabel="numbers per token, r", ylabel="share of the matrix (%)")
    ax.set(xlim=(0, len(shares[0])), ylim=(0, 103), xticks=range(0, len(shares[0]) + 1, 32))
    return fig


def by_rank(ranks: Sequence[int], added: Numbers, errors: Numbers, recall: Numbers) -> Any:
    """Bits per byte added (percent, log scale) ± errors, and recall (percent), against numbers."""
    fig, (left, right) = figure(2.8, ncols=2)
    left.errorbar(ranks, added, yerr=errors, color=color("ink"), marker="o", capsize=3)
    left.set(ylabel="bits per byte added (%)", yscale="log", ylim=(0.03, 200))
    left.set_yticks([0.1, 1, 10, 100], labels=["0.1", "1", "10", "100"])
    right.plot(ranks, recall, "o-", color=color("ink"))
    right.set(ylabel="recall (%)", ylim=(-4, 104))
    for ax in (left, right):
        ax.set_xticks(ranks, labels=[str(r) for r in ranks])
        ax.set_xlabel("numbers per token and layer")
    return fig


def crossing(new: Numbers, series: Series, at: float) -> Any:
    """Operations per cached token against new tokens, and where two ways cost the same."""
    fig, ax = figure(2.9)
    millions = {name: np.asarray(y) / 1e6 for name, y in series.items()}
    height = float(np.interp(at, new, next(iter(millions.values()))))
    ax.plot([at, at], [0, height], ":", color=MUTED, linewidth=1.2, zorder=3)
    ax.plot([at], [height], "o", color=INK, zorder=3)
    draw.note(ax, f" {at:.0f} new tokens", (at, height), (4, -12), va="baseline", fontsize=10)
    names = {
        "xlabel": "new tokens in the step",
        "ylabel": "operations per cached\ntoken, one layer (million)",
    }
    limits: dict[str, Any] = {"ylim": (0, None), "xlim": (new[0], new[-1])}
    draw.lines(ax, new, millions, ["ink", "muted"], **names, forms=("-", "--"), **limits)
    return fig


def by_age(errors: Mapping[str, Any]) -> Any:
    """Error of the value that comes back, relative to the value, against the tokens since."""
    fig, ax = figure(3.0)
    looks = (("muted", ":"), ("muted", "-"), ("ink", "--"), ("ink", "-"))
    for y, (tone, style) in zip(errors.values(), looks, strict=True):
        ax.plot(range(len(y)), y, style, color=color(tone), linewidth=1.6)
    ax.axhline(1, color=MUTED, linewidth=1)
    last = len(next(iter(errors.values()))) - 1
    ax.text(last, 0.96, "as far off as zero", ha="right", va="top", color=MUTED, size=9)
    ax.set(xlabel="tokens since the pair was stored", ylabel="error of the value read")
    ax.set(xlim=(0, last), ylim=(0, None), yticks=[0, 0.5, 1, 1.5, 2])
    ends = {name: float(np.mean(y[-last // 4 :])) for name, y in errors.items()}
    label_ends(ax, ends, [tone for tone, _ in looks], x_end=float(last))
    return fig


def growth(tokens: Sequence[int], held: Series, even: float) -> Any:
    """Bytes of one request against its tokens, and from how many on the second takes fewer."""
    fig, ax = figure(3.0)
    tones = ("muted", "ink")
    for y, tone, style in zip(held.values(), tones, ("--", "-"), strict=True):
        ax.plot(tokens, y, style, color=color(tone))
    ax.set(xlabel="tokens of the request", xlim=(0, tokens[-1]), ylim=(0, None))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    bytes_axis(ax, "held by one request")
    label_ends(ax, {n: float(y[-1]) for n, y in held.items()}, tones, x_end=float(tokens[-1]))
    at = float(np.interp(even, tokens, next(iter(held.values()))))
    ax.plot([even], [at], "o", color=INK)
    annotate(ax, f"equal at {even:,.0f} tokens", (even, at), offset=(-20, 70))
    return fig
