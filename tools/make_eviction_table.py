"""Write kvbook/figures/eviction_table.json: what windows and eviction cost the reference model.

Bits per byte are measured on every whole stretch of the sample, so that a difference can be told
from chance. The chapter `windows` shows these numbers and measures some of them again; so does a
test.

    python tools/make_eviction_table.py
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kvlib import DenseCache, LayerSpec, load_reference_model, quality
from kvlib.caches import (
    H2O,
    BlockPool,
    Cache,
    KNorm,
    PagedCache,
    Retention,
    Scored,
    Sinks,
    SnapKV,
    Tova,
    Window,
)
from kvlib.reference import sample_text

OUTPUT = Path(__file__).resolve().parent.parent / "kvbook" / "figures" / "eviction_table.json"
TEXT, TEXTS = 2048, 8  # bytes of a stretch, stretches
SHARES, DISTANCES, TRIALS = (25, 50, 75), (256, 1024), 20
CHUNKS = {"chunks": 64, "one step": TEXT}  # tokens per step
WIDE, NARROW, SHORT = (32, 64, 128, 256, 512, 1024), 64, (16, 64, 256)  # windows


def rules(budget: int) -> dict[str, Retention]:
    """The rules of the table, each of which keeps `budget` tokens in every layer."""
    return {
        "window": Window(budget),
        "k-norm": Scored(KNorm(recent=32), budget),
        "TOVA": Scored(Tova(), budget),
        "H2O": Scored(H2O(recent=budget // 2), budget),
        "H2O, means": Scored(H2O(recent=budget // 2, mean=True), budget),
        "SnapKV": Scored(SnapKV(), budget),
    }


def new_cache(model: Any, rule: Retention | None) -> PagedCache:
    """An empty paged cache under a rule, with room for a stretch under any rule."""
    return PagedCache(model.layer_specs, BlockPool(2400, 16), retention=rule, xp=np)


def bits(
    model: Any, cache: Cache, texts: int = TEXTS, length: int = TEXT, chunk: int = 64
) -> list[float]:
    """Bits per byte of the first `length` bytes of each of the first `texts` stretches."""
    sample = sample_text().encode()
    starts = range(0, TEXT * texts, TEXT)
    pieces = [list(sample[a : a + length]) for a in starts]
    losses = [quality.loss(model, cache, piece, chunk=chunk) for piece in pieces]
    return [round(loss.bits_per_token, 5) for loss in losses]


def held(model: Any, rule: Retention | None) -> int:
    """Bytes that a cache holds after a stretch."""
    cache, name = new_cache(model, rule), "held"
    cache.add(name)
    for _ in range(0, TEXT, CHUNKS["chunks"]):
        model.forward([10] * 64, cache, cache.plan([name], [64]))
    cache.plan([name], [1])  # gives back what the last step has made too many
    cache.truncate(name, TEXT)
    return cache.memory().payload


def recalled(
    model: Any, rule: Retention | None, distance: int, way: str, trials: int = TRIALS
) -> str:
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


def row(model: Any, rule: Retention | None) -> dict[str, Any]:
    """Everything that the table says about one rule."""
    marks = {w: {str(d): recalled(model, rule, d, w) for d in DISTANCES} for w in CHUNKS}
    loss = bits(model, new_cache(model, rule))
    return {"bits": loss, "bytes": held(model, rule), "recall": marks}


def windowed(model: Any, window: int, full: Collection[int] = ()) -> DenseCache:
    """An empty cache whose layers have a window, except those of `full`."""
    specs: list[LayerSpec] = [
        spec if i in full else replace(spec, window=window)
        for i, spec in enumerate(model.layer_specs)
    ]
    return DenseCache(specs, 1, TEXT, xp=np)


def by_window(model: Any, texts: int = TEXTS) -> dict[str, list[float]]:
    """Bits per byte with one window in all layers: window → bits of each stretch."""
    return {str(w): bits(model, windowed(model, w), texts) for w in WIDE}


def by_full_layer(model: Any, texts: int = TEXTS) -> dict[str, list[float]]:
    """The same with windows of NARROW in all layers but one: that layer → bits."""
    layers = range(len(model.layer_specs))
    return {str(i): bits(model, windowed(model, NARROW, [i]), texts) for i in layers}


def by_sinks(model: Any, texts: int = TEXTS) -> dict[str, dict[str, list[float]]]:
    """Half a stretch in steps of 8 tokens, which let a rule evict often: size → rule → bits."""
    kept: dict[str, dict[str, Retention | None]] = {"all": {"all": None}}
    kept |= {str(n): {"window": Window(n), "sinks": Sinks(4, n - 4)} for n in SHORT}
    return {
        size: {k: bits(model, new_cache(model, r), texts, TEXT // 2, 8) for k, r in pair.items()}
        for size, pair in kept.items()
    }


def table() -> dict[str, Any]:
    """The whole table with its settings; takes about twenty minutes on one core."""
    model = load_reference_model(xp=np)
    found = {"all": {"100": row(model, None)}}
    for share in SHARES:
        for name, rule in rules(TEXT * share // 100).items():
            found.setdefault(name, {})[str(share)] = row(model, rule)
            print(name, share, found[name][str(share)], flush=True)
    return {
        "settings": {
            "text": TEXT,
            "texts": TEXTS,
            "shares": SHARES,
            "distances": DISTANCES,
            "trials": TRIALS,
            "names": 4,
            "chunks": CHUNKS,
            "narrow": NARROW,
        },
        "rows": found,
        "windows": by_window(model),
        "one full layer": by_full_layer(model),
        "sinks": by_sinks(model),
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    text = json.dumps(table(), indent=1)
    text = re.sub(r"\[\s+([\d.,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(f"{OUTPUT.name}: {len(text)} characters written")
