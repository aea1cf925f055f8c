"""The explorers of the chapter on the GPU: splits that fill a device, and one decode, stepped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.words import count_words
from kvlib.kernels.work import handed_out

ROW = 22  # multiprocessors in a row of cells
SPLITS = (1, 2, 4, 8, 16, 32, 49, 64, 128)


def splits_explorer(
    keys: int, num_kv_heads: int, groups: int, head_dim: int, sms: int, per_sm: int
) -> Explorer:
    """A slider over the splits of one request's keys: which places are busy, what the merge costs.

    keys of one request; num_kv_heads, groups (query heads of each), head_dim: of the model;
    sms: multiprocessors, each with room for per_sm blocks. Numbers are of 2 bytes, partial results
    of 4.
    """
    slider = Slider("splits", "Splits of the keys", SPLITS, 1)
    sizes = (keys, num_kv_heads, groups, head_dim, sms, per_sm)
    return Explorer.from_frames(
        "splits", "One request on a device", slider, [_split_scene(n, *sizes) for n in SPLITS]
    )


def _split_scene(
    splits: int, keys: int, heads: int, groups: int, dim: int, sms: int, per_sm: int
) -> dict[str, Any]:
    blocks, each = heads * splits, -(-keys // splits)
    split_words = count_words(splits, "split", "splits")
    waves = -(-blocks // (sms * per_sm))
    read = 2 * keys * heads * dim * 2
    partial = (splits > 1) * splits * heads * groups * (dim + 1) * 4
    placed = min(blocks, sms)
    busiest, share = handed_out([keys], [splits], heads, sms * per_sm)
    idle = f"the {sms * per_sm} places are idle for {share:.0%} of the time"
    return {
        "title": f"{split_words}: {blocks:,} blocks",
        "summary": f"{blocks:,} blocks of {each:,} keys each; the busiest place reads"
        f" {busiest:,} keys, and {idle}. Partial results add {2 * partial / read:.1%} to the"
        " bytes.",
        "formula": [f"{heads} kv heads \u00d7 {split_words} = {blocks:,} blocks"],
        "numbers": [
            {"label": "Keys per block", "text": f"{each:,}"},
            {"label": f"Waves of {sms * per_sm} blocks", "text": f"{waves:,}"},
            {"label": "Keys that the busiest place reads", "text": f"{busiest:,}"},
            {"label": "Idle share of the places' time", "text": f"{share:.0%}"},
            {"label": "Partial results, written and read", "text": f"{2 * partial / read:.1%}"},
        ],
        "panels": [
            {
                "kind": "cells",
                "label": f"{sms} multiprocessors",
                "rows": _rows(placed, sms),
                "legend": [
                    {"role": "muted", "label": "has a block"},
                    {"role": "free", "label": "idle"},
                ],
            },
            {
                "kind": "bars",
                "label": "Bytes moved by one layer, MiB",
                "unit": "MiB",
                "max": read / 2**20 * 1.35,
                "bars": [
                    {"label": "keys and values", "parts": [_part("read once", read, "key")]},
                    {
                        "label": "partial results",
                        "parts": [_part("written, then read", 2 * partial, "muted")],
                    },
                ],
                "marks": [],
            },
        ],
    }


def _part(label: str, size: int, role: str) -> dict[str, Any]:
    return {"label": label, "value": size / 2**20, "role": role}


def _rows(placed: int, sms: int) -> list[dict[str, Any]]:
    roles = ["muted" if i < placed else "free" for i in range(sms)]
    return [{"label": f"from {i}", "cells": roles[i : i + ROW]} for i in range(0, sms, ROW)]


def steps_explorer(blocks: int, steps: int, keys_a_step: int, groups: int) -> Explorer:
    """One kv head's decode, step by step: `blocks` splits of `steps` stretches of keys each.

    groups: groups of lanes in a block, each with a state of its own.
    """
    names = ["launch", *(f"read {i + 1}" for i in range(steps)), "merge in blocks", "merge splits"]
    slider = Slider("step", "Step", range(len(names)), 0, texts=names)
    frames = [_step_scene(i, names, blocks, steps, keys_a_step, groups) for i in range(len(names))]
    return Explorer.from_frames("decode_steps", "One kv head, step by step", slider, frames)


def _step_scene(
    at: int, names: Sequence[str], blocks: int, steps: int, each: int, groups: int
) -> dict[str, Any]:
    done = min(at, steps)
    states = [blocks * groups, blocks, 1][max(0, at - steps)] if at else 0
    words = {
        0: f"{blocks} blocks start. Each computes its first and last key.",
        steps + 1: f"The {groups} groups of each block merge, by shuffles in a warp, then through"
        " shared memory.",
        steps + 2: f"A second kernel merges the {blocks} splits: one (o, lse) is left.",
    }.get(
        at, f"Each group of lanes loads {each // groups} keys and values, then updates (m, l, o)."
    )
    rows = []
    for b in range(blocks):
        role = ["cached" if i < done else "free" for i in range(steps)]
        if 0 < at <= steps:
            role[at - 1] = "muted"
        rows.append({"label": f"block {b}", "cells": role})
    return {
        "title": f"Step {at} of {len(names) - 1}: {names[at]}",
        "summary": words,
        "formula": [f"{blocks} blocks \u00d7 {groups} groups = {blocks * groups} online softmaxes"],
        "numbers": [
            {"label": "Keys read", "text": f"{done * blocks * each:,}"},
            {"label": "Partial results (m, l, o)", "text": f"{states:,}"},
        ],
        "panels": [
            {
                "kind": "cells",
                "label": f"One row per block, {each} keys per square",
                "rows": rows,
                "legend": [
                    {"role": "cached", "label": "read"},
                    {"role": "muted", "label": "on its way"},
                    {"role": "free", "label": "not yet"},
                ],
            }
        ],
    }
