"""A pool of blocks through time: the log of its events, replayed moment by moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.blocks import Blocks, replay
from kvbook.figures.units import format_bytes
from kvlib.caches.allocation.pool import Event

LEGEND = {
    "key": "handed out in this moment",
    "shared": "held by several requests",
    "cached": "held by one request",
    "muted": "free, can still be found",
    "free": "free, nothing to find",
}


class Moment(NamedTuple):
    """The pool after one event, and what had happened."""

    words: str
    events: int  # how many events of the pool's log had happened
    tables: Mapping[str, Sequence[int]]  # name of a request → its blocks
    copied: int  # bytes that were copied


def pool_explorer(events: Sequence[Event], num_blocks: int, moments: Sequence[Moment]) -> Explorer:
    """A pool through time: one slider and one scene per moment, replayed from the pool's log."""
    names = list(dict.fromkeys(name for moment in moments for name in moment.tables))
    states, scenes, seen = replay(events, num_blocks), [], 0
    for moment in moments:
        taken = {b for e in events[seen : moment.events] if e.kind == "allocate" for b in e.blocks}
        scenes.append(_pool_scene(states[moment.events], taken, moment, names))
        seen = moment.events
    count = len(scenes)
    texts = [f"{i} of {count}" for i in range(1, count + 1)]
    slider = Slider("moment", "Moment", range(1, count + 1), texts=texts)
    return Explorer.from_frames("pool", "A pool of blocks through time", slider, scenes)


def _pool_scene(state: Blocks, taken: set[int], moment: Moment, names: Sequence[str]) -> Scene:
    roles = [_role(count, b in state.published) for b, count in enumerate(state.references)]
    rows = [{"label": "pool", "cells": ["key" if b in taken else r for b, r in enumerate(roles)]}]
    for name in names:
        held = moment.tables.get(name, ())
        cells = [role if block in held else "" for block, role in enumerate(roles)]
        rows.append({"label": name, "cells": cells})
    entries = sum(len(blocks) for blocks in moment.tables.values())
    found, blank, several = (roles.count(r) for r in ("muted", "free", "shared"))
    used = len(roles) - found - blank
    copied = format_bytes(moment.copied) if moment.copied else "nothing"
    return {
        "title": moment.words,
        "summary": (
            f"{moment.words}. Of {len(roles)} blocks {used} held, {several} by several requests;"
            f" {found} free that can still be found, {blank} free with nothing to find."
            f" Copied: {copied}."
        ),
        "formula": [
            *(f"{n}: blocks {', '.join(map(str, held))}" for n, held in moment.tables.items()),
            f"entries of all block tables: {entries}; blocks that they name: {used}",
        ],
        "numbers": [
            {"label": "Blocks held", "text": str(used)},
            {"label": "Free, can be found", "text": str(found)},
            {"label": "Free, nothing to find", "text": str(blank)},
            {"label": "Bytes copied", "text": copied},
        ],
        "panels": [
            {
                "kind": "cells",
                "label": f"Blocks 0 to {len(roles) - 1} of the pool, one per column; below, the"
                " requests that hold them",
                "rows": rows,
                "legend": [{"role": role, "label": text} for role, text in LEGEND.items()],
            }
        ],
    }


def _role(references: int, published: bool) -> str:
    """What a block is: held by several, by one, free and known, or free."""
    if references:
        return "shared" if references > 1 else "cached"
    return "muted" if published else "free"
