"""What the counters of `cascade` see."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvlib
from kvbook.exercises.counted import Reads, Watched, kept_watched, python_steps
from kvbook.exercises.prefixes import check_cascade

f32 = np.float32


def through(scores: Any, values: Any) -> Any:
    """A cascade whose shared part takes these products."""

    def cascade(q: Any, k: Any, v: Any, own: Any) -> Any:
        s = scores(q, k) / f32(q.shape[1] ** 0.5)
        top = s.max(axis=1)
        p = np.exp(s - top[:, None])
        pair, rows = (values(p, v) / p.sum(axis=1)[:, None], top + np.log(p.sum(axis=1))), []
        for x, (k_own, v_own) in zip(np.array(q), own, strict=True):
            at = np.arange(len(k_own))
            kv = k_own[:, None], v_own[:, None]
            rows.append(kvlib.attend(x[None, None], *kv, at[-1:], at, return_lse=True))
        o, lse = (np.concatenate(x)[:, 0] for x in zip(*rows, strict=True))
        return kvlib.merge_state(*(x.astype(f32) for x in pair), o, lse)[0]

    return cascade


def product(p: Any, v: Any) -> Any:
    return p @ v


def cast(q: Any, k: Any) -> Any:
    s = np.empty((len(q), len(k)))
    np.matmul(q, np.ascontiguousarray(np.asarray(k, np.float64).T), out=s)
    return s


def buffered(q: Any, k: Any) -> Any:
    both = np.empty((len(q), len(k) + 1, k.shape[1]), f32)
    for row in both:
        row[:-1] = k
    return np.stack([row[:-1] @ x for row, x in zip(both, q, strict=True)])


RIGHT = [
    (cast, np.dot),
    (lambda q, k: np.tensordot(q, k, axes=(1, 1)), lambda p, v: np.einsum("bs,sd->bd", p, v)),
    (lambda q, k: np.concatenate([q @ k[a : a + 4].T for a in range(0, len(k), 4)], 1), product),
]
OFTEN = [
    buffered,
    lambda q, k: np.matmul(q[:, None], k.T[None])[:, 0],
    lambda q, k: np.einsum("bd,bsd->bs", q, np.repeat(k[None], len(q), axis=0)),
    lambda q, k: (q[:, None] * k[None]).sum(axis=-1),
    lambda q, k: np.stack([np.r_[k, k[:1]].dot(x)[:-1] for x in q]),
    lambda q, k: np.stack([np.ascontiguousarray(k) @ x for x in np.asarray(q)]),
]


@pytest.mark.parametrize("scores, values", RIGHT)
def test_cascades_of_other_forms(scores: Any, values: Any) -> None:
    report = check_cascade(through(scores, values))
    assert report.passed and "read once" in report.proved[-1], report


@pytest.mark.parametrize("scores", OFTEN)
def test_cascades_that_read_too_often(scores: Any) -> None:
    assert "k was read " in check_cascade(through(scores, product)).finding


def test_what_cannot_work_with_watched_arrays_is_not_refused_for_it() -> None:
    def plain_only(q: Any, *rest: Any) -> Any:
        if isinstance(q, Watched):
            raise TypeError("only arrays")
        return through(cast, product)(q, *rest)

    report = check_cascade(plain_only)
    assert report.passed and "counter" not in report.proved[-1], report


def reads() -> tuple[Reads, Any, Any]:
    found = Reads({"k": 30, "v": 30}, width=5)
    return found, found.watch(np.ones((4, 5), f32)), found.watch(np.ones((6, 5), f32), "k")


@pytest.mark.parametrize(("use", "times"), [
    (lambda q, k: q @ k.T, 1), (lambda q, k: np.einsum("bd,sd->bs", q, k), 1),
    (lambda q, k: [x @ k.T for x in q], 4), (lambda q, k: [q @ row for row in k], 1),
    (lambda q, k: q @ k[:3].T, 0.5), (lambda q, k: q[:, None] @ k.T, 4),
    (lambda q, k: k.sum() + k.shape[0], 0), (lambda q, k: q @ np.concatenate([k, k]).T, 4),
    (lambda q, k: np.split(k, 2)[0] @ q[0], 0.5), (lambda q, k: q @ k.copy().T, 1),
])
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
        loop, lambda x: sum(y * 2 for y in x), lambda x: [y * 2 for y in x],
        lambda x: np.vectorize(lambda y: y * 2)(x),
    ):
        assert python_steps(slow, x)[1] > 1000
