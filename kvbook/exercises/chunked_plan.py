"""Checkers of what chunks read, and of what one step of a server is fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.cached import tiny_model
from kvbook.exercises.received import shown, whole
from kvbook.exercises.report import Finding, checker, expect_equal
from kvlib.meter import Meter
from kvlib.serve import DECODING, DONE, Scheduler


@checker
def check_read_in_chunks(read_in_chunks: Callable[..., Any]) -> Iterator[str]:
    """read_in_chunks(P, C) → [(start, end), ...], and how many keys a layer reads for them."""
    bounds, keys = _two(read_in_chunks(12, 4))
    _expect_bounds(bounds, 12, 4)
    yield "the chunks follow each other and cover the prompt"

    for p, c in ((10, 4), (7, 7), (3, 8), (9, 1)):
        _expect_bounds(_two(read_in_chunks(p, c))[0], p, c)
    yield "a last chunk may be shorter"

    keys = _two(read_in_chunks(12, 3))[1]
    suspects = {
        12: "a chunk also reads what earlier chunks have left in the cache",
        48: "a chunk reads the keys up to its own end, not those of the whole prompt",
        18: "a chunk reads its own keys, too",
        78: "these are (query, key) pairs, but all queries of a chunk share one read",
        90: "these are (query, key) pairs, but all queries of a chunk share one read",
    }
    if _keys(keys) in suspects:
        raise Finding(f"keys read for 12 tokens in chunks of 3: got {keys}: {suspects[int(keys)]}")
    expect_equal(keys, 3 + 6 + 9 + 12, "keys read for 12 tokens in chunks of 3")
    yield "chunk j reads the keys of all chunks up to itself"

    drawn = np.random.default_rng(7).integers((5, 2), (30, 12), (3, 2)).tolist()
    for p, c in ((24, 8), (10, 4), (7, 3), (5, 9), *drawn):
        _expect_bounds(_two(read_in_chunks(p, c))[0], p, c)
        got, needed = _keys(_two(read_in_chunks(p, c))[1]), _counted(p, c)
        ragged = " (the formula P(P+C)/(2C) holds where C divides P)" if p % c else ""
        expect_equal(got, needed, f"keys of {p} tokens in chunks of {c}", why="counted" + ragged)
    yield "the number of keys is what a meter counts when kvlib's model reads such chunks"


def _two(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Finding(f"read_in_chunks returned {type(result).__name__}, needed (bounds, keys)")
    bounds, keys = result
    if isinstance(keys, float | np.floating) and np.isfinite(keys) and keys == int(keys):
        keys = int(keys)
    if not isinstance(bounds, list | tuple):
        raise Finding(f"bounds is {type(bounds).__name__}, needed a list of (start, end)")
    pairs = []
    for i, pair in enumerate(bounds):
        pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Finding(f"chunk {i} is {shown(pair)}, needed a pair (start, end)")
        what = ("the start", "the end")
        pairs.append(tuple(whole(x, f"{w} of chunk {i}") for x, w in zip(pair, what, strict=True)))
    return pairs, keys


def _keys(keys: Any) -> int | float:
    """A number of keys; one that is not whole stays as it is, for the comparison to show it."""
    return float(keys) if isinstance(keys, float | np.floating) else whole(keys, "keys read")


def _expect_bounds(bounds: list[tuple[int, ...]], p: int, c: int) -> None:
    what = f"{p} tokens in chunks of {c}"
    needed = [(a, min(a + c, p)) for a in range(0, p, c)]
    if bounds == needed:
        return
    if bounds and bounds[-1][-1] > p:
        raise Finding(f"{what}: the last chunk ends at {bounds[-1][-1]}, after the prompt's end")
    if p % c and bounds == needed[:-1]:
        raise Finding(
            f"{what}: the last {p % c} tokens are never read: round the number of chunks up"
        )
    if bounds == [(a, b - a) for a, b in needed]:
        raise Finding(f"{what}: got (start, length), needed (start, end)")
    for i, (got, right) in enumerate(zip(bounds, needed, strict=False)):
        if got != right:
            raise Finding(f"{what}: chunk {i} is {got}, needed {right}: (start, end), end excluded")
    expect_equal(len(bounds), len(needed), f"{what}: how many chunks")


def _counted(p: int, c: int) -> int:
    """Keys a layer reads, from the bytes a meter counts."""
    model = tiny_model()
    cache = model.new_cache(1, 64)
    cache.add(0)
    with Meter() as meter:
        for a in range(0, p, c):
            n = min(c, p - a)
            model.forward([1] * n, cache, cache.plan([0], [n]))
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in model.layer_specs)
    return meter.by_label["attention"].read // a_token


@checker
def check_fill_step(fill_step: Callable[..., Any]) -> Iterator[str]:
    """fill_step(decoding, prompts, budget) → {name: tokens}: what one step is fed."""
    decoding, prompts = ["a", "b"], {"c": 30, "d": 5}
    fed = _fed(fill_step, decoding, prompts, 8)
    _expect_first(fed)
    yield "each request that decodes gets a token, and the oldest prompt what is left of the budget"

    cases = {
        "a prompt with less left than room": (["a"], {"c": 3, "d": 9}, 8, {"a": 1, "c": 3}),
        "no prompt": (["a", "b"], {}, 8, {"a": 1, "b": 1}),
        "no request decodes": ([], {"c": 30}, 8, {"c": 8}),
        "decodes that fill the budget": (["a", "b"], {"c": 30}, 2, {"a": 1, "b": 1}),
        "a budget of 0": ([], {"c": 30}, 0, {}),
        "names that are not in order, c first": (["b"], {"c": 9, "a": 9}, 5, {"b": 1, "c": 4}),
        "no budget (None)": (["a"], {"c": 30, "d": 5}, None, {"a": 1, "c": 30}),
    }
    for words, (names, left, budget, needed) in cases.items():
        got = _fed(fill_step, names, left, budget)
        if 0 in got.values():
            raise Finding(f"{words}: a request is fed 0 tokens; leave it out")
        if sum(name in got for name in left) > 1:
            raise Finding(f"{words}: a second prompt is begun, but a step reads one prompt only")
        oldest = next(iter(left), None)
        later = [name for name in left if name in got and name != oldest]
        if later and oldest not in got:
            raise Finding(
                f"{words}: {later[0]} is fed and {oldest}, which is older, is not; the dict holds "
                "the oldest prompt first"
            )
        expect_equal(got, needed, words)
    yield (
        "this also holds if a prompt is nearly read, if there is no prompt, if no request decodes, "
        "if decodes fill the budget, and if there is no budget"
    )

    lengths = {"a": (2, 9), "b": (4, 12), "c": (21, 3), "d": (7, 2)}
    steps = _play(fill_step, lengths)
    drawn = np.random.default_rng(8).integers((2, 2), (22, 9), (4, 2)).tolist()
    _play(fill_step, dict(zip("abcd", drawn, strict=True)))
    yield f"it agrees with all {steps} steps of kvlib's scheduler on four requests"


def _fed(
    fill_step: Callable[..., Any], decoding: Sequence[Any], prompts: Mapping[Any, int], budget: Any
) -> dict[Any, int]:
    result = fill_step(list(decoding), dict(prompts), budget)
    if not isinstance(result, dict):
        raise Finding(f"fill_step returned {type(result).__name__}, needed a dict")
    return {name: whole(n, f"the tokens of {name}") for name, n in result.items()}


def _expect_first(fed: dict[Any, int]) -> None:
    """Two decodes, prompts of 30 and 5 tokens, a budget of 8."""
    total = sum(fed.values())
    if fed.get("c") == 30:
        raise Finding(
            "c is fed all of its 30 tokens: that is the stall, which a budget of 8 prevents"
        )
    if fed.get("c") == 8 and total > 8:
        raise Finding(f"the step feeds {total} tokens, but the budget is 8: the decodes count, too")
    if fed.get("c") == 8:
        raise Finding("the prompt has taken the whole budget and a and b wait: decodes go first")
    if fed.get("d") and not fed.get("c"):
        raise Finding(
            "d is fed and c, which came before it, is not: read one prompt at a time, the oldest. "
            "It need not fit as a whole; feed a chunk of it"
        )
    if fed.get("d"):
        raise Finding("d is fed although c came before it: read one prompt at a time, the oldest")
    if {"a", "b"} - set(fed):
        raise Finding("a request that decodes is missing: each gets 1 token per step")
    if not fed.get("c"):
        raise Finding(
            "c is fed nothing although 6 tokens of the budget are left: a prompt need not fit as a "
            "whole; feed a chunk of it"
        )
    expect_equal(fed, {"a": 1, "b": 1, "c": 6}, "two decodes, prompts of 30 and 5, a budget of 8")


def _play(fill_step: Callable[..., Any], lengths: Mapping[str, Sequence[int]]) -> int:
    """Compare every step of kvlib's scheduler with fill_step; returns how many there were.

    lengths: name → tokens of the prompt, tokens of the answer.
    """
    model = tiny_model()
    scheduler = Scheduler(model, model.new_cache(4, 64), budget=6, stop_tokens=())
    for name, (n, new) in lengths.items():
        scheduler.add(name, list(range(1, n + 1)), new)
    steps = 0
    while scheduler.busy:
        requests = scheduler.requests.values()
        decoding = [r.name for r in requests if r.state == DECODING]
        held = {s: scheduler.cache.seq_len(s) for s in scheduler.cache.seq_ids}
        prompts = {
            r.name: len(r.prompt) - held.get(r.name, 0)
            for r in requests
            if r.state not in (DECODING, DONE)
        }
        mine = _fed(fill_step, decoding, prompts, 6)
        done = [e for e in scheduler.step() if e.kind in ("prefill", "decode")]
        expect_equal(mine, {e.request: e.tokens for e in done}, f"step {steps} of a small server")
        steps += 1
    return steps
