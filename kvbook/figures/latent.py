"""Drawings of the chapter on latent vectors and states: data in, figure out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures import draw
from kvbook.figures.draw import Numbers, Series, figure, label_ends
from kvbook.figures.style import INK, MUTED, color


def same_scores(tokens: Sequence[str], sides: Mapping[str, Any]) -> Any:
    """The numbers that a cache stores for each token, and a query's scores over the first of them.

    sides: the title of each panel → its query (D,) and {role: (T, D) stored numbers}.
    """
    fig, axes = figure(2.3, ncols=len(sides), squeeze=False)
    for ax, (title, (query, stored)) in zip(axes[0], sides.items(), strict=True):
        wide = len(stored) * len(query)
        roles = [["query"] * len(query)] + [[r for r in stored for _ in query]] * len(tokens)
        numbers = [query, *np.concatenate(list(stored.values()), axis=1)]
        draw.cells(ax, roles, text=[[f"{x:.0f}".replace("-", "−") for x in row] for row in numbers])
        scores = next(iter(stored.values())) @ query
        for y, words in enumerate(["score", *(f"{x:.0f}".replace("-", "−") for x in scores)]):
            draw.centered(ax, wide, y, words, fontsize=9 if y else 8.5)
        ax.set(xlim=(-0.6, wide + 0.6), xticks=[])
        name = "absorbed\nquery" if "cached" in stored else "query"
        ax.set_yticks(range(len(tokens) + 1), labels=[name, *tokens])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(title, fontsize=10)
        names = {"cached": "row"}
        patches = [draw.patch(role, names.get(role, role)) for role in stored]
        ax.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.4, 0), ncols=len(patches))
    return fig


def by_rank(ranks: Sequence[int], added: Numbers, errors: Numbers, recall: Numbers) -> Any:
    """Bits per byte added (percent, log scale) ± errors, and recall (percent), against numbers."""
    fig, (left, right) = figure(3.0, ncols=2)
    left.errorbar(ranks, added, yerr=errors, color=color("ink"), marker="o", capsize=3)
    left.set_title("Fewer numbers cost bits …", fontsize=10)
    right.set_title("… before they cost answers", fontsize=10)
    for r, more in zip(ranks, added, strict=True):
        digits = 0 if more > 10 else 1
        draw.note(left, f"+{more:.{digits}f} %", (r, more), (7, 5))
    left.set(ylabel="bits per byte added (%)", yscale="log", ylim=(0.03, 200))
    left.set_yticks([0.1, 1, 10, 100], labels=["0.1", "1", "10", "100"])
    right.plot(ranks, recall, "o-", color=color("ink"))
    right.set(ylabel="recall (%)", ylim=(-4, 104))
    for ax in (left, right):
        ax.set_xticks(ranks, labels=[str(r) for r in ranks])
        ax.set_xlabel("numbers per token and layer")
        ax.margins(x=0.25)  # the last note needs it
    return fig


def crossing(new: Numbers, series: Series, at: float) -> Any:
    """Operations per cached token against new tokens, and where two ways cost the same."""
    fig, ax = figure(2.9)
    millions = {name: np.asarray(y) / 1e6 for name, y in series.items()}
    height = float(np.interp(at, new, next(iter(millions.values()))))
    ax.plot([at, at], [0, height], ":", color=MUTED, linewidth=1.2, zorder=3)
    ax.plot([at], [height], "o", color=INK, zorder=3)
    ax.set_title(f"Below {np.ceil(at):.0f} new tokens, the absorbed form takes less work")
    draw.note(ax, f" {at:.0f} new tokens", (at, height), (4, -12), va="baseline", fontsize=10)
    names = {
        "xlabel": "new tokens in the step",
        "ylabel": "operations per cached\ntoken, one layer (million)",
    }
    limits: dict[str, Any] = {"ylim": (0, None), "xlim": (new[0], new[-1])}
    draw.lines(ax, new, millions, ["ink", "muted"], **names, forms=("-", "--"), **limits)
    return fig


def by_age(errors: Mapping[str, Any]) -> Any:
    """Error of the value that is read, relative to the value, against the tokens since."""
    fig, ax = figure(3.0)
    looks = (("muted", ":"), ("muted", "-"), ("ink", "--"), ("ink", "-"))
    for y, (tone, style) in zip(errors.values(), looks, strict=True):
        ax.plot(range(len(y)), y, style, color=color(tone), linewidth=1.6)
    ax.set_title("The delta rules read new pairs well; old ones are worse than zeros")
    ax.axhline(1, color=MUTED, linewidth=1)
    last = len(next(iter(errors.values()))) - 1
    ax.text(last, 0.96, "error of answering zero", ha="right", va="top", color=MUTED, size=9)
    ax.set(xlabel="tokens since the pair was stored", ylabel="error of the value read")
    ax.set(xlim=(0, last), ylim=(0, None), yticks=[0, 0.5, 1, 1.5, 2])
    ends = {name: float(np.mean(y[-last // 4 :])) for name, y in errors.items()}
    tones = {name: tone for name, (tone, _) in zip(ends, looks, strict=True)}
    (low, y), (near, z) = sorted(ends.items(), key=lambda end: end[1])[:2]
    if z - y < 0.05:  # lines on each other get one label
        name = ",\n".join(n for n in ends if n in (low, near))
        ends = {n: v for n, v in ends.items() if n not in (low, near)} | {name: y}
    label_ends(ax, ends, [tones.get(name, "ink") for name in ends], x_end=float(last))
    return fig
