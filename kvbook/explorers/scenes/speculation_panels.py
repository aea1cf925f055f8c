"""The panels of the explorer of guesses: the speed-up by their number, and where the time goes."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.axes import axis_counts, axis_linear
from kvbook.explorers.scenes.words import count_words, fixed, number_words


def speculation_curves(settings: dict[str, Any], work: dict[str, Any]) -> dict[str, Any]:
    """The speed-up for each number of guesses: this batch, no guesses, a single request."""
    gains, alone, last = work["gains"], work["alone"], len(work["gains"]) - 1
    top = 1.25
    for gain in alone:
        top = max(top, gain)
    y = axis_linear("times as fast as without guesses", top * 1.12, 1)
    lines: list[dict[str, Any]] = [
        {
            "label": f"batch {settings['batch']}",
            "role": "ink",
            "points": [[n, gains[n]] for n in range(last + 1)],
            "dashed": False,
        },
        {
            "label": "no guesses",
            "role": "recomputed",
            "points": [[0, 1], [last, 1]],
            "dashed": False,
        },
    ]
    if settings["batch"] > 1:
        unbound = [[n, alone[n]] for n in range(last + 1)]
        lines.append({"label": "batch 1", "role": "weights", "points": unbound, "dashed": True})
    bound = work["ridge"] / settings["batch"] - 1  # guesses that fill a step up to the ridge
    if bound > 0 and bound < last:
        ridge = {
            "label": f"ridge, {fixed(work['ridge'], 0)} tokens",
            "role": "muted",
            "points": [[bound, 0], [bound, 0.95 * y["max"]]],
            "dashed": True,
        }
        lines.append(ridge)
    points = [speed_point(settings["gamma"], work, "ink", "")]
    if settings["gamma"] < work["least"] or settings["gamma"] > work["most"]:
        points.append(speed_point(work["best"], work, "muted", "best: "))
    return {
        "kind": "curves",
        "label": "Speed-up by the number of guesses",
        "x": axis_counts("guesses per request and step", last),
        "y": y,
        "lines": lines,
        "points": points,
    }


def speed_words(gain: float) -> str:
    """A speed-up to two decimals: '1.03 times'."""
    return f"{fixed(gain, 2)} times"


def speed_point(guesses: int, work: dict[str, Any], role: str, before: str) -> dict[str, Any]:
    """A point of the curve: its number of guesses and, if it is the chosen one, its speed-up."""
    gain = work["gains"][guesses]
    label = f"{before}{count_words(guesses, 'guess', 'guesses')}"
    if before == "":
        label = f"{label}, {speed_words(gain)}"
    return {"label": label, "role": role, "x": guesses, "y": gain}


def speculation_bars(settings: dict[str, Any], work: dict[str, Any]) -> dict[str, Any]:
    """The time of the same tokens without guesses and with them; the shorter bar wins."""
    guessing, reading = work["guessing"], min(work["reading"], work["check"])
    parts: list[dict[str, Any]] = []
    if guessing > 0:
        parts.append({"label": "guessing", "value": guessing, "role": "query"})
    parts.append({"label": "check: reading the weights", "value": reading, "role": "weights"})
    if work["beyond"] > 0:
        more = work["check"] - reading
        parts.append(
            {"label": "check: arithmetic beyond that", "value": more, "role": "recomputed"}
        )
    made = work["made"]
    plain = {"label": "plain steps", "value": made, "role": "muted"}
    return {
        "kind": "bars",
        "label": f"Time of {number_words(made)} tokens per request",
        "unit": "steps without guesses",
        "max": max(made, work["whole"]) * 1.04,
        "bars": [
            {"label": "without guesses", "parts": [plain]},
            {"label": "with guesses", "parts": parts},
        ],
        "marks": [],
    }
