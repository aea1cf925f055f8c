"""Exercises of the chapter on chunks."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kvbook.exercises.cached import tiny_model
from kvbook.exercises.checker import Checker, Draws, Seen
from kvbook.exercises.expect import expect_equal
from kvlib.serve import DECODING, DONE, Scheduler

# -------------------------------------------------------------------------------------- chunk_mask


def chunk_mask(t: int, s: int) -> Any:
    """chunk_mask(T, S) → (T, S) bool: which keys do the last T of S tokens see?"""
    return np.tri(t, s, s - t, dtype=bool)


check_chunk_mask = Checker(
    chunk_mask,
    letters="query key",
    typed=True,
    stages={
        "query i is at position S − T + i and sees all keys up to its own": [(3, 8)],
        "the same for a decode, a whole prompt and a chunk of any length": Draws(
            lambda rng: [(1, 1), (1, 9), (4, 4), *np.sort(rng.integers(1, 20, (5, 2))).tolist()]
        ),
    },
    mistakes={
        "query 0 sees key 0 alone: the triangle is in the top left corner, as if the chunk began "
        "the prompt. Query i is at position S − T + i": "s, s - t → s, 0",
        "every query sees every key, also those after it": "s - t → s",
        "query 0, at position 5, does not see key 5, but a query sees itself": "s - t → s - t - 1",
        "query 0, at position 5, sees key 6, which is one too far": "s - t → s - t + 1",
        "True and False are exchanged: True means that a query may see a key": "np.tri → ~np.tri",
        "the queries see what is cached, but no key of their own chunk": (
            "bool) → bool) & (np.arange(s) < s - t)"
        ),
        "the queries see their own chunk, but nothing of what is cached": (
            "bool) → bool) & (np.arange(s) >= s - t)"
        ),
    },
    refused={"chunk_mask(1, 9): query 0, key 6": "s - t → 5"},
)


# ----------------------------------------------------------------------------------- online_update


def online_update(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    """online_update(top (T, 1), total (T, 1), o (T, D), s (T, n), v (n, D)) → top, total, o."""
    new = np.maximum(top, s.max(axis=1, keepdims=True))
    safe = np.where(np.isneginf(new), 0, new)
    shrink, p = np.exp(top - safe), np.exp(s - safe)
    return new, total * shrink + p.sum(axis=1, keepdims=True), o * shrink + p @ v


def _inputs() -> Any:
    """Nothing seen yet (top, total, o), scores (3, 8) and values (8, 4): tile 1 raises top."""
    rng = np.random.default_rng(5)
    s, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (8, 4)))
    s[:, 4:] += 3
    top, total = np.full((3, 1), -np.inf, np.float32), np.zeros((3, 1), np.float32)
    return (top, total, np.zeros((3, 4), np.float32)), s, v


_right: Any = online_update


def _tile(seen: int, end: int, lower: int, update: Any) -> Iterator[Seen]:
    state, s, v = _inputs()
    if seen:
        state = _right(*state, s[:, :seen], v[:seen])
    new = slice(end - 4, end)
    yield f"after a tile, with {seen} keys seen", update(*state, s[:, new] - lower, v[new])


def _hidden(update: Any) -> Iterator[Seen]:
    empty, s, v = _inputs()
    hidden, seen = np.full((3, 4), -np.inf, np.float32), _right(*empty, s[:, :4], v[:4])
    yield "after a hidden tile, before any key was seen", update(*empty, hidden, v[:4])
    yield "after a hidden tile, later on", update(*seen, hidden, v[:4])
    # query 0 has seen no key and sees none, 1 has and sees none, 2 has not and sees some
    mixed = (np.where([[0], [1], [0]], x, y) for x, y in zip(seen, empty, strict=True))
    hidden[2] = s[2, 4:]
    yield "after a tile that query 2 alone sees", update(*mixed, hidden, v[4:])


def _in_tiles(update: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(5)
    v = rng.standard_normal((20, 8)).astype(np.float32)
    s = (30 * rng.standard_normal((20, 20))).astype(np.float32)
    s[~np.tri(20, dtype=bool)] = -np.inf
    for tile in (1, 7, 20):
        state = np.full((20, 1), -np.inf, np.float32), np.zeros((20, 1), np.float32), 0 * v
        for a in range(0, 20, tile):
            state = update(*state, s[:, a : a + tile], v[a : a + tile])
            yield f"after {a + tile} keys in tiles of {tile}", state


check_online_update = Checker(
    online_update,
    names=("top", "total", "o"),
    letters="T D",
    stages={
        "one tile gives its largest score, its sum and its weighted values": partial(
            _tile, 0, 4, 0
        ),
        "a tile that raises top shrinks what was summed before": partial(_tile, 4, 8, 0),
        "a tile of very low scores changes nothing": partial(_tile, 8, 4, 200),
        "a tile that is hidden completely changes nothing, first or later": _hidden,
        "tiles of 1, 7 and 20 keys give the same": _in_tiles,
    },
    mistakes={
        "the old top is −inf: e^(old top − new top) is 0, but e^(new top − old top) is infinite": (
            "np.exp(top - safe) → np.exp(safe - top)"
        ),
        "the weights of the tile are e^s: subtract top from the scores first": (
            "np.exp(top - safe), np.exp(s - safe) → 1, np.exp(s)"
        ),
        "o was divided by total: keep the sum, and divide once, after the last tile": (
            "o * shrink + p @ v → (o * shrink + p @ v) / (total * shrink + p.sum(1)[:, None])"
        ),
        "o was not shrunk: multiply the old sum by e^(old top − new top)": "o * shrink → o",
        "total was not shrunk, but it is in units of e^(old top), too": "total * shrink → total",
        "what was summed must shrink, by e^(old top − new top), but it grew": [
            "o * shrink → o / (shrink + (shrink == 0))",
            "total * shrink → total / (shrink + (shrink == 0))",
        ],
        "this is the last tile alone: add it to the old sum": [
            "o * shrink + → ",
            "total * shrink + → ",
            ("o * shrink + → ", "total * shrink + → "),
        ],
        "this tile was shrunk, too, but only the old sum is in units of e^(old top)": (
            "return → p = p * (shrink + (shrink == 0)); return"
        ),
        "the old sum was shrunk twice": "return → shrink = shrink**2; return",
        "top must be the largest score of all tiles so far": [
            "np.maximum(top, s.max(axis=1, keepdims=True)) → s.max(axis=1, keepdims=True)",
            "np.maximum(top, → np.where(top > -np.inf, top,",
        ],
        "the tile's own top was subtracted, but its weights are e^(s − new top)": (
            "np.exp(s - safe) → np.exp(s - s.max(axis=1, keepdims=True))"
        ),
        "top is still −inf, and −inf minus −inf is NaN: subtract 0 where top is −inf": (
            "np.isneginf(new), 0, → False, 0,"
        ),
        "each query has a top of its own: subtract 0 where it is −inf": [
            "np.isneginf(new), 0, → np.isneginf(new).all(), 0,",
            "np.isneginf(new), 0, → np.isneginf(new) & np.isneginf(top).all(), 0,",
        ],
    },
    refused={"argument 3 of online_update was": "o * shrink → np.multiply(o, shrink, out=o)"},
)


# ---------------------------------------------------------------------------------- read_in_chunks


def read_in_chunks(p: int, c: int) -> Any:
    """read_in_chunks(P, C) → [(start, end), ...], and how many keys a layer reads for them."""
    bounds = np.array([(a, min(a + c, p)) for a in range(0, p, c)])
    return bounds, int(bounds[:, 1].sum())


_KEYS = "int(bounds[:, 1].sum()) →"
check_read_in_chunks = Checker(
    read_in_chunks,
    names=("bounds", "keys"),
    letters="chunk bound",
    stages={
        "chunks cover the prompt, and each reads the keys of all chunks up to itself": [(12, 3)],
        "a last chunk may be shorter": [(10, 4), (7, 7), (3, 8), (9, 1)],
        "the same for any prompt": Draws(
            lambda rng: [(24, 8), (7, 3), *rng.integers((5, 2), (30, 12), (5, 2)).tolist()]
        ),
    },
    mistakes={
        "the last chunk ends after the prompt's end": "min(a + c, p) → a + c",
        "the last tokens are never read: round the number of chunks up": (
            "range(0, p, c) → range(0, max(c, p // c * c), c)"
        ),
        "this is (start, length)": "return bounds → return bounds - bounds[:, :1] * [0, 1]",
        "a chunk also reads what earlier chunks have cached": f"{_KEYS} p",
        "a chunk reads the keys up to its own end, not those of the whole prompt": (
            f"{_KEYS} len(bounds) * p"
        ),
        "a chunk reads its own keys, too": f"{_KEYS} int(bounds[:, 0].sum())",
        "these are (query, key) pairs, but all queries of a chunk share one read": [
            f"{_KEYS} p * (p + 1) // 2",
            f"{_KEYS} int((bounds[:, 1] @ np.diff(bounds))[0])",
        ],
        "the formula P (P + C) / (2 C) holds where C divides P": f"{_KEYS} p * (p + c) / (2 * c)",
    },
    refused={
        "bounds: chunk 1, bound 0 is 0, needed 3": "return bounds → return bounds * [0, 1]",
        "keys: got 31, needed 30": f"{_KEYS} int(bounds[:, 1].sum()) + 1",
    },
)


# --------------------------------------------------------------------------------------- fill_step


def fill_step(decoding: list[str], prompts: dict[str, int], budget: int | None) -> Any:
    """fill_step(decoding, prompts, budget) → {name: tokens}: what one step is fed."""
    fed = dict.fromkeys(decoding, 1)
    for name, left in list(prompts.items())[:1]:
        room = left if budget is None else budget - len(fed)
        if min(room, left) > 0:
            fed[name] = min(room, left)
    return fed


def _played(fill_step: Any) -> Iterator[Seen]:
    """Every step of kvlib's scheduler, on requests of (tokens of the prompt, new tokens)."""
    drawn = np.random.default_rng(8).integers((2, 2), (22, 9), (4, 2)).tolist()
    for lengths in ([(2, 9), (4, 12), (21, 3), (7, 2)], drawn):
        model = tiny_model()
        scheduler = Scheduler(model, model.new_cache(4, 64), budget=6, stop_tokens=())
        for name, (n, new) in zip("abcd", lengths, strict=True):
            scheduler.add(name, list(range(1, n + 1)), new)
        while scheduler.busy:
            requests, cache = scheduler.requests.values(), scheduler.cache
            decoding = [r.name for r in requests if r.state == DECODING]
            waiting = [r for r in requests if r.state not in (DECODING, DONE)]
            held = {name: cache.seq_len(name) for name in cache.seq_ids}
            prompts = {r.name: len(r.prompt) - held.get(r.name, 0) for r in waiting}
            fed, what = fill_step(decoding, prompts, 6), f"{decoding} decode, unread {prompts}"
            yield f"{what}, a budget of 6", fed
            done = [e for e in scheduler.step() if e.kind in ("prefill", "decode")]
            expect_equal(fed, {e.request: e.tokens for e in done}, "kvlib's scheduler")


check_fill_step = Checker(
    fill_step,
    stages={
        "each request that decodes gets a token, and the oldest prompt what remains of the "
        "budget": [(["a", "b"], {"c": 30, "d": 5}, 8)],
        "this also holds if a prompt is nearly read, if there is no prompt, if no request decodes, "
        "if decodes fill the budget, and if there is no budget": [
            (["a"], {"c": 3, "d": 9}, 8),
            (["a", "b"], {}, 8),
            *(([], {"c": 30}, 8), (["a", "b"], {"c": 30}, 2), ([], {"c": 30}, 0)),
            (["b"], {"c": 9, "a": 9}, 5),
            (["a"], {"c": 30, "d": 5}, None),
        ],
        "it agrees with all steps of kvlib's scheduler on four requests": _played,
    },
    mistakes={
        "the prompt is read in one step: that is the stall, which a budget prevents": (
            "budget - len(fed) → left"
        ),
        "the step feeds more than the budget: the decodes count, too": "budget - len(fed) → budget",
        "the prompt took the budget of requests that decode: decodes go first": (
            "fed = dict.fromkeys(decoding, 1) → fed = {}",
            "return fed → return fed | dict.fromkeys(decoding[: budget - sum(fed.values())], 1)",
        ),
        "read one prompt at a time, the oldest": "[:1] → [-1:]",
        "a step reads one prompt only": ("[:1] → [:2]", "len(fed) → sum(fed.values())"),
        "leave out a request that is fed nothing": "if min(room, left) > 0 → if True",
        "a prompt need not fit as a whole: feed a part": "min(room, left) > 0 → left <= room",
        "each request that decodes gets a token": (
            "return fed → return {name: fed[name] for name in prompts if name in fed}"
        ),
        "the dict holds the oldest prompt first": "list(prompts.items()) → sorted(prompts.items())",
    },
    refused={
        "got {'a': 1, 'c': 7}, needed": "= min(room, left) → = room",
        "got {'c': 30}, needed {}": "if budget is None → if not budget",
        "a budget of 6": "room, left) > 0 → room, left) > 0 and len(decoding) < 3",
    },
)
