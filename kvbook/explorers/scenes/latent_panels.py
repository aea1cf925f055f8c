"""The panels of the explorer of latent attention: where operations go, and where forms cross."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.axes import axis_decades, axis_tokens
from kvbook.explorers.scenes.growth import flops_unit
from kvbook.explorers.scenes.words import count_words, times_words, tokens_short, trimmed

MOST_NEW = 8192  # at the right end of the axis


def new_words(tokens: float) -> str:
    """'1 new token', '512 new tokens'."""
    return count_words(tokens, "new token", "new tokens")


def ratio_words(work: dict[str, Any]) -> str:
    """The operations of the expanded form in those of the absorbed one: '117 times'."""
    return "exactly equal" if work["better"] == "same" else times_words(work["ratio"])


def curve_tokens(last: int) -> list[int]:
    """The numbers of new tokens at which the curve is computed: 1, 2, 3, 4, 6, 8 ... last."""
    found = [1]
    at = 2
    while at <= last:
        found.append(at)
        if at < last:
            found.append(at + at // 2)
        at = at * 2
    return found


def latent_bars(work: dict[str, Any]) -> dict[str, Any]:
    """The operations of both forms: products with the matrices, then attention."""
    forms = work["forms"]
    most = max(forms["expanded"], forms["absorbed"])
    unit = flops_unit(most)
    return {
        "kind": "bars",
        "label": f"Operations of one layer for {new_words(work['fresh'])}",
        "unit": unit["name"],
        "max": most / unit["size"] * 1.04,
        "bars": [
            {
                "label": "expanded",
                "parts": [
                    form_part("expanding the latents", forms["expanding"], unit, "recomputed"),
                    form_part("attention", forms["expanded_attention"], unit, "cached"),
                ],
            },
            {
                "label": "absorbed",
                "parts": [
                    form_part("absorbing the matrices", forms["absorbing"], unit, "query"),
                    form_part("attention", forms["absorbed_attention"], unit, "cached"),
                ],
            },
        ],
        "marks": [],
    }


def form_part(label: str, flops: float, unit: dict[str, Any], role: str) -> dict[str, Any]:
    """One part of a bar."""
    return {"label": label, "value": flops / unit["size"], "role": role}


def latent_curve(work: dict[str, Any]) -> dict[str, Any]:
    """The ratio of the two forms by the number of new tokens, up to a prompt from scratch."""
    y = axis_decades("operations, expanded / absorbed", 0.1, 200, 1)
    crossing = work["crossing"]
    return {
        "kind": "curves",
        "label": "Above 1, absorbing takes fewer operations; below 1, expanding does",
        "x": axis_tokens("new tokens in the step", 1, MOST_NEW),
        "y": y,
        "lines": [
            {
                "label": f"{tokens_short(work['context'])} cached",
                "role": "ink",
                "points": work["ratios"],
                "dashed": False,
            },
            {"label": "equal", "role": "muted", "points": [[1, 1], [MOST_NEW, 1]], "dashed": False},
            {
                "label": f"{trimmed(crossing, 1)} tokens",
                "role": "muted",
                "points": [[crossing, y["min"]], [crossing, 0.8 * y["max"]]],
                "dashed": True,
            },
        ],
        "points": [
            {"label": ratio_words(work), "role": "ink", "x": work["fresh"], "y": work["ratio"]}
        ],
    }
