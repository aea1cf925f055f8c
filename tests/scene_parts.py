"""Random settings of the explorers, and ways into their scenes."""

from __future__ import annotations

import random
from typing import Any

from kvbook.explorers.catalogue import ALL

GIB = 2**30


def settings_of(name: str, count: int, seed: int = 0, **fixed: Any) -> list[dict[str, Any]]:
    """`count` random settings of an explorer, the first its own."""
    explorer, chance = ALL[name](), random.Random(seed)
    found = [explorer.settings | fixed]
    while len(found) < count:
        found.append({c.name: chance.choice(c.values) for c in explorer.controls} | fixed)
    return found


# where a control matters: a model that has windows
MATTERS: dict[str, dict[str, Any]] = {"held": {"model": "gemma-3-27b"}}


def numbers(scene: dict[str, Any]) -> dict[str, str]:
    return {row["label"]: row["text"] for row in scene["numbers"]}


def part(panel: dict[str, Any], label: str, bar: int = 0) -> float:
    return sum(p["value"] for p in panel["bars"][bar]["parts"] if p["label"] == label)


def line(panel: dict[str, Any], label: str) -> dict[float, float]:
    (found,) = [ln for ln in panel["lines"] if ln["label"] == label]
    return dict(found["points"])
