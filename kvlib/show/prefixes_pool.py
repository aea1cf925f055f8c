"""A pool of blocks through time: the log of its events, replayed a moment at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvlib.caches.blocks import Event
from kvlib.show.controls import Slider
from kvlib.show.explorer import Explorer, Scene
from kvlib.show.units import format_bytes

LEGEND = {
    "shared": "held by several requests",
    "cached": "held by one request",
    "muted": "free, can still be found",
    "free": "free, nothing to find",
}


class Moment(NamedTuple):
    """What the pool looked like after one thing had happened to it."""

    words: str
    events: int  # how many events of the pool's log had happened
    tables: Mapping[str, Sequence[int]]  # name of a request → its blocks
    copied: int  # bytes that were copied


def replay(events: Sequence[Event], num_blocks: int) -> tuple[list[int], set[int]]:
    """References of each block, and the published ones, after the events of a pool's log."""
    references = [0] * num_blocks
    published: set[int] = set()
    for event in events:
        for block in event.blocks:
            references[block] += {"allocate": 1, "touch": 1, "free": -1}.get(event.kind, 0)
        if event.kind == "publish":
            published.update(event.blocks)
        elif event.kind == "evict":
            published.difference_update(event.blocks)
    return references, published


def pool_explorer(events: Sequence[Event], num_blocks: int, moments: Sequence[Moment]) -> Explorer:
    """A pool through time: one slider, a scene for each moment, replayed from the pool's log."""
    names = list(dict.fromkeys(name for moment in moments for name in moment.tables))
    scenes = [_pool_scene(events, num_blocks, moment, names) for moment in moments]
    slider = Slider.steps("moment", "Moment", 1, len(moments))
    return Explorer.from_frames("pool", "A pool of blocks through time", slider, scenes)


def _pool_scene(
    events: Sequence[Event], num_blocks: int, moment: Moment, names: Sequence[str]
) -> Scene:
    references, published = replay(events[: moment.events], num_blocks)
    states = []
    for block, count in enumerate(references):
        if count:
            states.append("shared" if count > 1 else "cached")
        else:
            states.append("muted" if block in published else "free")
    rows = [{"label": "pool", "cells": states}]
    for name in names:
        held = moment.tables.get(name, ())
        roles = [state if block in held else "" for block, state in enumerate(states)]
        rows.append({"label": name, "cells": roles})
    entries = sum(len(blocks) for blocks in moment.tables.values())
    found, blank, taken = (states.count(r) for r in ("muted", "free", "shared"))
    used = num_blocks - found - blank
    copied = format_bytes(moment.copied) if moment.copied else "nothing"
    return {
        "title": moment.words,
        "summary": (
            f"{moment.words}. {used} of {num_blocks} blocks are held, {taken} of them by several"
            f" requests; {found} are free and can still be found, {blank} are free with nothing"
            f" to find. Copied: {copied}."
        ),
        "formula": [f"entries of all block tables: {entries}; blocks that they name: {used}"],
        "numbers": [
            {"label": "Blocks held", "text": str(used)},
            {"label": "Free, can be found", "text": str(found)},
            {"label": "Free, nothing to find", "text": str(blank)},
            {"label": "Bytes copied", "text": copied},
        ],
        "panels": [
            {
                "kind": "cells",
                "label": "One column a block; below the pool, who holds it",
                "rows": rows,
                "legend": [{"role": role, "label": text} for role, text in LEGEND.items()],
            }
        ],
    }
