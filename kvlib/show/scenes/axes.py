"""Axes with few ticks: an axis must still be readable when it is 360 pixels wide.

An axis is {"label", "scale": "linear" or "log", "min", "max", "ticks": [{"at", "text"}]}. Steps are
found by multiplying, not by logarithms, whose last bit differs between machines.
"""

from __future__ import annotations

from typing import Any

from kvlib.show.scenes.words import bytes_words, number_words, tokens_short


def nice_step(top: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `count` steps reach `top` (above 0)."""
    step = 1.0
    while step * count >= top * 10:
        step = step / 10
    while step * count * 10 < top:
        step = step * 10
    for factor in [1, 2, 5, 10]:
        if step * factor * count >= top:
            return step * factor
    return step * 20


def axis_linear(label: str, top: float, unit: float) -> dict[str, Any]:
    """From 0 to the first tick not below `top`; ticks are written in multiples of `unit`."""
    step = nice_step(top / unit, 5) if top > 0 else 1
    ticks = [{"at": 0, "text": "0"}]
    i = 0
    while i == 0 or i * step * unit < top:
        i += 1
        ticks.append({"at": i * step * unit, "text": number_words(i * step)})
    return {"label": label, "scale": "linear", "min": 0, "max": i * step * unit, "ticks": ticks}


def axis_decades(label: str, low: float, high: float, unit: float) -> dict[str, Any]:
    """Powers of ten of `unit` around `low` (above 0) and `high`; at most seven ticks."""
    first, last = 1.0, 1.0
    while first * unit > low:
        first = first / 10
    while first * 10 * unit <= low:
        first = first * 10
    last = first
    decades = 0
    while last * unit < high or decades == 0:
        last = last * 10
        decades += 1
    stride = 1 + (decades - 1) // 6
    ticks: list[dict[str, Any]] = []
    at = first
    for i in range(decades + 1):
        if i % stride == 0:
            ticks.append({"at": at * unit, "text": number_words(at)})
        at = at * 10
    bounds = [first * unit, last * unit]
    return {"label": label, "scale": "log", "min": bounds[0], "max": bounds[1], "ticks": ticks}


def powers_between(low: float, high: float, count: int) -> list[float]:
    """Powers of two from `low` to `high`, so evenly spaced that there are at most `count`."""
    first, doublings = 1, 0
    while first < low:
        first = first * 2
    last = first
    while last * 2 <= high:
        last = last * 2
        doublings += 1
    stride = 2 ** (1 + doublings // count)
    found: list[float] = []
    while first <= last:
        found.append(first)
        first = first * stride
    return found


def axis_bytes(label: str, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of bytes, counted in 1024s."""
    ticks = [{"at": at, "text": bytes_words(at, 1024)} for at in powers_between(low, high, 6)]
    return {"label": label, "scale": "log", "min": low, "max": high, "ticks": ticks}


def axis_tokens(label: str, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of tokens, 1K = 1,024."""
    ticks = [{"at": at, "text": tokens_short(at)} for at in powers_between(low, high, 6)]
    return {"label": label, "scale": "log", "min": low, "max": high, "ticks": ticks}
