"""Write kvlib/show/eviction_table.json: what eviction costs the reference model, rule by rule.

The chapter `windows` shows the table and recomputes one row of it; a test recomputes others.

    python tools/make_eviction_table.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from kvlib import load_reference_model, quality
from kvlib.caches import (
    H2O,
    BlockPool,
    KNorm,
    PagedCache,
    Scored,
    Sinks,
    SnapKV,
    Tova,
    Window,
    pyramid,
)
from kvlib.caches.retention.rules import Rules

OUTPUT = Path(__file__).resolve().parent.parent / "kvlib" / "show" / "eviction_table.json"
TEXT, SHARES, DISTANCES, TRIALS = 2048, (25, 50, 75), (256, 1024), 20
CHUNKS = {"chunks": 64, "one step": TEXT}  # tokens per step


def rules(budget: int, layers: int) -> dict[str, Rules]:
    """The rules of the table that keep `budget` tokens per layer on average."""
    return {
        "window": Window(budget),
        "4 sinks": Sinks(4, budget - 4),
        "k-norm": Scored(KNorm(recent=32), budget),
        "TOVA": Scored(Tova(), budget),
        "H2O": Scored(H2O(recent=budget // 2), budget),
        "H2O, means": Scored(H2O(recent=budget // 2, mean=True), budget),
        "SnapKV": Scored(SnapKV(), budget),
        "pyramid": [Scored(SnapKV(), b) for b in pyramid(budget, layers, recent=32)],
    }


def new_cache(model: Any, rule: Rules) -> PagedCache:
    """An empty paged cache under a rule, with room for the text at any rule."""
    return PagedCache(model.layer_specs, BlockPool(2400, 16), retention=rule, xp=np)


def bits(model: Any, rule: Rules) -> tuple[float, int]:
    """Bits per byte of the first bytes of the sample, and the bytes held after them."""
    cache, name = new_cache(model, rule), "held"
    found = quality.loss(model, cache).bits_per_token
    cache.add(name)
    for _ in range(0, TEXT, CHUNKS["chunks"]):
        model.forward([10] * 64, cache, cache.plan([name], [64]))
    cache.plan([name], [1])  # gives back what the last step has made too many
    cache.truncate(name, TEXT)
    return found, cache.memory().payload


def recalled(model: Any, rule: Rules, distance: int, way: str, trials: int = TRIALS) -> str:
    """One mark per question: "+" if the model said the right four letters, "-" if not."""
    found = quality.recall(
        model,
        new_cache(model, rule),
        trials=trials,
        distance=distance,
        chunk=CHUNKS[way],
        lead=2000 - distance,
    )
    return "".join("-+"[right] for right in found.right)


def row(model: Any, rule: Rules) -> dict[str, Any]:
    """Everything that the table says about one rule."""
    loss, held = bits(model, rule)
    marks = {w: {str(d): recalled(model, rule, d, w) for d in DISTANCES} for w in CHUNKS}
    return {"bits": round(loss, 4), "bytes": held, "recall": marks}


def table() -> dict[str, Any]:
    """The whole table with its settings; takes about a quarter of an hour on one core."""
    model = load_reference_model(xp=np)
    layers = len(model.layer_specs)
    found = {"all": {"100": row(model, None)}}
    for share in SHARES:
        for name, rule in rules(TEXT * share // 100, layers).items():
            found.setdefault(name, {})[str(share)] = row(model, rule)
            print(name, share, found[name][str(share)], flush=True)
    settings = {"text": TEXT, "shares": SHARES, "distances": DISTANCES, "trials": TRIALS}
    return {"settings": settings | {"names": 4, "chunks": CHUNKS}, "rows": found}


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    text = json.dumps(table(), indent=1)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(f"{OUTPUT.name}: {len(text)} characters written")
