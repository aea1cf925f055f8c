"""The explorer over the first stage of dγ: how many groups of rows are summed side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.words import bytes_words, count_words, percent_words

GROUPS = (1, 4, 16, 64, 132, 256, 512, 1024, 2048, 4096, 8192)


def partials_explorer(rows: int, width: int, size: int, multiprocessors: int = 132) -> Explorer:
    """A slider over the groups into which the first stage cuts `rows` rows of `width` numbers.

    size: bytes per number of dy, x̂ and dx; partial sums are float32. multiprocessors: how many
    the card has (132 on an H100 SXM); each needs a block. ValueError for a number below 1.
    """
    for name, value in (("rows", rows), ("width", width), ("size", size)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, needed a number of at least 1")
    offered = [n for n in GROUPS if n <= rows]
    texts = [count_words(n, "group", "groups") for n in offered]
    standing = max(n for n in offered if n <= multiprocessors)
    slider = Slider("groups", "Groups of rows", offered, standing, texts=texts)
    scenes = [_scene(n, rows, width, size, multiprocessors, offered) for n in offered]
    return Explorer.from_frames("partials", "Two stages of a sum over rows", slider, scenes)


def traffic(groups: int, rows: int, width: int, size: int) -> dict[str, float]:
    """Bytes that the backward pass of LayerNorm moves, by what they hold."""
    return {
        "dy and x_hat read, dx written, and small arrays": (
            3.0 * rows * width * size + 4.0 * rows + 3.0 * width * size
        ),
        "partial sums, written and read": 2.0 * 2 * 4 * groups * width,
    }


def _scene(
    groups: int, rows: int, width: int, size: int, multiprocessors: int, offered: Sequence[int]
) -> dict[str, Any]:
    moved = traffic(groups, rows, width, size)
    whole, partial = sum(moved.values()), moved["partial sums, written and read"]
    each = -(-rows // groups)  # rows of a group
    busy = min(groups, multiprocessors)
    most = sum(traffic(offered[-1], rows, width, size).values())
    roles = ("muted", "ink")
    parts = [
        {"label": name, "value": n / 1e6, "role": role}
        for (name, n), role in zip(moved.items(), roles, strict=True)
    ]
    return {
        "title": f"{count_words(groups, 'group', 'groups')} of {count_words(each, 'row', 'rows')}",
        "summary": f"The first stage occupies {busy} of {multiprocessors} multiprocessors. The "
        f"partial sums are {percent_words(partial / whole)} of the {bytes_words(whole, 1000)} "
        f"moved. The sum of a column is rounded at most {each + groups:,} times.",
        "formula": [
            f"partial sums: 2 \u00d7 2 \u00d7 {groups:,} \u00d7 {width:,} \u00d7 4 bytes"
            f" = {bytes_words(partial, 1000)}"
        ],
        "numbers": [
            {"label": "Multiprocessors with work", "text": f"{busy} of {multiprocessors}"},
            {"label": "Share of partial sums in all bytes", "text": percent_words(partial / whole)},
            {"label": "Most roundings in a column", "text": f"{each + groups:,}"},
        ],
        "panels": [
            {
                "kind": "bars",
                "label": "Bytes moved by the backward pass",
                "unit": "MB",
                "max": most / 1e6 * 1.04,
                "bars": [{"label": "all", "parts": parts}],
                "marks": [],
            },
            {
                "kind": "bars",
                "label": "Most roundings in the sum of a column",
                "unit": "additions",
                "max": (rows + 1) * 1.04,
                "bars": [
                    {"label": "first stage", "parts": [_part("rows of a group", each, "muted")]},
                    {"label": "second", "parts": [_part("groups", groups, "ink")]},
                ],
                "marks": [],
            },
        ],
    }


def _part(label: str, value: int, role: str) -> dict[str, Any]:
    return {"label": label, "value": value, "role": role}
