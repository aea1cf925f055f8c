"""Known wrong answers on latent attention: each refused in fitting words.

Those on states that can go back are in test_latent_refused.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.latent import check_absorbed, check_multiplications
from kvbook.exercises.latent_count import SMALL
from kvbook.exercises.latent_count_wrong import counted

f32 = np.float32
Wrong = dict[str, tuple[Callable[..., Any], str]]


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding
    assert "mistake of the checker" not in report.finding, report.finding


# ---------------------------------------------------------------------------------- multiplications


def multiplications(T: int, S: int, H: int, C: int, N: int, R: int, V: int) -> Any:
    expanded = S * C * H * (N + V) + T * S * H * (N + R + V)
    absorbed = T * H * N * C + T * S * H * (C + R) + T * S * H * C + T * H * C * V
    return expanded, absorbed


def test_multiplications() -> None:
    report = check_multiplications(multiplications)
    assert report.passed, report
    assert "68,887 million" in report.proved[1] and "587 million" in report.proved[1]


def test_it_counts_what_products_of_matrices_take() -> None:
    T, S, H, C, N, R, V = SMALL
    found = [0, 0]

    def product(form: int, rows: int, inner: int, columns: int) -> None:
        found[form] += rows * inner * columns

    for _ in range(H):
        for rows in (N, V):
            product(0, S, C, rows)  # the keys of a head, and its values
        product(0, T, N, S)
        product(0, T, R, S)
        product(0, T, S, V)
        product(1, T, N, C)
        product(1, T, C, S)
        product(1, T, R, S)
        product(1, T, S, C)
        product(1, T, C, V)
    assert tuple(found) == counted(SMALL)


def first(change: Callable[..., Any]) -> Callable[..., Any]:
    """An answer with another first number, `change(T, S, H, C, N, R, V, right)`."""
    return lambda *z: (change(*z, multiplications(*z)[0]), multiplications(*z)[1])


def second(change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *z: (multiplications(*z)[0], change(*z, multiplications(*z)[1]))


def pairwise(T: int, S: int, H: int, C: int, N: int, R: int, V: int) -> Any:
    seen = T * S - T * (T - 1) // 2
    made, turned = S * C * H * (N + V), T * C * H * (N + V)
    return made + seen * H * (N + R + V), turned + seen * H * (2 * C + R)


WRONG_COUNTS: Wrong = {
    "swapped": (lambda *z: multiplications(*z)[::-1], "swapped"),
    "operations": (lambda *z: tuple(2 * n for n in multiplications(*z)), "only multiplications"),
    "one head": (lambda *z: tuple(n // z[2] for n in multiplications(*z)), "those of one head"),
    "masked": (pairwise, "count all T x S pairs"),
    "no scores": (
        lambda T, S, H, C, N, R, V: (
            S * C * H * (N + V) + T * S * H * V,
            T * H * C * (N + V) + T * S * H * C,
        ),
        "the scores are missing in both",
    ),
    "no rotated part": (
        lambda T, S, H, C, N, R, V: (
            S * C * H * (N + V) + T * S * H * (N + V),
            T * H * C * (N + V) + T * S * H * 2 * C,
        ),
        "the rotated parts are missing in both",
    ),
    "new tokens alone": (
        first(lambda T, S, H, C, N, R, V, x: x - (S - T) * H * C * (N + V)),
        "the T new tokens alone",
    ),
    "no keys made": (first(lambda T, S, H, C, N, R, V, x: x - S * H * C * N), "not the keys"),
    "no values made": (first(lambda T, S, H, C, N, R, V, x: x - S * H * C * V), "not the values"),
    "nothing made": (
        first(lambda T, S, H, C, N, R, V, x: x - S * H * C * (N + V)),
        "for granted",
    ),
    "made alone": (
        first(lambda T, S, H, C, N, R, V, x: S * H * C * (N + V)),
        "does not attend to them",
    ),
    "expanded without R": (first(lambda T, S, H, C, N, R, V, x: x - T * S * H * R), "N + R"),
    "no sum of values": (first(lambda T, S, H, C, N, R, V, x: x - T * S * H * V), "weighted sum"),
    "expanded without scores": (
        first(lambda T, S, H, C, N, R, V, x: x - T * S * H * (N + R)),
        "the scores are missing",
    ),
    "rotated part made": (
        first(lambda T, S, H, C, N, R, V, x: x + S * H * C * R),
        "need not be made",
    ),
    "keys of one head": (
        first(lambda T, S, H, C, N, R, V, x: x - (H - 1) * S * C * (N + V)),
        "a W_UK and a W_UV of its own",
    ),
    "scores of one head": (
        first(lambda T, S, H, C, N, R, V, x: x - (H - 1) * T * S * (N + R + V)),
        "this counts one head",
    ),
    "made for each query": (
        first(lambda T, S, H, C, N, R, V, x: x + (T - 1) * S * H * C * (N + V)),
        "once is enough",
    ),
    "one query": (
        first(lambda T, S, H, C, N, R, V, x: x - (T - 1) * S * H * (N + R + V)),
        "there are T",
    ),
    "operations in the first": (first(lambda *z: 2 * z[-1]), "twice too much"),
    "first of one head": (first(lambda *z: z[-1] // z[2]), "the work of one head"),
    "made without C": (
        first(lambda T, S, H, C, N, R, V, x: x - S * H * (C - 1) * (N + V)),
        "a sum of C products",
    ),
    "no W_UK": (second(lambda T, S, H, C, N, R, V, x: x - T * H * N * C), "with W_UK is missing"),
    "no W_UV": (second(lambda T, S, H, C, N, R, V, x: x - T * H * C * V), "with W_UV is missing"),
    "no matrices": (
        second(lambda T, S, H, C, N, R, V, x: x - T * H * C * (N + V)),
        "W_UK and W_UV are missing",
    ),
    "absorbed without R": (second(lambda T, S, H, C, N, R, V, x: x - T * S * H * R), "q_pe"),
    "no sum of latents": (second(lambda T, S, H, C, N, R, V, x: x - T * S * H * C), "is missing"),
    "absorbed without scores": (
        second(lambda T, S, H, C, N, R, V, x: x - T * S * H * (C + R)),
        "the scores are missing",
    ),
    "k_pe as value": (second(lambda T, S, H, C, N, R, V, x: x + T * S * H * R), "the key alone"),
    "W_UK for all tokens": (
        second(lambda T, S, H, C, N, R, V, x: x + (S - T) * H * N * C),
        "W_UK is multiplied with the S cached",
    ),
    "W_UV for all tokens": (
        second(lambda T, S, H, C, N, R, V, x: x + (S - T) * H * V * C),
        "W_UV is multiplied with the S cached",
    ),
    "both for all tokens": (
        second(lambda T, S, H, C, N, R, V, x: x + (S - T) * H * (N + V) * C),
        "W_UK and W_UV are multiplied with the S cached",
    ),
    "both for each pair": (
        second(lambda T, S, H, C, N, R, V, x: x + (T * S - T) * H * (N + V) * C),
        "once per query is enough",
    ),
    "W_UK times q_pe": (second(lambda T, S, H, C, N, R, V, x: x + T * H * R * C), "as it is"),
    "one query for all heads": (
        second(lambda T, S, H, C, N, R, V, x: x - (H - 1) * T * S * (2 * C + R)),
        "a query of its own",
    ),
    "matrices of one head": (
        second(lambda T, S, H, C, N, R, V, x: x - (H - 1) * T * C * (N + V)),
        "this counts those of one head",
    ),
    "matrices for one query": (
        second(lambda T, S, H, C, N, R, V, x: x - (T - 1) * H * C * (N + V)),
        "for one query; there are T",
    ),
    "scores of one query": (
        second(lambda T, S, H, C, N, R, V, x: x - (T - 1) * S * H * (2 * C + R)),
        "sums of one query; there are T",
    ),
    "heads of size N + R": (
        second(lambda T, S, H, C, N, R, V, x: x - T * S * H * (2 * C - N - V)),
        "the latent vectors have C",
    ),
    "sum of V numbers": (second(lambda T, S, H, C, N, R, V, x: x - T * S * H * (C - V)), "not V"),
    "operations in the second": (second(lambda *z: 2 * z[-1]), "twice too much"),
    "second of one head": (second(lambda *z: z[-1] // z[2]), "the work of one head"),
    "off by one": (second(lambda *z: z[-1] + 1), "T = 2, S = 11, H = 3, C = 23, N = 7, R = 5"),
    "S + T tokens": (
        lambda T, S, *z: multiplications(T, S + T, *z),
        "S counts the new tokens already",
    ),
    "one number": (lambda *z: sum(multiplications(*z)), "needed two numbers"),
    "three numbers": (lambda *z: (*multiplications(*z), 0), "tuple of 3, needed two numbers"),
    "texts": (lambda *z: tuple(map(str, multiplications(*z))), "expected one number, got str"),
    "a half": (lambda *z: tuple(n + 0.5 for n in multiplications(*z)), "a whole number"),
    "for one new token": (
        lambda T, *z: multiplications(1, *z) if T > 3 else multiplications(T, *z),
        "there are T",
    ),
}


@pytest.mark.parametrize("name", WRONG_COUNTS)
def test_wrong_counts(name: str) -> None:
    wrong, message = WRONG_COUNTS[name]
    refused(check_multiplications(wrong), message)


@pytest.mark.parametrize("kind", [float, np.int64, np.float64, np.array])
def test_counts_of_other_types(kind: Any) -> None:
    assert check_multiplications(lambda *z: [kind(n) for n in multiplications(*z)])


# ------------------------------------------------------------------------------- absorbed attention


def softmax(s: Any, axis: Any = -1) -> Any:
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def causal(t: int, s: int) -> Any:
    return np.arange(s) <= np.arange(s - t, s)[:, None]


def answer(
    scale: Callable[..., float] = lambda n, r, c: (n + r) ** -0.5,
    score: Callable[..., Any] = lambda nope, rope, scale: (nope + rope) * f32(scale),
    mask: Callable[..., Any] = causal,
    weigh: Callable[..., Any] = softmax,
    key_up: Callable[..., Any] = lambda w: w,
    value_up: Callable[..., Any] = lambda w: w,
) -> Callable[..., Any]:
    """The right answer, with some of its parts exchanged."""

    def absorbed(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
        q_c = np.einsum("thn,hnc->thc", q, key_up(W_UK))
        factor = scale(q.shape[2], q_pe.shape[2], c.shape[1])
        s = score(q_c @ c.T, q_pe @ k_pe.T, factor)
        p = weigh(np.where(mask(len(q), len(c))[:, None], s, f32(-np.inf)))
        return np.einsum("thc,hvc->thv", p @ c, value_up(W_UV)).astype(f32)

    return absorbed


absorbed = answer()


def by_loops(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """The same with loops over queries and heads, in float64."""
    (T, H, N), (S, R) = q.shape, k_pe.shape
    o = np.zeros((T, H, W_UV.shape[1]), f32)
    for t in range(T):
        n = S - T + t + 1
        for h in range(H):
            a = q[t, h].astype(float) @ W_UK[h]
            s = (c[:n] @ a + k_pe[:n] @ q_pe[t, h]) / np.sqrt(N + R)
            o[t, h] = W_UV[h] @ (softmax(s) @ c[:n])
    return o


def joined(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """One key of C + R numbers per token, as kernels have it, and heads first."""
    scale = f32(np.sqrt(q.shape[2] + q_pe.shape[2]))
    both = np.concatenate([q.swapaxes(0, 1) @ W_UK, q_pe.swapaxes(0, 1)], axis=2) / scale
    s = both @ np.concatenate([c, k_pe], axis=1).T  # (H, T, S)
    s += np.where(causal(len(q), len(c)), f32(0), f32(-np.inf))
    return ((softmax(s) @ c) @ W_UV.mT).swapaxes(0, 1)


def by_path(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """einsum over three arrays, which chooses the order by the number of products."""
    s = np.einsum("thn,hnc,sc->ths", q, W_UK, c, optimize=["einsum_path", (0, 1), (0, 1)])
    s = (s + np.einsum("thr,sr->ths", q_pe, k_pe)) / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = softmax(np.where(causal(len(q), len(c))[:, None], s, f32(-np.inf)))
    return np.einsum("ths,sc,hvc->thv", p, c, W_UV, optimize=["einsum_path", (0, 1), (0, 1)])


@pytest.mark.parametrize("right", [absorbed, by_loops, joined, by_path])
def test_absorbed(right: Callable[..., Any]) -> None:
    report = check_absorbed(right)
    assert report.passed, report


def expanding(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    keys, values = np.einsum("hnc,sc->shn", W_UK, c), np.einsum("hvc,sc->shv", W_UV, c)
    s = np.einsum("thn,shn->ths", q, keys) + np.einsum("thr,sr->ths", q_pe, k_pe)
    s = s / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = softmax(np.where(causal(len(q), len(c))[:, None], s, f32(-np.inf)))
    return np.einsum("ths,shv->thv", p, values)


def head_by_head(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    heads = [
        expanding(q[:, [h]], q_pe[:, [h]], c, k_pe, W_UK[[h]], W_UV[[h]]) for h in range(q.shape[1])
    ]
    return np.concatenate(heads, axis=1)


def in_float64(attend: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *task: attend(*(x.astype(float) for x in task)).astype(f32)


def values_expanded(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    s = np.einsum("thn,hnc->thc", q, W_UK) @ c.T + q_pe @ k_pe.T
    s = s / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = softmax(np.where(causal(len(q), len(c))[:, None], s, f32(-np.inf)))
    return np.stack([p[:, h] @ (c @ W_UV[h].T) for h in range(len(W_UV))], axis=1)


def token_by_token(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    nope = [np.einsum("thn,hn->th", q, W_UK @ x) for x in c]
    s = np.stack(nope, axis=2) + q_pe @ k_pe.T
    s = s / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = softmax(np.where(causal(len(q), len(c))[:, None], s, f32(-np.inf)))
    return np.einsum("thc,hvc->thv", p @ c, W_UV)


def three_at_once(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    s = np.einsum("thn,hnc,sc->ths", q, W_UK, c) + q_pe @ k_pe.T
    s = s / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = softmax(np.where(causal(len(q), len(c))[:, None], s, f32(-np.inf)))
    return np.einsum("ths,sc,hvc->thv", p, c, W_UV)


def square_mask(*task: Any) -> Any:
    def mask(t: int, s: int) -> Any:
        return np.tril(np.ones((s, s)))[s - t :] > 0

    return answer(mask=mask)(*task)


def changes_the_query(q: Any, *task: Any) -> Any:
    q *= 1
    q[0, 0, 0] += 1
    return absorbed(q, *task)


def no_sum(s: Any) -> Any:
    return np.exp(s - s.max(-1, keepdims=True))


def twice(s: Any) -> Any:
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) ** 2


def visible_again(p: Any, s: Any) -> Any:
    return softmax(np.where(np.isfinite(s), p, f32(-np.inf)))


def of_all(s: Any) -> Any:
    """The largest score of all queries and heads is subtracted."""
    p = np.exp(s - s.max())
    return p / p.sum(-1, keepdims=True)


def of_all_heads(s: Any) -> Any:
    p = np.exp(s - s.max(axis=(1, 2), keepdims=True))
    return p / p.sum(-1, keepdims=True)


def mask_late(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """The largest score is taken before the mask."""
    s = np.einsum("thn,hnc->thc", q, W_UK) @ c.T + q_pe @ k_pe.T
    s = s / np.sqrt(f32(q.shape[2] + q_pe.shape[2]))
    p = np.exp(s - s.max(-1, keepdims=True)) * causal(len(q), len(c))[:, None]
    return np.einsum("thc,hvc->thv", p / p.sum(-1, keepdims=True) @ c, W_UV)


def zeros_for_hidden(s: Any) -> Any:
    return softmax(np.where(np.isfinite(s), s, f32(0)))


def scaled(part: str) -> Callable[..., Any]:
    if part == "nope":
        return answer(score=lambda nope, rope, scale: nope * f32(scale) + rope)
    return answer(score=lambda nope, rope, scale: nope + rope * f32(scale))


def swapped_matrices(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    square = W_UK.shape == W_UV.shape
    return absorbed(q, q_pe, c, k_pe, *((W_UV, W_UK) if square else (W_UK, W_UV)))


def where_square(change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda w: change(w) if w.shape[1] == w.shape[2] else w


def without_value_up(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    identity = np.tile(np.eye(c.shape[1], dtype=f32), (len(W_UV), 1, 1))
    return absorbed(q, q_pe, c, k_pe, W_UK, identity)


def without_where_square(*task: Any) -> Any:
    square = task[-1].shape[1] == task[-1].shape[2]
    return (without_value_up if square else absorbed)(*task)


WRONG_ATTENTION: Wrong = {
    "sqrt(N)": (answer(lambda n, r, c: n**-0.5), "divided by sqrt(N), needed sqrt(N + R)"),
    "sqrt(R)": (answer(lambda n, r, c: r**-0.5), "divided by sqrt(R), needed"),
    "sqrt(C)": (answer(lambda n, r, c: c**-0.5), "divided by sqrt(C), needed"),
    "sqrt(C + R)": (answer(lambda n, r, c: (c + r) ** -0.5), "divided by sqrt(C + R), needed"),
    "N + R": (answer(lambda n, r, c: 1 / (n + r)), "not by its square root"),
    "no scale": (answer(lambda n, r, c: 1.0), "not divided by sqrt(N + R)"),
    "scale of one part": (scaled("nope"), "q_pe · k_pe is not divided"),
    "scale of the other": (scaled("rope"), "only q_pe · k_pe is divided"),
    "no rotated part": (answer(score=lambda a, b, x: a * f32(x)), "do not depend on the positions"),
    "rotated part alone": (answer(score=lambda a, b, x: b * f32(x)), "q_pe · k_pe alone"),
    "parts subtracted": (answer(score=lambda a, b, x: (a - b) * f32(x)), "is subtracted"),
    "parts multiplied": (answer(score=lambda a, b, x: a * b * f32(x * x)), "both parts add up"),
    "no mask": (answer(mask=lambda t, s: np.ones((t, s), bool)), "there is no mask"),
    "corner": (answer(mask=lambda t, s: np.tri(t, s, dtype=bool)), "in the top left corner"),
    "not itself": (
        answer(mask=lambda t, s: np.arange(s) < np.arange(s - t, s)[:, None]),
        "does not see its own token",
    ),
    "one too many": (
        answer(mask=lambda t, s: np.arange(s) <= np.arange(s - t, s)[:, None] + 1),
        "one token too many",
    ),
    "upside down": (
        answer(mask=lambda t, s: (np.arange(s) >= np.arange(s - t, s)[:, None]) | (t == 1)),
        "upside down",
    ),
    "new tokens alone": (
        answer(mask=lambda t, s: causal(t, s) & (np.arange(s) >= s - t)),
        "only the newest T tokens",
    ),
    "hidden are 0": (answer(weigh=zeros_for_hidden), "e^0 is 1"),
    "over queries": (answer(weigh=lambda s: softmax(s, 0)), "runs over the queries"),
    "over heads": (answer(weigh=lambda s: softmax(s, 1)), "runs over the heads"),
    "over heads and tokens": (answer(weigh=lambda s: softmax(s, (1, 2))), "heads and tokens"),
    "softmax twice": (answer(weigh=lambda s: visible_again(softmax(s), s)), "taken twice"),
    "not normalised": (answer(weigh=no_sum), "do not add up to 1"),
    "normalised twice": (answer(weigh=twice), "the sum of the weights twice"),
    "raw scores": (answer(weigh=lambda s: np.where(np.isfinite(s), s, f32(0))), "take their soft"),
    "W_UK of head 0": (answer(key_up=lambda w: w[[0] * len(w)]), "all heads use W_UK of head 0"),
    "W_UV of head 0": (answer(value_up=lambda w: w[[0] * len(w)]), "all heads use W_UV of head 0"),
    "W_UK of the next": (answer(key_up=lambda w: np.roll(w, -1, 0)), "W_UK is that of the next"),
    "W_UV of the one before": (
        answer(value_up=lambda w: np.roll(w, 1, 0)),
        "W_UV is that of the head before",
    ),
    "reversed": (answer(value_up=lambda w: w[::-1]), "in reverse order"),
    "summed": (
        answer(key_up=lambda w: np.repeat(w.sum(0, keepdims=True), len(w), 0)),
        "the sum of W_UK",
    ),
    "W_UK transposed": (
        answer(key_up=where_square(lambda w: w.swapaxes(1, 2))),
        "W_UK is transposed",
    ),
    "W_UV transposed": (
        answer(value_up=where_square(lambda w: w.swapaxes(1, 2))),
        "W_UV is transposed",
    ),
    "matrices swapped": (swapped_matrices, "W_UK and W_UV are swapped"),
    "no W_UK where it is square": (
        answer(
            key_up=where_square(lambda w: np.tile(np.eye(len(w[0]), dtype=f32), (len(w), 1, 1)))
        ),
        "W_UK is missing",
    ),
    "no W_UV": (without_value_up, "these are weighted sums of latent vectors. W_UV"),
    "no W_UV where it is square": (without_where_square, "W_UV is missing"),
    "no largest": (
        answer(weigh=lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True)),
        "e^score overflows",
    ),
    "largest of all heads": (answer(weigh=of_all_heads), "not that of all heads"),
    "largest of all": (answer(weigh=of_all), "not that of all heads"),
    "largest before the mask": (mask_late, "after the mask"),
    "expanded": (expanding, "a key or a value was expanded"),
    "head by head": (head_by_head, "a key or a value was expanded"),
    "token by token": (token_by_token, "a key or a value was expanded"),
    "values expanded": (values_expanded, "a key or a value was expanded"),
    "three at once": (three_at_once, "a key or a value was expanded"),
    "expanded in float64": (in_float64(expanding), "make keys or values of no head"),
    "head by head in float64": (in_float64(head_by_head), "make keys or values of no head"),
    "values in float64": (in_float64(values_expanded), "make keys or values of no head"),
    "a square mask": (square_mask, "A mask of S x S pairs"),
    "float64": (lambda *task: absorbed(*task).astype(float), "twice the bytes"),
    "float16": (lambda *task: absorbed(*task).astype(np.float16).astype(f32), "one query and 6"),
    "list": (lambda *task: absorbed(*task).tolist(), "float64, needed float32"),
    "heads first": (lambda *task: absorbed(*task).swapaxes(0, 1), "in another order"),
    "flat": (lambda *task: absorbed(*task).reshape(len(task[0]), -1), "(T, H, V)"),
    "a query changed": (changes_the_query, "argument 1 of changes_the_query was changed"),
    "one query alone": (
        lambda *task: absorbed(*task)[: 1 if len(task[0]) < 5 else 5] * (len(task[0]) != 4),
        "4 queries",
    ),
}


@pytest.mark.parametrize("name", WRONG_ATTENTION)
def test_wrong_attention(name: str) -> None:
    wrong, message = WRONG_ATTENTION[name]
    refused(check_absorbed(wrong), message)


def test_an_expanding_answer_is_right_until_it_is_measured() -> None:
    for right_so_far in (expanding, values_expanded, in_float64(head_by_head)):
        assert len(check_absorbed(right_so_far).proved) == 4


# ---------------------------------------------------------------------------------- not written yet


@pytest.mark.parametrize("check", [check_multiplications, check_absorbed])
def test_nothing_written_yet(check: Any) -> None:
    assert check(lambda *a: None).status == "not done yet"
