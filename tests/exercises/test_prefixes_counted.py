"""What the shared part of a cascade is read, as counters say, and the counters themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvlib
from kvbook.exercises.counted import Reads, Watched, kept_watched, python_steps
from kvbook.exercises.prefixes import check_cascade

f32 = np.float32


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet" and message in report.finding, report


# cascade: what is counted -------------------------------------------------------------------------


def part(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / f32(math.sqrt(q.shape[-1]))
    top = s.max(axis=1, keepdims=True)
    p = np.exp(s - top)
    return p @ v / p.sum(axis=1, keepdims=True), (top + np.log(p.sum(axis=1, keepdims=True)))[:, 0]


def merged(q: Any, o: Any, lse: Any, own: Any) -> Any:
    rows = [part(q[i : i + 1], *pair) for i, pair in enumerate(own)]
    return kvlib.merge_state(o, lse, *(np.concatenate(x) for x in zip(*rows)))[0]


def softmax(s: Any) -> Any:
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def joined_for_each(q: Any, k: Any, v: Any, own: Any) -> Any:
    rows = enumerate(own)
    return np.concatenate([part(q[i : i + 1], *(np.concatenate(x) for x in zip((k, v), pair)))[0]
                           for i, pair in rows])  # fmt: skip


def into_a_buffer(q: Any, k: Any, v: Any, own: Any) -> Any:
    rows = []
    for x, (k_own, v_own) in zip(q, own, strict=True):
        both = np.empty((2, len(k) + len(k_own), k.shape[1]), f32)
        both[0, : len(k)], both[0, len(k) :] = k, k_own
        both[1, : len(v)], both[1, len(v) :] = v, v_own
        rows.append(part(x[None], *both)[0])
    return np.concatenate(rows)


def by_dot(q: Any, k: Any, v: Any, own: Any) -> Any:
    rows = []
    for x, (k_own, v_own) in zip(q, own, strict=True):
        p = softmax(np.r_[k, k_own].dot(x) / f32(math.sqrt(len(x))))
        rows.append(p.dot(np.vstack([v, v_own])))
    return np.stack(rows)


def shared_for_each(q: Any, k: Any, v: Any, own: Any) -> Any:
    parts = [part(q[i : i + 1], k, v) for i in range(len(q))]
    return merged(q, *(np.concatenate(x) for x in zip(*parts)), own)


def without_the_watch(q: Any, k: Any, v: Any, own: Any) -> Any:
    q, k, v = np.asarray(q), np.ascontiguousarray(k), np.array(v)
    return shared_for_each(q, k, v, own)


def broadcast(q: Any, k: Any, v: Any, own: Any) -> Any:
    s = np.matmul(q[:, None], k.T[None])[:, 0] / f32(math.sqrt(q.shape[1]))
    top = s.max(axis=1)
    p = np.exp(s - top[:, None])
    total = p.sum(axis=1)
    return merged(q, p @ v / total[:, None], top + np.log(total), own)


def repeated(q: Any, k: Any, v: Any, own: Any) -> Any:
    many = np.repeat(k[None], len(q), axis=0)
    s = np.einsum("bd,bsd->bs", q, many) / f32(math.sqrt(q.shape[1]))
    top = s.max(axis=1)
    p = np.exp(s - top[:, None])
    total = p.sum(axis=1)
    return merged(q, p @ v / total[:, None], top + np.log(total), own)


def number_by_number(q: Any, k: Any, v: Any, own: Any) -> Any:
    s = (q[:, None] * k[None]).sum(axis=-1) / f32(math.sqrt(q.shape[1]))
    top = s.max(axis=1)
    p = np.exp(s - top[:, None])
    total = p.sum(axis=1)
    return merged(q, p @ v / total[:, None], top + np.log(total), own)


def values_for_each(q: Any, k: Any, v: Any, own: Any) -> Any:
    s, rows = q @ k.T, []
    for x, shared, (k_own, v_own) in zip(q, s, own, strict=True):
        p = softmax(np.concatenate([shared, k_own @ x]) / f32(math.sqrt(len(x))))
        rows.append(p @ np.concatenate([v, v_own]))
    return np.array(rows)


def kvlib_for_each(q: Any, k: Any, v: Any, own: Any) -> Any:
    rows = []
    for x, pair in zip(q, own, strict=True):
        k_all, v_all = (np.concatenate(both)[:, None] for both in zip((k, v), pair))
        at = np.arange(len(k_all))
        rows.append(kvlib.attend(x[None, None], k_all, v_all, at[-1:], at)[:, 0])
    return np.concatenate(rows)


def on_lists(q: Any, k: Any, v: Any, own: Any) -> Any:
    rows = []
    for x, (k_own, v_own) in zip(q.tolist(), own, strict=True):
        keys, values = k.tolist() + k_own.tolist(), v.tolist() + v_own.tolist()
        s = [sum(a * b for a, b in zip(x, key)) / math.sqrt(len(x)) for key in keys]
        p = softmax(np.array(s)).tolist()
        rows.append([sum(w * y[d] for w, y in zip(p, values)) for d in range(len(x))])
    return np.array(rows, f32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (joined_for_each, "k was read 24 times"),
        (into_a_buffer, "k was read 12 times"),
        (by_dot, "k was read 24 times"),
        (shared_for_each, "k was read 12 times"),
        (without_the_watch, "k was read 12 times"),
        (broadcast, "k was read 12 times"),
        (repeated, "k was read 24 times"),
        (number_by_number, "k was read 12 times"),
        (values_for_each, "v was read 24 times"),
        (kvlib_for_each, "k was read 24 times"),
        (on_lists, "no product read the whole of k"),
    ],
)
def test_cascades_that_read_too_often(wrong: Callable[..., Any], message: str) -> None:
    refused(check_cascade(wrong), message)


def one_product(q: Any, k: Any, v: Any, own: Any) -> Any:
    return merged(q, *part(q, k, v), own)


def in_tiles(q: Any, k: Any, v: Any, own: Any) -> Any:
    o, lse = np.zeros_like(q), np.full(len(q), -np.inf, f32)
    for a in range(0, len(k), 4):
        o, lse = kvlib.merge_state(o, lse, *part(q, k[a : a + 4], v[a : a + 4]))
    return merged(q, o, lse, own)


def scaled_and_cast(q: Any, k: Any, v: Any, own: Any) -> Any:
    turned = np.ascontiguousarray((np.asarray(k, np.float64) / math.sqrt(q.shape[1])).T)
    s = np.empty((len(q), len(k)))
    np.matmul(q, turned, out=s)
    s -= (top := s.max(axis=1, keepdims=True))
    total = np.sum(p := np.exp(s), axis=1, keepdims=True)
    o = np.dot(p, v) / total
    return merged(q, o.astype(f32), (top + np.log(total))[:, 0].astype(f32), own).astype(f32)


def by_tensordot(q: Any, k: Any, v: Any, own: Any) -> Any:
    s = np.tensordot(q, k, axes=(1, 1)) / f32(math.sqrt(q.shape[1]))
    top = np.amax(s, axis=1)
    p = np.exp(s - top[:, None])
    o = np.einsum("bs,sd->bd", p, v) / p.sum(axis=1)[:, None]
    return merged(q, o, top + np.log(p.sum(axis=1)), own)


def everything_under_a_mask(q: Any, k: Any, v: Any, own: Any) -> Any:
    keys, values = (np.concatenate([x, *y]) for x, y in zip((k, v), zip(*own)))
    owner = np.repeat(np.arange(-1, len(q)), [len(k), *(len(pair[0]) for pair in own)])
    seen = (owner == -1) | (owner == np.arange(len(q))[:, None])
    return softmax(np.where(seen, q @ keys.T / f32(math.sqrt(q.shape[1])), -np.inf)) @ values


@pytest.mark.parametrize(
    "right", [one_product, in_tiles, scaled_and_cast, by_tensordot, everything_under_a_mask]
)
def test_cascades_of_other_forms(right: Callable[..., Any]) -> None:
    report = check_cascade(right)
    assert report.passed and "read once for all requests" in report.proved[-1], report


def one_top(q: Any, k: Any, v: Any, own: Any) -> Any:
    s = q @ k.T / f32(math.sqrt(q.shape[1]))
    p = np.exp(s - s.max())
    total = p.sum(axis=1)
    return merged(q, p @ v / total[:, None], s.max() + np.log(total), own)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (one_top, "each request's own largest score"),
        (lambda q, k, v, own: own.clear() or q, "argument 4 of <lambda> was changed"),
        (lambda q, k, v, own: own[0][0].fill(0) or q, "argument 4 of <lambda> was changed"),
        (lambda q, *a: np.full(q.shape, None), "dtype object, needed one of numbers"),
        (lambda q, *a: np.full(q.shape, "x"), "dtype <U1, needed one of numbers"),
    ],
)
def test_cascades_that_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_cascade(wrong), message)


def test_what_cannot_work_with_watched_arrays_is_not_refused_for_it() -> None:
    def plain_only(q: Any, k: Any, v: Any, own: Any) -> Any:
        if isinstance(q, Watched):
            raise TypeError("only arrays")
        return one_product(q, k, v, own)

    report = check_cascade(plain_only)
    assert report.passed and "counter" not in report.proved[-1], report


# The counters -------------------------------------------------------------------------------------


def reads() -> tuple[Reads, Any, Any]:
    found = Reads({"k": 30, "v": 30}, width=5)
    return found, found.watch(np.ones((4, 5), f32)), found.watch(np.ones((6, 5), f32), "k")


@pytest.mark.parametrize(
    ("use", "times"),
    [
        (lambda q, k: q @ k.T, 1),
        (lambda q, k: np.einsum("bd,sd->bs", q, k), 1),
        (lambda q, k: [x @ k.T for x in q], 4),
        (lambda q, k: [q @ row for row in k], 1),
        (lambda q, k: q @ k[:3].T, 0.5),
        (lambda q, k: q[:, None] @ k.T, 4),
        (lambda q, k: k.sum() + k.shape[0], 0),
        (lambda q, k: q @ np.concatenate([k, k]).T, 4),
        (lambda q, k: np.split(k, 2)[0] @ q[0], 0.5),
        (lambda q, k: q @ k.copy().T, 1),
    ],
)
def test_readings_are_counted(use: Callable[..., Any], times: float) -> None:
    found, q, k = reads()
    use(q, k)
    assert found.times("k") == times and found.times("v") == 0


def test_numpy_is_as_it_was_afterwards() -> None:
    before = np.asarray, np.array, np.ascontiguousarray
    found, q, k = reads()
    with kept_watched():
        assert type(np.asarray(k)) is Watched and np.asarray([1]).tolist() == [1]
        q @ np.array(k, dtype=np.float64).T
    assert (np.asarray, np.array, np.ascontiguousarray) == before
    assert found.times("k") == 1


def test_results_are_those_of_plain_arrays() -> None:
    found, q, k = reads()
    s = q @ k.T
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    assert isinstance(s, Watched) and np.array_equal(np.asarray(s), np.ones((4, 6)))
    assert float(s[0, 0]) == 1.0 and (s == 1).all()


def test_steps_of_python_grow_with_a_loop_alone() -> None:
    def loop(x: Any) -> int:
        total = 0
        for y in x:
            total += y
        return total

    x = np.arange(1000)
    assert python_steps(lambda x: (x * 2).sum(), x)[1] < 10
    for slow in (
        loop,
        lambda x: sum(y * 2 for y in x),
        lambda x: [y * 2 for y in x],
        lambda x: np.vectorize(lambda y: y * 2)(x),
    ):
        assert python_steps(slow, x)[1] > 1000
