"""The explorer over budgets: schedules of the same requests, a scene for each budget."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.axes import axis_counts
from kvbook.figures.chunked_schedule import Events, fed_before, first_token, passes_of
from kvlib.serve import waits


def budget_explorer(runs: Mapping[int, Events], prompt: Hashable) -> Explorer:
    """A slider over budgets: {budget: events of the same requests}, the last one without limit.

    prompt names the request whose prompt is read in chunks. As cells a request's row has a square
    for each step, a line shows the tokens of each step, and as bars stand the longest waits.
    ValueError for fewer than two budgets.
    """
    budgets = list(runs)
    fed = {b: fed_before(events) for b, events in runs.items()}
    most = {
        "steps": max(len(f) - 1 for f in fed.values()),
        "tokens": max(y - x for f in fed.values() for x, y in zip(f, f[1:], strict=False)),
        "wait": max(first_token(events, prompt) for events in runs.values()),
    }
    texts = [f"{b:,} tokens per step" for b in budgets[:-1]] + ["no budget"]
    slider = Slider("budget", "Budget", budgets, budgets[0], texts=texts)
    scenes = [_scene(runs[b], prompt, text, most) for b, text in zip(budgets, texts, strict=True)]
    return Explorer.from_frames("chunks", "A budget per step", slider, scenes)


def _scene(events: Events, prompt: Hashable, text: str, most: Mapping[str, int]) -> dict[str, Any]:
    gaps = {n: w for n, w in waits(events).items() if n != prompt}
    longest, first = max(max(w) for w in gaps.values()), first_token(events, prompt)
    fed = fed_before(events)
    read = [e for e in events if e.kind == "prefill" and e.request == prompt]
    length, chunk, at = sum(e.tokens for e in read), read[0].tokens, read[0].step
    in_step = fed[at + 1] - fed[at]
    how = f"in {len(read)} chunks" if len(read) > 1 else "whole"
    return {
        "title": f"{text[0].upper()}{text[1:]}: the prompt is read {how}",
        "summary": f"The prompt of {length:,} tokens is read {how}. Between two tokens of a"
        f" decoding request, at most {longest:,} tokens are fed. The first token after the prompt"
        f" comes when {first:,} have been fed.",
        "formula": [
            f"a step that reads: {in_step:,} tokens \u2212 {in_step - chunk} that decode"
            f" = {chunk:,} of the prompt"
        ],
        "numbers": [
            {"label": "Steps", "text": f"{len(fed) - 1:,}"},
            {"label": "Longest gap of a decode", "text": f"{longest:,} tokens"},
            {"label": "Fed until the prompt's first token", "text": f"{first:,} tokens"},
        ],
        "panels": [
            _cells(events, len(fed) - 1),
            _steps(fed, most),
            _bars(gaps, prompt, first, most),
        ],
    }


def _cells(events: Events, steps: int) -> dict[str, Any]:
    """One row per request, one square per step in which it took part."""
    rows: dict[Hashable, list[str]] = {}
    for e in passes_of(events):
        row = rows.setdefault(e.request, [""] * steps)
        row[e.step] = "query" if e.kind == "prefill" else "cached"
    return {
        "kind": "cells",
        "label": "One row per request, one square per step",
        "rows": [{"label": str(name), "cells": row} for name, row in rows.items()],
        "legend": [
            {"role": "query", "label": "reads its prompt"},
            {"role": "cached", "label": "decodes a token"},
        ],
    }


def _steps(fed: Sequence[int], most: Mapping[str, int]) -> dict[str, Any]:
    """The tokens of each step: how long every request waits for its end."""
    line = [[i + end, fed[i + 1] - fed[i]] for i in range(len(fed) - 1) for end in (0, 1)]
    return {
        "kind": "curves",
        "label": "Tokens in each step: every request waits for all of them",
        "x": axis_counts("step", most["steps"]),
        "y": axis_counts("tokens", most["tokens"]),
        "lines": [{"label": "", "role": "ink", "points": line, "dashed": False}],
        "points": [],
    }


def _bars(
    gaps: Mapping[Hashable, Sequence[int]], prompt: Hashable, first: int, most: Mapping[str, int]
) -> dict[str, Any]:
    """The longest wait of each request that decodes, and of the prompt for its first token."""
    bars = []
    for name, found in gaps.items():
        part = {"label": "between two tokens", "value": max(found), "role": "cached"}
        bars.append({"label": f"{name}: longest gap", "parts": [part]})
    waited = {"label": "for the first token", "value": first, "role": "query"}
    bars.append({"label": f"{prompt}: first token", "parts": [waited]})
    return {
        "kind": "bars",
        "label": "Waiting, in tokens fed to all requests",
        "unit": "tokens",
        "max": most["wait"] * 1.05,
        "bars": bars,
        "marks": [],
    }
