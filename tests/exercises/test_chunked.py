"""Known wrong answers to the exercises on chunks, each refused in the words that fit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.chunked import (
    check_chunk_mask,
    check_fill_step,
    check_online_update,
    check_read_in_chunks,
)

# online_update ------------------------------------------------------------------------------------


def update(
    top: Any,
    total: Any,
    o: Any,
    s: Any,
    v: Any,
    *,
    guard: bool = True,
    shrink_o: float = 1,  # the power of the factor
    shrink_total: float = 1,
    running: bool = True,  # top is the largest of all tiles, not of this one
    keep: bool = True,  # what was summed before
    keep_total: bool = True,
    divide: bool = False,
) -> Any:
    tile_top = s.max(axis=1, keepdims=True)
    new = np.maximum(top, tile_top) if running else tile_top
    safe = np.where(new == -np.inf, 0, new) if guard else new
    shrink, p = np.exp(top - safe), np.exp(s - safe)
    total = keep * keep_total * total * shrink**shrink_total + p.sum(axis=1, keepdims=True)
    o = keep * o * shrink**shrink_o + p @ v
    return new, total, (o / total if divide else o)


def with_(**habits: Any) -> Callable[..., Any]:
    return lambda *args: update(*args, **habits)


def later(**habits: Any) -> Callable[..., Any]:
    """Right for the first tile."""
    return lambda top, total, *rest: update(top, total, *rest, **habits if total.any() else {})


def fixed_top(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    first = np.where(top == -np.inf, s.max(axis=1, keepdims=True), top)
    p = np.exp(s - first)
    return first, total + p.sum(axis=1, keepdims=True), o + p @ v


def in_place(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    new = update(top, total, o, s, v)
    o[...] = new[2]
    return new


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (with_(divide=True), "o was divided by total after the first tile"),
        (later(divide=True), "o was divided by total in the tile"),
        (with_(shrink_o=0), "o was not shrunk"),
        (with_(shrink_total=0), "total was not shrunk although o was"),
        (with_(shrink_o=-1, shrink_total=-1), "total is NaN after the first tile"),
        (later(shrink_o=-1, shrink_total=-1), "o was multiplied by e^(new top - old top), which"),
        (later(shrink_total=-1), "total was multiplied by e^(new top - old top), which grows"),
        (later(keep_total=False), "total holds the last tile alone"),
        (with_(keep=False), "o holds the last tile alone"),
        (with_(running=False), "top fell from"),
        (with_(guard=False), "hidden completely, before any key was seen, gives NaN"),
        (fixed_top, "top after a tile that raises top"),
        (in_place, "changed in place"),
        (lambda *a: update(*a)[1:], "needed (top, total, o)"),
        (lambda *a: tuple(x[:, 0] for x in update(*a)), "top has shape (3,), needed (3, 1)"),
    ],
)
def test_wrong_updates(wrong: Callable[..., Any], message: str) -> None:
    report = check_online_update(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_update() -> None:
    assert check_online_update(update)


# chunk_mask ---------------------------------------------------------------------------------------


def mask(t: int, s: int, shift: int = 0) -> Any:
    return np.tri(t, s, s - t + shift, dtype=bool)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda t, s: np.tri(t, s, dtype=bool), "is in the top left corner"),
        (lambda t, s: np.ones((t, s), bool), "every query sees every key"),
        (lambda t, s: mask(t, s, -1), "a query sees itself"),
        (lambda t, s: mask(t, s, 1), "one too far"),
        (lambda t, s: ~mask(t, s), "exchanged"),
        (lambda t, s: np.arange(s)[None, :] < np.full((t, 1), s - t), "none of its own"),
        (lambda t, s: mask(t, s) & (np.arange(s) >= s - t), "nothing of what is cached"),
        (lambda t, s: mask(t, s).T, "an axis is in the wrong place"),
        (lambda t, s: mask(t, s).astype(np.float32), "float32, needed bool"),
        (lambda t, s: np.tri(t, s, 5, dtype=bool), "T = 1, S = 9"),  # one example's offset
    ],
)
def test_wrong_masks(wrong: Callable[..., Any], message: str) -> None:
    report = check_chunk_mask(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_mask() -> None:
    assert check_chunk_mask(mask)


# read_in_chunks -----------------------------------------------------------------------------------


def bounds(p: int, c: int) -> list[tuple[int, int]]:
    return [(a, min(a + c, p)) for a in range(0, p, c)]


def reads(count: Callable[[int, int], Any], cut: Any = bounds) -> Callable[..., Any]:
    return lambda p, c: (cut(p, c), count(p, c))


def ends(p: int, c: int) -> int:
    return sum(b for _, b in bounds(p, c))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (reads(ends, lambda p, c: [(a, a + c) for a in range(0, p, c)]), "after the prompt's end"),
        (reads(ends, lambda p, c: bounds(p // c * c, c)), "the last 2 tokens are never read"),
        (reads(ends, lambda p, c: [(a, b - a) for a, b in bounds(p, c)]), "(start, length)"),
        (reads(ends, lambda p, c: [(0, b) for _, b in bounds(p, c)]), "12 tokens in chunks of 4"),
        (reads(lambda p, c: p), "what earlier chunks have left in the cache"),
        (reads(lambda p, c: len(bounds(p, c)) * p), "not those of the whole prompt"),
        (reads(lambda p, c: sum(a for a, _ in bounds(p, c))), "a chunk reads its own keys, too"),
        (reads(lambda p, c: p * (p + 1) // 2), "share one read"),
        (reads(lambda p, c: sum((b - a) * b for a, b in bounds(p, c))), "share one read"),
        (reads(lambda p, c: p * (p + c) / (2 * c)), "holds where C divides P"),
        (reads(lambda p, c: ends(p, c) + 1), "needed 30"),
        (lambda p, c: bounds(p, c), "needed (bounds, keys)"),
        (lambda p, c: (len(bounds(p, c)), ends(p, c)), "needed a list of (start, end)"),
    ],
)
def test_wrong_reads(wrong: Callable[..., Any], message: str) -> None:
    report = check_read_in_chunks(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_reads() -> None:
    assert check_read_in_chunks(reads(ends))


# fill_step ----------------------------------------------------------------------------------------


def fill(
    decoding: Any,
    prompts: Any,
    budget: Any,
    *,
    count_decodes: bool = True,
    prompts_first: bool = False,
    most: int = 1,  # prompts in a step
    newest: bool = False,
    zeros: bool = False,
    cut: bool = True,  # never more than is left of the prompt
) -> dict[Any, int]:
    fed = {} if prompts_first else dict.fromkeys(decoding, 1)
    for name in (list(prompts)[::-1] if newest else list(prompts))[:most]:
        used = sum(fed.values()) if count_decodes else 0
        room = prompts[name] if budget is None else budget - used
        n = min(room, prompts[name]) if cut else room
        if n > 0 or zeros:
            fed[name] = n
    if prompts_first:
        for name in decoding:
            if budget is None or sum(fed.values()) < budget:
                fed[name] = 1
    return fed


def filled(**habits: Any) -> Callable[..., Any]:
    return lambda *args: fill(*args, **habits)


def whole_prompt(decoding: Any, prompts: Any, budget: Any) -> Any:
    return fill(decoding, prompts, None)


def forgets_decodes(decoding: Any, prompts: Any, budget: Any) -> Any:
    return {n: t for n, t in fill(decoding, prompts, budget).items() if n in prompts}


def stops_at_three(decoding: Any, prompts: Any, budget: Any) -> Any:
    """Right in every example, and wrong as soon as three requests decode."""
    fed = fill(decoding, prompts, budget)
    if len(decoding) == 3:
        fed = {n: t for n, t in fed.items() if n in decoding}
    return fed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (whole_prompt, "that is the stall"),
        (filled(count_decodes=False), "the step feeds 10 tokens"),
        (filled(prompts_first=True), "decodes go first"),
        (filled(newest=True), "read one prompt at a time, the oldest"),
        (filled(most=2), "a second prompt is begun"),
        (filled(zeros=True), "is fed 0 tokens"),
        (filled(cut=False), "a prompt with less left than room"),
        (forgets_decodes, "a request that decodes is missing"),
        (stops_at_three, "of a small server"),
        (lambda *a: list(fill(*a)), "needed a dict"),
    ],
)
def test_wrong_steps(wrong: Callable[..., Any], message: str) -> None:
    report = check_fill_step(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_step() -> None:
    assert check_fill_step(fill)
