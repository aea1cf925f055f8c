"""Answers on chunks that passed once and must not, and right ones of other forms."""

from __future__ import annotations

import math
from collections import Counter
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

f32 = np.float32


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet" and message in report.finding, report


# online_update ------------------------------------------------------------------------------------


def update(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    """Key by key, query by query."""
    top, total, o = top.copy(), total.copy(), o.copy()
    for i, j in np.ndindex(s.shape):
        new = max(float(top[i, 0]), float(s[i, j]))
        if new > -math.inf:
            shrink, p = math.exp(float(top[i, 0]) - new), math.exp(float(s[i, j]) - new)
            total[i] = total[i] * shrink + p
            o[i], top[i] = o[i] * shrink + p * v[j], new
    return [top, total, o]


def unguarded(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    new = np.maximum(top, s.max(axis=1, keepdims=True))
    shrink, p = np.exp(top - new), np.exp(s - new)
    return new, total * shrink + p.sum(axis=1, keepdims=True), o * shrink + p @ v


def all_or_none(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    hidden = np.isneginf(s).all()
    return (top, total, o) if hidden else unguarded(top, total, o, s, v)


def first_or_later(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    if np.isneginf(top).all():
        return update(top, total, o, s, v)
    return unguarded(top, total, o, s, v)


def own_top(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    new = update(top, total, o, s, v)
    own = s.max(axis=1, keepdims=True)
    p = np.exp(s - np.where(np.isneginf(own), 0, own))
    shrink = np.exp(top - np.where(np.isneginf(new[0]), 0, new[0]))
    return new[0], total * shrink + p.sum(axis=1, keepdims=True), o * shrink + p @ v


def shrinks(old: float, tile: float) -> Callable[..., Any]:
    """What is there before and what a tile adds, times powers of the factor."""

    def wrong(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
        new = np.maximum(top, s.max(axis=1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        factor = np.where(np.isneginf(top), 1, np.exp(top - safe))
        p = np.exp(s - safe) * factor**tile
        factor = factor**old
        return new, total * factor + p.sum(axis=1, keepdims=True), o * factor + p @ v

    return wrong


def no_top(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    p = np.exp(s)
    new = np.maximum(top, s.max(axis=1, keepdims=True))
    return new, total + p.sum(axis=1, keepdims=True), o + p @ v


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (all_or_none, "query 0, which has seen no key yet, gives NaN"),
        (first_or_later, "Each query has a top of its own"),
        (own_top, "its own top was subtracted"),
        (shrinks(2, 0), "the old total was shrunk twice"),
        (shrinks(1, 1), "the part of this tile was shrunk, too"),
        (no_top, "subtract top from the scores first"),
        (lambda *a: tuple(x.astype(complex) for x in update(*a)), "dtype complex128"),
        (lambda *a: tuple(np.full(x.shape, None) for x in a[:3]), "dtype object"),
        (lambda *a: tuple(np.full(x.shape, "x") for x in a[:3]), "dtype <U1"),
    ],
)
def test_updates_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_online_update(wrong), message)


def zero_for_nan(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    new = np.concatenate([top, s], axis=1).max(axis=1)[:, None]
    shrink, p = (np.nan_to_num(np.exp(x - new), nan=0.0) for x in (top, s))
    return new, total * shrink + p.sum(axis=1)[:, None], o * shrink + np.einsum("tn,nd->td", p, v)


@pytest.mark.parametrize("right", [update, zero_for_nan])
def test_updates_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_online_update(right)


# chunk_mask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "right",
    [
        lambda t, s: np.array([[j <= s - t + i for j in range(s)] for i in range(t)]),
        lambda t, s: np.tril(np.ones((s, s), bool))[s - t :],
        lambda t, s: np.hstack([np.ones((t, s - t), bool), np.tri(t, dtype=bool)]),
    ],
)
def test_masks_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_chunk_mask(right)


# read_in_chunks -----------------------------------------------------------------------------------


def read(p: int, c: int) -> tuple[list[Any], int]:
    bounds, start, keys = [], 0, 0
    while start < p:
        end = min(p, start + c)
        bounds.append((start, end))
        start, keys = end, keys + end
    return bounds, keys


def changed(bound: Any = lambda a, b: (a, b), keys: Any = lambda n: n) -> Callable[..., Any]:
    def wrong(p: int, c: int) -> Any:
        bounds, n = read(p, c)
        return [bound(*pair) for pair in bounds], keys(n)

    return wrong


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (changed(lambda a, b: (a + 0.7, b + 0.7)), "the start of chunk 0: got 0.7 (float)"),
        (changed(lambda a, b: (a, None)), "the end of chunk 0: got None"),
        (changed(lambda a, b: a), "chunk 0 is 0 (int), needed a pair"),
        (changed(lambda a, b: ()), "chunk 0 is () (tuple), needed a pair"),
        (changed(lambda a, b: (a, b, 1)), "needed a pair (start, end)"),
        (changed(slice), "returned a tuple with a slice in it, needed plain data"),
        (changed(lambda a, b: f"{a}-{b}"), "chunk 0 is '0-4' (str), needed a pair"),
        (changed(lambda a, b: (a, b - 1)), "chunk 0 is (0, 3), needed (0, 4)"),
        (changed(keys=lambda n: math.inf), "got inf, needed 30"),
        (changed(keys=lambda n: math.nan), "got nan, needed 30"),
        (changed(keys=lambda n: None), "got None, needed a whole number"),
        (changed(keys=str), "got '30' (str), needed a whole number"),
        (changed(keys=lambda n: [n]), "got [30] (list), needed a whole number"),
    ],
)
def test_chunks_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_read_in_chunks(wrong), message)


def on_arrays(p: int, c: int) -> Any:
    ends = np.minimum(np.arange(0, p, c) + c, p)
    return [list(pair) for pair in zip(np.arange(0, p, c), ends, strict=True)], float(ends.sum())


def rows_of_an_array(p: int, c: int) -> Any:
    bounds, keys = read(p, c)
    return list(np.array(bounds)), np.int64(keys)


@pytest.mark.parametrize("right", [read, on_arrays, rows_of_an_array])
def test_chunks_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_read_in_chunks(right)


# fill_step ----------------------------------------------------------------------------------------


def fill(decoding: Any, prompts: Any, budget: Any) -> Any:
    """The prompt first, then the decodes, last to first."""
    fed = {}
    for name in prompts:
        left = prompts[name] if budget is None else min(prompts[name], budget - len(decoding))
        if left:
            fed[name] = np.int64(left)
        break
    return fed | dict.fromkeys(reversed(decoding), 1)


def counted(decoding: Any, prompts: Any, budget: Any) -> Any:
    fed = Counter(decoding)
    room = (math.inf if budget is None else budget) - fed.total()
    for name, left in list(prompts.items())[:1]:
        fed += Counter({name: min(room, left)})
    return fed


def takes_it_out(decoding: Any, prompts: Any, budget: Any) -> Any:
    fed = fill(decoding, prompts, budget)
    for name in set(prompts) & set(fed):
        prompts[name] -= fed[name]
    return fed


def by_name(decoding: Any, prompts: Any, budget: Any) -> Any:
    return fill(decoding, dict(sorted(prompts.items())), budget)


def values(make: Callable[[int], Any]) -> Callable[..., Any]:
    return lambda *a: {name: make(int(n)) for name, n in fill(*a).items()}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (takes_it_out, "argument 2 of takes_it_out was changed"),
        (lambda names, *a: (fill(names, *a), names.clear())[0], "argument 1 of <lambda> was"),
        (by_name, "a is fed and c, which is older, is not"),
        (lambda names, prompts, budget: fill(names, prompts, budget or None), "a budget of 0"),
        (values(lambda n: n + 0.4), "the tokens of c: got 6.4 (float)"),
        (values(lambda n: None), "the tokens of c: got None"),
        (values(lambda n: [n]), "the tokens of c: got [6] (list)"),
        (values(str), "the tokens of c: got '6' (str)"),
    ],
)
def test_steps_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_fill_step(wrong), message)


@pytest.mark.parametrize("right", [fill, counted])
def test_steps_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_fill_step(right)
