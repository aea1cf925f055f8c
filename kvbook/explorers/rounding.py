"""Round the numbers of a scene to what a reader can see, before the scene leaves Python.

A scene made from a model run carries float32 sums, and their last bits depend on the kernels that
BLAS chooses for the processor. Without rounding, the page of one machine would differ from that of
another in digits that nobody sees. Every scene of `Explorer.from_frames` goes through
`rounded_scene`, so its picture, its markup and the page's data hold the same rounded numbers.
Scenes that are computed by the page itself start from exact numbers, and are not rounded.
"""

from math import ceil, log10
from typing import Any

from kvbook.explorers.scenes.words import MINUS, number_words

SEEN = 1000  # a plot is at most 240 pixels high: a step of the rounding is under a quarter of one
NOISE = 1e-6  # of a panel's scale: what is smaller comes from rounding, and drawn as 0


def rounded_scene(scene: dict[str, Any]) -> dict[str, Any]:
    """The scene with its panels rounded; words and whole numbers stay, nothing is changed in place.

    A bar becomes as long as `number_words` writes its number (three significant digits, or all
    whole ones), so that picture and words agree. A point of a curve is rounded to a power of ten
    not above a thousandth of its linear axis, or to four significant digits on a logarithmic one.
    Cells, tables and maps hold roles, words and whole levels, and stay.
    """
    rounded = {"bars": _bars, "curves": _curves}
    panels = [rounded.get(panel["kind"], dict)(panel) for panel in scene["panels"]]
    return scene | {"panels": panels}


def _bars(panel: dict[str, Any]) -> dict[str, Any]:
    floor = NOISE * panel["max"]

    def written(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"value": _written(row["value"], floor)} for row in rows]

    bars = [bar | {"parts": written(bar["parts"])} for bar in panel["bars"]]
    most = _written(panel["max"], 0)
    return panel | {"max": most, "bars": bars, "marks": written(panel["marks"])}


def _curves(panel: dict[str, Any]) -> dict[str, Any]:
    x, y = panel["x"], panel["y"]
    lines = [
        line | {"points": [[_on(x, a), _on(y, b)] for a, b in line["points"]]}
        for line in panel["lines"]
    ]
    points = [at | {"x": _on(x, at["x"]), "y": _on(y, at["y"])} for at in panel["points"]]
    return panel | {"x": _axis(x), "y": _axis(y), "lines": lines, "points": points}


def _axis(axis: dict[str, Any]) -> dict[str, Any]:
    ticks = [tick | {"at": _on(axis, tick["at"])} for tick in axis["ticks"]]
    return axis | {"min": _on(axis, axis["min"]), "max": _on(axis, axis["max"]), "ticks": ticks}


def _written(x: float, floor: float) -> float:
    """The number that `number_words` writes; 0 for what is smaller than `floor`."""
    if isinstance(x, int):
        return x
    if abs(x) < floor:
        return 0.0
    return float(number_words(x).replace(",", "").replace(MINUS, "-")) + 0.0


def _on(axis: dict[str, Any], x: float) -> float:
    """A coordinate on this axis, as exactly as it can be seen there."""
    if isinstance(x, int):
        return x
    if axis["scale"] == "log":
        return float(f"{x:.3e}")
    digits = ceil(log10(SEEN / (axis["max"] - axis["min"])))
    return round(float(x), digits) + 0.0  # + 0.0: no minus before a zero
