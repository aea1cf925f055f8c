"""An explorer made from a model's own keys: bits from 1 to 8, along either axis.

Its scenes are computed beforehand, because they need the keys of a live cache; see
`Explorer.from_frames`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.axes import nice_step, ticked
from kvbook.explorers.scenes.words import count_words, fixed, number_words
from kvlib.codecs.groups import quantise

GROUP = 32
SCALE_BITS = 32  # a float16 scale and a float16 zero for each group
ROLES = {"per channel": "key", "per token": "muted"}


def bits_explorer(keys: Any, queries: Any, value: int = 2) -> Explorer:
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
    slider = Slider("bits", "Bits per code", every, value, texts=texts)
    title = "Bits against error, along two axes"
    return Explorer.from_frames("bits", title, slider, scenes, anchor="bits-explorer")


def decoded(keys: Any, bits: int, axis: str) -> np.ndarray:
    """keys (n, D) → what is left of them: groups of 32 tokens, or of 32 channels."""
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
    asked = np.moveaxis(queries, 1, 0)  # (G, n, D)
    right = (asked @ keys.T)[:, visible]
    found = {}
    for axis in ROLES:
        off = decoded(keys, bits, axis) - keys
        moved = (asked @ off.T)[:, visible]
        found[axis] = _share(off, keys), _share(moved, right)
    return found


def _share(off: np.ndarray, of: np.ndarray) -> float:
    return float(np.sqrt((off**2).mean() / (of**2).mean()))


def _percent(share: float) -> float:
    """In percent, to two digits: where one group's scale is rounded the other way, the error of
    8-bit scores moves by a few ten-thousandths of itself."""
    return float(f"{100 * share:.2g}")


def _scene(
    keys: np.ndarray, loud: int, bits: int, here: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    stored = bits + SCALE_BITS / GROUP
    better = [min(ROLES, key=lambda axis: here[axis][i]) for i in (0, 1)]
    words = count_words(bits, "bit", "bits")
    key, score = (
        {axis: f"{number_words(_percent(here[axis][i]))} %" for axis in ROLES} for i in (0, 1)
    )
    other = f"but that of the scores is smaller {better[1]}"
    if better[0] == better[1]:
        other = "and so is that of the scores"
    return {
        "title": f"Keys of one head in {words}",
        "summary": f"With {words} per code, which is {fixed(2**bits, 0)} levels, the error of "
        f"the keys is smaller {better[0]}, {other}. Scales included, each number "
        f"takes {number_words(stored)} bits.",
        "formula": [f"{bits} + {SCALE_BITS} / {GROUP} = {number_words(stored)} bits per number"],
        "numbers": [
            {"label": f"{what}, {axis}", "text": table[axis]}
            for what, table in (("Error of the keys", key), ("Error of the scores", score))
            for axis in ROLES
        ],
        "panels": [_curves(keys, loud, bits), _bars(here)],
    }


def _curves(keys: np.ndarray, loud: int, bits: int) -> dict[str, Any]:
    """The channel that queries weigh most, token by token: as it was, and decoded."""
    shown = min(len(keys), 2 * GROUP)
    series = {axis: decoded(keys, bits, axis) for axis in ROLES}
    series["as it was"] = keys  # last, so that it lies on top
    lines = []
    for name, x in series.items():
        points = [[t, float(x[t, loud])] for t in range(shown)]
        role, dashed = ROLES.get(name, "ink"), name not in ROLES
        lines.append({"label": name, "role": role, "points": points, "dashed": dashed})
    top = float(np.abs(keys[:shown, loud]).max()) * 1.1
    step = nice_step(top, 2)
    marks = [i * step for i in (-2, -1, 0, 1, 2) if abs(i * step) <= top]
    ticks = [{"at": at, "text": number_words(at)} for at in marks]
    return {
        "kind": "curves",
        "label": f"Channel {loud}, which the queries weigh most",
        "x": ticked("token", shown, 1, 16),
        "y": {"label": "number", "scale": "linear", "min": -top, "max": top, "ticks": ticks},
        "lines": lines,
        "points": [],
    }


def _bars(here: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """A bar for each axis, for keys and for scores, on a scale of their own: with 8 bits the
    errors are a few thousandths of those with 1, and which is the longer has to be seen."""
    longest = max(_percent(x) for pair in here.values() for x in pair)
    bars = []
    for which, what in enumerate(("keys", "scores")):
        for axis, role in ROLES.items():
            part = {"label": axis, "value": _percent(here[axis][which]), "role": role}
            bars.append({"label": what, "parts": [part]})
    return {
        "kind": "bars",
        "label": "Error, in percent of the size (the scale changes)",
        "unit": "%",
        "max": longest * 1.04,
        "bars": bars,
        "marks": [],
    }
